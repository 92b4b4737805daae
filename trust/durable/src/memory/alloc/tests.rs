//! The allocator against a list of allocated slots, and invalid claims.

use super::*;

#[test]
fn a_class_is_the_smallest_that_fits() {
    for bytes in 0..=SMALL {
        let size = SIZES[class_of(bytes)];
        assert!(size >= bytes && SIZES.iter().all(|&other| other >= size || other < bytes), "{bytes}: {size}");
    }
}

/// Random allocation and freeing against a list of allocated slots; then another allocator claims the allocated ones.
#[test]
fn rooms_never_overlap_and_come_back() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut next = move |n: u64| random.u64(..n);
    let limit = 200 * PAGE;
    let mut alloc = Alloc::new(limit, 1);
    let mut taken: BTreeMap<u64, usize> = BTreeMap::new();
    let mut refused = 0;
    for _ in 0..if cfg!(miri) { 500 } else { 40_000 } {
        if next(100) < 55 {
            let bytes = match next(10) {
                0 => next(5 * PAGE as u64) as usize + 1,
                1..4 => next(2048) as usize + 1,
                _ => next(100) as usize + 1,
            };
            let Some(at) = alloc.take(bytes) else {
                refused += 1;
                continue;
            };
            let end = at + Alloc::room_bytes(bytes) as u64;
            assert!(at >= PAGE as u64 && end <= limit as u64 && at % 16 == 0);
            assert!(!Alloc::room_bytes(bytes).is_multiple_of(LINE) || at.is_multiple_of(LINE as u64));
            let before = taken.range(..end).next_back();
            assert!(before.is_none_or(|(&start, &size)| start + Alloc::room_bytes(size) as u64 <= at), "overlap");
            taken.insert(at, bytes);
        } else if let Some((&at, &bytes)) = taken.range(next(limit as u64)..).next() {
            taken.remove(&at);
            alloc.give(at, bytes);
        }
    }
    assert!(refused > 0 || cfg!(miri), "it was never full");
    let mut other = Alloc::new(limit, 1);
    for (&at, &bytes) in &taken {
        assert_eq!(other.claim(at, bytes), Ok(()));
        assert_eq!(other.claim(at, bytes), Err(Misplaced::Overlap));
    }
    other.claimed();
    assert_eq!(other.allocated_bytes(), alloc.allocated_bytes());
    for (at, bytes) in taken {
        alloc.give(at, bytes);
        other.give(at, bytes);
    }
    assert_eq!((alloc.allocated_bytes(), other.allocated_bytes()), (0, 0));
    // Everything is free again except for at most one page of each class.
    let most = (200 - 1 - SIZES.len()) * PAGE;
    assert!(alloc.take(most).is_some() || alloc.free.by_length.len() > 1);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut alloc = Alloc::new(10 * PAGE, 1);
    assert_eq!(alloc.claim(PAGE as u64 + 8, 16), Err(Misplaced::Misaligned));
    assert_eq!(alloc.claim(64, 16), Err(Misplaced::Overlap));
    assert_eq!(alloc.claim(10 * PAGE as u64, 16), Err(Misplaced::Outside));
    assert_eq!(alloc.claim(u64::MAX, 16), Err(Misplaced::Outside));
    assert_eq!(alloc.claim(PAGE as u64 * 2 + 64, 5000), Err(Misplaced::Misaligned));
    assert_eq!(alloc.claim(PAGE as u64 * 9, 5000), Err(Misplaced::Outside));
    assert_eq!(alloc.claim(PAGE as u64 * 2, 5000), Ok(()));
    assert_eq!(alloc.claim(PAGE as u64 * 3, 16), Err(Misplaced::Overlap));
    assert_eq!(alloc.claim(PAGE as u64 * 4, 16), Ok(()));
    assert_eq!(alloc.claim(PAGE as u64 * 4 + 32, 32), Err(Misplaced::Overlap));
}
