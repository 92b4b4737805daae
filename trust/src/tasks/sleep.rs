//! `sleep`.

use std::time::{Duration, Instant};

use crate::fiber::record::Awaited;
use crate::fiber::timer::Waiter;
use crate::runtime::worker;

/// Suspends the calling fiber for at least `time`; other fibers run. On a thread outside the pool its own fibers and
/// trustee are served meanwhile.
///
/// # Panics
/// In delegated context and in callbacks, where nothing may wait.
///
/// ```
/// let sleeper = trust::spawn(|| { trust::sleep(std::time::Duration::from_millis(2)); 7 });
/// assert_eq!(sleeper.join().unwrap(), 7);
/// ```
pub fn sleep(time: Duration) {
    worker::with(|worker| {
        worker.assert_may_wait("sleep");
        // No deadline if the clock cannot represent it.
        let end = Instant::now().checked_add(time);
        worker.wait_unless_aborted(Awaited::Time, end, &Waiter::default(), || false);
        worker.heed_abort();
    });
}
