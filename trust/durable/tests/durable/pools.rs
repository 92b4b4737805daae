//! Pools: opened, refused, many at once, limited, renewed, copied.

use trust::Threadpool;
use trust_durable::{Durable, Error, PBox, PVec, Persist};

use super::{Transfer, accounts, open};

#[test]
fn c2_a_folder_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    assert!(matches!(open(&pool, folder.path()), Err(Error::InUse { .. })));
    bank.close().unwrap();
    open(&pool, folder.path()).unwrap().close().unwrap();
}

#[test]
fn c2_many_pools_at_one_trustee() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let banks: Vec<_> = (0..50).map(|n| open(&pool, &folder.path().join(n.to_string())).unwrap()).collect();
    for (n, bank) in banks.iter().enumerate() {
        bank.apply_then(move |bank, _| bank.accounts[1] = n as u64, |()| ());
    }
    banks.iter().for_each(|bank| bank.sync().unwrap());
    for (n, bank) in banks.into_iter().enumerate() {
        assert_eq!(bank.peek(|bank| bank.accounts[1]), n as u64);
        bank.close().unwrap();
    }
}

#[test]
fn c4_another_type_is_refused_by_field_and_the_pool_stays() {
    #[derive(Persist)]
    #[repr(C)]
    struct Bank<'p> {
        accounts: PVec<'p, i64>,
        last: Option<PBox<'p, Transfer>>,
    }
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    open(&pool, folder.path()).unwrap().close().unwrap();
    let other =
        Durable::<Bank>::open(pool.trustees()[0], folder.path(), |_| Bank { accounts: PVec::new(), last: None });
    let text = other.expect_err("another type").to_string();
    assert!(text.contains("image-0") && text.contains("`Bank.accounts[..]` is `u64` in the file and `i64`"), "{text}");
    assert_eq!(accounts(&open(&pool, folder.path()).unwrap()), (100, 0));
}

#[test]
fn c26_a_folder_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    std::fs::write(folder.path().join("letter.txt"), "dear").unwrap();
    let text = open(&pool, folder.path()).expect_err("foreign").to_string();
    assert!(text.contains("letter.txt"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let file = folder.path().join("letter.txt");
    assert!(open(&pool, &file).is_err());
    assert_eq!(std::fs::read_to_string(file).unwrap(), "dear");
}

#[test]
fn c27_a_limit_is_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let open =
        |limit| Durable::<PVec<u64>>::builder().limit(limit).open(pool.trustees()[0], folder.path(), |_| PVec::new());
    let vec = open(1 << 20).unwrap();
    let full = vec.try_apply(|vec, tx| vec.extend(0..1_000_000, tx));
    assert!(matches!(full, Err(Error::Panicked { panic, .. }) if panic.contains("the pool is full")));
    vec.apply(|vec, tx| vec.extend(0..50_000, tx));
    vec.close().unwrap();
    let small = open(64 << 10).expect_err("it does not fit").to_string();
    assert!(small.contains("`limit`"), "{small}");
    assert_eq!(open(2 << 20).unwrap().apply(|vec, _| vec.len()), 50_000);
}

#[test]
fn c28_generations_keep_the_log_short_while_service_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let vec = Durable::<PVec<u64>>::open(pool.trustees()[0], folder.path(), |tx| PVec::of((0..60_000).map(|_| 0), tx))
        .unwrap();
    let mut most = 0;
    for round in 1..=60u64 {
        for _ in 0..10 {
            vec.apply_then(move |vec, _| vec.iter_mut().step_by(16).for_each(|value| *value = round), |()| ());
        }
        vec.sync().unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap().flatten();
        let names: Vec<_> = files.map(|entry| entry.file_name().into_string().unwrap()).collect();
        let of = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).count();
        assert!(of("image") <= 2 && of("log") <= 2, "{names:?}");
        most = most.max(vec.stats().unwrap().log_bytes);
    }
    let stats = vec.stats().unwrap();
    assert!(stats.generations >= 2, "{stats:?}");
    assert!(most < 16 << 20, "{most}");
    vec.close().unwrap();
    let vec = Durable::<PVec<u64>>::open(pool.trustees()[0], folder.path(), |_| PVec::new()).unwrap();
    assert!(vec.apply(|vec, _| vec.iter().step_by(16).all(|&value| value == 60) && vec.len() == 60_000));
}

#[test]
fn c34_a_snapshot_is_a_pool_of_its_own() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    bank.apply(|bank, _| bank.accounts[1] = 5);
    bank.snapshot(other.path()).unwrap();
    assert!(matches!(bank.snapshot(other.path()), Err(Error::Foreign { .. })), "nothing is written over");
    bank.apply(|bank, _| bank.accounts[1] = 6);
    let copy = open(&pool, other.path()).unwrap();
    copy.apply(|bank, _| bank.accounts[0] = 1);
    assert_eq!((accounts(&bank), accounts(&copy)), ((100, 6), (1, 5)));
}
