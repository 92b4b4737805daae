//! Libraries that the program loads while it runs (`dlopen`). Machine 0 loads them, where their constructors run and
//! all handles are valid; the other machines get their pages at the same addresses, and share their variables as those
//! of libraries from the start. Their addresses are chosen by `places.rs`; thread-local variables are in
//! `thread_storage.rs`.
//!
//! A library stays loaded to the end.

use std::cell::{Cell, UnsafeCell};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use gossamer_region::link::over;
use libc::pthread_mutex_t;
use serde_bytes::ByteBuf;

use crate::call::map_here;
use crate::objects::{self, Object, c_function};
use crate::places::Loading;
use crate::real::real;
use crate::stack::{GUARD_BYTES, Stack};
use crate::{PAGE_BYTES, block, copy, heap, ids, report, side, table, thread_storage, trap};

/// Bytes that travel together.
const PIECE_BYTES: usize = 1 << 20;
/// Stack of a library's constructors, where a thread of another machine loads it.
const STACK_BYTES: usize = 8 << 20;

/// On machine 0: objects that it has loaded, and those of them that the other machines do not have yet.
static LOADED: Mutex<Loaded> = Mutex::new(Loaded { bases: BTreeSet::new(), new: vec![] });

struct Loaded {
    bases: BTreeSet<usize>,
    new: Vec<Object>,
}

/// Held while machine 0 loads; a constructor may load more.
struct Lock(UnsafeCell<pthread_mutex_t>);

// SAFETY: used by the C library's functions only.
unsafe impl Sync for Lock {}

static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP));

thread_local! {
    /// Text of the last error of a call that machine 0 did for the thread, in the program's heap; 0 for none.
    static ERROR: Cell<usize> = const { Cell::new(0) };
}

/// The C library's function. Names that are looked up from the caller on go straight to it, as it looks at its caller;
/// handles are machine 0's.
///
/// # Safety
/// As for the C library's function, here and in all other functions of this file.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "lea rax, [rdi + 1]", // 0 for RTLD_NEXT, 1 for RTLD_DEFAULT
        "cmp rax, 1",
        "ja 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        "2:",
        "jmp {of_handle}",
        find = sym objects::find_dlsym,
        of_handle = sym of_handle,
    )
}

/// See above.
///
/// # Safety
/// As for the C library's function.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "add x9, x0, #1", // 0 for RTLD_NEXT, 1 for RTLD_DEFAULT
        "cmp x9, #1",
        "b.hi 2f",
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        "2:",
        "b {of_handle}",
        find = sym objects::find_dlsym,
        of_handle = sym of_handle,
    )
}

/// Looks a name up in a library.
unsafe extern "C" fn of_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(name) };
    if !is_elsewhere() {
        return ptr::with_exposed_provenance_mut(objects::find(handle, text));
    }
    let (handle, name) = (handle.expose_provenance(), name.expose_provenance());
    let (found, index, error) = side::at(0, move || {
        // SAFETY: the caller's name, which is in the program's memory, and copied before a lock is held.
        let name = unsafe { CStr::from_ptr(ptr::with_exposed_provenance(name)) }.to_owned();
        let found = objects::find(ptr::with_exposed_provenance_mut(handle), &name);
        (found, thread_storage::index_of(&name, found), if found == 0 { error_here() } else { 0 })
    });
    ERROR.set(error);
    ptr::with_exposed_provenance_mut(index.map_or(found, |index| thread_storage::of_this_thread(&index)))
}

/// Whether the calling thread is the program's, on a machine other than 0.
fn is_elsewhere() -> bool {
    side::is_machine_in_program() && side::own_machine() != 0
}

/// On machine 0: returns a copy of the text of the last error, in the program's heap; 0 for none.
fn error_here() -> usize {
    let text = real!(dlerror: fn() -> *const c_char);
    if text.is_null() {
        return 0;
    }
    // SAFETY: a string of the C library.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes_with_nul();
    let Some((block, _)) = heap::allocate(text.len(), 1) else { return 0 };
    // SAFETY: a block of that length, which no other code has.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), ptr::with_exposed_provenance_mut(block), text.len()) };
    block
}

