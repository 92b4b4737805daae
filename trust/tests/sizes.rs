//! Captures, results and arguments of every size and alignment, alone and mixed in one batch.

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::serve_until;
use fastrand::Rng;
use trust::{Shared, Threadpool, Trust, TrusteeReference, local_trustee};

fn pool() -> Threadpool {
    Threadpool::builder().workers(2).pin(false).build()
}

/// This thread, where the local shortcut serves, and a worker.
fn places(pool: &Threadpool) -> [TrusteeReference; 2] {
    [local_trustee(), pool.trustees()[0]]
}

/// A value that knows if it was carried whole and is aligned.
trait Carried: Copy + trust::NoRef + Send + 'static {
    fn made_of(seed: u8) -> Self;
    fn check(&self, seed: u8);
}

fn byte(seed: u8, place: usize) -> u8 {
    seed.wrapping_mul(31).wrapping_add(place as u8 ^ (place >> 8) as u8)
}

macro_rules! carried {
    ($($name:ident: $size:literal bytes, aligned $align:literal;)*) => { $(
        #[derive(Clone, Copy)]
        #[repr(C, align($align))]
        struct $name([u8; $size]);

        impl Carried for $name {
            fn made_of(seed: u8) -> Self {
                $name(std::array::from_fn(|place| byte(seed, place)))
            }
            fn check(&self, seed: u8) {
                // Through a black box: the compiler assumes of a reference the very alignment to be checked.
                let at = std::hint::black_box(std::ptr::from_ref(self).addr());
                assert_eq!(at & (align_of::<Self>() - 1), 0, "{} is not aligned", stringify!($name));
                assert!(self.0.iter().enumerate().all(|(place, &b)| b == byte(seed, place)), stringify!($name));
            }
        }
    )* };
}

carried! {
    B0: 0 bytes, aligned 1;
    B1: 1 bytes, aligned 1;
    B3: 3 bytes, aligned 1;
    B8: 8 bytes, aligned 8;
    B15: 15 bytes, aligned 1;
    B48: 48 bytes, aligned 8;
    B112: 112 bytes, aligned 16;
    B255: 255 bytes, aligned 1;
    B256: 256 bytes, aligned 8;
    B257: 257 bytes, aligned 1;
    B1000: 1000 bytes, aligned 8;
    B4096: 4096 bytes, aligned 8;
    A16: 16 bytes, aligned 16;
    A64: 64 bytes, aligned 64;
    A64Empty: 0 bytes, aligned 64;
    A64Large: 256 bytes, aligned 64;
    A128: 128 bytes, aligned 128;
    A256: 256 bytes, aligned 256;
    A256Empty: 0 bytes, aligned 256;
    A4096: 4096 bytes, aligned 4096;
}

/// Checked at the trustee, and counted.
type Property = (u64, A64);

fn ask<C: Carried, R: Carried>(property: &Trust<Property>, seed: u8, waits: bool, done: &Rc<Cell<u64>>) {
    let (captured, noted) = (C::made_of(seed), Rc::clone(done));
    let f = move |property: &mut Property| {
        let captured = captured;
        captured.check(seed);
        property.1.check(9);
        property.0 += 1;
        R::made_of(seed ^ 0x55)
    };
    let held = C::made_of(seed.wrapping_add(1));
    let then = move |result: R| {
        let held = held;
        held.check(seed.wrapping_add(1));
        result.check(seed ^ 0x55);
        noted.set(noted.get() + 1);
    };
    if waits { then(property.apply(f)) } else { property.apply_then(f, then) }
}

type Ask = fn(&Trust<Property>, u8, bool, &Rc<Cell<u64>>);

macro_rules! every {
    ($($name:ident)*) => {
        [$(
            ask::<$name, B0>, ask::<B0, $name>, ask::<$name, $name>, ask::<$name, B1>, ask::<A64, $name>,
            ask::<$name, A256>, ask::<B257, $name>, ask::<$name, B48>,
        )*]
    };
}

const ASKS: &[Ask] = &every!(
    B0 B1 B3 B8 B15 B48 B112 B255 B256 B257 B1000 B4096 A16 A64 A64Empty A64Large A128 A256 A256Empty A4096
);

#[test]
fn trap_09_captures_and_results_of_every_size_and_alignment() {
    let _watch = watchdog!();
    let pool = pool();
    for place in places(&pool) {
        let property = place.entrust((0, A64::made_of(9)));
        let done = Rc::new(Cell::new(0));
        for (number, ask) in ASKS.iter().enumerate() {
            ask(&property, number as u8, true, &done);
        }
        assert_eq!(done.get(), ASKS.len() as u64);
        assert_eq!(property.apply(|p| p.0), ASKS.len() as u64);
    }
}

#[test]
fn requests_and_responses_of_mixed_sizes_share_batches_beyond_the_slot() {
    let _watch = watchdog!();
    const REQUESTS: u64 = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    let pool = pool();
    let trustee = pool.trustees()[0];
    let property = trustee.entrust((0, A64::made_of(9)));
    for seed in 0..3 {
        let (mut random, done) = (Rng::with_seed(seed), Rc::new(Cell::new(0)));
        for _ in 0..REQUESTS / 3 {
            let ask = ASKS[random.usize(..ASKS.len())];
            ask(&property, random.u8(..), random.usize(..50) == 0, &done);
        }
        serve_until(|| done.get() == REQUESTS / 3);
    }
    let stats = trust::stats(trustee).unwrap();
    assert!(stats.responses_overflowed > 0, "{stats:?}");
    assert!(stats.batches_served < stats.requests_served, "{stats:?}");
}

