//! Stacks of workers that loop, wait for a lock or in C, stand at the end of a fiber's stack, or cannot be asked.

#![allow(unsafe_code)] // functions of the C library that wait, and signals

use std::hint::spin_loop;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use limits::wait_until;
use trust::Threadpool;

use super::*;

/// The action of SIGURG is the process': tests that change or need it take turns.
static SIGNAL: Mutex<()> = Mutex::new(());

fn lock() -> impl Drop {
    SIGNAL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

/// Returns all frames of the worker's thread, once one of them names this function.
fn stack_with(name: &str, worker: TrusteeReference) -> Vec<String> {
    let mut modules = Modules::load();
    let mut stack = Vec::new();
    wait_until(&format!("{name} in a stack"), || {
        let frames = frames_of(worker, &mut modules).unwrap_or_default();
        stack = frames.into_iter().map(|frame| frame.text).collect::<Vec<_>>();
        stack.iter().any(|frame| frame.contains(name))
    });
    stack
}

#[test]
fn frames_of_the_runtime_are_left_out_at_the_outer_end_only() {
    let frame = |is_runtime| Frame { text: if is_runtime { "runtime" } else { "program" }.to_owned(), is_runtime };
    let stack = |is_runtime: &[bool]| of_program(is_runtime.iter().map(|is| frame(*is)).collect());
    assert_eq!(stack(&[true, false, true, false, true, true]), ["runtime", "program", "runtime", "program"]);
    assert_eq!(stack(&[true, true]), ["runtime", "runtime"], "nothing else is there");
    assert_eq!(stack(&[false; 2 * FRAMES_MAX]).len(), FRAMES_MAX);
}

#[inline(never)]
fn inner_loop(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        spin_loop();
    }
}

#[inline(never)]
fn outer_call(is_over: &AtomicBool) {
    inner_loop(is_over);
    spin_loop(); // no tail call
}

/// Whether it is a function of this file: with its line, or without where the build has no debug information.
fn is_here(frame: &str, function: &str) -> bool {
    frame.ends_with(function) || frame.contains(&format!("{function} (view/stacks/tests.rs:"))
}

#[test]
fn loops_of_many_workers_are_named() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let _lock = lock();
    let pool = pool(8);
    let fibers: Vec<_> = (0..8).map(|worker| pool.spawn_on(worker, || outer_call(&IS_OVER))).collect();
    for worker in pool.trustees() {
        let frames = stack_with("outer_call", *worker);
        let inner = frames.iter().position(|frame| is_here(frame, "inner_loop"));
        let inner = inner.unwrap_or_else(|| panic!("{frames:#?}"));
        assert!(is_here(&frames[inner + 1], "outer_call"), "{frames:#?}");
        let fiber = frames.iter().position(|frame| frame.contains("trust::fiber::start")).unwrap();
        assert!(fiber > inner, "{frames:#?}");
    }
    assert!(capture_now() == libc::SIG_DFL, "the handler has gone");
    IS_OVER.store(true, Ordering::Relaxed);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