/// See [`dlsym`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlerror() -> *mut c_char {
    match is_elsewhere() {
        true => ptr::with_exposed_provenance_mut(ERROR.replace(0)),
        false => real!(dlerror: fn() -> *mut c_char),
    }
}

/// See [`dlsym`]; the library stays.
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    match side::is_machine_in_program() && side::machines() > 1 {
        true => 0,
        false => real!(dlclose: fn(*mut c_void) -> c_int, handle),
    }
}

/// See [`dlsym`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    if !side::is_machine_in_program() || side::machines() == 1 {
        return real!(dlopen: fn(*const c_char, c_int) -> *mut c_void, name, flags);
    }
    if side::own_machine() == 0 {
        return load(name, flags);
    }
    let (name, thread) = (name.expose_provenance(), ids::own());
    let (handle, error) = side::at(0, move || load_in_thread(name, flags, thread));
    ERROR.set(error);
    ptr::with_exposed_provenance_mut(handle)
}

/// On the worker of machine 0: loads a library for a thread of another machine; returns its handle, or 0 and the error.
fn load_in_thread(name: usize, flags: c_int, thread: u64) -> (usize, usize) {
    extern "C" fn run(request: usize) -> usize {
        // SAFETY: the request below, which outlives this call.
        let (name, flags) = unsafe { *ptr::with_exposed_provenance::<(usize, c_int)>(request) };
        load(ptr::with_exposed_provenance(name), flags).expose_provenance()
    }
    let (promise, done) = trust::promise();
    let Some(stack) = Stack::new(STACK_BYTES, GUARD_BYTES) else { return (0, 0) };
    let body = move || {
        ids::act_as(thread);
        trap::filter_this_thread();
        let request = (name, flags);
        let Range { start: bottom, end: top } = stack.range();
        let (function, argument) = (run as *const () as usize, (&raw const request).expose_provenance());
        // SAFETY: memory that is this thread's until the function has ended.
        let handle = unsafe { side::run_on(bottom, top, function, argument) };
        let error = if handle == 0 { error_here() } else { 0 };
        drop(stack);
        promise.keep((handle, error));
    };
    match std::thread::Builder::new().spawn(body) {
        Ok(_) => done.wait().unwrap_or((0, 0)),
        Err(_) => (0, 0),
    }
}

/// In the program's code on machine 0: loads a library, and gives it to the other machines.
fn load(name: *const c_char, flags: c_int) -> *mut c_void {
    let lock = LOCK.0.get();
    real!(pthread_mutex_lock: fn(*mut pthread_mutex_t) -> c_int, lock);
    let bases = || objects::all().iter().map(|object| object.base).collect::<BTreeSet<usize>>();
    let before = side::outside(bases);
    // Bound at once: what is bound later would be bound on one machine.
    let flags = flags & !libc::RTLD_LAZY | libc::RTLD_NOW;
    // Before its constructors run, which may ask for a move.
    let had_loaded = table::table().has_loaded.swap(1, Ordering::SeqCst);
    let loading = Loading::begin();
    let handle = real!(dlopen: fn(*const c_char, c_int) -> *mut c_void, name, flags);
    drop(loading);
    let has_new = side::outside(move || {
        let mut loaded = loaded();
        for object in objects::all() {
            if !before.contains(&object.base) && loaded.bases.insert(object.base) {
                loaded.new.push(object);
            }
        }
        !loaded.new.is_empty()
    });
    match has_new {
        true => side::at(0, hand_on),
        false => table::table().has_loaded.store(had_loaded, Ordering::SeqCst),
    }
    real!(pthread_mutex_unlock: fn(*mut pthread_mutex_t) -> c_int, lock);
    handle
}

