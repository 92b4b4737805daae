//! Threads that end with fibers: one in the middle of its code is never resumed by a destructor, nor left behind with
//! borrowed thread-locals; the process ends with a message. A fiber that has not begun is run or dropped, and its
//! waiter hears of it.

mod common;

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use common::{Drops, is_child, join_and_serve, run_child, serve_until, stand_until, stderr, text};
use trust::{Error, Latch, Shared, Threadpool, local_trustee, promise};

const HOUR: Duration = Duration::from_secs(3600);
/// Output of a child that has seen a forbidden event.
const SEEN: &str = "SEEN";

/// A value of a thread-local that can tell whether it has been dropped, also through a reference that should not exist
/// any more. Its memory is not given back.
struct Canary(&'static AtomicU64);

const ALIVE: u64 = 0x5EED_0F11;

impl Canary {
    fn new() -> Canary {
        Canary(Box::leak(Box::new(AtomicU64::new(ALIVE))))
    }
    fn check(&self, who: &str) {
        if self.0.load(Ordering::SeqCst) != ALIVE {
            println!("{SEEN}: {who} uses a thread-local that is gone");
            std::process::exit(3);
        }
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.store(0, Ordering::SeqCst);
        // Time for another thread to look.
        thread::sleep(Duration::from_millis(200));
    }
}

thread_local!(static LENT: Canary = Canary::new());

/// Checks that the process was aborted, with a message that contains these texts, and did nothing forbidden.
#[track_caller]
fn assert_aborted(output: &Output, texts: &[&str]) {
    let (said, out) = (stderr(output), String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{:?}: {said}\n{out}", output.status);
    for text in texts.iter().chain(&["fibers in the middle of their code", "`trust::finish()`", "the process ends"]) {
        assert!(said.contains(text), "`{text}` is not said in: {said}");
    }
    assert!(!out.contains(SEEN) && !said.contains(SEEN), "{said}\n{out}");
}

/// A fiber that waits for ever while it has borrowed a thread-local.
fn borrow_for_ever() {
    drop(trust::spawn_named("reader", || {
        LENT.with(|lent| {
            trust::sleep(Duration::from_millis(20));
            lent.check("a fiber");
            trust::sleep(HOUR);
        });
    }));
    trust::yield_now();
}

#[test]
fn trap_04_a_thread_that_ends_while_a_fiber_waits_ends_the_process() {
    let _watch = watchdog!();
    if is_child() {
        let thread = thread::Builder::new().name("forgetful".to_owned()).spawn(borrow_for_ever).unwrap();
        let _ = thread.join();
        return;
    }
    let output = run_child("trap_04_a_thread_that_ends_while_a_fiber_waits_ends_the_process");
    assert_aborted(&output, &["fiber 'reader'", "`forgetful`", "borrow_for_ever"]);
}

#[test]
fn trap_04_so_does_a_thread_that_panics() {
    let _watch = watchdog!();
    if is_child() {
        let thread = thread::spawn(|| {
            borrow_for_ever();
            panic!("of its own");
        });
        let _ = thread.join();
        return;
    }
    let output = run_child("trap_04_so_does_a_thread_that_panics");
    assert_aborted(&output, &["of its own", "fiber 'reader'"]);
}

/// Many fibers that wait for answers, which are written to their stacks.
#[test]
fn trap_04_so_does_a_thread_whose_fibers_wait_for_answers() {
    let _watch = watchdog!();
    if is_child() {
        let pool = Threadpool::builder().workers(1).pin(false).build();
        let property = pool.entrust(0);
        let thread = thread::spawn(move || {
            for _ in 0..10 {
                let property = property.clone();
                drop(trust::spawn(move || property.apply(|_| stand_until(|| false))));
            }
            trust::yield_now();
        });
        let _ = thread.join();
        return;
    }
    let output = run_child("trap_04_so_does_a_thread_whose_fibers_wait_for_answers");
    assert_aborted(&output, &["fiber 0 (", "fiber 3 (", "6 more"]);
}

#[test]
fn trap_04_so_does_a_thread_on_which_others_have_launched_closures() {
    let _watch = watchdog!();
    if is_child() {
        let (send, receive) = mpsc::channel();
        let running = Shared::new(AtomicUsize::new(0));
        let seen = running.clone();
        let thread = thread::spawn(move || {
            let latches: Vec<_> = (0..200u32).map(|n| local_trustee().entrust(Latch::new(n))).collect();
            send.send(latches).unwrap();
            serve_until(|| seen.load(Ordering::SeqCst) == 200);
        });
        let pool = Threadpool::builder().workers(1).pin(false).build();
        for latch in receive.recv().unwrap() {
            let running = running.clone();
            drop(pool.spawn(move || {
                latch.launch(move |_| {
                    running.fetch_add(1, Ordering::SeqCst);
                    trust::sleep(HOUR);
                });
            }));
        }
        let _ = thread.join();
        stand_until(|| false);
    }
    let output = run_child("trap_04_so_does_a_thread_on_which_others_have_launched_closures");
    assert_aborted(&output, &["launched on a `u32`", "196 more"]);
}

/// Not even the destructor of the thread-local is run: a scoped thread that has it would see that.
#[test]
fn trap_04_what_a_fiber_has_lent_to_a_scoped_thread_is_not_dropped() {
    let _watch = watchdog!();
    if is_child() {
        let thread = thread::spawn(|| {
            let lends = || {
                LENT.with(|lent| {
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            loop {
                                lent.check("a scoped thread");
                            }
                        });
                        trust::sleep(HOUR);
                    });
                });
            };
            drop(trust::spawn(lends));
            // More than once: the last time that the thread's code goes on counts for the borrowed values.
            (0..3).for_each(|_| trust::yield_now());
        });
        let _ = thread.join();
        return;
    }
    let output = run_child("trap_04_what_a_fiber_has_lent_to_a_scoped_thread_is_not_dropped");
    assert_aborted(&output, &["lent_to_a_scoped_thread"]);
}

