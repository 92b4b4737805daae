//! Cores that the workers of this machine can have: those they may run on, without the part that other programs use.
//! Not here: when it is measured, and for whom (`mod.rs`).

use std::fs;
use std::time::Instant;

use rustix::thread::{CpuSet, Pid, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};
use trust::TrusteeReference;

/// Reads the processor time of the machine's cores, of this process, and of its workers, at intervals.
pub(super) struct Meter {
    /// The workers' threads.
    threads: Vec<i32>,
    /// The cores that they may run on.
    cores: Vec<usize>,
    ticks_hz: f64,
    last: Reading,
}

#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    /// Seconds for which the cores were not idle, all programs together.
    busy_s: f64,
    /// Processor time of this process.
    own_s: f64,
    /// Seconds for which the workers ran, and for which they would have but had no core.
    ran_s: f64,
    waited_s: f64,
}

impl Meter {
    pub(super) fn begin(workers: &[TrusteeReference]) -> Meter {
        let threads: Vec<i32> = workers.iter().filter_map(|worker| trust::link::thread_id(*worker)).collect();
        let sets: Vec<CpuSet> = threads.iter().filter_map(|thread| allowed(*thread)).collect();
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| sets.iter().any(|set| set.is_set(*core))).collect();
        let ticks_hz = rustix::param::clock_ticks_per_second() as f64;
        let last = Reading::now(&threads, &cores, ticks_hz);
        Meter { threads, cores, ticks_hz, last }
    }

    /// Returns the cores that the workers can have, and those that they have used since the last time.
    pub(super) fn measure(&mut self) -> (f32, f32) {
        let now = Reading::now(&self.threads, &self.cores, self.ticks_hz);
        let past = std::mem::replace(&mut self.last, now);
        let seconds = now.at.duration_since(past.at).as_secs_f64();
        let all = self.cores.len().min(self.threads.len()).max(1) as f64;
        let others = ((now.busy_s - past.busy_s) - (now.own_s - past.own_s)).max(0.0) / seconds;
        let (ran, waited) = ((now.ran_s - past.ran_s) / seconds, (now.waited_s - past.waited_s) / seconds);
        (can_have(all, self.cores.len() as f64 - others, ran, waited) as f32, ran as f32)
    }
}

impl Reading {
    /// A number that the system does not give is 0.
    fn now(threads: &[i32], cores: &[usize], ticks_hz: f64) -> Reading {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let times = threads
            .iter()
            .filter_map(|thread| times_ns(&fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?));
        let (ran, waited) = times.fold((0, 0), |sum, (ran, waited)| (sum.0 + ran, sum.1 + waited));
        Reading {
            at: Instant::now(),
            busy_s: busy_ticks(&stat, cores) as f64 / ticks_hz,
            own_s: own.tv_sec as f64 + own.tv_nsec as f64 / 1e9,
            ran_s: ran as f64 / 1e9,
            waited_s: waited as f64 / 1e9,
        }
    }
}

/// Returns the cores that workers can have, at most `all`, where other programs left `left`, and they themselves ran
/// for `ran` of the time and waited for a core for `waited` of it.
fn can_have(all: f64, left: f64, ran: f64, waited: f64) -> f64 {
    let wanted = ran + waited;
    if wanted > 0.1 * all {
        // At least so much: on a host with many programs this says less about the next moment than about the last.
        return all * (ran / wanted).max(0.125);
    }
    // They were idle. Programs that compute all the time give way to workers that do: each gets its share.
    left.clamp(all / 2.0, all)
}

/// Returns the times for which a thread ran and waited for a core, of the text of its `schedstat`.
fn times_ns(schedstat: &str) -> Option<(u64, u64)> {
    let mut numbers = schedstat.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn allowed(thread: i32) -> Option<CpuSet> {
    sched_getaffinity(Pid::from_raw(thread)).ok()
}

/// Returns the ticks for which these cores were not idle, of the text of `/proc/stat`.
fn busy_ticks(stat: &str, cores: &[usize]) -> u64 {
    let of_core = |line: &str| -> Option<u64> {
        let (name, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
        cores.contains(&name.parse().ok()?).then_some(())?;
        // user nice system idle iowait irq softirq steal; those of guests are in the first two.
        let ticks = ticks.split_ascii_whitespace().take(8).zip(0..).filter(|(_, index)| !matches!(index, 3 | 4));
        ticks.map(|(ticks, _)| ticks.parse::<u64>().ok()).sum()
    };
    stat.lines().filter_map(of_core).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_the_cores_that_are_not_idle() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 1000 50 4 5 6 1 1\ncpu1 10 0 0 7 0 0 0 0 0 0\n\
                    cpu10 100 0 0 7 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(busy_ticks(stat, &[0]), 21);
        assert_eq!(busy_ticks(stat, &[0, 1]), 31);
        assert_eq!(busy_ticks(stat, &[1, 10]), 110);
        assert_eq!(busy_ticks("no such text", &[0]), 0);
    }

    #[test]
    fn times_of_a_thread() {
        assert_eq!(times_ns("1712000 5000 9\n"), Some((1_712_000, 5000)));
        assert_eq!((times_ns(""), times_ns("1712000")), (None, None));
    }

    #[test]
    fn workers_can_have_what_others_leave() {
        assert_eq!(can_have(2.0, 2.0, 0.0, 0.0), 2.0);
        assert_eq!(can_have(2.0, 1.5, 0.1, 0.0), 1.5);
        assert_eq!(can_have(1.0, 3.0, 0.0, 0.0), 1.0, "one worker, and three cores that nobody uses");
        assert_eq!(can_have(1.0, 0.0, 0.0, 0.0), 0.5, "as much as the other one, if they want it");
        assert_eq!(can_have(2.0, 1.0, 0.5, 0.5), 1.0, "they had half of the time that they wanted");
        assert_eq!(can_have(2.0, 2.0, 1.0, 0.0), 2.0, "all of it");
        assert_eq!(can_have(2.0, 2.0, 0.01, 1.0), 0.25);
    }

    #[test]
    fn the_meter_sees_the_workers() {
        let pool = trust::Threadpool::new(1);
        let mut meter = Meter::begin(pool.trustees());
        assert!(!meter.cores.is_empty());
        let spins = || {
            let start = Instant::now();
            while start.elapsed().as_millis() < 100 {
                std::hint::spin_loop();
            }
        };
        pool.spawn(spins).join().unwrap();
        let (cores, used) = meter.measure();
        assert!(cores > 0.0 && cores <= 1.0, "{cores}");
        assert!(used > 0.0 && used < 1.1, "{used}");
    }
}