#[test]
fn small_requests_with_large_results_fill_chunks() {
    let _watch = watchdog!();
    let pool = pool();
    let trustee = pool.trustees()[0];
    let property = trustee.entrust((0, A64::made_of(9)));
    let done = Rc::new(Cell::new(0));
    for round in 0..1_000u32 {
        for ask in [ask::<B0, B255>, ask::<B1, B256>, ask::<B0, A64Large>, ask::<B0, B0>, ask::<B0, B4096>] {
            ask(&property, round as u8, false, &done);
        }
    }
    serve_until(|| done.get() == 5_000);
    assert!(trust::stats(trustee).unwrap().responses_overflowed > 10);
}

#[test]
fn sizes_queued_inside_a_closure() {
    let _watch = watchdog!();
    let pool = pool();
    let property = pool.trustees()[0].entrust((0, A64::made_of(9)));
    let relay = local_trustee().entrust(property.clone());
    let asked = Shared::new(AtomicUsize::new(0));
    let count = asked.clone();
    relay.apply(move |property| {
        let mut random = Rng::with_seed(5);
        let done = Rc::new(Cell::new(0));
        for _ in 0..2_000 {
            let ask = ASKS[random.usize(..ASKS.len())];
            ask(property, random.u8(..), false, &done);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    serve_until(|| property.apply(|p| p.0) == 2_000);
    assert_eq!(asked.load(Ordering::SeqCst), 2_000);
}

#[test]
fn trap_05_what_holds_pointers_travels_serialised_both_ways() {
    let _watch = watchdog!();
    let pool = pool();
    for place in places(&pool) {
        let table = place.entrust(BTreeMap::<String, Vec<u32>>::new());
        for number in 0..200u32 {
            let len = table.apply_with(
                |table, (key, values): (String, Vec<u32>)| {
                    table.insert(key, values);
                    table.len()
                },
                (format!("key {number}"), (0..number).collect()),
            );
            assert_eq!(len, number as usize + 1);
        }
        let copy: BTreeMap<String, Vec<u32>> = table.apply_with(|table, ()| table.clone(), ());
        assert_eq!(copy.len(), 200);
        assert_eq!(copy["key 3"], [0, 1, 2]);
        let found: Option<Vec<u32>> = table.apply_with(|table, key: String| table.get(&key).cloned(), "none".into());
        assert_eq!(found, None);
        let kept = Rc::new(Cell::new(0));
        let keep = Rc::clone(&kept);
        table.call().with("key 7".to_owned()).apply(|table, key: String| table.remove(&key)).then(move |result| {
            let values = result.unwrap();
            keep.set(values.unwrap().len());
        });
        serve_until(|| kept.get() == 7);
    }
}

#[test]
fn serialised_arguments_and_results_of_every_length() {
    let _watch = watchdog!();
    let pool = pool();
    for place in places(&pool) {
        let property = place.entrust(0u64);
        let done = Rc::new(Cell::new(0usize));
        let lengths: Vec<usize> = (0..300).chain([1023, 1024, 1025, 4095, 4096, 65_536]).collect();
        for &len in &lengths {
            let text = "x".repeat(len);
            let back = property.apply_with(
                |count, text: String| {
                    *count += 1;
                    text + "y"
                },
                text.clone(),
            );
            assert_eq!(back, text.clone() + "y");
            let done = Rc::clone(&done);
            property.call().with(text).apply(|_, text: String| text.len()).then(move |result| {
                let got = result.unwrap();
                assert_eq!(got, len);
                done.set(done.get() + 1);
            });
        }
        serve_until(|| done.get() == lengths.len());
        assert_eq!(property.apply(|count| *count), lengths.len() as u64);
    }
}

#[test]
fn a_serialised_argument_and_result_of_10_mib() {
    let _watch = watchdog!();
    const BYTES: usize = 10 << 20;
    let pool = pool();
    let property = pool.entrust(0u64);
    // A text, for bincode copies it whole.
    let text: String = "0123456789abcdef".repeat(BYTES / 16);
    let back = property.apply_with(
        |seen, text: String| {
            *seen += text.len() as u64;
            assert!(text.ends_with("def"));
            text
        },
        text.clone(),
    );
    assert!(back == text);
    assert_eq!(property.apply(|seen| *seen), BYTES as u64);
}

#[test]
fn what_does_not_serialise_is_an_error_of_the_caller_alone() {
    let _watch = watchdog!();
    /// Writes one byte, reads none.
    #[derive(Debug)]
    struct Odd;
    impl serde::Serialize for Odd {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_u8(7)
        }
    }
    impl<'de> serde::Deserialize<'de> for Odd {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let _ = deserializer;
            Err(serde::de::Error::custom("odd on purpose"))
        }
    }
    let pool = pool();
    let property = pool.entrust(1);
    let text = common::panic_of(|| property.apply_with(|v, _: Odd| *v, Odd));
    assert!(text.contains("odd on purpose") && text.contains("i32"), "{text}");
    let text = common::panic_of(|| property.apply_with(|_, ()| Odd, ()));
    assert!(text.contains("odd on purpose"), "{text}");
    assert_eq!(property.apply(|v| *v), 1, "the property is as it was");
}
