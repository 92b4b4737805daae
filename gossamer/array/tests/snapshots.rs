//! Snapshots of an array use the memory of dropped ones, and are refused where there is none.

use gossamer_array::{Array, Error};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const MIB: usize = 1 << 20;

/// Returns the page faults of this process so far.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let behind_name = stat.rsplit_once(')').unwrap().1;
    behind_name.split_whitespace().nth(7).unwrap().parse().unwrap()
}

fn address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

/// One limit holds for the whole process, so this is one test.
#[test]
fn snapshots_use_memory_again_and_are_refused_without() {
    gossamer::main(
        || {
            // Short of a huge page, so that each page of new memory is a fault.
            let array = Array::new(MIB / 8, 1u64).unwrap();
            let round = |value| {
                array.fill(value);
                assert_eq!(array.snapshot().unwrap().slice()[MIB / 8 - 1], value);
            };
            (0..10).for_each(round);
            let before = faults();
            (0..100).for_each(round);
            let each = (faults() - before) / 100;
            assert!(each < 64, "{each} faults a snapshot of 256 pages");

            let large = Array::<[u64; 512]>::builder().cache_bytes(0).build(64 * MIB / 4096, [2; 512]).unwrap();
            let left = Some(address_space() + 32 * MIB as u64);
            setrlimit(Resource::As, Rlimit { current: left, maximum: getrlimit(Resource::As).maximum }).unwrap();
            let refused = large.snapshot().unwrap_err();
            assert!(matches!(refused, Error::Memory { machine: 0, bytes, left } if left < bytes), "{refused}");
            assert!(refused.to_string().contains("its copy of all in a snapshot"), "{refused}");
            assert_eq!(large.get(3)[0], 2, "the array is as it was");
        },
        2,
    );
}
