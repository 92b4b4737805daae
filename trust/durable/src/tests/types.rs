//! The types one by one: against those of the standard library, and opened again from damaged bytes.

use std::cell::Cell;
use std::num::NonZeroU32;

use super::{List, Pool, Shared, Shares, shares};
use crate::memory::ROOT_AT;
use crate::*;

#[test]
fn boxes() {
    #[derive(Persist)]
    #[persist(crate = crate)]
    #[repr(C)]
    struct Boxes<'p> {
        one: Option<PBox<'p, u64>>,
        two: Option<PBox<'p, [u8; 5000]>>,
    }
    let pool = Pool::<Boxes>::new(|_| Boxes { one: None, two: None });
    pool.apply(|boxes, tx| {
        let one = PBox::new(7, tx);
        assert_eq!(PBox::into_inner(one.pclone(tx)), 7);
        boxes.one = Some(one);
        boxes.two = Some(PBox::new([3; 5000], tx));
    });
    assert_eq!(pool.taken(), 16 + 8192);
    pool.apply(|boxes, _| {
        **boxes.one.as_mut().unwrap() += 1;
        boxes.two.as_mut().unwrap()[4999] = 4;
    });
    let pool = if cfg!(miri) { pool } else { pool.reopened().expect("sound") };
    assert_eq!(pool.apply(|boxes, _| (**boxes.one.as_ref().unwrap(), boxes.two.as_ref().unwrap()[4999])), (8, 4));
    let full = pool.apply(|_, tx| (0..20).any(|_| PBox::try_new([0u8; 1 << 16], tx).map(std::mem::forget).is_err()));
    assert!(full, "try_new gives the value back");
    let taken = pool.taken();
    pool.apply(|boxes, _| (boxes.one, boxes.two) = (None, None));
    assert_eq!(taken - pool.taken(), 16 + 8192);
}

#[test]
fn counted_pointers() {
    let pool = shares();
    pool.apply(|root, tx| {
        assert_eq!(root.strong[0].strong_count(), 2);
        root.strong[0].value.set(5, tx);
        assert_eq!(root.strong[1].value.get(), 5);
        drop(root.strong.pop());
        assert_eq!(root.weak.as_ref().unwrap().upgrade(tx).unwrap().value.get(), 5);
    });
    pool.undone(|root, _| root.strong.clear());
    assert_eq!(pool.apply(|root, _| root.strong[0].strong_count()), 1);
    pool.apply(|root, tx| {
        let other = root.weak.as_ref().unwrap().pclone(tx);
        assert!(other.upgrade(tx).unwrap().ptr_eq(&root.strong[0]));
    });
    pool.apply(|root, tx| {
        root.strong.clear();
        assert!(root.weak.as_ref().unwrap().upgrade(tx).is_none());
    });
    assert!(pool.apply(|root, tx| root.weak.as_ref().unwrap().upgrade(tx).is_none()));
    pool.apply(|root, _| {
        root.weak = None;
        root.strong = PVec::new();
    });
    assert_eq!(pool.taken(), 0);
}

#[test]
fn counts_are_set_to_what_the_walk_finds() {
    if cfg!(miri) {
        return; // It reads padding.
    }
    let pool = shares();
    pool.apply(|root, tx| std::mem::forget(root.strong[0].pclone(tx)));
    assert_eq!(pool.apply(|root, _| root.strong[0].strong_count()), 3);
    let pool = pool.reopened().expect("sound");
    assert_eq!(pool.apply(|root, _| root.strong[0].strong_count()), 2);
    // A count that is too low is corrected as well. The first pointer of the vector points to the counts.
    let at = pool.apply(|root, _| (root.strong.as_ptr() as usize, ROOT_AT)).0 - pool.memory.base() as usize;
    let pool = pool
        .reopened_with(|bytes| {
            let header = u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
            bytes[header..header + 16].fill(0);
        })
        .expect("sound");
    assert_eq!(pool.apply(|root, _| root.strong[0].strong_count()), 2);
    pool.apply(|root, tx| {
        // A cycle, which the root does not reach.
        let cycle = Prc::new(Shared { value: PCell::new(1), other: PRefCell::new(None) }, tx);
        *cycle.other.borrow_mut(tx) = Some(cycle.pclone(tx));
        root.strong.clear();
    });
    assert!(pool.taken() > 64);
    let pool = pool.reopened().expect("sound");
    assert!(pool.apply(|root, tx| root.weak.as_ref().unwrap().upgrade(tx).is_none()), "only its header is kept");
    pool.apply(|root, _| {
        root.weak = None;
        root.strong = PVec::new();
    });
    assert_eq!(pool.taken(), 0);
}

