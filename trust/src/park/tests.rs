//! Sleeping for real: by the futex and by a waker. No lost wake-up in any interleaving: `model.rs`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::*;

/// Longer than any sleep here: a thread that slept for so long was not woken.
const LONG: Duration = limits::HANG;

/// Waits until the worker has announced its sleep.
fn wait_for_sleep(parker: &Parker) {
    let deadline = Instant::now() + LONG;
    while parker.word.load(Ordering::SeqCst) != ASLEEP {
        assert!(Instant::now() < deadline, "it does not sleep");
        std::thread::yield_now();
    }
}

#[test]
fn a_sleeper_is_woken_by_whoever_publishes() {
    let parker = Parker::new(0);
    let work = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let start = Instant::now();
            while !work.load(Ordering::SeqCst) {
                parker.park(Some(LONG), || work.load(Ordering::SeqCst));
            }
            start.elapsed()
        });
        wait_for_sleep(&parker);
        assert_eq!(parker.publish(|| work.store(true, Ordering::SeqCst)), Presence::Here);
        assert!(sleeper.join().unwrap() < LONG, "nobody woke it");
    });
    assert_eq!(parker.word.load(Ordering::SeqCst), AWAKE);
}

#[test]
fn a_sleep_ends_with_its_limit_and_does_not_begin_where_there_is_work() {
    let parker = Parker::new(0);
    let (start, limit) = (Instant::now(), Duration::from_millis(30));
    // A sleep may end early.
    while start.elapsed() < limit {
        assert!(parker.park(Some(limit), || false));
        assert_eq!(parker.word.load(Ordering::SeqCst), AWAKE);
    }
    assert!(start.elapsed() < LONG);
    let announced = std::cell::Cell::new(0);
    let has_work = || {
        announced.set(parker.word.load(Ordering::SeqCst));
        true
    };
    assert!(!parker.park(None, has_work));
    assert_eq!((announced.get(), parker.word.load(Ordering::SeqCst)), (ASLEEP, AWAKE));
}

#[test]
fn nobody_is_looked_for_where_nothing_was_published() {
    let parker = Parker::new(0);
    assert!(parker.arm(|| false));
    assert_eq!(parker.publish_if(|| false), None);
    assert_eq!(parker.word.load(Ordering::SeqCst), ASLEEP);
    assert_eq!(parker.publish_if(|| true), Some(Presence::Here));
    assert_eq!(parker.word.load(Ordering::SeqCst), AWAKE);
    parker.begin_closing();
    assert_eq!((parker.publish(|| ()), parker.presence()), (Presence::Closing, Presence::Closing));
    parker.close();
    assert_eq!((parker.publish(|| ()), parker.presence()), (Presence::Closed, Presence::Closed));
}

/// Asks whether the worker is idle, while others change that.
struct Asks {
    parker: Arc<Parker>,
    work: Arc<AtomicBool>,
    woken: Arc<AtomicBool>,
}

// SAFETY: no worker has it: only the test calls the parker.
unsafe impl Waker for Asks {
    fn park(&self, limit: Option<Duration>, is_idle: &mut dyn FnMut() -> bool) {
        assert_eq!(limit, Some(LONG));
        assert!(is_idle(), "asleep, and without work");
        self.work.store(true, Ordering::SeqCst);
        assert!(!is_idle(), "there is work");
        self.work.store(false, Ordering::SeqCst);
        assert!(is_idle());
        assert_eq!(self.parker.publish(|| ()), Presence::Here);
        assert!(self.woken.load(Ordering::SeqCst), "by whoever publishes");
        assert!(!is_idle(), "it was woken before it slept");
    }
    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_waker_hears_of_work_and_of_whoever_woke_its_worker_before() {
    let (parker, work, woken) = (Arc::new(Parker::new(0)), Arc::new(AtomicBool::new(false)), Arc::default());
    let waker = || Asks { parker: Arc::clone(&parker), work: Arc::clone(&work), woken: Arc::clone(&woken) };
    assert!(parker.set_waker(Box::new(waker())));
    assert!(!parker.set_waker(Box::new(waker())), "the first one stays");
    assert!(parker.park(Some(LONG), || work.load(Ordering::SeqCst)));
    assert!(woken.swap(false, Ordering::SeqCst) && parker.word.load(Ordering::SeqCst) == AWAKE);
    // Without a sleeper no thread is woken.
    assert_eq!(parker.publish(|| ()), Presence::Here);
    assert!(!woken.load(Ordering::SeqCst));
}
