//! Pools: opening, refusal, many at once, limits, new generations, copies.

use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trust::Threadpool;
use trust_durable::{Durable, Error, PBox, PMap, PVec, Persist, inspect};

use super::{Transfer, accounts, open};

#[test]
fn values_of_no_bytes_are_not_counted_one_by_one() {
    #[derive(Persist, Clone, Copy)]
    #[repr(C)]
    struct Nothing {
        none: [bool; 0],
    }

    #[derive(Persist)]
    #[repr(C)]
    struct Root<'p> {
        many: [[bool; 0]; 1 << 40],
        more: [[[Nothing; usize::MAX]; 1 << 40]; usize::MAX],
        boxed: Option<PBox<'p, [Nothing; 1 << 50]>>,
        map: PMap<'p, u64, [[bool; 0]; 1 << 40]>,
        some: [bool; 3],
    }
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let open = || {
        Durable::<Root>::open(pool.trustees()[0], folder.path(), |tx| {
            let nothing = Nothing { none: [] };
            let mut map = PMap::new();
            map.insert(7, [[]; 1 << 40], tx);
            Root {
                many: [[]; 1 << 40],
                more: [[[nothing; usize::MAX]; 1 << 40]; usize::MAX],
                boxed: Some(PBox::new([nothing; 1 << 50], tx)),
                map,
                some: [true, false, true],
            }
        })
        .unwrap()
    };
    open().close().unwrap();
    assert!(open().apply(|root, _| root.some == [true, false, true] && root.map.contains_key(&7)));
}

#[test]
fn a_folder_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    assert!(matches!(open(&pool, folder.path()), Err(Error::InUse { .. })));
    bank.close().unwrap();
    open(&pool, folder.path()).unwrap().close().unwrap();
}

