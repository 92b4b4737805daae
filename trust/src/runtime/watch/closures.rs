//! Delegated closures that take long: which worker of this process is in one, in which, and since when.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::time::Instant;

use crate::ids::TrusteeId;
use crate::registry;
use crate::request::Operation;
use crate::running::Look;

/// One that was running when it was looked for twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LongClosure {
    /// Whose trustee runs it.
    pub worker: TrusteeId,
    /// Its type, and that of its property.
    pub name: String,
    /// When it was seen first.
    pub since: Instant,
}

/// Looks at all workers of the process, again and again. There is to be one only: each takes notice of what another has seen.
#[derive(Debug, Default)]
pub struct LongClosures {
    since: HashMap<TrusteeId, Instant>,
}

impl LongClosures {
    /// Those that run now, and ran when this was called before.
    ///
    /// What is not seen: closures of a thread on its own trustee, those of async programs, fibers, callbacks.
    pub fn look(&mut self) -> Vec<LongClosure> {
        let now = Instant::now();
        let before = std::mem::take(&mut self.since);
        let mut long = Vec::new();
        for shared in registry::all() {
            let worker = shared.id;
            match shared.counters.running.look() {
                Look::Nothing => {}
                Look::New(_) => {
                    self.since.insert(worker, now);
                }
                Look::Still(what) => {
                    let since = *self.since.entry(worker).or_insert(before.get(&worker).copied().unwrap_or(now));
                    // SAFETY: workers put nothing else there.
                    let operation = unsafe { Operation::of_running(what) };
                    long.push(LongClosure { worker, name: (operation.name)(), since });
                }
            }
        }
        long
    }
}
