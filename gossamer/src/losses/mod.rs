//! Losses of machines, where a program outlives some ([`Builder::survives`](crate::Builder::survives)): the callbacks
//! of the program. Those that there were: `record.rs`. This machine's part in the agreement on them: `part.rs`.

pub(crate) mod part;
pub(crate) mod record;

use std::sync::Arc;

use crate::rack::program;
use record::Callback;
pub use record::Loss;

/// Calls these callbacks for these losses, each in a fiber of its own: the panic of one stops no other.
fn call_back(callbacks: Vec<Callback>, losses: Vec<Loss>) {
    for callback in callbacks {
        let losses = losses.clone();
        drop(crate::spawn(move || losses.iter().for_each(|loss| callback(loss))));
    }
}

/// Calls `callback` on this machine for each machine that is lost while the program goes on, in a fiber of one of the
/// workers: also for those that were lost before this call. When it is called requests to that machine fail. Other
/// machines have callbacks of their own.
///
/// ```
/// gossamer::main(
///     || {
///         gossamer::on_loss(|loss| eprintln!("going on: {loss}"));
///         assert_eq!(gossamer::rack().living().count(), 2);
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Outside [`gossamer::main`](crate::main).
#[track_caller]
pub fn on_loss(callback: impl Fn(&Loss) + Send + Sync + 'static) {
    let _ = program();
    let callback: Callback = Arc::new(callback);
    let earlier = record::add(Arc::clone(&callback));
    if !earlier.is_empty() {
        call_back(vec![callback], earlier);
    }
}
