//! Random programs over objects, each step at a random place, against plain values.

use gossamer_heap::Global;

use crate::suite::ground::{JoinOutcome, effort, places};

const WORDS: usize = 24;

/// Several objects, whose owners go from place to place; each step reads and compares, and may write, bring, rename or
/// exchange two of them.
pub fn heap_random_programs_agree_with_plain_values() {
    let fibers: Vec<_> = (1..=4u64)
        .map(|seed| {
            gossamer::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut objects: [Global<[u64; WORDS]>; 3] = std::array::from_fn(|i| Global::new([i as u64; WORDS]));
                let mut values = [0u64, 1, 2];
                for _ in 0..effort(150) {
                    let place = places()[random.usize(..places().len())];
                    let (step, which, new) = (random.u32(..6), random.usize(..3), random.u64(..));
                    let moved = gossamer::spawn_on(place, move || {
                        let mut objects = objects;
                        for (object, value) in objects.iter().zip(values) {
                            assert_eq!(*object.read(), [value; WORDS]);
                        }
                        match step {
                            0 | 1 => objects[which].write().fill(new),
                            2 => objects[which].move_here(),
                            3 => objects.swap(which, (which + 1) % 3),
                            4 => {
                                let value =
                                    std::mem::replace(&mut objects[which], Global::new([new; WORDS])).into_inner();
                                assert_eq!(value, [values[which]; WORDS]);
                            }
                            _ => objects[which].prefetch(),
                        }
                        objects
                    });
                    objects = moved.join().or_its_panic();
                    match step {
                        0 | 1 | 4 => values[which] = new,
                        3 => values.swap(which, (which + 1) % 3),
                        _ => {}
                    }
                }
            })
        })
        .collect();
    for fiber in fibers {
        fiber.join().or_its_panic();
    }
}
