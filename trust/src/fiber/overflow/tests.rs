//! Tests of `overflow`, each in a process of its own, which it ends.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use context::{Context, Transfer};

use super::*;
use crate::fiber::stack::StackPool;
use crate::fiber::stack::child::{FINISHED, in_child};

const STACK_BYTES: usize = 65_536;

fn recurse(depth: u64) -> u64 {
    let mut frame = [depth; 64];
    black_box(&mut frame);
    // The condition always holds, but the compiler does not know.
    if black_box(true) { recurse(depth + 1) + frame[0] } else { 0 }
}

extern "C" fn peaceful_fiber(caller: Transfer) -> ! {
    // SAFETY: the context is the caller's, used once.
    unsafe { caller.context.resume(0) };
    unreachable!("resumed only once");
}

extern "C" fn overflowing_fiber(_: Transfer) -> ! {
    unreachable!("recursion without an end: {}", recurse(0));
}

extern "C" fn wild_fiber(_: Transfer) -> ! {
    // SAFETY: none: the access is meant to fault.
    unsafe { black_box(ptr::without_provenance_mut::<u8>(8)).write_volatile(1) };
    unreachable!("address 8 is not mapped");
}

fn run_fiber(pool: &mut StackPool, id: u64, name: Option<&str>, entry: extern "C" fn(Transfer) -> !) {
    let stack = pool.take().unwrap();
    let info = FiberInfo { guard: stack.guard(), stack_bytes: pool.stack_bytes(), id, name: name.map(Into::into) };
    // SAFETY: `info` outlives the fiber's run; cleared below.
    unsafe { set_current(&info) };
    // SAFETY: bounds of a stack that lives as long as the context.
    let bounds = unsafe { context::stack::Stack::new(stack.top(), stack.bottom()) };
    // SAFETY: as above, and the entry never unwinds.
    unsafe { Context::new(&bounds, entry).resume(0) };
    // SAFETY: null.
    unsafe { set_current(ptr::null()) };
    pool.put(stack);
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn overflow_names_the_fiber_and_aborts() {
    let output = in_child(concat!(module_path!(), "::overflow_names_the_fiber_and_aborts"), || {
        install();
        install();
        let _alternate = AltStack::ensure();
        let before = FiberInfo { guard: 0..usize::MAX, stack_bytes: 1, id: 2, name: None };
        // SAFETY: `before` outlives its time as the current fiber.
        unsafe { set_current(&before) };
        let mut pool = StackPool::new(STACK_BYTES).unwrap();
        run_fiber(&mut pool, 1, Some("before"), peaceful_fiber);
        run_fiber(&mut pool, 3, Some("günther"), overflowing_fiber);
    });
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", stderr(&output));
    let message = "\nfiber 'günther' has overflowed its stack (65536 bytes); give it more with \
         stack_bytes(..) of Threadpool::builder(), or of gossamer::builder() on a rack\nfatal runtime error: stack \
         overflow, aborting\n";
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    assert!(!stderr(&output).contains("before"), "{}", stderr(&output));
}

#[test]
fn nameless_fiber_is_named_by_number() {
    let output = in_child(concat!(module_path!(), "::nameless_fiber_is_named_by_number"), || {
        install();
        let _alternate = AltStack::ensure();
        run_fiber(&mut StackPool::new(STACK_BYTES).unwrap(), 4711, None, overflowing_fiber);
    });
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", stderr(&output));
    assert!(stderr(&output).contains("fiber '4711' has overflowed"), "{}", stderr(&output));
}

#[test]
fn wild_pointer_in_a_fiber_stays_a_segmentation_fault() {
    let output = in_child(concat!(module_path!(), "::wild_pointer_in_a_fiber_stays_a_segmentation_fault"), || {
        install();
        let _alternate = AltStack::ensure();
        run_fiber(&mut StackPool::new(STACK_BYTES).unwrap(), 1, None, wild_fiber);
    });
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", stderr(&output));
    assert!(!stderr(&output).contains("overflow"), "{}", stderr(&output));
}

#[test]
fn overflow_of_a_thread_is_still_reported_by_std() {
    let output = in_child(concat!(module_path!(), "::overflow_of_a_thread_is_still_reported_by_std"), || {
        install();
        let _alternate = AltStack::ensure();
        run_fiber(&mut StackPool::new(STACK_BYTES).unwrap(), 1, None, peaceful_fiber);
        assert!(current().is_null());
        black_box(recurse(0));
    });
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("thread '") && text.contains("has overflowed its stack"), "{text}");
    assert!(!text.contains("fiber '"), "{text}");
}

extern "C" fn overflow_here(_: c_int) {
    black_box(recurse(0));
}

/// The test program's main thread waits for the test; a signal makes it run something.
#[test]
fn overflow_of_the_main_thread_is_still_reported_by_std() {
    let output = in_child(concat!(module_path!(), "::overflow_of_the_main_thread_is_still_reported_by_std"), || {
        install();
        let _alternate = AltStack::ensure();
        set_action(libc::SIGUSR1, overflow_here as *const () as usize, 0);
        // SAFETY: asks for a number.
        let main = unsafe { libc::getpid() };
        // SAFETY: the main thread's id is the process's; its handler is the one above.
        unsafe { libc::syscall(libc::SYS_tgkill, main, main, libc::SIGUSR1) };
        loop {
            std::thread::park();
        }
    });
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("thread 'main'") && text.contains("has overflowed its stack"), "{text}");
    assert!(!text.contains("fiber '"), "{text}");
}

