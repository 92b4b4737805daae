//! Pools whose fibers do not come to an end: the thread that ends them is not held up for ever, or learns the cause.
//! And the visible state of waiting fibers.

mod common;

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use common::{is_child, run_child, stderr, text};
use fastrand::Rng;
use trust::{Aborted, Latch, Pending, Shared, Threadpool, promise};

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).name("table").build()
}

/// Text of a dump: on a busy machine a worker may take longer to answer than the dump waits.
const UNANSWERED: &str = "has not answered";

/// Output of a test's child, from a run in which all workers answered in time.
fn child_says(test: &str) -> (bool, String) {
    loop {
        let output = run_child(test);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
        if !said.contains(UNANSWERED) {
            return (output.status.success(), said);
        }
    }
}

/// Waits, in the process's own time, until the dump contains all of this.
fn dump_with(parts: &[&str]) -> String {
    loop {
        let dump = trust::dump().to_string();
        if parts.iter().all(|part| dump.contains(part)) {
            return dump;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_pool_at_rest_is_shut_down_and_one_with_a_fiber_that_waits_is_told_of() {
    let _watch = watchdog!();
    let quiet = pool(2);
    drop(quiet.spawn(|| 1));
    assert!(quiet.shutdown_timeout(Duration::from_secs(50)).is_ok());

    let (left, number, promise, fiber) = loop {
        let pool = pool(2);
        let number = pool.entrust(Latch::new(1));
        let (tell, told) = mpsc::channel();
        let fiber = pool.spawn(move || {
            let (promise, pending) = promise::<u32>();
            tell.send(promise).unwrap();
            pending.wait()
        });
        let promise = told.recv().unwrap();
        let left = pool.shutdown_timeout(Duration::from_millis(100)).unwrap_err();
        if !left.to_string().contains(UNANSWERED) {
            break (left, number, promise, fiber);
        }
        promise.keep(7);
        assert_eq!(fiber.join().unwrap(), Ok(7));
    };
    assert_eq!(left.dump().fibers(), 1, "{left}");
    let said = left.to_string();
    for part in ["a promised `u32`", "table-0", "table-1", "unending"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    // Nothing was cut off, and then the workers end.
    assert_eq!(number.launch(|number| *number), 1);
    promise.keep(7);
    assert_eq!(fiber.join().unwrap(), Ok(7));
    while number.call().apply(|_| ()).wait().is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_worker_in_a_closure_that_does_not_end_does_not_hold_up_who_asks() {
    let _watch = watchdog!();
    let pool = pool(1);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    drop(pool.spawn(move || {
        while !stopped.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
    }));
    let said = dump_with(&["table-0", UNANSWERED]);
    let left = pool.shutdown_timeout(Duration::from_millis(50)).unwrap_err().to_string();
    stop.store(true, Ordering::SeqCst);
    assert!(left.contains(UNANSWERED), "{left} {said}");
}

#[test]
fn a_panic_beside_a_pool_whose_fibers_never_end_ends_its_thread() {
    let _watch = watchdog!();
    if is_child() {
        let pool = pool(1);
        drop(pool.spawn(|| trust::sleep(Duration::MAX)));
        panic!("the test has failed");
    }
    let start = Instant::now();
    let (is_success, said) = child_says("a_panic_beside_a_pool_whose_fibers_never_end_ends_its_thread");
    assert!(!is_success);
    assert!(said.contains("the test has failed") && said.contains("test result: FAILED"), "{said}");
    assert!(said.contains("dropped by a panic") && said.contains("waits for a time"), "{said}");
    assert!(start.elapsed() >= Duration::from_secs(1), "what can come to its end is given some time");
}

#[test]
fn a_drop_that_takes_long_says_what_it_waits_for() {
    let _watch = watchdog!();
    if is_child() {
        let pool = pool(1);
        drop(pool.spawn(|| trust::spawn_named("the slow one", || trust::sleep(Duration::from_millis(7500))).join()));
        return drop(pool);
    }
    let (is_success, said) = child_says("a_drop_that_takes_long_says_what_it_waits_for");
    assert!(is_success, "{said}");
    for part in
        ["the end of a pool has waited for", "the slow one", "waits for a time", "the end of a fiber", "table-0"]
    {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    assert_eq!(said.matches("the end of a pool").count(), 1, "once in this time: {said}");
}

/// Each kind of wait has its text.
#[test]
fn the_dump_says_what_each_fiber_waits_for() {
    let _watch = watchdog!();
    let pool = pool(2);
    let latch = pool.trustees()[0].entrust(Latch::new(0u8));
    let kept = Shared::new(Mutex::new(None));
    let keep = kept.clone();
    let holder = latch.clone();
    let mut fibers = vec![pool.spawn_on(1, move || {
        holder.launch(move |value| {
            let (promise, pending) = promise::<u16>();
            *keep.lock().unwrap() = Some(promise);
            *value += 1;
            pending.wait().unwrap();
        });
    })];
    let promise = loop {
        if let Some(promise) = kept.lock().unwrap().take() {
            break promise;
        }
        std::thread::yield_now();
    };
    for _ in 0..2 {
        let latch = latch.clone();
        fibers.push(pool.spawn_on(1, move || latch.launch(|value| *value += 1)));
    }
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    fibers.push(pool.spawn_on(1, move || {
        let listener = trust::net::TcpListener::bind("127.0.0.1:0").unwrap();
        begin.send(listener.local_addr().unwrap()).unwrap();
        listener.accept().map(drop).unwrap();
        ended.recv().unwrap_or(());
    }));
    let is_seen = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_seen);
    fibers.push(pool.spawn_on(1, move || {
        let local = Latch::new(1i8);
        let guard = local.lock();
        let joined = trust::spawn_named("joined", move || {
            while !seen.load(Ordering::Relaxed) {
                trust::sleep(Duration::from_millis(300));
            }
        });
        joined.join().unwrap();
        drop(guard);
    }));
    let address = begun.recv().unwrap();
    let said = dump_with(&[
        "a promised `u16`",
        "the value of a `Latch<u8>`",
        "the result of a closure that it launched",
        "a socket",
        "fiber 'joined'",
        "waits for a time (`sleep`)",
        "the end of a fiber (`join`)",
    ]);
    is_seen.store(true, Ordering::Relaxed);
    assert!(said.contains(", since "), "{said}");
    assert!(said.lines().filter(|line| line.contains("Latch<u8>")).count() == 2, "{said}");
    promise.keep(1);
    drop(std::net::TcpStream::connect(address).unwrap());
    drop(end);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap_or_else(|panic| panic!("{}", text(&*panic))));
    assert_eq!(latch.launch(|value| *value), 3);
}

/// From everywhere, also where nothing may wait.
#[test]
fn a_dump_can_be_had_inside_of_closures_and_of_fibers() {
    let _watch = watchdog!();
    let pool = pool(2);
    let property = pool.entrust(());
    assert!(property.apply(|()| trust::dump().to_string().contains("table-")));
    assert!(pool.spawn(|| trust::dump().to_string().contains(" runs\n")).join().unwrap());
    assert!(std::thread::spawn(|| trust::dump().to_string().contains("table-1")).join().unwrap());
}

/// Sends a message when it is dropped.
struct Told(mpsc::Sender<&'static str>, &'static str);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send(self.1).unwrap();
    }
}

/// Aborts a fiber that waits in `wait`, and checks that it drops its values.
fn abort_in(wait: impl FnOnce() + Send + 'static) {
    let pool = pool(1);
    let (drops, dropped) = mpsc::channel();
    let told = Told(drops.clone(), "what it owned");
    let (begin, begun) = mpsc::channel();
    let fiber = pool.spawn(move || {
        let _told = told;
        begin.send(()).unwrap();
        wait();
        drops.send("it went on").unwrap();
    });
    begun.recv().unwrap();
    fiber.abort();
    let payload = fiber.join().unwrap_err();
    assert!(payload.is::<Aborted>(), "{}", text(&*payload));
    assert_eq!(dropped.iter().collect::<Vec<_>>(), ["what it owned"]);
    assert!(pool.shutdown_timeout(Duration::from_secs(50)).is_ok());
}

#[test]
fn an_aborted_fiber_leaves_its_wait_and_drops_what_it_has() {
    let _watch = watchdog!();
    abort_in(|| trust::sleep(Duration::MAX));
    abort_in(|| {
        let (_promise, pending) = promise::<u8>();
        let _ = pending.wait();
    });
    abort_in(|| {
        let (_promise, pending) = promise::<u8>();
        let _ = pending.wait_timeout(Duration::from_secs(1000));
    });
    abort_in(|| {
        let listener = trust::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _ = listener.accept();
    });
    abort_in(|| {
        loop {
            trust::yield_now();
        }
    });
    // The fiber that it joins goes on by itself.
    abort_in(|| {
        let (promise, pending) = promise::<u8>();
        let other = trust::spawn(move || pending.wait());
        let keeper = trust::spawn(move || {
            trust::sleep(Duration::from_millis(30));
            promise.keep(1);
        });
        drop(keeper);
        let _ = other.join();
        trust::sleep(Duration::MAX);
    });
}

#[test]
fn a_fiber_that_ends_or_catches_its_abort_goes_on() {
    let _watch = watchdog!();
    let pool = pool(1);
    let fiber = pool.spawn(|| 7);
    while !fiber.is_finished() {
        trust::yield_now();
    }
    fiber.abort();
    assert_eq!(fiber.join().unwrap(), 7);

    let (begin, begun) = mpsc::channel();
    let fiber = pool.spawn(move || {
        begin.send(()).unwrap();
        let caught = std::panic::catch_unwind(|| trust::sleep(Duration::MAX));
        trust::sleep(Duration::from_millis(1));
        caught.unwrap_err().is::<Aborted>()
    });
    begun.recv().unwrap();
    fiber.abort();
    assert!(fiber.join().unwrap());

    // On the same thread, where it has not begun, and its closure is dropped.
    let (drops, dropped) = mpsc::channel();
    let told = Told(drops, "unrun");
    let fiber = trust::spawn(move || drop(told));
    fiber.abort();
    assert!(text(&*fiber.join().unwrap_err()).contains("aborted"));
    assert_eq!(dropped.iter().count(), 1);
}

/// A destructor that waits while a panic unwinds is left alone: a second panic would end the process.
#[test]
fn an_abort_waits_for_a_panic_that_unwinds() {
    let _watch = watchdog!();
    struct WaitsInDrop(mpsc::Sender<()>);
    impl Drop for WaitsInDrop {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            trust::sleep(Duration::from_millis(50));
        }
    }
    let pool = pool(1);
    let (begin, begun) = mpsc::channel();
    let fiber = pool.spawn(move || {
        let _waits = WaitsInDrop(begin);
        panic!("its own");
    });
    begun.recv().unwrap();
    fiber.abort();
    assert_eq!(text(&*fiber.join().unwrap_err()), "its own");
}

/// It comes to another fiber of the thread when the panic is over, also if that one waits for ever.
#[test]
fn an_abort_amid_a_panic_of_another_fiber_is_not_forgotten() {
    let _watch = watchdog!();
    struct WaitsInDrop(mpsc::Sender<()>, Option<Pending<()>>);
    impl Drop for WaitsInDrop {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            if let Some(end) = self.1.take() {
                end.wait().unwrap();
            }
        }
    }
    let pool = pool(1);
    let waits = pool.spawn(|| trust::sleep(Duration::MAX));
    let (begin, begun) = mpsc::channel();
    let (send, promises) = mpsc::channel();
    let panics = pool.spawn(move || {
        let (promise, end) = promise::<()>();
        send.send(promise).unwrap();
        let _waits = WaitsInDrop(begin, Some(end));
        panic!("its own");
    });
    begun.recv().unwrap();
    waits.abort();
    waits.abort();
    // The thread has taken both up: it has run a fiber that came behind them.
    pool.spawn(|| ()).join().unwrap();
    assert!(!waits.is_finished(), "a panic unwinds");
    promises.recv().unwrap().keep(());
    assert!(waits.join().unwrap_err().is::<Aborted>());
    assert_eq!(text(&*panics.join().unwrap_err()), "its own");
}