#[test]
fn many_pools_at_one_trustee() {
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
fn another_type_is_refused_by_field_and_the_pool_stays() {
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
fn a_folder_of_something_else_is_left_alone() {
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
fn a_limit_is_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let open =
        |limit| Durable::<PVec<u64>>::builder().limit(limit).open(pool.trustees()[0], folder.path(), |_| PVec::new());
    let vec = open(1 << 20).unwrap();
    let full = vec.call().apply(|vec, tx| vec.extend(0..1_000_000, tx)).wait();
    assert!(matches!(full, Err(Error::Panicked { panic, .. }) if panic.contains("the pool is full")));
    vec.apply(|vec, tx| vec.extend(0..50_000, tx));
    let stats = vec.stats().unwrap();
    assert_eq!(stats.limit_bytes, 1 << 20);
    assert!(stats.used_bytes >= 400_000 && (stats.used_bytes..=1 << 20).contains(&stats.memory_bytes), "{stats:?}");
    assert!(stats.log_bytes >= 400_000 && stats.image_bytes > 0, "what it takes on disk: {stats:?}");
    vec.close().unwrap();
    let small = open(64 << 10).expect_err("it does not fit").to_string();
    assert!(small.contains("`limit`"), "{small}");
    assert_eq!(open(2 << 20).unwrap().apply(|vec, _| vec.len()), 50_000);
}

#[test]
fn generations_keep_the_log_short_while_service_goes_on() {
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
fn a_snapshot_is_a_pool_of_its_own() {
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

/// The documented number of pools, with the default limit: each reserves address space for half of the machine's
/// memory.
#[test]
fn two_thousand_pools() {
    const POOLS: u64 = 2000;
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let most = getrlimit(Resource::Nofile).maximum;
    if most.is_some_and(|most| most < 5 * POOLS) {
        return println!("SKIPPED: two_thousand_pools: a process may open {most:?} files here");
    }
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let pool = Threadpool::new(1);
    let open = |n: u64| Durable::<u64>::open(pool.trustees()[0], folder.path().join(n.to_string()), |_| 0).unwrap();
    let mut numbers: Vec<_> = (0..POOLS).map(open).collect();
    // Only a few of them are changed, because a log is zeroed ahead by 4 MiB.
    for (n, number) in numbers.iter().enumerate().step_by(200) {
        number.apply(move |number, _| *number = n as u64);
    }
    for (n, number) in numbers.iter().enumerate() {
        let expected = if n.is_multiple_of(200) { n as u64 } else { 0 };
        assert_eq!(number.peek(|number| *number), expected);
    }
    numbers.swap_remove(400).close().unwrap();
    assert_eq!(open(400).peek(|number| *number), 400);
}

#[test]
fn what_opening_found_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    (0..3).for_each(|_| bank.apply(|bank, _| bank.accounts[0] += 1));
    let stats = bank.stats().unwrap();
    assert_eq!((stats.transactions, stats.groups, stats.lines, stats.written_bytes), (3, 3, 3, 3 * 4096), "{stats:?}");
    assert!(stats.sync_ns > 0 && stats.sync_ns_max <= stats.sync_ns, "{stats:?}");
    bank.close().unwrap();
    // As after a crash in the middle of the last record: its second half is missing, and no end record follows.
    let log = folder.path().join("log-0");
    let mut bytes = std::fs::read(&log).unwrap();
    let last = 3 * 4096;
    assert!(bytes[last..last + 8] == *b"trustrec" && bytes[last + 2 * 4096..].iter().all(|&byte| byte == 0));
    bytes[last + 64..].fill(0);
    std::fs::write(&log, bytes).unwrap();
    let bank = open(&pool, folder.path()).unwrap();
    let stats = bank.stats().unwrap();
    assert_eq!((stats.groups_replayed, stats.bytes_cut), (2, 4096), "{stats:?}");
    assert_eq!(accounts(&bank).0, 102);
}

#[test]
fn a_folder_is_checked_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let bank = open(&pool, folder.path()).unwrap();
    (0..3).for_each(|_| bank.apply(|bank, _| bank.accounts[0] += 1));
    assert!(matches!(inspect(folder.path()), Err(Error::InUse { .. })));
    bank.close().unwrap();
    let check = || {
        let output = Command::new(env!("CARGO_BIN_EXE_durable-check")).arg(folder.path()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.success(), said)
    };
    let (is_whole, said) = check();
    assert!(is_whole, "{said}");
    for line in [
        "root: Bank",
        "  Bank { accounts: PVec, last: Option }, 32 bytes",
        "  PVec of u64, 24 bytes",
        "from group 1 to 3, 3 groups of 3 lines, 16384 bytes, whole",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let log = folder.path().join("log-0");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[2 * 4096 + 70] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let (is_whole, said) = check();
    assert!(!is_whole && said.contains("log-0, offset 8192: a record is damaged that whole ones follow"), "{said}");
    assert_eq!(std::fs::read(&log).unwrap(), bytes, "nothing is written");
    bytes[2 * 4096 + 70] ^= 1;
    // The last group of a closed pool: what was acknowledged is not dropped in silence.
    bytes[3 * 4096 + 70] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let (is_whole, said) = check();
    assert!(!is_whole && said.contains("log-0, offset 12288: a record is damaged"), "{said}");
    assert!(matches!(open(&pool, folder.path()), Err(Error::Damaged { offset: 12288, .. })));
    // As the program's end without `close` leaves it.
    bytes[4 * 4096..].fill(0);
    std::fs::write(&log, &bytes).unwrap();
    let (is_whole, said) = check();
    assert!(is_whole && said.contains("of 4096 bytes follows") && said.contains("was not closed"), "{said}");
    let (empty, nowhere) = (tempfile::tempdir().unwrap(), folder.path().join("nowhere"));
    assert!(matches!(inspect(empty.path()), Err(Error::Truncated { .. })));
    assert!(matches!(inspect(nowhere), Err(Error::Io { .. })));
}

#[test]
fn an_option_opens_existing_pools_only() {
    let above = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let open = |folder: &Path| {
        let builder = Durable::<u64>::builder().create(false);
        builder.open(pool.trustees()[0], folder, |_| unreachable!("no pool is made"))
    };
    let (mistyped, empty, there) =
        (above.path().join("no/such"), above.path().join("empty"), above.path().join("there"));
    std::fs::create_dir(&empty).unwrap();
    for folder in [&mistyped, &empty] {
        let refused = open(folder).unwrap_err();
        assert!(matches!(&refused, Error::NoPool { folder: told } if told == folder), "{refused}");
    }
    assert!(!above.path().join("no").exists() && std::fs::read_dir(&empty).unwrap().next().is_none());
    Durable::<u64>::open(pool.trustees()[0], &there, |_| 7).unwrap().close().unwrap();
    assert_eq!(open(&there).unwrap().apply(|number, _| *number), 7);
}
