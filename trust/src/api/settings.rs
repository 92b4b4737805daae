//! Settings of a pool in effect on this machine: pinning, polling, and settings that cannot be followed.

use std::fmt;
use std::time::Duration;

use crate::config::SPIN_NS;
use crate::cores::Cores;

/// Settings of a [`Threadpool`](crate::Threadpool) in effect: see
/// [`Threadpool::settings`](crate::Threadpool::settings). `Display` writes one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolSettings {
    /// Number of workers.
    pub workers: usize,
    /// Cores that the workers may run on: those left by the affinity of the thread that built the pool.
    pub cores: usize,
    /// Number of cores that the CPU quota of the process' cgroups pays for, rounded down, at least 1; `None` if for
    /// all.
    pub quota: Option<usize>,
    /// Whether each worker has a core of its own.
    pub pinned: bool,
    /// Longest time an idle worker polls before it sleeps.
    pub spin: Duration,
    /// Settings, by the names of the [`Builder`](crate::Builder)'s methods, that were given and are not followed,
    /// because there are more workers than cores.
    pub ignored: Vec<&'static str>,
}

impl PoolSettings {
    /// Decides which settings apply. With more workers than cores no worker is pinned or polls. Under a quota none does
    /// unless requested: a polling worker uses up CPU time of the rest of the cgroup, and a pinned worker cannot leave
    /// a core that another cgroup uses.
    pub(crate) fn new(workers: usize, cores: &Cores, spin: Option<Duration>, pin: Option<bool>) -> PoolSettings {
        let crowded = workers > cores.usable();
        let limited = cores.quota.is_some();
        let by_default = if limited { Duration::ZERO } else { Duration::from_nanos(SPIN_NS) };
        let ignored =
            [("spin", crowded && spin.is_some_and(|spin| !spin.is_zero())), ("pin", crowded && pin == Some(true))];
        PoolSettings {
            workers,
            cores: cores.count(),
            quota: cores.quota,
            pinned: !crowded && !cores.allowed.is_empty() && pin.unwrap_or(!limited),
            spin: if crowded { Duration::ZERO } else { spin.unwrap_or(by_default) },
            ignored: ignored.into_iter().filter_map(|(name, is_ignored)| is_ignored.then_some(name)).collect(),
        }
    }
}

impl fmt::Display for PoolSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workers: {}, cores: {}", self.workers, self.cores)?;
        if let Some(quota) = self.quota {
            write!(f, " (a CPU quota pays for {quota})")?;
        }
        f.write_str(if self.pinned { ", pinned" } else { ", not pinned" })?;
        if self.spin.is_zero() { f.write_str(", no polling") } else { write!(f, ", polling for {:?}", self.spin) }?;
        if self.ignored.is_empty() {
            return Ok(());
        }
        write!(f, "; more workers than cores, so these settings are ignored: {}", self.ignored.join(", "))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SPIN: Duration = Duration::from_millis(3);
    const DEFAULT: Duration = Duration::from_nanos(SPIN_NS);

    fn settings(workers: usize, quota: Option<usize>, given: Option<(Duration, bool)>) -> PoolSettings {
        let cores = Cores { allowed: vec![0, 1, 4, 5], quota };
        PoolSettings::new(workers, &cores, given.map(|(spin, _)| spin), given.map(|(_, pin)| pin))
    }

    fn effect(settings: &PoolSettings) -> (Duration, bool, &[&str]) {
        (settings.spin, settings.pinned, &settings.ignored)
    }

    #[test]
    fn who_polls_and_who_is_pinned() {
        let given = Some((SPIN, true));
        assert_eq!(effect(&settings(4, None, None)), (DEFAULT, true, &[][..]));
        assert_eq!(effect(&settings(4, None, given)), (SPIN, true, &[][..]));
        assert_eq!(effect(&settings(4, None, Some((SPIN, false)))), (SPIN, false, &[][..]));
        assert_eq!(effect(&settings(5, None, None)), (Duration::ZERO, false, &[][..]));
        assert_eq!(effect(&settings(5, None, given)), (Duration::ZERO, false, &["spin", "pin"][..]));
        // A setting that was asked for and holds anyway is not ignored.
        assert_eq!(effect(&settings(5, None, Some((Duration::ZERO, false)))), (Duration::ZERO, false, &[][..]));
        // Under a quota: off by default, on if asked for, and no more workers than the quota pays for.
        assert_eq!(effect(&settings(2, Some(2), None)), (Duration::ZERO, false, &[][..]));
        assert_eq!(effect(&settings(2, Some(2), given)), (SPIN, true, &[][..]));
        assert_eq!(effect(&settings(3, Some(2), given)), (Duration::ZERO, false, &["spin", "pin"][..]));
    }

    #[test]
    fn where_the_system_names_no_cores_nobody_is_pinned() {
        let cores = Cores { allowed: Vec::new(), quota: None };
        assert!(!PoolSettings::new(1, &cores, None, Some(true)).pinned);
    }

    #[test]
    fn the_settings_are_told_in_one_line() {
        assert_eq!(settings(4, None, None).to_string(), "workers: 4, cores: 4, pinned, polling for 500µs");
        assert_eq!(
            settings(3, Some(2), Some((SPIN, true))).to_string(),
            "workers: 3, cores: 4 (a CPU quota pays for 2), not pinned, no polling; more workers than cores, so these \
             settings are ignored: spin, pin"
        );
    }
}