#[test]
fn a_volatile_pointer_finds_its_object_or_nothing() {
    let (pool, other) = (shares(), shares());
    other.memory.set_number(8);
    let name = pool.apply(|root, tx| root.strong[0].demote(tx));
    let value = |pool: &Pool<Shares<'static>>| pool.apply(|_, tx| name.promote(tx).map(|shared| shared.value.get()));
    assert_eq!((value(&pool), value(&other)), (Some(1), None));
    pool.undone(|root, tx| {
        root.strong.clear();
        assert!(name.promote(tx).is_none());
    });
    assert_eq!(value(&pool), Some(1));
    // A name made in a transaction that is undone names nothing afterwards.
    let undone = Cell::new(None);
    pool.undone(|_, tx| {
        let fresh = Prc::new(Shared { value: PCell::new(2), other: PRefCell::new(None) }, tx);
        undone.set(Some(fresh.demote(tx)));
    });
    pool.apply(|root, tx| {
        let fresh = Prc::new(Shared { value: PCell::new(3), other: PRefCell::new(None) }, tx);
        root.strong.push(fresh, tx);
    });
    assert!(pool.apply(|_, tx| undone.get().unwrap().promote(tx).is_none()));
    pool.apply(|root, _| root.strong.clear());
    assert_eq!(value(&pool), None);
}

#[test]
fn cells_check_their_borrows_and_forget_them() {
    let pool = shares();
    pool.apply(|root, tx| {
        let _ = tx;
        let cell = &root.strong[0].other;
        let (one, two) = (cell.borrow(), cell.borrow());
        assert!(one.is_none() && two.is_none());
    });
    pool.panics(|root, tx| {
        let _one = root.strong[0].other.borrow();
        root.strong[1].other.borrow_mut(tx);
    });
    pool.panics(|root, tx| {
        let _one = root.strong[0].other.borrow_mut(tx);
        let _two = root.strong[1].other.borrow();
    });
    pool.apply(|root, tx| std::mem::forget(root.strong[0].other.borrow_mut(tx)));
    pool.apply(|root, tx| assert!(root.strong[0].other.borrow_mut(tx).is_none()));
    pool.apply(|_, tx| {
        // One within another, at one address.
        let nested = PRefCell::new(PRefCell::new(1u8));
        let outer = nested.borrow();
        *outer.borrow_mut(tx) += 1;
        assert_eq!(*outer.borrow(), 2);
    });
}

#[test]
fn cells_give_what_they_hold() {
    let pool = Pool::<PVec<PCell<u64>>>::new(|tx| PVec::of([PCell::new(1)], tx));
    let refused = |pool: &Pool<PVec<'static, PCell<'static, u64>>>| {
        pool.undone(|cells, tx| assert_eq!((cells[0].replace(5, tx), cells[0].take(tx), cells[0].get()), (1, 5, 0)));
    };
    refused(&pool);
    pool.apply(|cells, tx| {
        assert_eq!(cells[0].get(), 1, "undone");
        *cells[0].get_mut() += 1;
        assert_eq!((cells[0].replace(7, tx), PCell::new(9).into_inner()), (2, 9));
        let cell = PRefCell::new(3u64);
        assert_eq!((cell.replace(4, tx), cell.take(tx), cell.into_inner()), (3, 4, 0));
    });
    assert_eq!(pool.apply(|cells, _| cells[0].get()), 7);
}

