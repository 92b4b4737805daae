//! Threads for the program's code, with stacks of their own for ours, at addresses where other machines have none: a
//! thread's record of the C library lies on its stack, and the library knows the holder of a file's lock by the
//! record's address.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libc::{pthread_attr_t, pthread_t};
use region_calls::call;

use crate::call::map_here;
use crate::objects::{self, Object};
use crate::real::real;
use crate::refused::refuse;
use crate::table::MACHINES_MAX;
use crate::{PAGE_BYTES, ids, side};

/// Bytes of a stack, without the program's functions and thread-local variables, and of the gap below it.
const BYTES: usize = 512 << 10;
const GAP_BYTES: usize = 64 << 10;
/// Addresses of a machine: more than its threads need.
const MACHINE_BYTES: usize = 16 << 30;
/// Addresses of all machines', the first one's first: neither the system nor regions choose addresses there.
pub(crate) const ADDRESSES: Range<usize> = 0x1810_0000_0000..0x1810_0000_0000 + MACHINES_MAX * MACHINE_BYTES;

/// Returns the bytes of a stack: the C library keeps a thread's variables there, too.
fn bytes() -> usize {
    static ALL: OnceLock<usize> = OnceLock::new();
    let of = |storage: &libc::Elf64_Phdr| (storage.p_memsz + storage.p_align) as usize;
    let variables = || objects::at_start().iter().filter_map(Object::thread_storage).map(of).sum::<usize>();
    *ALL.get_or_init(|| (BYTES + variables()).next_multiple_of(PAGE_BYTES))
}

/// Returns the machine whose threads may have a stack at this address.
pub(crate) fn machine_of(address: usize) -> Option<u16> {
    let machine = ADDRESSES.contains(&address).then(|| (address - ADDRESSES.start) / MACHINE_BYTES)?;
    u16::try_from(machine).ok()
}

struct Stacks {
    /// Number of those that are mapped.
    count: usize,
    free: Vec<usize>,
    /// Threads that are about to end, and their stacks.
    ending: Vec<(pthread_t, usize)>,
}

static STACKS: Mutex<Stacks> = Mutex::new(Stacks { count: 0, free: vec![], ending: vec![] });

fn stacks() -> MutexGuard<'static, Stacks> {
    STACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a stack that no thread has.
fn take() -> Option<usize> {
    unsafe extern "C" {
        fn pthread_tryjoin_np(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    }
    let mut stacks = stacks();
    let Stacks { ending, free, .. } = &mut *stacks;
    // Without waiting: this may be the worker that a thread needs at its very end.
    ending.retain(|(thread, stack)| {
        // SAFETY: a thread of this file, which is joined once. It does not run the program's code any more.
        let has_ended = unsafe { pthread_tryjoin_np(*thread, ptr::null_mut()) } == 0;
        if has_ended {
            free.push(*stack);
        }
        !has_ended
    });
    if let Some(stack) = stacks.free.pop() {
        return Some(stack);
    }
    let bytes = bytes();
    let after = stacks.count * (bytes + GAP_BYTES);
    if after + bytes + GAP_BYTES > MACHINE_BYTES {
        return None;
    }
    let stack = ADDRESSES.start + usize::from(side::own_machine()) * MACHINE_BYTES + after + GAP_BYTES;
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
    );
    // SAFETY: a new mapping that replaces none.
    let found = unsafe { map_here(ptr::without_provenance_mut(stack), bytes, protection, flags, -1, 0) };
    if found.expose_provenance() != stack {
        return None;
    }
    stacks.count += 1;
    Some(stack)
}

/// The work of a new thread, and its stack.
struct Job {
    run: Box<dyn FnOnce() + Send>,
    stack: usize,
}

/// On our side: has a new thread run this, and returns the C library's id of it. `None`: the system refuses.
pub(crate) fn spawn(run: Box<dyn FnOnce() + Send>) -> Option<pthread_t> {
    extern "C" fn start(job: *mut c_void) -> *mut c_void {
        // SAFETY: the job that `spawn` has made, for this thread alone.
        let job = unsafe { Box::from_raw(job.cast::<Job>()) };
        (job.run)();
        let own = real!(pthread_self: fn() -> pthread_t);
        stacks().ending.push((own, job.stack));
        ptr::null_mut()
    }
    let stack = take()?;
    let job = Box::into_raw(Box::new(Job { run, stack }));
    let (mut attributes, mut thread) = (MaybeUninit::uninit(), 0);
    // SAFETY: attributes that are made here; the stack is the new thread's until it is joined.
    let failed = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        let at = ptr::with_exposed_provenance_mut(stack);
        let failed = match libc::pthread_attr_setstack(attributes.as_mut_ptr(), at, bytes()) {
            0 => libc::pthread_create(&raw mut thread, attributes.as_ptr(), start, job.cast()),
            failed => failed,
        };
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        failed
    };
    if failed != 0 {
        stacks().free.push(stack);
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(job) });
    }
    (failed == 0).then_some(thread)
}

/// The C library's function, for the calling thread; refused for others. The gap below its stack counts as its guard:
/// some runtimes end a thread that has none.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getattr_np(id: pthread_t, attributes: *mut pthread_attr_t) -> c_int {
    let Some(id) = ids::real_of(id) else {
        refuse("pthread_getattr_np", const { call("pthread_getattr_np", "of another thread") });
        return libc::ENOTSUP;
    };
    let done = real!(pthread_getattr_np: fn(pthread_t, *mut pthread_attr_t) -> c_int, id, attributes);
    let mut guard = 0;
    // SAFETY: the caller's attributes, which the C library has filled.
    unsafe {
        if done == 0
            && side::is_in_program()
            && libc::pthread_attr_getguardsize(attributes, &raw mut guard) == 0
            && guard == 0
        {
            libc::pthread_attr_setguardsize(attributes, GAP_BYTES);
        }
    }
    done
}