/// As before, with a fiber that borrows its thread-local long after the thread's code has gone on for the first time.
#[test]
fn trap_04_nor_what_it_has_lent_late() {
    let _watch = watchdog!();
    if is_child() {
        let thread = thread::spawn(|| {
            drop(trust::spawn(|| {
                (0..1000).for_each(|_| trust::yield_now());
                LENT.with(|lent| {
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            loop {
                                lent.check("a scoped thread");
                            }
                        });
                        trust::sleep(HOUR);
                    });
                });
            }));
            (0..1010).for_each(|_| trust::yield_now());
        });
        let _ = thread.join();
        return;
    }
    assert_aborted(&run_child("trap_04_nor_what_it_has_lent_late"), &["fiber 0"]);
}

/// The destructor of a thread-local that outlives the borrowed one waits, and would let the fiber go on.
#[test]
fn trap_04_a_destructor_that_waits_resumes_no_fiber() {
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            for _ in 0..100 {
                trust::yield_now();
                thread::sleep(Duration::from_millis(1));
            }
            println!("{SEEN}: the destructor has gone on");
        }
    }
    thread_local!(static WAITS: Waits = const { Waits });
    let _watch = watchdog!();
    if is_child() {
        let thread = thread::spawn(|| {
            trust::yield_now();
            WAITS.with(|_| ());
            borrow_for_ever();
        });
        let _ = thread.join();
        return;
    }
    assert_aborted(&run_child("trap_04_a_destructor_that_waits_resumes_no_fiber"), &["fiber 'reader'"]);
}

/// A fiber that begins in one destructor must not wait for the next one.
#[test]
fn trap_04_a_fiber_that_a_destructor_leaves_in_the_middle_ends_the_process() {
    struct Spawns;
    impl Drop for Spawns {
        fn drop(&mut self) {
            borrow_for_ever();
        }
    }
    thread_local!(static SPAWNS: Spawns = const { Spawns });
    let _watch = watchdog!();
    if is_child() {
        let first_use = thread::spawn(|| SPAWNS.with(|_| ()));
        let _ = first_use.join();
        return;
    }
    let output = run_child("trap_04_a_fiber_that_a_destructor_leaves_in_the_middle_ends_the_process");
    assert_aborted(&output, &["fiber 'reader'"]);
}

/// As before, on a thread whose code has gone on beside fibers so often that not each time is watched any more.
#[test]
fn trap_04_so_does_one_on_a_thread_that_has_waited_often() {
    struct Lends;
    impl Drop for Lends {
        fn drop(&mut self) {
            drop(trust::spawn(|| {
                LENT.with(|lent| {
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            loop {
                                lent.check("a scoped thread");
                            }
                        });
                        trust::sleep(HOUR);
                    });
                });
            }));
            trust::yield_now();
        }
    }
    thread_local!(static LENDS: Lends = const { Lends });
    let _watch = watchdog!();
    if is_child() {
        let thread = thread::spawn(|| {
            // The worker first, so that it goes last.
            trust::yield_now();
            LENDS.with(|_| ());
            let go = Rc::new(Cell::new(false));
            let goes = Rc::clone(&go);
            let beside = trust::spawn(move || {
                while !goes.get() {
                    trust::yield_now();
                }
            });
            (0..40_001).for_each(|_| trust::yield_now());
            go.set(true);
            beside.join().unwrap();
        });
        let _ = thread.join();
        return;
    }
    assert_aborted(&run_child("trap_04_so_does_one_on_a_thread_that_has_waited_often"), &["Lends"]);
}

