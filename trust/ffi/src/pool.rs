//! Pools of workers, and fibers on them.

use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

use trust::ffi::{self, Failure, Status, Trustee};
use trust::{JoinHandle, Threadpool};

use crate::{entry, null};

/// Worker threads with nothing else to do: each is a trustee and runs fibers.
pub struct Pool(Threadpool);

/// A fiber that can be waited for.
pub struct Fiber(JoinHandle<()>);

/// A function that runs in a fiber.
pub type Main = Option<unsafe extern "C" fn(argument: *mut c_void)>;

/// Settings of a pool. Zero stands for the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolOptions {
    /// sizeof(trust_pool_options): so that later versions can have more fields.
    size: usize,
    /// Number of workers; by default as many as there are cores.
    workers: u32,
    /// Number of them that only serve: trust_pool_spawn starts no fibers there.
    dedicated: u32,
    /// Bytes of each fiber's stack; by default 256 KiB.
    stack_bytes: usize,
    /// Longest time that an idle worker polls before it sleeps, in nanoseconds; by default 500,000, nothing if there
    /// are more workers than cores, and nothing unless set under a CPU quota of the process' cgroups.
    spin_ns: u64,
    /// Name of the threads, followed by a number; by default "trust".
    name: *const c_char,
    /// Leaves workers unpinned. By default they are pinned, where there is a core for each and no CPU quota.
    unpinned: bool,
}

/// Starts a pool. `options` may be null.
///
/// Errors: TRUST_INVALID, TRUST_REFUSED.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_pool_start(options: *const PoolOptions, pool: *mut *mut Pool) -> Status {
    entry(|| {
        if pool.is_null() {
            return Err(null("the place for the pool"));
        }
        let mut builder = Threadpool::builder();
        if !options.is_null() {
            // SAFETY: options have at least their size, by the caller's promise.
            let size = unsafe { (&raw const (*options).size).read() };
            if size != size_of::<PoolOptions>() {
                let text = format!("trust_pool_options of {size} bytes: set size to sizeof(trust_pool_options)");
                return Err(Failure::new(Status::TRUST_INVALID, text));
            }
            // SAFETY: they have the required size.
            let options = unsafe { options.read() };
            builder = builder.dedicated(options.dedicated as usize);
            if options.unpinned {
                builder = builder.pin(false);
            }
            if options.workers > 0 {
                builder = builder.workers(options.workers as usize);
            }
            if options.stack_bytes > 0 {
                builder = builder.stack_bytes(options.stack_bytes);
            }
            if options.spin_ns > 0 {
                builder = builder.spin(Duration::from_nanos(options.spin_ns));
            }
            if !options.name.is_null() {
                // SAFETY: not null, so a C string.
                builder = builder.name(&unsafe { CStr::from_ptr(options.name) }.to_string_lossy());
            }
        }
        let was_attached = ffi::local_trustee().is_ok();
        let built = builder.try_build().map_err(|error| {
            if !was_attached {
                // To end the workers that could be started it took a trustee. SAFETY: called from C, and not attached:
                // no frame of this thread is inside `trust`, and none of its objects.
                let _ = unsafe { ffi::detach() };
            }
            let status = match error {
                trust::BuildError::Setting(_) => Status::TRUST_INVALID,
                _ => Status::TRUST_REFUSED,
            };
            Failure::new(status, error.to_string())
        })?;
        // SAFETY: not null, so the caller's to be written.
        unsafe { pool.write(Box::into_raw(Box::new(Pool(built)))) };
        Ok(())
    })
}

/// Waits until every fiber has ended and every request is answered, then ends the workers, each of which drops its
/// properties. The calling thread's trustee, if it has one, serves meanwhile. The pool must not be used again. Nothing
/// happens if it is null.
///
/// Errors: TRUST_MAY_NOT_WAIT inside delegated functions and callbacks, in fibers of the pool itself, and in fibers of
/// a thread that is attached with a descriptor; the pool runs on.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_pool_stop(pool: *mut Pool) -> Status {
    entry(|| {
        if pool.is_null() {
            return Ok(());
        }
        // SAFETY: `trust_pool_start` made it, and the caller gives it up.
        let trustees = unsafe { &*pool }.0.trustees().to_vec();
        // SAFETY: as above; called from C, so no frame of this thread is inside `trust` unless it is attached.
        unsafe { ffi::stop(&trustees, || Box::from_raw(pool).0) }
    })
}

/// Returns the number of workers of the pool; 0 if it is null.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_pool_workers(pool: *const Pool) -> usize {
    // SAFETY: null or of `trust_pool_start`, and not stopped.
    unsafe { pool.as_ref() }.map_or(0, |pool| pool.0.trustees().len())
}

/// Gets the number of the trustee of one worker; workers that only serve are last.
///
/// Errors: TRUST_INVALID if there is no such worker.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_pool_trustee(pool: *const Pool, worker: usize, trustee: *mut Trustee) -> Status {
    entry(|| {
        // SAFETY: null or of `trust_pool_start`, and not stopped.
        let pool = unsafe { pool.as_ref() }.ok_or_else(|| null("the pool"))?;
        if trustee.is_null() {
            return Err(null("the place for the trustee"));
        }
        let trustees = pool.0.trustees();
        let Some(found) = trustees.get(worker) else {
            let text = format!("there is no worker {worker}: the pool has {}, from 0 on", trustees.len());
            return Err(Failure::new(Status::TRUST_INVALID, text));
        };
        // SAFETY: not null, so the caller's to be written.
        unsafe { trustee.write(found.id().to_bits()) };
        Ok(())
    })
}

/// Starts a fiber at a trustee, which calls `function` with `argument`. With `fiber` not null it has to be joined, else
/// it goes on by itself. Legal everywhere, on every thread.
///
/// Errors: TRUST_INVALID, TRUST_GONE.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_spawn(
    trustee: Trustee,
    function: Main,
    argument: *mut c_void,
    fiber: *mut *mut Fiber,
) -> Status {
    entry(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { ffi::spawn(trustee, function, argument) }?;
        if !fiber.is_null() {
            // SAFETY: not null, so the caller's to be written.
            unsafe { fiber.write(Box::into_raw(Box::new(Fiber(handle)))) };
        }
        Ok(())
    })
}

/// Waits for a fiber's end. Meanwhile other fibers run; on a thread's own stack the thread serves its trustee. The
/// handle must not be used again unless this fails with TRUST_MAY_NOT_WAIT or TRUST_NOT_ATTACHED.
///
/// Errors: TRUST_INVALID, TRUST_NOT_ATTACHED, TRUST_MAY_NOT_WAIT; TRUST_GONE if its thread has ended before it.
// SAFETY: the name is ours; the caller keeps to trust.h and docs/c-api.md.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trust_join(fiber: *mut Fiber) -> Status {
    entry(|| {
        if fiber.is_null() {
            return Err(null("the fiber"));
        }
        ffi::check_may_wait()?;
        // SAFETY: `trust_spawn` made it, and the caller gives it up.
        let fiber = unsafe { Box::from_raw(fiber) };
        fiber
            .0
            .join()
            .map_err(|_| Failure::new(Status::TRUST_GONE, "the fiber's thread has ended before the fiber did"))
    })
}