/// Aborts against ends, wakes and time-outs of the same waits.
#[test]
fn stress_aborts_race_with_what_the_fibers_wait_for() {
    let _watch = watchdog!(120);
    let pool = pool(2);
    let mut random = Rng::with_seed(3);
    let (mut aborted, mut ended) = (0, 0);
    for _ in 0..common::effort(1500, 30_000) {
        let (send, received) = mpsc::channel();
        let kind = random.usize(..4);
        let fiber = pool.spawn(move || {
            let (promise, pending) = promise::<u8>();
            let _ = send.send(promise);
            match kind {
                0 => drop(pending.wait()),
                1 => drop(pending.wait_timeout(Duration::from_micros(200))),
                2 => drop(trust::spawn(move || pending.wait()).join()),
                _ => trust::sleep(Duration::from_micros(100)),
            }
            trust::yield_now();
        });
        let promise = received.recv().ok();
        for _ in 0..random.usize(..200) {
            std::hint::spin_loop();
        }
        match random.usize(..2) {
            0 => {
                fiber.abort();
                drop(promise);
            }
            _ => {
                promise.into_iter().for_each(|promise| promise.keep(1));
                fiber.abort();
            }
        }
        match fiber.join() {
            Ok(()) => ended += 1,
            Err(payload) if payload.is::<Aborted>() => aborted += 1,
            Err(payload) => assert!(text(&*payload).contains("aborted"), "{}", text(&*payload)),
        }
    }
    assert!(aborted > 0 && ended + aborted > 0);
}

