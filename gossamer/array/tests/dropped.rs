//! New arrays reuse memory and slots of dropped ones, although these become free some turns later.

use gossamer_array::{Array, Error};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const MIB: usize = 1 << 20;
type Block = [u8; 4096];

fn array(bytes: usize) -> Result<Array<Block>, Error> {
    Array::builder().cache_bytes(0).build(bytes / size_of::<Block>(), [1; 4096])
}

fn address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

/// Limits the process to `bytes` bytes more than it has.
fn leave(bytes: usize) {
    let limit = Rlimit { current: Some(address_space() + bytes as u64), maximum: getrlimit(Resource::As).maximum };
    setrlimit(Resource::As, limit).unwrap();
}

/// Drops an array here, at another place, or on a thread that is no place.
fn drop_somewhere(one: Array<Block>, round: usize) {
    match round % 3 {
        0 => drop(one),
        1 => gossamer::spawn_on(gossamer::rack().places().last().unwrap(), move || drop(one)).join().unwrap(),
        _ => std::thread::spawn(move || drop(one)).join().unwrap(),
    }
}

/// Says to a process of this test that it is one.
const CHILD: &str = "GOSSAMER_ARRAY_DROPPED";

/// One limit holds for the whole process, so this is one test, in a process of its own. The C library keeps one heap
/// there: each further one takes 64 MiB of address space, whenever threads happen to allocate at the same time.
#[test]
fn arrays_find_what_dropped_ones_leave() {
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "arrays_find_what_dropped_ones_leave", "--nocapture"]);
        let output = child.env(CHILD, "1").env("MALLOC_ARENA_MAX", "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        return;
    }
    gossamer::main(
        || {
            // All threads that it takes are there.
            (0..3).for_each(|round| drop_somewhere(array(MIB).unwrap(), round));
            // Room for one, not for two.
            leave(300 * MIB);
            for round in 0..20 {
                let one = array(160 * MIB).unwrap_or_else(|error| panic!("round {round}: {error}"));
                drop_somewhere(one, round);
            }
            let one = array(160 * MIB).unwrap();
            let refused = array(160 * MIB);
            assert!(matches!(refused, Err(Error::Memory { .. })), "two: {refused:?}");
            assert!(matches!(array(4096 * MIB), Err(Error::Memory { .. })), "more than there is");
            // A view keeps the memory of its part alive.
            let view = one.view(0..1);
            assert_eq!(view[0][7], 1);
            drop(view);
            drop(one);
            array(160 * MIB).unwrap();
            setrlimit(
                Resource::As,
                Rlimit { current: getrlimit(Resource::As).maximum, maximum: getrlimit(Resource::As).maximum },
            )
            .unwrap();
            // The maximum number of arrays.
            let small = || Array::builder().cache_bytes(0).build(2, 0u8);
            let all: Vec<_> = (0..4096).map(|_| small().unwrap()).collect();
            assert!(matches!(small(), Err(Error::Arrays { .. })));
            drop(all);
            small().unwrap();
        },
        2,
    );
}
