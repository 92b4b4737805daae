//! A place's changes are seen by another after a message, and nobody is held up.

use gossamer::link;
use gossamer_array::{Add, Array, Max, Min, Operator};

use crate::suite::ground::{JoinOutcome, effort, places, remote, spots};

/// Changes before a join are seen after it, combined values too.
pub fn array_what_happened_before_is_seen() {
    let array = Array::new(3000, 0u64).unwrap();
    for round in 1..=effort(100) {
        for (number, place) in spots().into_iter().enumerate() {
            let (at, i) = (array.clone(), (round as usize * 31 + number * 1000) % 3000);
            let before = array.get(i);
            let done = gossamer::spawn_on(place, move || {
                at.set(i, round);
                at.apply(i, Add, 5);
                at.apply(i, Max, 3);
                at.apply(i, Add, 5);
            });
            done.join().or_its_panic();
            assert_eq!(array.get(i), (round + 5).max(3) + 5, "{before} before");
        }
    }
}

/// Places that combine one chunk by different operators, and one that reads it.
pub fn array_operators_alternate() {
    let array = Array::new(100, 0u64).unwrap();
    let each = effort(500);
    let own = array.clone();
    let turns = array.on_owners(move |_| {
        let number = u64::from(gossamer::here().machine + gossamer::here().worker);
        for k in 0..each {
            own.apply(7, Add, 1);
            if number.is_multiple_of(2) {
                own.apply(8, Max, k);
            } else {
                assert!(own.get(7) >= 1);
            }
            trust::yield_now();
        }
        each
    });
    assert_eq!(array.get(7), turns.into_iter().sum::<u64>());
    assert!(array.get(8) < each);
}

/// Picks the pair with the greater number. Its identity is none for a pair that has NaN.
#[derive(Clone, Copy)]
struct Best;

impl Operator<[f32; 2]> for Best {
    const IDENTITY: [f32; 2] = [f32::NEG_INFINITY, 0.0];
    const EXACT: bool = false;
    fn combine(a: [f32; 2], b: [f32; 2]) -> [f32; 2] {
        if a[0] > b[0] { a } else { b }
    }
}

/// Combines element 2 at all places, by each call that can, and checks that the rest of its chunk keeps its bits.
fn leaves_the_rest<T, O>(op: O, value: T, operand: T, bits: fn(T) -> u64)
where
    T: gossamer_array::Element,
    O: Operator<T> + gossamer::NoRef + Send,
{
    let n = 1000;
    for call in 0..3 {
        let array = Array::new(n, value).unwrap();
        for place in places() {
            let own = array.clone();
            let combine = move || match call {
                0 => own.apply(2, op, operand),
                1 => own.apply_all(op, [(2, operand)]),
                _ => own.combine(0..n, op, |_, mut chunk| {
                    if chunk.range().contains(&2) {
                        chunk.apply(2, operand);
                    }
                }),
            };
            gossamer::spawn_on(place, combine).join().or_its_panic();
        }
        let all: Vec<u64> = array.view(0..n).iter().map(|element| bits(*element)).collect();
        assert_eq!(all[2], bits(operand));
        let changed = (0..n).filter(|i| *i != 2 && all[*i] != bits(value)).count();
        assert_eq!(changed, 0, "elements of {:x} that nobody combined, by call {call}", bits(value));
    }
}

/// A merge changes the combined elements. Others keep their bits, also where the operator would change them.
pub fn array_elements_that_nobody_combines_keep_their_bits() {
    leaves_the_rest(Min, f64::NAN, 5.0, f64::to_bits);
    leaves_the_rest(Max, f32::from_bits(0x7fc0_1234), 5.0, |x| x.to_bits().into());
    leaves_the_rest(Add, -0.0, 0.0, f64::to_bits);
    let bits = |pair: [f32; 2]| u64::from(pair[0].to_bits()) << 32 | u64::from(pair[1].to_bits());
    leaves_the_rest(Best, [f32::NAN, -0.0], [5.0, 1.0], bits);
    leaves_the_rest(Max, i8::MIN, 5, |x| u64::from(x as u8));
}

