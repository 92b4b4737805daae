//! Random calls at random places, one after the other, against a `Vec` as the model.

use gossamer_array::{Add, Array, Min, Xor};

use crate::suite::ground::{JoinOutcome, effort, places, text};

const N: usize = 3000;

pub fn array_random_calls_do_what_a_vec_does() {
    let seed = std::env::var("SUITE_SEED").map_or(1, |seed| seed.parse().expect("SUITE_SEED is a number"));
    for seed in seed..seed + 3u64 {
        if let Err(panic) = trust::spawn(move || run(seed)).join() {
            panic!("SUITE_SEED={seed}: {}", text(&*panic));
        }
    }
}

fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let builder = Array::<u64>::builder().cache_bytes(4 << 10 << random.usize(..5)).prefetch(random.usize(..4));
    let builder = if random.bool() { builder.cyclic() } else { builder };
    let array = builder.build(N, 1).unwrap();
    let mut model = vec![1u64; N];
    let places = places();
    // A snapshot, and the model at that time.
    let mut kept = None;
    for step in 0..effort(1500) {
        let at = places[random.usize(..places.len())];
        // Mostly few elements, so that they meet.
        let i = if random.bool() { random.usize(..20) * 150 } else { random.usize(..N) };
        let (x, len) = (random.u64(..1000), random.usize(..=(N - i).min(1200)));
        let (own, call) = (array.clone(), random.usize(..15));
        let seen = gossamer::spawn_on(at, move || match call {
            0..=2 => own.get(i),
            3 => {
                own.set(i, x);
                0
            }
            4 | 5 => {
                own.apply(i, Add, x);
                0
            }
            6 => {
                own.apply(i, Xor, x);
                0
            }
            7 => {
                own.apply(i, Min, x);
                0
            }
            8 => own.update(i, move |value| {
                *value += x;
                *value
            }),
            9 => own.views(i..i + len).map(|view| view.iter().sum::<u64>()).sum(),
            10 => {
                own.modify(i..i + len, |first, chunk| {
                    (first as u64..).zip(chunk).for_each(|(i, value)| *value += i + x)
                });
                0
            }
            11 => {
                own.combine(i..i + len, Add, |_, mut chunk| chunk.range().for_each(|i| chunk.apply(i, x)));
                0
            }
            12 => {
                let mut some = vec![0; len];
                own.copy_to(i, &mut some);
                own.scatter(&[i], &[x]);
                own.apply_all(Add, [(i, 1), (i, 2)]);
                some.iter().sum()
            }
            13 => own.snapshot().unwrap().slice()[i..i + len].iter().sum(),
            _ => own.reduce(i..i + len, Add),
        });
        let seen = seen.join().unwrap_or_else(|panic| panic!("step {step}, call {call} of {i}: {}", text(&*panic)));
        let sum = |model: &[u64]| model[i..i + len].iter().sum::<u64>();
        let expected = match call {
            0..=2 => model[i],
            3 => {
                model[i] = x;
                0
            }
            4 | 5 => {
                model[i] += x;
                0
            }
            6 => {
                model[i] ^= x;
                0
            }
            7 => {
                model[i] = model[i].min(x);
                0
            }
            8 => {
                model[i] += x;
                model[i]
            }
            9 => sum(&model),
            10 => {
                (i..i + len).for_each(|i| model[i] += i as u64 + x);
                0
            }
            11 => {
                (i..i + len).for_each(|i| model[i] += x);
                0
            }
            12 => {
                let before = sum(&model);
                model[i] = x + 3;
                before
            }
            _ => sum(&model),
        };
        if step % 100 == 0 {
            kept = Some((array.snapshot().unwrap(), model.clone()));
        }
        if let Some((snapshot, then)) = &kept
            && call == 13
        {
            let (snapshot, expected) = (snapshot.clone(), sum(then));
            let seen = gossamer::spawn_on(at, move || snapshot.slice()[i..i + len].iter().sum::<u64>());
            assert_eq!(seen.join().or_its_panic(), expected, "step {step}: a snapshot changed");
        }
        assert_eq!(seen, expected, "step {step}, call {call} of {i} with {x} and {len} at {at}");
    }
    assert!(array.view(0..N)[..] == model[..]);
}