#[test]
fn a_signal_has_the_process_say_what_its_fibers_wait_for() {
    let _watch = watchdog!();
    if is_child() {
        trust::dump_on_signal(libc::SIGUSR2).unwrap();
        assert!(trust::dump_on_signal(libc::SIGKILL).is_err());
        let pool = pool(1);
        drop(pool.spawn(|| trust::sleep(Duration::MAX)));
        dump_with(&["waits for a time"]);
        common::loud("ready");
        std::thread::sleep(Duration::from_secs(common::LIMIT_S));
        std::process::exit(0);
    }
    let mut child = common::child("a_signal_has_the_process_say_what_its_fibers_wait_for").spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("ready")));
    for _ in 0..2 {
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::USR2).unwrap();
        assert!(lines.any(|line| line.contains("table-0")));
        assert!(lines.any(|line| line.contains("waits for a time")));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The joined fiber ends just as the joining one looks for the last time.
#[test]
fn who_joins_is_woken_once_however_soon_the_other_ends() {
    let _watch = watchdog!();
    let (joining, ending) = (pool(1), Arc::new(pool(1)));
    for _ in 0..common::effort(40, 400) {
        let joiners: Vec<_> = (0..50)
            .map(|number| {
                let ending = Arc::clone(&ending);
                joining.spawn(move || ending.spawn(move || number).join().unwrap())
            })
            .collect();
        for (number, joiner) in joiners.into_iter().enumerate() {
            assert_eq!(joiner.join().unwrap(), number);
        }
    }
}

