//! Migrations: power cut, kill and error at each operation leave a pool of the old type or one of the new, with all of
//! its values.

use super::super::migration;
use super::super::named::Files;
use super::super::recover::{self, Opened};
use super::super::sim::Sim;
use super::{LIMIT, Pool, Root, count, expected, open, random};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::walk::Walk;
use crate::{PBox, PVec, Persist};

/// The root's type after the migration: a field moved, one new, one gone, one of another type.
#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Wide<'p> {
    places: PVec<'p, u64>,
    count: u128,
    sum: PBox<'p, u64>,
}

fn open_wide(disk: &Sim) -> Result<Option<Opened>> {
    let layout = Layout::of::<Wide>();
    Ok(recover::open(Files::of(disk.clone()), &layout, LIMIT, |memory| Walk::all::<Wide>(memory))?.ok())
}

/// Opens the files as those of either type, and changes the type where it is the old one. Returns whether it was.
fn migrate(disk: &Sim) -> Result<bool> {
    let (new, old) = (Layout::of::<Wide>(), Layout::of::<Root>());
    let (opened, is_old) = migration::open(
        Files::of(disk.clone()),
        (&new, |memory| Walk::all::<Wide>(memory)),
        (&old, |memory| Walk::all::<Root>(memory)),
        LIMIT,
    )?;
    if !is_old {
        return Ok(false);
    }
    let Opened { memory, mut store, last, .. } = opened;
    // SAFETY: opened as a pool of the old type.
    let changed = unsafe {
        memory.change_type::<Root, Wide>(|old, tx| {
            let sum = PBox::new(old.places.iter().sum(), tx);
            Wide { places: old.places, count: old.count.into(), sum }
        })
    };
    assert!(changed.is_ok());
    let mut bytes = Vec::new();
    memory.copy_out(0, memory.high_water(), &mut bytes);
    store.change_type(serde_json::to_string(&new).expect("it is data"), last, &bytes)?;
    Ok(true)
}

/// Returns the transactions before the state of a pool of the new type, and checks that the state is consistent.
fn wide_count(opened: &Opened) -> u64 {
    // SAFETY: opened as a pool of the new type.
    let looked = unsafe { opened.memory.look::<Wide, _>(|root| (root.count, root.places.to_vec(), *root.sum)) };
    let (count, places, sum) = looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    assert_eq!(places, expected(count as u64));
    assert_eq!(sum, places.iter().sum::<u64>());
    count as u64
}

/// Makes a pool that was closed in order; with `is_between`, one between two generations: two images, two logs.
fn sample(is_between: bool) -> (Sim, u64) {
    let disk = Sim::default();
    let mut pool = Pool::create(&disk).expect("it works");
    pool.work().expect("it works");
    if is_between {
        let len = pool.memory.high_water() as u64;
        pool.store.begin_generation(pool.group, len).expect("it works");
        pool.step();
        pool.commit().expect("it works");
    }
    (disk, pool.count)
}

/// Checks that the files are those of either type, with `made` transactions. Returns whether they are of the new type.
fn is_either(disk: &Sim, made: u64) -> bool {
    match open_wide(&disk.copy()) {
        Ok(Some(opened)) => {
            assert_eq!(wide_count(&opened), made);
            assert!(matches!(open(&disk.copy()), Err(Error::OtherType { .. })));
            true
        }
        Ok(None) => panic!("the pool is gone"),
        Err(Error::OtherType { .. }) => {
            let opened = open(&disk.copy()).unwrap_or_else(|error| panic!("{error}; {:?}", disk.names()));
            assert_eq!(count(&opened.expect("a pool").memory), made);
            false
        }
        Err(error) => panic!("{error}; {:?}", disk.names()),
    }
}

/// Makes another transaction in a pool of the old type, whose files an unfinished migration left; then the power fails.
fn goes_on_with_the_old_type(disk: &Sim, made: u64, choose: &mut impl FnMut() -> bool) {
    let Opened { memory, store, last, .. } = open(disk).expect("it opens").expect("a pool");
    let mut pool = Pool { memory, store, group: last + 1, told: made, count: made };
    pool.step();
    pool.commit().expect("it works");
    let cut = disk.after_power_cut(choose);
    assert_eq!(count(&open(&cut).expect("it opens").expect("a pool").memory), made + 1);
    assert!(migrate(&cut).expect("it works"));
    assert!(is_either(&cut, made + 1));
}

