//! Captures and results as they lie in memory, of every size and alignment.

use std::mem::MaybeUninit;

use super::ground::{Witness, ended, spots};

fn filled<const N: usize>() -> [u8; N] {
    std::array::from_fn(|n| (n * 7 + N) as u8)
}

macro_rules! sizes {
    ($check:ident) => {
        $check::<0>();
        $check::<1>();
        $check::<7>();
        $check::<8>();
        $check::<9>();
        $check::<100>();
        $check::<255>();
        $check::<256>();
        $check::<257>();
        $check::<1000>();
        $check::<1024>();
        $check::<4030>();
        $check::<4047>();
        $check::<4048>();
        $check::<4081>();
        $check::<8100>();
        $check::<8192>();
        $check::<20_000>();
    };
}

pub fn captures_of_every_size() {
    fn check<const N: usize>() {
        for place in spots() {
            let seen = gossamer::entrust_on(place, 0usize);
            let bytes = filled::<N>();
            seen.apply(move |seen| *seen = bytes.iter().map(|byte| usize::from(*byte)).sum());
            let expected: usize = filled::<N>().iter().map(|byte| usize::from(*byte)).sum();
            assert_eq!(seen.apply(|seen| *seen), expected, "{N} bytes at {place}");
        }
    }
    sizes!(check);
}

pub fn results_of_every_size() {
    fn check<const N: usize>() {
        for place in spots() {
            let there = gossamer::entrust_on(place, 0u8);
            assert!(there.apply(|_| filled::<N>()) == filled::<N>(), "{N} bytes at {place}");
        }
    }
    sizes!(check);
}

/// Stale bytes in the padding of a value, or a plain number, may be the address of a function of this machine: it
/// arrives unchanged, and does no harm.
pub fn addresses_travel_as_the_numbers_they_are() {
    let (here, library) = (nothing_at_all as fn() as usize, std::process::abort as fn() -> ! as usize);
    for place in spots() {
        let there = gossamer::entrust_on(place, [0usize; 2]);
        // The bytes of a `None` with room for a value are not initialised; these are, with values as a stack may hold
        // them.
        let gap = MaybeUninit::new([here; 4]);
        let _back: MaybeUninit<[usize; 4]> = there.apply(move |numbers| {
            *numbers = [here, library];
            gap
        });
        assert_eq!(there.apply(|numbers| *numbers), [here, library], "{place}");
    }
}

pub fn nothing_at_all() {
    #[derive(Debug, PartialEq, Clone, Copy, serde::Serialize, serde::Deserialize)]
    struct Nothing;
    for place in spots() {
        let nothing = gossamer::entrust_on(place, Nothing);
        let captured = Nothing;
        for _ in 0..300 {
            nothing.apply_then(|_| Nothing, |nothing| assert_eq!(nothing, Nothing));
        }
        let same = move |nothing: &mut Nothing| (*nothing == captured).then_some(captured);
        assert_eq!(nothing.apply(same), Some(Nothing));
    }
}

pub fn over_aligned_captures_and_results() {
    // Without padding: its bytes are arbitrary, and may look like the address of a function.
    #[derive(Debug, PartialEq, Clone, Copy)]
    #[repr(align(64))]
    struct Line([u8; 64]);
    #[derive(Debug, PartialEq, Clone, Copy)]
    #[repr(align(512))]
    struct Wide([u16; 256]);

    fn is_aligned<T>(value: &T) -> bool {
        std::ptr::from_ref(value).addr().is_multiple_of(align_of::<T>())
    }
    let counter = gossamer::entrust(0u64);
    for place in spots() {
        let there = gossamer::entrust_on(place, 1u8);
        let (line, wide, big) = (Line([3; 64]), Wide([4; 256]), 1u128 << 100);
        for _ in 0..5 {
            assert_eq!(there.apply(move |_| (line, is_aligned(&line))), (line, true));
            assert_eq!(there.apply(move |_| (wide, is_aligned(&wide))), (wide, true));
            assert_eq!(there.apply(move |_| (big, is_aligned(&big))), (big, true));
            let same = move |back: Wide| assert!(is_aligned(&back) && back == wide);
            there.apply_then(move |_| wide, same);
            // Dropped like any other, also where it does not lie inline.
            let witnesses: [Witness; 32] = std::array::from_fn(|_| Witness(counter.clone()));
            there.apply_then(move |_| drop(witnesses), |()| {});
        }
        there.apply(|_| {});
    }
    ended(&counter, 3 * 5 * 32);
}