#[test]
fn trap_12_a_destructor_may_be_the_first_to_use_the_library() {
    struct Uses(mpsc::Sender<u64>);
    impl Drop for Uses {
        fn drop(&mut self) {
            let fiber = trust::spawn(|| {
                trust::sleep(Duration::from_millis(1));
                LENT.with(|lent| lent.check("a fiber"));
                local_trustee().entrust(6).apply(|n| *n * 7)
            });
            self.0.send(fiber.join().unwrap()).unwrap();
        }
    }
    thread_local!(static USES: Cell<Option<Uses>> = const { Cell::new(None) });
    let _watch = watchdog!();
    let (send, receive) = mpsc::channel();
    thread::spawn(move || USES.set(Some(Uses(send)))).join().unwrap();
    assert_eq!(receive.recv(), Ok(42));
}

#[test]
fn finish_lets_the_fibers_of_a_thread_end() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let property = pool.entrust(0);
    for (fibers, launched) in [(0, 0), (1, 0), (10, 1)] {
        let (send, receive) = mpsc::channel();
        let client = property.clone();
        let running = Shared::new(AtomicUsize::new(0));
        let entered = running.clone();
        let thread = thread::spawn(move || {
            let latch = local_trustee().entrust(Latch::new(0));
            send.send(latch).unwrap();
            for _ in 0..fibers {
                let client = client.clone();
                drop(trust::spawn(move || {
                    LENT.with(|lent| {
                        trust::sleep(Duration::from_millis(5));
                        client.apply(|n| *n += 1);
                        lent.check("a fiber");
                    });
                }));
            }
            serve_until(|| running.load(Ordering::SeqCst) == launched);
            trust::finish();
        });
        let latch = receive.recv().unwrap();
        let clients = (0..launched).map(|_| {
            let (latch, entered) = (latch.clone(), entered.clone());
            pool.spawn(move || {
                latch.launch(move |n| {
                    entered.fetch_add(1, Ordering::SeqCst);
                    trust::sleep(Duration::from_millis(2));
                    *n += 1;
                    *n
                })
            })
        });
        let clients: Vec<_> = clients.collect();
        join_and_serve(thread);
        assert_eq!(property.apply(|n| std::mem::replace(n, 0)), fibers);
        for client in clients {
            assert_eq!(client.join().unwrap(), 1);
        }
    }
    // A thread that never used the library has nothing to finish.
    thread::spawn(trust::finish).join().unwrap();
}

#[test]
fn finish_is_for_the_thread_s_own_code() {
    let _watch = watchdog!();
    let told = |outcome: trust::Outcome<()>| text(&*outcome.unwrap_err());
    assert!(told(trust::spawn(trust::finish).join()).contains("none of them"));
    let property = local_trustee().entrust(());
    assert!(common::panic_of(|| property.apply(|()| trust::finish())).contains("`finish` waits"));
}

/// A fiber that has not begun has borrowed nothing: it is run while the thread ends, and may wait there.
#[test]
fn a_fiber_that_has_not_begun_is_run_while_its_thread_ends() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let property = pool.entrust(1);
    let handles = thread::spawn(move || {
        let spawned = trust::spawn(move || {
            LENT.with(|lent| {
                trust::sleep(Duration::from_millis(5));
                lent.check("a fiber");
                property.apply(|n| *n)
            })
        });
        [spawned, trust::spawn_on(&local_trustee(), || 2)]
    });
    let handles = handles.join().unwrap();
    assert_eq!(handles.map(|handle| handle.join().unwrap()), [1, 2]);
}

