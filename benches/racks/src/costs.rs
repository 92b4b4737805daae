//! Costs of the simulated rack: medians of echo's own measurements (docs/benchmarks.md, figures 23 and 24, commit
//! 4d4c47ad79af; samples in docs/benchmarks/echo.json), 32 bytes each way, two processes unless told otherwise.

/// Bytes of a request, and of an answer.
pub const REQUEST_BYTES: usize = 32;
/// Bytes that a frame has besides: pair, number, counts.
pub const FRAME_HEAD_BYTES: usize = 32;

/// Median round trip of a lone request over `shm`, in nanoseconds.
pub const SHM_ROUND_TRIP_NS: u64 = 611;
/// The same over `tcp`.
pub const TCP_ROUND_TRIP_NS: u64 = 19_875;
/// The same between the threads of one process, rounded up.
pub const THREADS_ROUND_TRIP_NS: u64 = 381;
/// The same over `shm` with four processes on two cores, where each has to be woken twice a round trip.
pub const SHM_WOKEN_ROUND_TRIP_NS: u64 = 4_923;
/// Million requests a second over `shm` with 512 outstanding, of two workers that are client and trustee at once.
pub const SHM_MOPS: f64 = 43.788;

/// Million requests of 64 KiB a second over `tcp` with 512 outstanding, of two such workers.
pub const TCP_LARGE_MOPS: f64 = 0.01750073;
/// See [`TCP_LARGE_MOPS`].
pub const LARGE_BYTES: usize = 65_536;

/// All that a worker does for a request of its own and one that it serves, at full speed; half of it at each end.
pub const REQUEST_NS: u64 = (2.0 * 1e3 / SHM_MOPS) as u64;
/// To find a flag that is set, and to move its line: half a round trip through memory.
pub const FOUND_NS: u64 = SHM_ROUND_TRIP_NS / 2;
/// A write: the sender's system call. One way over `tcp` is that, the same on the receiver's side, and [`FOUND_NS`].
pub const WRITE_NS: u64 = (TCP_ROUND_TRIP_NS / 2 - FOUND_NS) / 2;
/// From the end of a write until its flag can be found.
pub const HOP_NS: u64 = WRITE_NS;
/// From one worker to another of its machine.
pub const HANDOVER_NS: u64 = THREADS_ROUND_TRIP_NS / 2;
/// To wake a worker that sleeps.
pub const WAKE_NS: u64 = (SHM_WOKEN_ROUND_TRIP_NS - SHM_ROUND_TRIP_NS) / 2;
/// A worker sleeps after so long without work.
pub const SPIN_NS: u64 = 50_000;

/// A look at one flag: within the caches, and beyond them (`looking_costs` in gossamer/src/remote/scaling.rs).
pub const FLAG_NS: (f64, f64) = (1.2, 14.0);
/// Flags whose lines and entries the second-level cache still holds.
pub const FLAGS_CACHED: usize = 4096;

/// So many bytes at one end of a write. Each of the two workers sends and receives large requests and large answers.
pub fn bytes_ns(bytes: usize) -> u64 {
    (bytes as f64 * 1e3 / TCP_LARGE_MOPS / LARGE_BYTES as f64 / 2.0) as u64
}

/// A look at so many flags that finds nothing.
pub fn look_ns(flags: usize) -> u64 {
    let flag_ns = if flags <= FLAGS_CACHED { FLAG_NS.0 } else { FLAG_NS.1 };
    (flags as f64 * flag_ns) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn costs_are_those_that_echo_measured() {
        let file: Value = serde_json::from_str(include_str!("../../../docs/benchmarks/echo.json")).unwrap();
        let series = file["results"]["series"].as_array().unwrap();
        let find = |contender: &str, processes: u64, bytes: usize, outstanding: u64| {
            let is_it = |one: &&Value| {
                one["contender"] == contender
                    && one["processes"] == processes
                    && one["bytes"] == bytes as u64
                    && one["outstanding"] == outstanding
            };
            series.iter().find(is_it).unwrap_or_else(|| panic!("{contender}, {processes} processes"))
        };
        let p50_ns = |contender, processes| {
            find(contender, processes, REQUEST_BYTES, 1)["p50_ns"].as_f64().unwrap().ceil() as u64
        };
        assert_eq!(p50_ns("shm", 2), SHM_ROUND_TRIP_NS);
        assert_eq!(p50_ns("tcp", 2), TCP_ROUND_TRIP_NS);
        assert_eq!(p50_ns("threads", 2), THREADS_ROUND_TRIP_NS);
        assert_eq!(p50_ns("shm", 4), SHM_WOKEN_ROUND_TRIP_NS);
        for (contender, bytes, known) in [("shm", REQUEST_BYTES, SHM_MOPS), ("tcp", LARGE_BYTES, TCP_LARGE_MOPS)] {
            let mops = find(contender, 2, bytes, 512)["median_mops"].as_f64().unwrap();
            assert!((mops / known - 1.0).abs() < 1e-4, "{contender}: {mops}");
        }
    }

    #[test]
    fn one_way_is_a_write_a_hop_and_a_find() {
        assert!((2 * (WRITE_NS + HOP_NS + FOUND_NS)).abs_diff(TCP_ROUND_TRIP_NS) < 8);
        assert_eq!(bytes_ns(1 << 20) / 1000, 457, "2.3 GB/s at each end");
        assert_eq!(look_ns(257_742) / 100_000, 36, "3.6 ms");
    }
}