/// Checks a state that an interrupted migration left, and finishes the migration. Returns whether it was of the new
/// type.
fn recovers(disk: &Sim, made: u64, choose: &mut impl FnMut() -> bool) -> bool {
    let is_new = is_either(disk, made);
    if !is_new {
        goes_on_with_the_old_type(&disk.copy(), made, choose);
    }
    let again = disk.copy();
    assert_eq!(migrate(&again).expect("it works"), !is_new);
    assert!(is_either(&again.after_power_cut(choose), made), "a finished migration is durable");
    is_new
}

#[test]
fn a_crash_in_a_migration_leaves_the_old_pool_or_the_new_one() {
    let seeds = if cfg!(miri) { 1 } else { 12 };
    for is_between in [false, true] {
        let (sample, made) = sample(is_between);
        let (mut old, mut new) = (0, 0);
        for operation in 1..1000 {
            let disk = sample.copy();
            disk.crash_at(operation);
            let is_done = migrate(&disk).is_ok();
            let mut choose = random(operation);
            for round in 0..=seeds {
                // The last round is a kill: all writes are seen, though not all are durable.
                let left = if round == seeds { disk.after_kill() } else { disk.after_power_cut(&mut choose) };
                let is_new = recovers(&left, made, &mut choose);
                assert!(is_new || !is_done, "a finished migration was lost");
                *(if is_new { &mut new } else { &mut old }) += 1;
            }
            if is_done {
                assert!(old > 10 * seeds && new > seeds, "{old} crashes left the old type, {new} the new one");
                break;
            }
            assert!(operation < 999, "it ends");
        }
    }
}

#[test]
fn an_error_in_a_migration_leaves_the_old_pool_or_the_new_one() {
    let fail: [fn(&Sim, u64); 2] = [Sim::error_at, Sim::full_at];
    for (is_between, fail) in [false, true].into_iter().flat_map(|is_between| fail.map(|fail| (is_between, fail))) {
        let (sample, made) = sample(is_between);
        let mut failed = 0;
        for operation in 1..1000 {
            let disk = sample.copy();
            fail(&disk, operation);
            let outcome = migrate(&disk);
            recovers(&disk.after_kill(), made, &mut random(operation));
            recovers(&disk.after_power_cut(random(operation)), made, &mut random(operation));
            match outcome {
                Ok(is_old) => {
                    assert!(is_old);
                    break;
                }
                Err(error) => assert!(error.to_string().contains("sim"), "{error}"),
            }
            failed += 1;
        }
        assert!((20..999).contains(&failed), "{failed} operations");
    }
}

#[test]
fn what_is_not_of_the_old_type_is_not_changed() {
    let (sample, made) = sample(true);
    assert!(migrate(&sample).expect("it works"));
    let names = sample.names();
    assert!(!migrate(&sample).expect("it opens"), "it has the new type already");
    assert_eq!(names.iter().filter(|name| name.starts_with("image")).count(), 1, "{names:?}");
    assert!(is_either(&sample, made));
    let (wide, other) = (Layout::of::<Wide>(), Layout::of::<PVec<u64>>());
    let before = sample.done();
    let refused = migration::open(
        Files::of(sample.clone()),
        (&other, |memory| Walk::all::<PVec<u64>>(memory)),
        (&Layout::of::<Root>(), |memory| Walk::all::<Root>(memory)),
        LIMIT,
    );
    let Err(Error::OtherType { found, wanted, .. }) = refused else { panic!("it is of neither type") };
    assert_eq!((&*found, &*wanted), (wide.name(), "Root"));
    let empty = migration::open(
        Files::of(Sim::default()),
        (&wide, |memory| Walk::all::<Wide>(memory)),
        (&other, |memory| Walk::all::<PVec<u64>>(memory)),
        LIMIT,
    );
    assert!(matches!(empty, Err(Error::Truncated { .. })));
    assert_eq!(sample.done(), before, "nothing is written");
}