/// A fiber that is started too late to be run: its captures are dropped, and its waiter is notified.
#[test]
fn trap_06_a_fiber_that_never_begins_is_told_to_who_waits_for_it() {
    type Handles = Arc<Mutex<Vec<trust::JoinHandle<u32>>>>;
    struct StartsLate<C: Send + 'static>(Option<C>, Handles);
    impl<C: Send + 'static> Drop for StartsLate<C> {
        fn drop(&mut self) {
            let captured = self.0.take();
            let bomb = common::PanicsOnDrop(true);
            let run = move || {
                let _captured = (captured, bomb);
                1
            };
            self.1.lock().unwrap().extend([
                trust::spawn(run),
                trust::spawn(|| 2),
                trust::spawn_on(&local_trustee(), || 3),
            ]);
        }
    }
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let drops = Drops::default();
    let (handles, (unkept, pending)) = (Handles::default(), promise::<u32>());
    let (late, only_trust) = (Arc::clone(&handles), pool.entrust(drops.value(())));
    let thread = thread::spawn(move || {
        let keeps = local_trustee().entrust(StartsLate(Some((unkept, only_trust)), late));
        // Kept up to the thread's end, with which the property goes.
        std::mem::forget(keeps);
    });
    join_and_serve(thread);
    let handles = std::mem::take(&mut *handles.lock().unwrap());
    assert_eq!(handles.len(), 3);
    for handle in handles {
        assert!(text(&*handle.join().unwrap_err()).contains("its thread has ended"));
    }
    assert!(matches!(pending.wait(), Err(Error::Gone { .. })));
    serve_until(|| drops.count() == 1);
}

/// Takes some seconds: as long as an ending thread waits at first, for an answer that does not come. The closures that
/// were launched on it at the last moment do not begin, and the messages to their client exceed the slots.
#[test]
fn trap_06_launched_closures_that_never_begin_are_told_when_time_is_up() {
    const LAUNCHED: usize = 200;
    struct Tells(mpsc::Sender<()>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    thread_local!(static TELLS: Cell<Option<Tells>> = const { Cell::new(None) });
    let _watch = watchdog!();
    let pool = || Threadpool::builder().workers(1).pin(false).build();
    let (client, stuck) = (pool(), pool());
    let released = Shared::new(AtomicBool::new(false));
    let (until, unanswered) = (released.clone(), stuck.entrust(()));
    let (send, receive) = mpsc::channel();
    let (tell, ending) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        let own = local_trustee();
        send.send((own.entrust(Latch::new(0)), own.entrust(()))).unwrap();
        unanswered.apply_then(move |()| stand_until(|| until.load(Ordering::SeqCst)), |()| ());
        // Goes first, before the worker.
        TELLS.set(Some(Tells(tell)));
        serve_until(|| stopped.load(Ordering::SeqCst));
    });
    let (latch, slow) = receive.recv().unwrap();
    // From now on the client is one of the thread's.
    let known = latch.clone();
    client.spawn(move || known.launch(|n| *n += 1)).join().unwrap();
    slow.apply(|()| ());
    stop.store(true, Ordering::SeqCst);
    ending.recv().unwrap();
    let in_slow = Shared::new(AtomicBool::new(false));
    let entered = in_slow.clone();
    slow.apply_then(
        move |()| {
            entered.store(true, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(5_500));
        },
        |()| (),
    );
    serve_until(|| in_slow.load(Ordering::SeqCst));
    let launches = (0..LAUNCHED).map(|_| {
        let latch = latch.clone();
        client.spawn(move || common::panic_of(|| latch.launch(|n| *n += 1)))
    });
    let launches: Vec<_> = launches.collect();
    for launch in launches {
        assert!(launch.join().unwrap().contains("gone"));
    }
    released.store(true, Ordering::SeqCst);
    join_and_serve(thread);
}

/// Pools end their fibers in their own loop, where thread-locals live.
#[test]
fn fibers_of_a_pool_keep_what_they_have_borrowed_up_to_its_end() {
    let _watch = watchdog!();
    let count = Arc::new(AtomicUsize::new(0));
    let pool = Threadpool::builder().workers(2).pin(false).build();
    for _ in 0..20 {
        let count = Arc::clone(&count);
        drop(pool.spawn(move || {
            LENT.with(|lent| {
                trust::sleep(Duration::from_millis(20));
                lent.check("a fiber");
                count.fetch_add(1, Ordering::SeqCst);
            });
        }));
    }
    drop(pool);
    assert_eq!(count.load(Ordering::SeqCst), 20);
    let of_one_thread = Rc::new(Cell::new(0));
    let counted = Rc::clone(&of_one_thread);
    drop(trust::spawn(move || counted.set(1)));
    trust::finish();
    assert_eq!(of_one_thread.get(), 1);
}
