//! Arrays are made of what dropped ones leave, although that is free some turns later: their memory, and their slots.

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

/// Leaves room for so many bytes more.
fn leave(bytes: usize) {
    let limit = Rlimit { current: Some(address_space() + bytes as u64), maximum: getrlimit(Resource::As).maximum };
    setrlimit(Resource::As, limit).unwrap();
}

/// One limit holds for the whole process, so this is one test.
#[test]
fn arrays_find_what_dropped_ones_leave() {
    gossamer::main(
        || {
            // All threads and heaps that it takes are there.
            drop(array(MIB).unwrap());
            // Room for one, not for two.
            leave(300 * MIB);
            for round in 0..20 {
                let one = array(160 * MIB).unwrap_or_else(|error| panic!("round {round}: {error}"));
                match round % 3 {
                    0 => drop(one),
                    1 => {
                        gossamer::spawn_on(gossamer::rack().places().last().unwrap(), move || drop(one)).join().unwrap()
                    }
                    _ => std::thread::spawn(move || drop(one)).join().unwrap(),
                }
            }
            let one = array(160 * MIB).unwrap();
            let refused = array(160 * MIB);
            assert!(matches!(refused, Err(Error::Memory { .. })), "two: {refused:?}");
            assert!(matches!(array(4096 * MIB), Err(Error::Memory { .. })), "more than there is");
            // A view keeps the memory of its part, until it goes.
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
            // As many as there may be.
            let small = || Array::builder().cache_bytes(0).build(2, 0u8);
            let all: Vec<_> = (0..4096).map(|_| small().unwrap()).collect();
            assert!(matches!(small(), Err(Error::Arrays { .. })));
            drop(all);
            small().unwrap();
        },
        2,
    );
}