extern "C" fn foreign_thread(_: *mut c_void) -> *mut c_void {
    assert_ne!(alternate_stack().ss_flags & libc::SS_DISABLE, 0, "pthread_create gives no alternate stack");
    drop(AltStack::ensure());
    assert_ne!(alternate_stack().ss_flags & libc::SS_DISABLE, 0, "ours must go with its guard");
    let _alternate = AltStack::ensure();
    let ours = alternate_stack();
    assert_eq!(ours.ss_flags & libc::SS_DISABLE, 0);
    drop(AltStack::ensure());
    assert_eq!(alternate_stack().ss_sp, ours.ss_sp, "the second guard made none, so it removes none");
    run_fiber(&mut StackPool::new(STACK_BYTES).unwrap(), 1, Some("foreign"), overflowing_fiber);
    ptr::null_mut()
}

#[test]
fn overflow_on_a_thread_that_std_did_not_make() {
    let output = in_child(concat!(module_path!(), "::overflow_on_a_thread_that_std_did_not_make"), || {
        install();
        let mut thread = 0;
        // SAFETY: the function has the signature asked for and needs no argument.
        unsafe { libc::pthread_create(&mut thread, ptr::null(), foreign_thread, ptr::null_mut()) };
        // SAFETY: made above, joined once.
        unsafe { libc::pthread_join(thread, ptr::null_mut()) };
    });
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", stderr(&output));
    assert!(stderr(&output).contains("fiber 'foreign' has overflowed"), "{}", stderr(&output));
}

#[test]
fn alternate_stack_of_std_is_left_alone() {
    std::thread::spawn(|| {
        let before = alternate_stack();
        assert_eq!(before.ss_flags & libc::SS_DISABLE, 0, "std gives its threads an alternate stack");
        // SAFETY: as in `ensure`.
        let frame_bytes = (unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize).max(libc::MINSIGSTKSZ);
        let guard = AltStack::ensure();
        assert_eq!(guard._ours.is_some(), before.ss_size < frame_bytes + MIN_HANDLER_BYTES);
        drop(guard);
        assert_eq!(alternate_stack().ss_sp, before.ss_sp);
    })
    .join()
    .unwrap();
}

static SEEN: AtomicUsize = AtomicUsize::new(0);
static LOCKED_PAGE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

extern "C" fn count(_: c_int) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn unlock(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    let page = LOCKED_PAGE.load(Ordering::Relaxed);
    // SAFETY: the kernel passes a valid siginfo.
    assert_eq!(unsafe { (*info).si_addr() }, page);
    // SAFETY: a page that the test mapped.
    unsafe { libc::mprotect(page, page_bytes(), libc::PROT_READ | libc::PROT_WRITE) };
}

fn set_action(signal: c_int, handler: usize, flags: c_int) {
    let mut action = current_action(signal);
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    // SAFETY: the handlers of this test, with the flags that fit them.
    unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
}

#[test]
fn earlier_handlers_still_handle() {
    let output = in_child(concat!(module_path!(), "::earlier_handlers_still_handle"), || {
        set_action(libc::SIGBUS, count as *const () as usize, 0);
        set_action(libc::SIGSEGV, unlock as *const () as usize, libc::SA_SIGINFO);
        install();
        for seen in 1..=2 {
            // SAFETY: `count` takes it.
            unsafe { libc::raise(libc::SIGBUS) };
            assert_eq!(SEEN.load(Ordering::Relaxed), seen);
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new private mapping.
        let page = unsafe { libc::mmap(ptr::null_mut(), page_bytes(), libc::PROT_NONE, flags, -1, 0) };
        LOCKED_PAGE.store(page, Ordering::Relaxed);
        for value in [7, 8] {
            // SAFETY: faults, and `unlock` makes the page accessible.
            unsafe { page.cast::<u8>().write_volatile(value) };
            // SAFETY: the page is accessible now.
            assert_eq!(unsafe { page.cast::<u8>().read_volatile() }, value);
            // SAFETY: the test's own page.
            unsafe { libc::mprotect(page, page_bytes(), libc::PROT_NONE) };
        }
    });
    assert_eq!(output.status.code(), Some(FINISHED), "{}", stderr(&output));
}

#[test]
fn sent_signals_keep_their_meaning() {
    let ends = in_child(concat!(module_path!(), "::sent_signals_keep_their_meaning"), || {
        set_action(libc::SIGBUS, libc::SIG_IGN, 0);
        set_action(libc::SIGSEGV, libc::SIG_DFL, 0);
        install();
        // SAFETY: ignored.
        unsafe { libc::raise(libc::SIGBUS) };
        eprintln!("still here");
        // SAFETY: ends the process, which is the test.
        unsafe { libc::raise(libc::SIGSEGV) };
    });
    assert_eq!(ends.status.signal(), Some(libc::SIGSEGV), "{}", stderr(&ends));
    assert!(stderr(&ends).contains("still here"), "{}", stderr(&ends));
}

#[test]
fn decimal_writes_all_digits() {
    for value in [0, 9, 10, 65_536, u64::MAX] {
        assert_eq!(decimal(value, &mut [0; 20]), value.to_string().as_bytes());
    }
}