fn loaded() -> std::sync::MutexGuard<'static, Loaded> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In a fiber of machine 0: gives the new objects to the other machines.
fn hand_on() {
    let new = std::mem::take(&mut loaded().new);
    let unknown = |library: &str, why: &str| -> ! {
        gossamer::link::end(&format!(
            "the library {library} has thread-local variables, and is loaded while the program runs (dlopen), but \
             {why}: on several machines link the program with it, or load it first (LD_PRELOAD)"
        ))
    };
    let modules = thread_storage::modules(&new)
        .unwrap_or_else(|library| unknown(&library, "this version of the C library does not say where they are"));
    if let Some(library) = modules.iter().find_map(|module| module.placed()).filter(|_| block::are_on()) {
        unknown(library, "where threads may move (--move asked) those that are there have no place for them");
    }
    if !modules.is_empty() {
        for machine in 1..side::machines() {
            side::from_worker_with(machine, thread_storage::add, modules.clone());
        }
    }
    for object in new {
        thread_storage::share_descriptors(&object).unwrap_or_else(|why| unknown(&object.name, &why));
        for (protection, pages) in object.parts_by_protection() {
            match protection & libc::PROT_WRITE != 0 && !table::is_explicit() {
                true => share(pages),
                false => (1..side::machines()).for_each(|machine| send(machine, &pages, protection)),
            }
        }
        if let Some(frames) = object.frames() {
            for machine in 1..side::machines() {
                side::from_worker(machine, move || register(frames));
            }
        }
        if let Some(parts) = object.to_parts() {
            for machine in 1..side::machines() {
                // SAFETY: the machine has had the bytes above.
                side::from_worker(machine, move || objects::add(unsafe { Object::of_parts(parts) }));
            }
        }
        objects::add(object);
    }
}

/// Turns the pages of an object's variables into a region.
fn share(pages: Range<usize>) {
    // The library's variables, which no thread knows of before `dlopen` returns.
    let before = copy::contents(pages.clone().step_by(PAGE_BYTES));
    let (start, end) = (pages.start, pages.end);
    // SAFETY: the library's, whose bytes are restored below.
    match unsafe { over(pages) } {
        Ok(region) => report::note(region),
        Err(error) => {
            gossamer::link::end(&format!("variables at {start:#x} cannot be shared by the machines: {error}"))
        }
    }
    copy::restore(&before);
    for machine in 0..side::machines() {
        side::from_worker(machine, move || table::note_variables(start..end));
    }
}

/// Gives pages that stay as they are, or are each machine's own, to a machine.
fn send(machine: u16, pages: &Range<usize>, protection: c_int) {
    let (start, end) = (pages.start, pages.end);
    if !side::from_worker(machine, move || map(start, end)) {
        gossamer::link::end(&format!(
            "machine {machine} uses the memory at {start:#x} for something else, where machine 0 has loaded a library \
             (dlopen): link the program with it"
        ));
    }
    for from in pages.clone().step_by(PIECE_BYTES) {
        let bytes = PIECE_BYTES.min(end - from);
        // SAFETY: readable pages of a loaded object.
        let bytes = unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(from), bytes) };
        side::from_worker_with(machine, put, (from, ByteBuf::from(bytes)));
    }
    side::from_worker(machine, move || {
        // SAFETY: pages that `map` has mapped.
        unsafe { libc::syscall(libc::SYS_mprotect, start, end - start, protection) };
    });
}

/// Maps memory for an object's pages. `false`: it is taken.
fn map(start: usize, end: usize) -> bool {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: a new mapping that replaces none.
    let found = unsafe { map_here(ptr::without_provenance_mut(start), end - start, protection, flags, -1, 0) };
    found.expose_provenance() == start
}

fn put((start, bytes): (usize, ByteBuf)) {
    // SAFETY: memory that `map` has mapped, and no other code knows.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), ptr::with_exposed_provenance_mut::<u8>(start), bytes.len()) };
}

/// Tells the unwinder of this machine the frames of an object.
fn register(frames: usize) {
    if let Some(function) = c_function(c"__register_frame") {
        // SAFETY: the unwinder's function, and frames of an object that stays.
        unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(*const c_void)>(function)(ptr::with_exposed_provenance(
                frames,
            ))
        };
    }
}
