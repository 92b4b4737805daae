//! Seeing into a running program: what its machines tell while somebody watches, and how that is shown.
//!
//! - [`sample`]: what a machine tells of itself; `probe`: empty requests to its workers meanwhile
//! - `answer`: takes questions (`control`, [`Look`]) and answers them, in a thread of its own that is there while somebody asks
//! - [`source`]: a program, wherever it runs, as who watches sees it; [`snapshot`]: the last of all its machines, and what is wrong there; [`rates`]: what changed
//!   between two
//! - [`chrome`]: a trace, as Chrome's JSON
//! - with the feature `view`: `text`, the metrics; `page`, the page; `http` and `server`, which serve both
//!
//! Invariants: where nobody watches nothing is sampled, sent or woken; all is read-only; nothing of it is on the path of a request.

pub(crate) mod answer;
pub mod chrome;
#[cfg(feature = "view")]
mod http;
#[cfg(feature = "view")]
mod page;
mod probe;
pub mod rates;
pub mod sample;
#[cfg(feature = "view")]
pub mod server;
pub mod snapshot;
pub mod source;
#[cfg(feature = "view")]
pub mod text;
pub(crate) mod traffic;

pub use crate::control::Look;
pub use sample::{MachineSample, WorkerSample};
pub use snapshot::{Snapshot, Snapshots};
pub use source::Source;

/// The variable that has a program serve its view by itself, at this address: `GOSSAMER_VIEW=127.0.0.1:7118 ./program`.
pub const VARIABLE: &str = "GOSSAMER_VIEW";
/// The variable that names the file with the token for it. Without one a token is made, and only this host may look.
pub const TOKEN_FILE_VARIABLE: &str = "GOSSAMER_VIEW_TOKEN_FILE";

/// Serves the view of this very process, if its environment asks for it.
pub(crate) fn serve_alone() {
    let Some(address) = std::env::var_os(VARIABLE) else { return };
    if let Err(cause) = try_serve_alone(&address.to_string_lossy()) {
        eprintln!("gossamer: {VARIABLE}: {cause}");
    }
}

#[cfg(feature = "view")]
fn try_serve_alone(address: &str) -> Result<(), String> {
    let file = std::env::var_os(TOKEN_FILE_VARIABLE).map(std::path::PathBuf::from);
    let access = server::Access::new(address, file.as_deref())?;
    let server = server::serve(&access, std::sync::Arc::new(source::Here)).map_err(|error| error.to_string())?;
    eprintln!("gossamer: view at {}", server.url());
    Ok(())
}

#[cfg(not(feature = "view"))]
fn try_serve_alone(_: &str) -> Result<(), String> {
    Err("this program was built without it: gossamer-rack = { .., features = [\"view\"] } in its Cargo.toml".to_owned())
}