#[test]
fn only_what_is_changed_through_a_borrow_is_logged() {
    if cfg!(miri) {
        return;
    }
    let pool = shares();
    pool.changed();
    pool.apply(|root, tx| assert!(root.strong[0].other.borrow_mut(tx).is_none()));
    assert_eq!(pool.changed(), 0);
}

#[test]
fn vectors_follow_the_standard_one() {
    let pool = Pool::<PVec<PBox<u64>>>::new(|_| PVec::new());
    let mut model: Vec<u64> = Vec::new();
    let mut random = fastrand::Rng::with_seed(3);
    let mut next = move |n: usize| random.usize(..n);
    for step in 0..if cfg!(miri) { 100 } else { 3000u64 } {
        let (what, at) = (next(9), next(model.len() + 1));
        let before = model.clone();
        let change = |vec: &mut PVec<'_, PBox<'_, u64>>, model: &mut Vec<u64>| match what {
            4 if at < model.len() => assert_eq!(*vec.remove(at), model.remove(at)),
            5 if at < model.len() => assert_eq!(*vec.swap_remove(at), model.swap_remove(at)),
            6 => assert_eq!(vec.pop().map(PBox::into_inner), model.pop()),
            7 if at < model.len() && step % 40 == 0 => {
                vec.truncate(at);
                model.truncate(at);
            }
            8 if at < model.len() => {
                *vec[at] += 1;
                model[at] += 1;
            }
            _ => {}
        };
        let model = &mut model;
        let mut change = |vec: &mut PVec<'_, PBox<'_, u64>>| change(vec, model);
        match what {
            0..4 => pool.apply(|vec, tx| vec.insert(at, PBox::new(step, tx), tx)),
            _ if step % 5 == 0 => pool.undone(|vec, _| change(vec)),
            _ => pool.apply(|vec, _| change(vec)),
        }
        if what < 4 {
            model.insert(at, step);
        } else if step % 5 == 0 {
            *model = before;
        }
        let model = &*model;
        pool.apply(|vec, _| assert!(vec.iter().map(|boxed| **boxed).eq(model.iter().copied())));
    }
    if !cfg!(miri) {
        pool.reopened().expect("sound");
    }
    pool.apply(|vec, _| *vec = PVec::new());
    assert_eq!(pool.taken(), 0);
}

#[test]
fn maps_follow_the_standard_one() {
    let pool = Pool::<PMap<PString, u64>>::new(|_| PMap::new());
    let mut model = std::collections::BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(11);
    let mut next = move |n: u64| random.u64(..n);
    for step in 0..if cfg!(miri) { 60 } else { 4000 } {
        let key = format!("key {}", next(300));
        if next(3) == 0 {
            let removed = pool.apply(|map, _| map.remove(key.as_str()));
            assert_eq!(removed, model.remove(&key));
        } else if next(4) == 0 {
            pool.undone(|map, tx| _ = map.insert(PString::of(&key, tx), 0, tx));
        } else if next(2) == 0 {
            pool.apply(|map, tx| *map.get_or_insert_with(PString::of(&key, tx), || 0, tx) += step);
            *model.entry(key).or_insert(0) += step;
        } else {
            let old = pool.apply(|map, tx| map.insert(PString::of(&key, tx), step, tx));
            assert_eq!(old, model.insert(key, step));
        }
    }
    let same = |pool: &Pool<PMap<'static, PString<'static>, u64>>| {
        let model = &model;
        pool.apply(|map, _| {
            assert_eq!(map.len(), model.len());
            assert!(model.iter().all(|(key, value)| map.get(key.as_str()) == Some(value)));
            assert_eq!(map.iter().count(), model.len());
        });
    };
    same(&pool);
    if !cfg!(miri) {
        same(&pool.reopened().expect("sound"));
    }
    pool.apply(|map, _| map.clear());
    assert_eq!(pool.taken(), 0);
}

