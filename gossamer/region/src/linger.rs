//! Waiting without sleep, where nobody else wants the core: for who waits for another thread that is about to answer. A wake-up costs
//! 30 us and more in a virtual machine, many times what is waited for. Keepers do the same (`trust`, `idle.rs`).

use std::cell::Cell;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// A core that was away for longer has gone to a thread that computes: those who wait for one another give it back sooner. Who is woken
/// may interrupt that one, who has given way may not.
const CONTESTED: Duration = Duration::from_micros(50);
/// For so many times as long the calling thread sleeps at once.
const CONTESTED_YIELDS: u32 = 16;
/// What counts at most: a process that was stopped has had nobody on its core.
const AWAY_MAX: Duration = Duration::from_millis(10);

thread_local! {
    static CONTESTED_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Gives the core away once, and says whether to look again what was waited for since then: not for longer than `limit`, nor where another
/// thread computes on the core, nor under a CPU quota, which it would use up.
pub fn linger(since: Instant, limit: Duration) -> bool {
    static HAS_QUOTA: OnceLock<bool> = OnceLock::new();
    let now = Instant::now();
    let is_contested = CONTESTED_UNTIL.get().is_some_and(|until| now < until);
    if is_contested
        || now.duration_since(since) >= limit
        || *HAS_QUOTA.get_or_init(|| trust::link::cpu_quota().is_some())
    {
        return false;
    }
    thread::yield_now();
    note(now, now.elapsed());
    true
}

fn note(at: Instant, away: Duration) {
    if away > CONTESTED {
        CONTESTED_UNTIL.set(at.checked_add(CONTESTED_YIELDS * away.min(AWAY_MAX)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lingers_sleeps_when_its_time_is_over_or_another_computes() {
        let limit = Duration::from_secs(600);
        if trust::link::cpu_quota().is_some() {
            return println!("SKIPPED: this system has a CPU quota, under which nobody lingers");
        }
        CONTESTED_UNTIL.set(None);
        assert!(linger(Instant::now(), limit));
        assert!(!linger(Instant::now(), Duration::ZERO), "it is over");
        note(Instant::now(), CONTESTED);
        CONTESTED_UNTIL.set(None);
        note(Instant::now(), limit);
        assert!(!linger(Instant::now(), limit), "another computes");
    }
}
