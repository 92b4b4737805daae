//! Regions and spans: how they are made, divided, and refused.

use std::sync::atomic::{AtomicU64, Ordering};

use gossamer_region::{Error, Region, Span};

use super::{PAGE, at, region};
use crate::suite::ground::{panic_of, places, remote};

pub fn region_spans_are_divided_and_joined() {
    let Some(region) = region(1 << 20) else { return };
    let parts = places().len();
    let fibers: Vec<_> = (0..)
        .zip(places())
        .zip(region.span::<u32>(10_007).split(parts))
        .map(|((number, place), mut part)| {
            gossamer::spawn_on(place, move || {
                part.fill(number);
                part
            })
        })
        .collect();
    let mut all: Vec<Span<u32>> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
    all.reverse(); // in any order
    let missing = (parts > 2).then(|| all.remove(1));
    let joined = match (Span::join(all), missing) {
        (Ok(joined), None) => joined,
        (Err(refused), Some(missing)) => {
            assert!(refused.to_string().contains("do not follow"), "{refused}");
            Span::join(refused.parts.into_iter().chain([missing])).unwrap()
        }
        (other, missing) => panic!("{other:?}, {missing:?} left out"),
    };
    assert_eq!(joined.len(), 10_007);
    assert!(joined.is_sorted() && joined[0] == 0 && joined[10_006] as usize == parts - 1);
    let (head, tail) = joined.split_at(10_000);
    assert_eq!((head.len(), tail.len()), (10_000, 7));
    assert!(Span::<u8>::join([]).is_err());
}

pub fn region_what_cannot_be_is_refused() {
    if region(1).is_none() {
        return;
    }
    assert!(matches!(Region::new(0), Err(Error::Bytes { bytes: 0, .. })));
    let refused = Region::new(usize::MAX).unwrap_err().to_string();
    assert!(refused.contains(&usize::MAX.to_string()), "{refused}");
    let region = Region::new(64 << 10).unwrap();
    let all = region.span::<u8>(64 << 10);
    assert!(matches!(region.try_span::<u8>(1), Err(Error::Room { left: 0, wanted: 1, .. })));
    assert!(matches!(region.try_span::<u64>(usize::MAX), Err(Error::Room { .. })));
    let text = panic_of(move || region.span::<u8>(1));
    assert!(text.contains("0 of 65536 bytes left"), "{text}");
    assert_eq!(all.len(), 64 << 10);
}

/// Regions are apart, wherever they are made, and their handles travel.
pub fn region_many_regions_are_apart() {
    let Some(first) = region(100) else { return };
    let mut regions = vec![first];
    for place in places() {
        regions.push(at(place, || Region::new(3 * PAGE).unwrap()));
    }
    let spans: Vec<_> =
        (1..).zip(&regions).map(|(number, region)| (number, region.span::<AtomicU64>(100).share())).collect();
    for (number, span) in &spans {
        let (number, span) = (*number, span.clone());
        at(remote(), move || span.iter().for_each(|word| word.store(number, Ordering::Relaxed)));
    }
    for (number, span) in &spans {
        assert!(span.iter().all(|word| word.load(Ordering::Relaxed) == *number));
    }
    // Spans of one region, taken from several machines, do not overlap.
    let region = region_of(&regions);
    let taken: Vec<_> = places()
        .into_iter()
        .map(|place| {
            let region = region.clone();
            at(place, move || region.span::<u8>(PAGE))
        })
        .collect();
    assert!(Span::join(taken).is_ok(), "one page each, without a gap");
}

/// Picks the region with room for a page for each place.
fn region_of(regions: &[Region]) -> Region {
    assert!(regions.iter().all(|region| region.bytes() == 64 << 10));
    Region::new(places().len() * PAGE).unwrap()
}