#[test]
fn strings() {
    let pool = Pool::<PVec<PString>>::new(|tx| PVec::of([PString::of("na", tx)], tx));
    pool.undone(|texts, tx| texts[0].push_str("pping", tx));
    pool.apply(|texts, tx| {
        texts[0].push('ï', tx);
        texts[0].push_str("ve", tx);
    });
    assert!(
        pool.apply(|texts, _| texts[0] == "naïve" && texts[0].len() == 6 && format!("{:?}", texts[0]) == "\"naïve\"")
    );
    pool.panics(|texts, _| texts[0].truncate(3));
    pool.apply(|texts, _| texts[0].truncate(2));
    assert!(pool.apply(|texts, _| texts[0] == "na" && &*texts[0] == "na"));
    if !cfg!(miri) {
        assert!(pool.reopened().expect("sound").apply(|texts, _| texts[0] == "na"));
        let at = pool.apply(|texts, _| texts[0].as_ptr() as usize) - pool.memory.base() as usize;
        let damage = pool.reopened_with(|bytes| bytes[at] = 0xff).err().expect("damage");
        assert!(damage.what.contains("UTF-8"), "{damage:?}");
    }
    pool.apply(|texts, _| texts[0].clear());
    assert!(pool.apply(|texts, _| texts[0].is_empty()));
}

#[test]
fn arrays_numbers_and_maybes() {
    #[derive(Persist)]
    #[persist(crate = crate)]
    #[repr(C)]
    struct Plain {
        wide: u128,
        small: [i8; 3],
        letters: [char; 2],
        is_it: bool,
        number: Option<NonZeroU32>,
        maybe: Maybe<f64>,
        size: usize,
    }
    let plain = || Plain {
        wide: u128::MAX - 1,
        small: [-1, 0, 1],
        letters: ['a', 'ß'],
        is_it: true,
        number: None,
        maybe: Some(0.5).into(),
        size: 9,
    };
    let pool = Pool::<PBox<Plain>>::new(|tx| PBox::new(plain(), tx));
    let pool = if cfg!(miri) { pool } else { pool.reopened().expect("sound") };
    pool.apply(|found, _| {
        assert_eq!((found.wide, found.small, found.letters), (u128::MAX - 1, [-1, 0, 1], ['a', 'ß']));
        assert!(
            found.is_it && found.number.is_none() && Option::<f64>::from(found.maybe) == Some(0.5) && found.size == 9
        );
        assert_eq!((found.maybe.take(), found.maybe.is_some()), (Some(0.5), false));
    });
    if !cfg!(miri) {
        let at = pool.apply(|found, _| &raw const **found as usize) - pool.memory.base() as usize;
        for (offset, what) in [
            (std::mem::offset_of!(Plain, letters), "char"),
            (std::mem::offset_of!(Plain, is_it), "bool"),
            (std::mem::offset_of!(Plain, maybe), "variant"),
        ] {
            let damage = pool.reopened_with(|bytes| bytes[at + offset..][..4].fill(0xfe)).err().expect("damage");
            assert!(damage.what.contains(what), "{damage:?}");
        }
    }
}

#[test]
fn enums_and_options() {
    #[derive(Persist)]
    #[persist(crate = crate)]
    #[repr(u8)]
    enum Shape<'p> {
        Nothing,
        Circle(u32, char) = 7,
        Named { name: PString<'p>, sides: Option<NonZeroU32>, is_round: bool },
    }
    let pool = Pool::<PVec<Shape>>::new(|tx| {
        let named = Shape::Named { name: PString::of("square", tx), sides: NonZeroU32::new(4), is_round: false };
        PVec::of([Shape::Nothing, Shape::Circle(3, 'x'), named], tx)
    });
    if cfg!(miri) {
        return;
    }
    let pool = pool.reopened().expect("sound");
    pool.apply(|shapes, _| {
        assert!(matches!(shapes[0], Shape::Nothing) && matches!(shapes[1], Shape::Circle(3, 'x')));
        let Shape::Named { name, sides: Some(sides), is_round: false } = &shapes[2] else { panic!("another variant") };
        assert_eq!((name.as_str(), sides.get()), ("square", 4));
    });
    let at = pool.apply(|shapes, _| shapes.as_ptr() as usize) - pool.memory.base() as usize;
    let size = size_of::<Shape>();
    for (offset, byte, what) in [(0, 1, "variant"), (size + 8, 0xff, "char"), (2 * size, 9, "variant")] {
        let damage = pool.reopened_with(|bytes| bytes[at + offset..][..4].fill(byte)).err().expect("damage");
        assert!(damage.what.contains(what), "{damage:?}");
    }
}

