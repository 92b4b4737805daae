//! Migrations of a pool on a real folder: values that move, and refusals, which leave the folder as it is.

use std::fs;
use std::path::Path;

use trust::Threadpool;
use trust_durable::{Durable, Error, PBox, PMap, PString, PVec, Persist, inspect};

use super::faults::contents;
use super::{accounts, open};

#[derive(Persist)]
#[repr(C)]
struct Account<'p> {
    name: PString<'p>,
    amount: u64,
}

/// The bank's type after the migration.
#[derive(Persist)]
#[repr(C)]
struct Bank<'p> {
    by_number: PMap<'p, u32, Account<'p>>,
    transfers: PVec<'p, PBox<'p, super::Transfer>>,
}

type Changed = Result<Durable<Bank<'static>>, Error>;

fn migrate(pool: &Threadpool, folder: &Path) -> Changed {
    Durable::<Bank>::migrate::<super::Bank>(pool.trustees()[0], folder, |old, tx| {
        let mut bank = Bank { by_number: PMap::new(), transfers: PVec::new() };
        for (number, &amount) in (0..).zip(old.accounts.iter()) {
            bank.by_number.insert(number, Account { name: PString::of("?", tx), amount }, tx);
        }
        bank.transfers.extend(old.last, tx);
        bank
    })
}

fn reopen(pool: &Threadpool, folder: &Path) -> Changed {
    Durable::<Bank>::open(pool.trustees()[0], folder, |_| unreachable!("there is a pool"))
}

/// Makes a pool of the old type, with a transfer in its log.
fn old(pool: &Threadpool, folder: &Path) {
    let bank = open(pool, folder).unwrap();
    bank.apply(|bank, tx| {
        bank.accounts[0] -= 30;
        bank.accounts[1] += 30;
        bank.last = Some(PBox::new(super::Transfer { from: 0, to: 1, amount: 30 }, tx));
    });
    bank.close().unwrap();
}

fn amounts(bank: &Durable<Bank<'static>>) -> [u64; 3] {
    bank.apply(|bank, _| {
        let amount = |number| bank.by_number.get(&number).map_or(0, |account| account.amount);
        [amount(0), amount(1), bank.transfers[0].amount]
    })
}

#[test]
fn a_pool_of_an_old_type_becomes_one_of_the_new_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    old(&pool, folder.path());
    let text = reopen(&pool, folder.path()).expect_err("the old type").to_string();
    assert!(text.contains("`Durable::migrate`"), "{text}");
    let bank = migrate(&pool, folder.path()).unwrap();
    assert_eq!(amounts(&bank), [70, 30, 30]);
    bank.apply(|bank, tx| {
        let name = PString::of("Ada", tx);
        bank.by_number.get_mut(&0).unwrap().name = name;
    });
    assert_eq!(bank.stats().unwrap().groups, 1, "as any pool");
    bank.close().unwrap();
    let found = inspect(folder.path()).unwrap();
    assert!(found.groups == 1 && found.layout[0].contains("by_number"), "{found}");
    assert!(matches!(open(&pool, folder.path()), Err(Error::OtherType { .. })), "the program of the old type");
    let bank = reopen(&pool, folder.path()).unwrap();
    assert!(bank.apply(|bank, _| bank.by_number.get(&0).unwrap().name == "Ada"));
    assert_eq!(amounts(&bank), [70, 30, 30]);
}

#[test]
fn a_pool_of_the_new_type_is_opened_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    old(&pool, folder.path());
    migrate(&pool, folder.path()).unwrap().close().unwrap();
    for round in 1..4 {
        let never = Durable::<Bank>::migrate::<super::Bank>(pool.trustees()[0], folder.path(), |_, _| {
            unreachable!("it has the new type")
        });
        let bank = never.unwrap();
        bank.apply(|bank, _| bank.by_number.get_mut(&1).unwrap().amount += 1);
        assert_eq!(amounts(&bank), [70, 30 + round, 30]);
        bank.close().unwrap();
    }
}

