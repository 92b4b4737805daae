//! Statistics of a worker, readable from any thread. The kernel's counts for the worker's thread are read from the
//! kernel at that time.

use crate::api::reference::TrusteeReference;
use crate::registry;
use crate::runtime::worker;
use crate::stats::Stats;

/// Returns the counters of a worker, or `None` if its thread has ended. Each value is right at some recent moment, not
/// all at the same one: calls that a trustee of a pool with `trustees(n)` runs at once for fibers of its own thread are
/// counted when that thread next looks for work, or asks.
///
/// The worker is not disturbed. The caller reads a file of `/proc`, which takes about 10 us.
///
/// ```
/// let me = trust::local_trustee();
/// let before = trust::stats(me).unwrap();
/// assert_eq!(before.requests_served, 0);
/// trust::spawn(|| ()).join().unwrap();
/// let work = trust::stats(me).unwrap().since(&before);
/// assert_eq!(work.fibers_spawned, 1);
/// println!("{work}");
/// ```
pub fn stats(trustee: TrusteeReference) -> Option<Stats> {
    worker::existing(|worker| worker.count_calls_at(trustee.id()));
    registry::find(trustee.id())
        .map(|worker| worker.counters.read(involuntary_switches(worker.thread.get()).unwrap_or(0)))
}

/// Returns how often the kernel has taken the core from this thread of this process.
fn involuntary_switches(thread: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?.trim().parse().ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_often_a_thread_lost_its_core() {
        assert!(involuntary_switches(rustix::thread::gettid().as_raw_nonzero().get()).is_some());
        // Larger than any thread id.
        assert_eq!(involuntary_switches(i32::MAX), None);
    }
}