#[test]
fn damaged_pools_are_refused_or_sound_whatever_the_bytes() {
    if cfg!(miri) {
        return;
    }
    #[derive(Persist)]
    #[persist(crate = crate)]
    #[repr(C)]
    struct All<'p> {
        list: List<'p>,
        shares: Shares<'p>,
        map: PMap<'p, u32, PString<'p>>,
        maybe: Maybe<PBox<'p, bool>>,
    }
    let pool = Pool::<All>::new(|tx| {
        let one = Prc::new(Shared { value: PCell::new(1), other: PRefCell::new(None) }, tx);
        let mut all = All {
            list: List { head: None, len: 0 },
            shares: Shares { weak: Some(one.downgrade(tx)), strong: PVec::of([one], tx) },
            map: PMap::new(),
            maybe: Maybe::Some(PBox::new(true, tx)),
        };
        (0..20).for_each(|key| all.list.push(key, tx));
        (0..20).for_each(|key| _ = all.map.insert(key, PString::of("text", tx), tx));
        all
    });
    let mut random = fastrand::Rng::with_seed(5);
    let mut next = move |n: usize| random.usize(..n);
    let (mut refused, mut opened) = (0, 0);
    for _ in 0..20_000 {
        let flips: Vec<(usize, u8)> = (0..1 + next(3)).map(|_| (64 + next(4 * 4096), next(256) as u8)).collect();
        let reopened = pool.reopened_with(|bytes| {
            let len = bytes.len();
            flips.iter().for_each(|&(at, byte)| bytes[at % len] = byte);
        });
        match reopened {
            Err(damage) => {
                assert!(!damage.what.is_empty());
                refused += 1;
            }
            // Use everything in it.
            Ok(pool) => {
                opened += 1;
                pool.apply(|all, tx| {
                    all.list.keys();
                    all.map.iter().for_each(|(_, text)| assert!(text.chars().count() <= text.len()));
                    let (mut read, mut next) = (0, Some(PMapCursor::default()));
                    for _ in 0..100 {
                        let Some(cursor) = next else { break };
                        let (page, after) = all.map.page(cursor, 3);
                        (read, next) = (read + page.count(), after);
                    }
                    assert!(next.is_none() && read <= all.map.len());
                    all.shares.strong.iter().for_each(|one| _ = one.value.get());
                    _ = all.shares.weak.as_ref().map(|weak| weak.upgrade(tx));
                    all.list.head = None;
                    all.map.clear();
                    all.shares.strong.clear();
                });
            }
        }
    }
    assert!(refused > 300 && opened > 1000, "{refused} refused, {opened} opened");
}

#[test]
fn another_layout_is_refused_with_the_name_of_the_field() {
    #[derive(Persist)]
    #[persist(crate = crate)]
    #[repr(C)]
    struct Inner<T: Persist> {
        value: T,
    }
    #[derive(Persist)]
    #[persist(crate = crate)]
    #[repr(C)]
    struct Root<'p, T: Persist> {
        first: u32,
        rest: PVec<'p, Inner<T>>,
    }
    use crate::layout::Layout;
    let (one, two) = (Layout::of::<Root<u32>>(), Layout::of::<Root<u64>>());
    assert_eq!(one.differs_from(&one), None);
    let difference = two.differs_from(&one).expect("they differ");
    assert_eq!(difference, "`Root.rest[..].value` is `u64` in the file and `u32` in the program");
}