/// Two writers of the same chunk in turn, with a grant for each of their calls.
pub fn array_writers_of_one_chunk_all_progress() {
    let array = Array::new(64, 0u64).unwrap();
    let each = effort(300);
    let own = array.clone();
    array.on_owners(move |_| {
        let place = gossamer::here();
        let slot = usize::from(place.machine) * 8 + usize::from(place.worker);
        for k in 1..=each {
            own.set(slot, k);
            trust::yield_now();
        }
    });
    let count = places().len() as u64;
    assert_eq!(array.reduce(0..64, Add), each * count);
}

/// A loop of hits holds up nobody.
pub fn array_endless_hits_hold_up_nobody() {
    let array = Array::new(1000, 0u64).unwrap();
    let own = array.clone();
    let waiting: Vec<_> = places()
        .into_iter()
        .map(|place| {
            let own = own.clone();
            gossamer::spawn_on(place, move || {
                let mut looks = 0u64;
                while own.get(0) == 0 {
                    looks += 1;
                    // Neither does a loop of writes, or one of combining.
                    own.set(999, looks);
                    own.apply(500, Add, 1);
                }
                while own.try_get(0).is_none() {}
            })
        })
        .collect();
    gossamer::spawn_on(remote(), move || own.set(0, 1)).join().or_its_panic();
    waiting.into_iter().for_each(|fiber| fiber.join().or_its_panic());
}

/// The same where the loop has other calls: an element as a lock, a view, a chunk to be changed.
pub fn array_loops_of_any_call_hold_up_nobody() {
    let array = Array::new(1000, 0u64).unwrap();
    let turns = effort(200);
    let own = array.clone();
    array.on_owners(move |_| {
        for _ in 0..turns {
            while own.update(0, |taken| std::mem::replace(taken, 1)) == 1 {}
            let count = own.view(999..1000)[0];
            own.set(999, count + 1);
            own.update(0, |taken| *taken = 0);
        }
    });
    assert_eq!(array.get(999), turns * places().len() as u64);
    let (own, all) = (array.clone(), turns * places().len() as u64);
    let waiting = gossamer::spawn(move || {
        while own.view(999..1000)[0] == all {}
        let mut last = 0;
        while last != 7 {
            own.modify(500..501, |_, elements| last = elements[0]);
        }
        while own.try_get(998) != Some(8) {}
        let mut last = [0];
        while last[0] != 9 {
            own.copy_to(997, &mut last);
        }
        while own.view(500..997).last() != Some(&10) {}
        while own.try_write_lock(7).is_none() {}
    });
    let own = array.clone();
    let writes = gossamer::spawn_on(remote(), move || {
        own.set(999, 0);
        own.set(500, 7);
        let lock = own.write_lock(7);
        own.set(998, 8);
        own.set(997, 9);
        own.set(996, 10);
        trust::yield_now();
        drop(lock);
    });
    writes.join().or_its_panic();
    waiting.join().or_its_panic();
}

/// A view does not change while others write.
pub fn array_views_do_not_change() {
    let n = 2000;
    let array = Array::new(n, 1u64).unwrap();
    for i in [0, n - 1] {
        let view = array.view(i..i + 1);
        array.set(i, 2);
        let at = array.clone();
        gossamer::spawn_on(remote(), move || at.set(i, 3)).join().or_its_panic();
        assert_eq!((view[0], array.get(i)), (1, 3));
        let later = array.view(i..i + 1);
        let at = array.clone();
        gossamer::spawn_on(remote(), move || at.apply(i, Add, 4)).join().or_its_panic();
        array.apply(i, Add, 10);
        assert_eq!((view[0], later[0], array.get(i)), (1, 3, 17));
        drop(view);
        array.update(i, |value| *value += 1);
        assert_eq!((later[0], array.get(i)), (3, 18));
    }
}

