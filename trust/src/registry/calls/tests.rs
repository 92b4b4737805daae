//! Waiters for room in a window, and the order of their wake-ups.

use std::sync::Arc;
use std::task::Wake;

use super::*;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A full window, and some waiters for room in it.
fn full(waiters: usize) -> (Window, Vec<Arc<Count>>, Vec<u64>) {
    let window = Window::new();
    (0..CALLS_MAX).for_each(|_| assert!(window.try_enter()));
    assert!(!window.try_enter());
    let counts: Vec<Arc<Count>> = (0..waiters).map(|_| Arc::default()).collect();
    let wait = |count: &Arc<Count>| window.wait(None, &Waker::from(Arc::clone(count))).expect("there is no room");
    let numbers = counts.iter().map(wait).collect();
    (window, counts, numbers)
}

fn woken(counts: &[Arc<Count>]) -> Vec<usize> {
    counts.iter().map(|count| count.0.load(Ordering::SeqCst)).collect()
}

#[test]
fn the_first_room_wakes_the_first_waiter_and_each_further_one_the_next() {
    let (window, counts, _) = full(3);
    window.leave();
    assert_eq!(woken(&counts), [1, 0, 0]);
    // It takes the room, and another call ends.
    assert!(window.try_enter());
    window.leave();
    assert_eq!(woken(&counts), [1, 1, 0]);
    // That room was not taken: there is room for two.
    window.leave();
    assert_eq!(woken(&counts), [1, 1, 1]);
    window.leave();
    assert_eq!(woken(&counts), [1, 1, 1], "each is woken once");
}

/// Calls that must not wait enter a full window: then the first that leaves makes no room yet.
#[test]
fn nobody_is_woken_before_there_is_room() {
    let (window, counts, _) = full(1);
    window.enter();
    window.leave();
    assert_eq!(woken(&counts), [0]);
    assert!(!window.try_enter());
    window.leave();
    assert_eq!(woken(&counts), [1]);
}

#[test]
fn who_is_woken_and_does_not_send_passes_its_turn_on() {
    let (window, counts, numbers) = full(2);
    assert!(window.forget(numbers[0]), "it still waits");
    window.leave();
    assert_eq!(woken(&counts), [0, 1]);
    assert!(!window.forget(numbers[1]), "it was woken");
    let late = Arc::<Count>::default();
    assert!(window.wait(None, &Waker::from(Arc::clone(&late))).is_none(), "there is room");
    assert!(window.try_enter());
    assert!(window.wait(None, &Waker::from(Arc::clone(&late))).is_some());
    window.pass_on();
    assert_eq!(woken(&[Arc::clone(&late)]), [0]);
    window.close();
    assert_eq!(woken(&[late]), [1], "where nothing is taken any more nobody has to wait");
}

/// Each call that leaves wakes as many as there is room for, but many of those may be kept and not polled again.
#[test]
fn with_no_call_under_way_all_are_woken() {
    let (window, counts, _) = full(CALLS_MAX * (CALLS_MAX + 1) / 2 + 2);
    (1..CALLS_MAX).for_each(|_| window.leave());
    assert_eq!(counts.last().map(|last| last.0.load(Ordering::SeqCst)), Some(0));
    window.leave();
    assert!(woken(&counts).into_iter().all(|times| times == 1));
}
