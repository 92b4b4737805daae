//! Making a task, and waiting for its outcome.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use gossamer::{Error, NoRef, Pending, link, promise};
use trust::link::promise_at;
use trust::{local_trustee, select};

use super::entry::Past;
use super::run::{Baggage, start};
use super::step::Step;
use super::task_id::TaskId;
use super::{look, whereabouts};
use crate::limit;

/// Time after which a joiner asks again where its task is, once a machine was lost: at first, and at most.
const AGAIN: Duration = Duration::from_millis(10);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// Work in steps, which may go to another machine between two of them. This is its handle: [`join`](Self::join) waits
/// for the result. Dropped, the task runs on by itself.
///
/// A task is a state and a closure that does one step on it. Make steps short, of some ten microseconds to some
/// milliseconds: between two of them the task may go elsewhere, and others of its worker have their turn. The state
/// travels as raw memory, so it holds no references or pointers ([`NoRef`]); trusts, owners of the heap and numbers
/// are in it, and the closure captures the same, if it is `Copy`.
///
/// A task begins on the machine that makes it. It goes to another one if here are more tasks than cores and a core is
/// idle there, or if it spends a fifth of its time on reads of objects of that machine. If it is slower there, it goes
/// back after a second. One whose step never ends, or waits for ever, never moves. The machines report their loads
/// every 0.1 s from the first task on, as for [`spawn`](crate::spawn).
///
/// ```
/// use gossamer_heap::{self as heap, Global, Step, Task};
///
/// struct Sum { part: Global<[f64]>, at: usize, sum: f64 }
///
/// fn gsm_main() {
///     let tasks: Vec<_> = (0..8)
///         .map(|n| {
///             let part = heap::slice(1 << 14, |i| (n * i) as f64);
///             Task::new(Sum { part, at: 0, sum: 0.0 }, |s| {
///                 let end = s.at + 4096;
///                 s.sum += s.part.read()[s.at..end].iter().sum::<f64>();
///                 s.at = end;
///                 if end < 1 << 14 { Step::Next } else { Step::Done(s.sum) }
///             })
///         })
///         .collect();
///     heap::tasks().iter().for_each(|task| println!("{task}")); // 7: machine 1, 0.3 busy, 1 move
///     let sum: f64 = tasks.into_iter().map(|task| task.join().unwrap()).sum();
///     assert_eq!(sum, 28.0 * (((1 << 14) - 1) << 13) as f64);
/// }
///
/// gossamer::main(gsm_main, 2);
/// ```
///
/// Source: DRust, section 4.2.2.
pub struct Task<R> {
    id: TaskId,
    value: Pending<R>,
    panic: Pending<String>,
}

impl<R: NoRef + Send + 'static> Task<R> {
    /// Starts a task with this state. Does not wait.
    ///
    /// Example: at the [type](Self).
    ///
    /// # Panics
    /// Outside of `gossamer::main`; if `GOSSAMER_HEAP` is no number of bytes.
    pub fn new<S, F>(state: S, step: F) -> Task<R>
    where
        S: NoRef + Send + 'static,
        F: Fn(&mut S) -> Step<R> + NoRef + Copy + Send + 'static,
    {
        limit::limit(); // its panic is the caller's
        look::begin();
        let id = TaskId::next(gossamer::rack().machine());
        // A loss does not end the wait for these: `join` finds out whether the task is lost.
        let own = local_trustee().id();
        let ((value, pending_value), (panic, pending_panic)) = (promise_at(own), promise_at(own));
        start(Baggage { state, step, value, panic, past: Past { id, moves: 0, came_from: None } });
        Task { id, value: pending_value, panic: pending_panic }
    }
}

impl<R: 'static> Task<R> {
    /// Returns its name, as in [`tasks`](crate::tasks).
    ///
    /// ```
    /// use gossamer_heap::{Step, Task};
    /// gossamer::main(|| assert_eq!(Task::new((), |_| Step::Done(())).id().to_string(), "0"), 1);
    /// ```
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Waits until the task has ended, wherever it is.
    ///
    /// ```
    /// use gossamer_heap::{Step, Task};
    /// gossamer::main(
    ///     || {
    ///         let task = Task::new(3u32, |left| match left.checked_sub(1) {
    ///             Some(less) => {
    ///                 *left = less;
    ///                 Step::Next
    ///             }
    ///             None => panic!("none is left"),
    ///         });
    ///         let panic = Task::<()>::join(task).unwrap_err();
    ///         assert_eq!(panic.downcast_ref::<String>().unwrap(), "none is left");
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Errors
    /// The text of the panic of a step, or of the state's destructor. Where the program outlives the machine where the
    /// task was, [`Error::Lost`]: it is gone with its state, and some of its steps may have run.
    ///
    /// # Panics
    /// In delegated closures, callbacks and destructors, where nothing may wait.
    pub fn join(self) -> Result<R, Box<dyn Any + Send>> {
        let mut again = Duration::ZERO;
        loop {
            // Settled by the next loss.
            let (unkept, loss) = promise::<()>();
            let time = (link::losses() > 0).then_some(again);
            select(&[&self.value, &self.panic, &loss], time);
            unkept.discard();
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            if link::losses() > 0 {
                if let Some(machine) = whereabouts::lost_with(self.id) {
                    return self.outcome().unwrap_or_else(|| Err(Box::new(Error::Lost { machine })));
                }
                // A worker that has not been told yet may send it there even now, and nobody tells of that.
                again = again.saturating_mul(2).clamp(AGAIN, AGAIN_MAX);
            }
        }
    }

    /// Returns the outcome, if it has come.
    fn outcome(&self) -> Option<Result<R, Box<dyn Any + Send>>> {
        match (self.value.try_take(), self.panic.try_take()) {
            (Some(Ok(value)), _) => Some(Ok(value)),
            (_, Some(Ok(text))) => Some(Err(Box::new(text))),
            // It was dropped: on its way to a machine that is lost, or with its thread.
            (Some(Err(error)), _) | (_, Some(Err(error))) => Some(Err(match whereabouts::lost_with(self.id) {
                Some(machine) => Box::new(Error::Lost { machine }),
                None => Box::new(format!("the task has ended without a result: {error}")),
            })),
            (None, None) => None,
        }
    }
}

impl<R> fmt::Debug for Task<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("id", &self.id).finish_non_exhaustive()
    }
}