/// Aborted while it is in a wait that cannot be cut short, a fiber unwinds in the `join` that follows.
#[test]
fn a_fiber_that_was_aborted_before_unwinds_in_its_join() {
    let _watch = watchdog!();
    let pool = pool(2);
    let gate = pool.trustees()[1].entrust(());
    let (enter, entered) = mpsc::channel();
    let (open, opened) = mpsc::channel::<()>();
    let opened = Shared::new(Mutex::new(opened));
    let enter = Shared::new(Mutex::new(enter));
    let fiber = pool.spawn_on(0, move || {
        gate.apply(move |()| {
            enter.lock().unwrap().send(()).unwrap();
            opened.lock().unwrap().recv().unwrap();
        });
        let other = trust::spawn(|| trust::sleep(Duration::from_millis(20)));
        other.join().unwrap();
    });
    entered.recv().unwrap();
    fiber.abort();
    // The message comes before the answer: both are the same worker's.
    std::thread::sleep(Duration::from_millis(50));
    open.send(()).unwrap();
    let payload = fiber.join().unwrap_err();
    assert!(payload.is::<Aborted>(), "{}", text(&*payload));
}

/// Asked a second time, when its workers have been told to stop, a pool still comes to its end.
#[test]
fn a_pool_that_had_no_time_to_stop_stops_later() {
    let _watch = watchdog!();
    let pool = pool(2);
    let number = pool.entrust(1);
    std::thread::sleep(Duration::from_millis(50));
    let _ = pool.shutdown_timeout(Duration::ZERO);
    while number.call().apply(|_| ()).wait().is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
