//! `trust_launch`, `trust_spawn`: C functions that run in fibers and may wait.

use std::ffi::c_void;

use super::call::{Answer, ArgumentBlock, Arguments, Called, Waiting};
use super::types::{Block, Failure, Function, Handle, Result, Then, TrustResult, Value, null};
use super::{may_wait, with_worker};
use crate::ids::TrusteeId;
use crate::registry;
use crate::request::{ANYWHERE, Fault};
use crate::runtime::worker::Worker;
use crate::tasks::held::Held;
use crate::tasks::job::Plain;
use crate::tasks::join::{self, JoinHandle};
use crate::tasks::latch::Latch;
use crate::tasks::launch::launch as launch_job;

/// Function with its arguments, on its way to a fiber.
struct Launched {
    function: Called,
    arguments: ArgumentBlock,
}

/// Pointer that may go to another thread.
struct Sent<T>(T);
// SAFETY: a C program that sends a pointer promises that the thread it goes to may use it.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    /// A method, so that a closure captures the whole struct.
    fn get(self) -> T {
        self.0
    }
}

/// # Safety
/// Same as [`launch_then`].
unsafe fn start(
    worker: &Worker,
    handle: Handle,
    launched: Launched,
    then: impl FnOnce(std::result::Result<Sent<Block>, Fault>) + 'static,
) -> Result<()> {
    let (property, trustee) = handle.parts_of::<Latch<Value>>()?;
    let launched = Sent(launched);
    let job = Plain::<_, ANYWHERE>(move |held: &mut Held<'_, Value>| {
        let launched = launched.get();
        let mut block = Block::new();
        let (at, length) = launched.arguments.parts();
        // SAFETY: the promise that came with the function; only this call uses the block.
        unsafe {
            let mut result = TrustResult::in_block(&raw mut block);
            (launched.function)(held.data, at, length, &raw mut result);
            result.finish();
        }
        Sent(block)
    });
    launch_job::<Value, _>(worker, trustee, property, job, Box::new(then));
    Ok(())
}

/// Launches a function on a latched property and continues; `then` is called with the outcome.
///
/// # Errors
/// If the call cannot be made; then `then` is not called.
///
/// # Safety
/// Same as [`super::apply_then`].
pub unsafe fn launch_then(
    handle: Handle,
    function: Function,
    (arguments, length): (*const c_void, usize),
    then: Then,
    context: *mut c_void,
) -> Result<()> {
    let function = function.ok_or_else(|| null("the function"))?;
    let answer = Answer::new(then, context);
    // SAFETY: the caller's promise.
    let arguments = unsafe { Arguments::new(arguments, length) }?.to_block();
    with_worker(|worker| {
        // SAFETY: the caller's promise.
        unsafe {
            start(worker, handle, Launched { function, arguments }, move |outcome| match outcome {
                Ok(block) => {
                    let block = block.get();
                    let (result, length) = block.bytes();
                    answer.give(result, length);
                }
                Err(fault) => answer.fail(fault),
            })
        }
    })
}

/// Launches a function on a latched property and waits for its result.
///
/// # Errors
/// Same as [`super::apply`].
///
/// # Safety
/// Same as [`super::apply`].
pub unsafe fn launch(
    handle: Handle,
    function: Function,
    arguments: (*const c_void, usize),
    result: *mut c_void,
    length: *mut usize,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let mut waiting = unsafe { Waiting::new(result, length) }?;
    with_worker(|worker| {
        may_wait(worker)?;
        let waiting = &raw mut waiting;
        // SAFETY: the caller's promise; `waiting` stays until the outcome is there.
        unsafe {
            launch_then(handle, function, arguments, Some(Waiting::receive), waiting.cast())?;
            Waiting::wait(waiting, worker, length)
        }
    })
}

/// Starts a fiber at a trustee, from any thread.
///
/// # Errors
/// If the function is null or the trustee is gone.
///
/// # Safety
/// The function may be called with the argument on the trustee's thread.
pub unsafe fn spawn(
    trustee: u64,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
) -> Result<JoinHandle<()>> {
    let function = function.ok_or_else(|| null("the function"))?;
    let id = TrusteeId::from_bits(trustee);
    if registry::find(id).is_none() {
        return Err(Failure::from(Fault::Gone));
    }
    let argument = Sent(argument);
    // SAFETY: the caller's promise.
    Ok(join::spawn_at(id, move || unsafe { function(argument.get()) }))
}

/// Lets other fibers run; outside of fibers, serves the thread's trustee once.
///
/// # Errors
/// If the thread is not attached, or nothing may wait.
pub fn yield_now() -> Result<()> {
    with_worker(|worker| {
        may_wait(worker)?;
        let is_fiber = worker.fiber().is_some();
        if !is_fiber {
            worker.leave_outside();
        }
        join::yield_now();
        if !is_fiber {
            worker.enter_outside();
        }
        Ok(())
    })
}