/// With a cache of four chunks all values are right, and chunks are dropped.
pub fn array_with_a_small_cache_drops_chunks() {
    let n = 50_000;
    let array = Array::<u64>::builder().cache_bytes(0).build(n, 0).unwrap();
    let own = array.clone();
    let each = array.on_owners(move |owned| {
        for i in (0..n).step_by(100) {
            own.apply(i, Add, 1);
        }
        let views: Vec<_> = own.views(0..3000).collect();
        for i in owned.flatten().step_by(200) {
            own.set((i + n / 2) % n / 100 * 100 + 1, 7);
        }
        assert!(views.iter().all(|view| view.iter().all(|value| *value < 1000)));
        (0..n).step_by(100).map(|i| own.get(i)).sum::<u64>()
    });
    let count = places().len() as u64;
    assert!(each.iter().all(|sum| *sum <= count * 500), "{each:?}");
    assert_eq!((0..n).step_by(100).map(|i| array.get(i)).sum::<u64>(), count * 500);
    assert!(array.stats().evictions > 0 || count == 1, "{:?}", array.stats());
}

/// The only reader becomes the writer without its elements being sent again.
pub fn array_the_only_reader_writes_without_data() {
    let array = Array::new(100_000, 5u64).unwrap();
    let own = array.clone();
    let i = (0..100_000).find(|i| array.owner(*i) != gossamer::here()).unwrap_or(0);
    assert_eq!(own.get(i), 5);
    let before = array.stats();
    own.set(i, 6);
    assert_eq!(array.stats().bytes, before.bytes);
    let at_home = array.clone();
    assert_eq!(gossamer::spawn_on(array.owner(i), move || at_home.get(i)).join().or_its_panic(), 6);
}

/// Where all machines are of one host, a granted chunk is copied from its home, as it is then; elsewhere it is sent.
pub fn array_granted_chunks_are_copied_within_a_host() {
    let array = Array::new(100_000, 5u64).unwrap();
    let here = gossamer::here().machine;
    let there = (0..100_000).step_by(array.chunk()).filter(|i| array.owner(*i).machine != here).collect::<Vec<_>>();
    for round in 6..9 {
        let own = array.clone();
        array.on_owners(move |owned| {
            owned.for_each(|range| own.modify(range, |_, elements| elements.fill(round)));
        });
        assert!(there.iter().all(|i| array.get(*i) == round));
    }
    let machines = 0..gossamer::rack().machines().len() as u16;
    let is_one_host = machines.filter(|machine| *machine != here).all(|machine| link::maps(machine, link::ARRAY));
    let copied = array.stats().copied;
    if is_one_host {
        assert!(copied >= 3 * there.len() as u64, "{copied} copies of {} chunks", there.len());
    } else {
        assert_eq!(copied, 0);
    }
}

/// The same with arrays that want huge pages. It does not depend on the address: a place's chunks are all copied or all
/// sent, and once the system has refused it, those of later arrays are sent as well.
pub fn array_long_arrays_are_copied_as_a_whole() {
    let here = gossamer::here().machine;
    let others: Vec<_> = gossamer::rack().places().filter(|place| place.machine != here).collect();
    let is_one_host = others.iter().all(|place| link::maps(place.machine, link::ARRAY));
    let mut may_copy = vec![is_one_host; others.len()];
    for elements in (1 << 20..).step_by(123_456).take(3) {
        let array = Array::builder().prefetch(0).build(elements, 5u64).unwrap();
        for (place, may_copy) in others.iter().zip(&mut may_copy) {
            let ranges = array.owned(*place);
            let chunks: Vec<_> = ranges.flat_map(|range| range.step_by(array.chunk())).collect();
            let before = array.stats().copied;
            assert!(chunks.iter().all(|i| array.get(*i) == 5));
            let copied = array.stats().copied - before;
            *may_copy &= copied > 0;
            assert_eq!(copied, if *may_copy { chunks.len() as u64 } else { 0 }, "{place}");
        }
    }
}