/// Returns the handler of SIGURG.
fn capture_now() -> usize {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only.
    unsafe {
        libc::sigaction(libc::SIGURG, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    }
}

#[test]
fn a_lock_is_named_with_its_caller() {
    #[inline(never)]
    fn wants_lock(of: &Mutex<u64>) -> u64 {
        *of.lock().unwrap() + 1
    }
    static HELD: Mutex<u64> = Mutex::new(6);
    let pool = pool(1);
    let held = HELD.lock().unwrap();
    let fiber = pool.spawn(|| wants_lock(&HELD));
    let frames = stack_with("wants_lock", pool.trustees()[0]);
    assert!(frames.iter().any(|frame| frame.contains("futex")), "{frames:#?}");
    drop(held);
    assert_eq!(fiber.join().unwrap(), 7);
}

/// `pause` returns when a signal is handled: it does not return for a sample.
#[test]
fn a_function_of_c_that_waits_is_named_and_not_disturbed() {
    static RETURNS: AtomicUsize = AtomicUsize::new(0);
    static THREAD: AtomicUsize = AtomicUsize::new(0);
    #[inline(never)]
    fn waits_in_c() {
        // SAFETY: both have no conditions.
        THREAD.store(unsafe { libc::pthread_self() } as usize, Ordering::Release);
        // SAFETY: as above.
        unsafe { libc::pause() };
        RETURNS.fetch_add(1, Ordering::Relaxed);
    }
    extern "C" fn nothing(_: libc::c_int) {}
    let pool = pool(1);
    let fiber = pool.spawn(waits_in_c);
    let worker = pool.trustees()[0];
    wait_until("the wait", || THREAD.load(Ordering::Acquire) != 0 && trust::link::thread_state(worker) == Some('S'));
    let frames = stack_with("waits_in_c", worker);
    let caller = frames.iter().position(|frame| frame.contains("waits_in_c")).unwrap();
    assert!(caller > 0 && frames[..caller].iter().any(|frame| frame.contains("pause")), "{frames:#?}");
    assert_eq!(RETURNS.load(Ordering::Relaxed), 0);
    // SAFETY: the handler does nothing; the thread lives, for its fiber has not ended.
    unsafe {
        libc::signal(libc::SIGUSR2, nothing as *const () as usize);
        libc::pthread_kill(THREAD.load(Ordering::Acquire) as libc::pthread_t, libc::SIGUSR2);
    }
    fiber.join().unwrap();
}

/// The signal's frame would not fit there.
#[test]
fn a_fiber_at_the_end_of_its_stack_is_sampled() {
    const STACK_BYTES: usize = 64 << 10;
    const LEFT_BYTES: usize = 1 << 10;
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    #[inline(never)]
    fn descend(top: usize) -> usize {
        let here = 0u8;
        let place = std::hint::black_box(&raw const here).addr();
        if top - place + LEFT_BYTES < STACK_BYTES { descend(top) + 1 } else { at_the_end(&IS_OVER) }
    }
    #[inline(never)]
    fn at_the_end(is_over: &AtomicBool) -> usize {
        while !is_over.load(Ordering::Relaxed) {
            spin_loop();
        }
        0
    }
    let _lock = lock();
    let pool = Threadpool::builder().workers(1).pin(false).stack_bytes(STACK_BYTES).build();
    let fiber = pool.spawn(|| {
        let top = 0u8;
        descend(std::hint::black_box(&raw const top).addr())
    });
    let frames = stack_with("at_the_end", pool.trustees()[0]);
    assert!(frames.iter().filter(|frame| frame.contains("descend")).count() > 10, "{frames:#?}");
    IS_OVER.store(true, Ordering::Relaxed);
    assert!(fiber.join().unwrap() > 10);
}

#[test]
fn a_handler_of_the_program_stays() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handle(_: libc::c_int) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    let _lock = lock();
    let pool = pool(1);
    let fiber = pool.spawn(|| inner_loop(&IS_OVER));
    let worker = pool.trustees()[0];
    stack_with("inner_loop", worker);
    // SAFETY: the handler adds to an atomic.
    let before = unsafe { libc::signal(libc::SIGURG, handle as *const () as usize) };
    let stack = stack_of(worker, &mut Modules::load());
    assert!(stack.frames.is_empty() && stack.missing == "the program handles SIGURG itself", "{stack:?}");
    assert_eq!((HANDLED.load(Ordering::Relaxed), capture_now()), (0, handle as *const () as usize));
    // SAFETY: puts the action before back.
    unsafe { libc::signal(libc::SIGURG, before) };
    stack_with("inner_loop", worker);
    IS_OVER.store(true, Ordering::Relaxed);
    fiber.join().unwrap();
}

#[test]
fn a_thread_that_blocks_the_signal_is_told() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let _lock = lock();
    let pool = pool(1);
    let fiber = pool.spawn(|| {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: the set is initialised before it is used.
        unsafe {
            libc::sigfillset(mask.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, mask.as_ptr(), ptr::null_mut());
        }
        inner_loop(&IS_OVER);
    });
    let mut stack = Stack::default();
    let mut modules = Modules::load();
    wait_until("the reason", || {
        stack = stack_of(pool.trustees()[0], &mut modules);
        stack.missing == "its thread blocks SIGURG"
    });
    assert!(stack.frames.is_empty());
    IS_OVER.store(true, Ordering::Relaxed);
    fiber.join().unwrap();
}

#[test]
fn the_sampler_goes_when_no_worker_is_stuck() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let _lock = lock();
    let pool = pool(2);
    let fiber = pool.spawn_on(1, || outer_call(&IS_OVER));
    let stuck = [pool.trustees()[1]];
    let mut stacks = Stacks::default();
    let asked = |stacks: &Stacks| stacks.found.lock().unwrap().get(&stuck[0].id()).map(|sample| sample.asked);
    wait_until("a stack", || {
        stacks.update(&stuck);
        stacks.of(stuck[0]).is_some()
    });
    let first = asked(&stacks);
    stacks.update(&stuck);
    assert_eq!(asked(&stacks), first, "not sampled again at once");
    let memory = Arc::downgrade(&stacks.found);
    stacks.update(&[]);
    assert!(stacks.sampler.is_none() && stacks.of(stuck[0]).is_none());
    wait_until("the end of the sampler", || memory.upgrade().is_none());
    IS_OVER.store(true, Ordering::Relaxed);
    fiber.join().unwrap();
}