#[test]
fn what_cannot_be_migrated_stays_as_it_is() {
    let there = tempfile::tempdir().unwrap();
    let folder = there.path().join("pool");
    let pool = Threadpool::new(1);
    assert!(matches!(migrate(&pool, &folder), Err(Error::Io { .. })));
    assert!(!folder.exists(), "no folder is made");
    fs::create_dir(&folder).unwrap();
    assert!(matches!(migrate(&pool, &folder), Err(Error::Truncated { .. })));
    fs::write(folder.join("letter.txt"), "dear").unwrap();
    assert!(matches!(migrate(&pool, &folder), Err(Error::Foreign { .. })));
    fs::remove_file(folder.join("letter.txt")).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);

    let bank = open(&pool, &folder).unwrap();
    assert!(matches!(migrate(&pool, &folder), Err(Error::InUse { .. })));
    assert_eq!(accounts(&bank), (100, 0));
    bank.close().unwrap();
    let before = contents(&folder);
    let neither = Durable::<u32>::migrate::<u64>(pool.trustees()[0], &folder, |old, _| old as u32);
    let text = neither.expect_err("neither type").to_string();
    assert!(text.contains("the pool holds `Bank`, which this program's `u64` cannot read"), "{text}");
    assert_eq!(contents(&folder), before);
    assert_eq!(accounts(&open(&pool, &folder).unwrap()), (100, 0));
}

#[test]
fn a_migration_that_panics_leaves_the_old_pool() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    old(&pool, folder.path());
    let panics = Durable::<Bank>::migrate::<super::Bank>(pool.trustees()[0], folder.path(), |old, tx| {
        let mut bank = Bank { by_number: PMap::new(), transfers: PVec::new() };
        bank.transfers.extend(old.last, tx);
        drop(old.accounts);
        assert!(bank.transfers.is_empty(), "a mistake");
        bank
    });
    assert!(matches!(panics, Err(Error::Panicked { panic, .. }) if panic == "a mistake"));
    let small = Durable::<Bank>::builder().limit(64 << 10);
    let full = small.migrate::<super::Bank>(pool.trustees()[0], folder.path(), |_, tx| {
        let mut bank = Bank { by_number: PMap::new(), transfers: PVec::new() };
        bank.by_number.reserve(10_000, tx);
        bank
    });
    assert!(matches!(full, Err(Error::Panicked { panic, .. }) if panic.contains("the pool is full")));
    let bank = open(&pool, folder.path()).unwrap();
    assert_eq!(accounts(&bank), (70, 30));
    bank.close().unwrap();
    assert_eq!(amounts(&migrate(&pool, folder.path()).unwrap()), [70, 30, 30]);
}

/// Large enough for several slices of the image, and for a new generation of the log.
#[test]
fn large_values_move_without_being_copied() {
    const ELEMENTS: u64 = 200_000;
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let trustee = pool.trustees()[0];
    let vec = Durable::<PVec<u64>>::open(trustee, folder.path(), |tx| PVec::of(0..ELEMENTS, tx)).unwrap();
    vec.apply(|vec, _| vec.iter_mut().for_each(|value| *value += 1));
    vec.close().unwrap();
    #[derive(Persist)]
    #[repr(C)]
    struct Root<'p> {
        mark: u64,
        vec: PVec<'p, u64>,
    }
    let changed = Durable::<Root>::builder().limit(4 << 20);
    let root = changed.migrate::<PVec<u64>>(trustee, folder.path(), |vec, _| Root { mark: 7, vec }).unwrap();
    assert!(root.stats().unwrap().used_bytes < 2 * 8 * ELEMENTS);
    root.close().unwrap();
    let root = Durable::<Root>::open(trustee, folder.path(), |_| unreachable!("there is a pool")).unwrap();
    assert!(root.apply(|root, _| root.mark == 7 && root.vec.iter().copied().eq(1..=ELEMENTS)));
}
