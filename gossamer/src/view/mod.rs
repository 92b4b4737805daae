//! View of a running program: data that its machines send while it is watched, and its presentation.
//!
//! - [`sample`]: data of one machine; `probe`: empty requests to its workers meanwhile
//! - `stacks`: stacks of its workers that do not answer these
//! - `answer`: takes questions (`control`, [`Look`]) and answers them, in a thread of its own that is there while
//!   questions come
//! - [`source`]: a program on any host, as its viewer sees it; [`Here`]: one that is this process; [`snapshot`]: the
//!   last sample of each machine, and alerts; [`rates`]: changes between two; [`looks`]: questions on their way to the
//!   thread that talks to the machines; [`backlog`]: waiting parts of the answers
//! - [`mod@tasks`], [`threads`]: tasks and C threads of a machine, as the crates above that have them tell
//! - [`chrome`]: a trace, as Chrome's JSON
//! - with the feature `view`: `text`, the metrics; `page`, the page; `http` and `server`, which serve both
//!
//! Invariants: without a viewer nothing is sampled, sent or woken; all is read-only but a move of a thread, for which
//! the program was started; nothing of it is on the path of a request.

pub(crate) mod answer;
pub mod backlog;
pub mod chrome;
mod here;
#[cfg(feature = "view")]
mod http;
pub mod looks;
#[cfg(feature = "view")]
mod page;
mod probe;
pub mod rates;
pub mod sample;
#[cfg(feature = "view")]
pub mod server;
pub mod snapshot;
pub mod source;
mod stacks;
pub mod tasks;
#[cfg(feature = "view")]
pub mod text;
pub mod threads;
pub(crate) mod traffic;

use std::sync::Arc;

use crate::complain::complain;
pub use crate::control::Look;
pub use here::Here;
pub use sample::{MachineSample, MovingTrustee, NamedTrust, WorkerSample};
pub use snapshot::{Snapshot, Snapshots};
pub use source::Source;
pub use stacks::Stack;

/// Variable that makes a program serve its view by itself, at this address: `GOSSAMER_VIEW=127.0.0.1:7118 ./program`.
/// Of several machines that `srun`, `mpirun` and the like have started, machine 0 serves the view of all.
pub const VARIABLE: &str = "GOSSAMER_VIEW";
/// Variable that names the file with the token for it. Without one a token is made, and only this host has access.
pub const TOKEN_FILE_VARIABLE: &str = "GOSSAMER_VIEW_TOKEN_FILE";

/// Serves the view of this program, if the environment of this process asks for it. A failure is reported, and the
/// program runs without.
pub(crate) fn serve_if_wanted(source: Arc<dyn Source>) {
    let Some(address) = std::env::var_os(VARIABLE).filter(|address| !address.is_empty()) else { return };
    if let Err(cause) = serve(&address.to_string_lossy(), source) {
        complain(format_args!("{VARIABLE}: {cause}"));
    }
}

#[cfg(feature = "view")]
fn serve(address: &str, source: Arc<dyn Source>) -> Result<(), String> {
    let file = std::env::var_os(TOKEN_FILE_VARIABLE).map(std::path::PathBuf::from);
    let access = server::Access::new(address, file.as_deref())?;
    let server = server::serve(&access, source).map_err(|error| format!("{address}: {error}"))?;
    complain(format_args!("view at {}", server.url()));
    Ok(())
}

#[cfg(not(feature = "view"))]
fn serve(_: &str, _: Arc<dyn Source>) -> Result<(), String> {
    Err("this program was built without it: gossamer-rack = { .., features = [\"view\"] } in its Cargo.toml".to_owned())
}
