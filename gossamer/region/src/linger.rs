//! Adaptive spinning: waiting without sleep while no other thread wants the core, for a thread that expects an answer
//! soon. A wake-up costs 30 us and more in a virtual machine, many times the wait. Page servers do the same (`trust`,
//! `idle.rs`).

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use trust::link::{Contested, cpu_quota};

thread_local! {
    static CONTESTED: Contested = const { Contested::new() };
}

/// Yields the core once, and returns whether to poll again after waiting since `since`: not for longer than `limit`,
/// nor where another thread computes on the core, nor under a CPU quota, which spinning would use up.
pub fn linger(since: Instant, limit: Duration) -> bool {
    static HAS_QUOTA: OnceLock<bool> = OnceLock::new();
    let now = Instant::now();
    let is_over = now.duration_since(since) >= limit || CONTESTED.with(|contested| contested.is(now));
    if is_over || *HAS_QUOTA.get_or_init(|| cpu_quota().is_some()) {
        return false;
    }
    thread::yield_now();
    CONTESTED.with(|contested| contested.yielded(now, now.elapsed()));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lingers_sleeps_when_its_time_is_over_or_another_computes() {
        let limit = Duration::from_secs(600);
        if cpu_quota().is_some() {
            return println!("SKIPPED: this system has a CPU quota, under which nobody lingers");
        }
        assert!(linger(Instant::now(), limit));
        assert!(!linger(Instant::now(), Duration::ZERO), "it is over");
        CONTESTED.with(|contested| contested.yielded(Instant::now(), limit));
        assert!(!linger(Instant::now(), limit), "another computes");
    }
}
