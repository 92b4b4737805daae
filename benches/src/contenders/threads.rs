//! Pinned threads that start together: the stage for every contender that does not bring its own.

use crate::machine;
use std::sync::Barrier;
use std::thread;

/// Runs `body(index, start)` on `threads` threads, pinned to cores where `pin` says so, and returns
/// their results in order. Each body waits at `start` once it is ready; then all go on together.
///
/// # Panics
/// Where a body panics, with its message.
pub fn together<R, F>(threads: usize, pin: bool, body: F) -> Vec<R>
where
    R: Send,
    F: Fn(usize, &Barrier) -> R + Sync,
{
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|index| {
                let (start, body) = (&start, &body);
                scope.spawn(move || {
                    if pin {
                        machine::pin(index);
                    }
                    body(index, start)
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