/// Once a reader has asked to combine, others may combine, so it reads no more, even before its grant has come.
pub fn array_who_combines_reads_no_more() {
    let array = Array::new(100_000, 5u64).unwrap();
    let there = (0..100_000).filter(|i| array.owner(*i) != gossamer::here());
    for i in there.step_by(5000) {
        assert_eq!((array.get(i), array.try_get(i)), (5, Some(5)));
        let own = array.clone();
        let combines = trust::spawn(move || own.apply(i, Add, 1));
        trust::yield_now();
        assert_eq!(array.try_get(i), None);
        combines.join().or_its_panic();
        assert_eq!(array.get(i), 6);
    }
}

/// All places set and read elements at random, each the writer of some, while one reads whole chunks. Workers of one
/// machine do so in place; chunks go from machine to machine, and from use in place to views.
pub fn array_elements_are_written_in_place() {
    let n = 4096;
    let each = effort(3000);
    let array = Array::new(n, 0u64).unwrap();
    let places = places();
    let count = places.len();
    let start = array.clone();
    let writers: Vec<_> = (0..)
        .zip(places)
        .map(|(number, place)| {
            let own = array.clone();
            gossamer::spawn_on(place, move || {
                let mut random = fastrand::Rng::with_seed(number);
                let mut seen = vec![0; n];
                for turn in 1..=each {
                    let mine = random.usize(..n / count) * count + number as usize;
                    // An element has the writer's turn, and in its lowest bits how often it was changed by others.
                    let before = own.get(mine);
                    assert!(before >= seen[mine], "a write is lost: {before} after {}", seen[mine]);
                    own.set(mine, turn << 20 | before & 0xf_ffff);
                    seen[mine] = turn << 20;
                    let other = random.usize(..n);
                    let read = own.get(other) >> 20 << 20;
                    assert!(read >= seen[other], "an old value: {read} after {}", seen[other]);
                    seen[other] = read;
                    if turn.is_multiple_of(64) {
                        trust::yield_now();
                    }
                }
                own.view(0..n).iter().zip(&seen).for_each(|(now, seen)| assert!(*now >= *seen));
            })
        })
        .collect();
    // Reads whole chunks meanwhile: an element never goes back.
    let mut last = vec![0; n];
    for _ in 0..effort(50) {
        let now = start.views(0..n).flat_map(|view| view.to_vec()).collect::<Vec<_>>();
        assert!(now.iter().zip(&last).all(|(now, last)| now >= last), "an element went back");
        last = now;
        trust::yield_now();
    }
    writers.into_iter().for_each(|writer| writer.join().or_its_panic());
    start.apply(7, Add, 1);
    start.modify(0..n, |_, elements| elements.iter_mut().for_each(|element| *element += 1));
    assert_eq!(start.get(7) & 0xf_ffff, 2);
    assert_eq!((0..n).filter(|i| start.get(*i) & 0xf_ffff == 1).count(), n - 1);
}

/// A write in place is seen after a message, and by views made later, but not by one made before.
pub fn array_writes_in_place_leave_views_alone() {
    let n = 1000;
    let array = Array::new(n, 1u32).unwrap();
    for place in spots() {
        for i in [0, n / 2, n - 1] {
            let view = array.view(i..i + 1);
            let before = view[0];
            let at = array.clone();
            let written = gossamer::spawn_on(place, move || {
                let views: Vec<_> = at.views(0..n).collect();
                let old: Vec<u32> = views.iter().flat_map(|view| view.to_vec()).collect();
                at.set(i, before + 1);
                assert_eq!(at.get(i), before + 1);
                let unchanged = views.iter().flat_map(|view| view.iter()).eq(&old);
                assert!(unchanged, "a view changed");
            });
            written.join().or_its_panic();
            assert_eq!((view[0], array.get(i), array.view(i..i + 1)[0]), (before, before + 1, before + 1));
            array.set(i, before + 2);
            assert_eq!((view[0], array.get(i)), (before, before + 2));
        }
    }
}
