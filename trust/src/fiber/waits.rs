//! Waits of code that does not know the runner of the loop.

use super::{FiberQueue, Scheduler};

/// A thread's fibers and its own code, which can wait: the worker, for the layers below it.
pub(crate) trait Waits {
    fn scheduler(&self) -> &Scheduler;

    /// Waits until `done`: a fiber suspends (the code that makes it done makes the fiber ready), the thread's own code
    /// runs the loop.
    fn wait_until(&self, done: impl Fn() -> bool);

    /// Waits until `done`. Any code that may make it done takes all fibers out of the queue.
    fn wait_in(&self, queue: &FiberQueue, done: impl Fn() -> bool) {
        match self.scheduler().current() {
            Some(fiber) => {
                while !done() {
                    queue.push(fiber);
                    self.scheduler().suspend();
                }
            }
            None => self.wait_until(done),
        }
    }
}
