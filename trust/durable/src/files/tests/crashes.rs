//! Power cut at each operation, of recovery too, and reopening.

use super::super::disk::Disk;
use super::super::named::Files;
use super::super::sim::Sim;
use super::{Pool, count, open, random};

/// Least number of crash points; `DURABLE_POINTS` overrides it.
fn points_wanted() -> u64 {
    std::env::var("DURABLE_POINTS").map_or(10_000, |points| points.parse().expect("a number"))
}

/// Opens the files that are left, and cuts the power again while they are opened, at each operation and after it.
fn recovers(disk: &Sim, told: u64, most: u64, random: &mut impl FnMut() -> bool) -> u64 {
    let Some(opened) = open(&disk.copy()).unwrap_or_else(|error| panic!("{error}; {:?}", disk.names())) else {
        assert_eq!(told, 0, "the pool is gone");
        return 1;
    };
    let found = count(&opened.memory);
    assert!((told..=most).contains(&found), "{found} transactions, {told} were told and {most} made");
    let mut points = 1;
    // Cut in the middle of recovery: states that the first opening may have shown have to stay.
    for operation in 1.. {
        let again = disk.copy();
        again.crash_at(operation);
        let is_done = open(&again).is_ok();
        let cut = again.after_power_cut(&mut *random);
        let opened = open(&cut).unwrap_or_else(|error| panic!("after a cut at {operation} of recovery: {error}"));
        let least = if is_done { found } else { told };
        match opened {
            Some(opened) => {
                let count = count(&opened.memory);
                assert!(
                    (least..=most).contains(&count),
                    "{count} of at least {least} after a cut at {operation} of recovery"
                );
            }
            None => assert!(!is_done && told == 0, "the pool is gone after a cut at {operation} of recovery"),
        }
        points += 1;
        if is_done {
            break;
        }
    }
    points
}

/// Works for some generations; returns the number of transactions acknowledged as durable, and of all.
fn work(disk: &Sim, generations: u64) -> (u64, u64) {
    let Ok(mut pool) = Pool::create(disk) else { return (0, 0) };
    let _ = (0..generations).try_for_each(|_| pool.work()).and_then(|()| pool.store.close());
    (pool.told, pool.count)
}

/// Three generations: from the third on logs are written into the files of old logs.
const GENERATIONS: u64 = 3;

#[test]
fn every_crash_point_recovers() {
    let whole = Sim::default();
    let (told, made) = work(&whole, GENERATIONS);
    assert!(told == made && made > 30);
    let operations = whole.done();
    assert!(operations > 80, "{operations} operations");
    let mut points = 0;
    let mut seed = 0;
    while points < points_wanted() {
        seed += 1;
        for operation in 1..=operations + 1 {
            let disk = Sim::default();
            disk.crash_at(operation);
            let (told, most) = work(&disk, GENERATIONS);
            let mut choose = random(seed * 1000 + operation);
            points += recovers(&disk.after_power_cut(&mut choose), told, most, &mut choose);
            // Killed, so that all writes are seen, but not all are on the disk: a state that was shown has to stay.
            let killed = disk.after_kill();
            points += recovers(&killed, told, most, &mut choose);
        }
    }
    println!("{points} crash points, {operations} operations");
}

/// After one operation of each kind: every possible state of the disk, where there are at most 12 choices.
#[test]
fn every_subset_of_what_was_not_synced_recovers() {
    let whole = Sim::default();
    work(&whole, 1);
    let (mut points, mut whole_sets) = (0, 0);
    for operation in 1..=whole.done() + 1 {
        let disk = Sim::default();
        disk.crash_at(operation);
        let (told, most) = work(&disk, 1);
        let mut choices = 0;
        disk.after_power_cut(|| {
            choices += 1;
            true
        });
        if choices > 12 {
            continue;
        }
        whole_sets += 1;
        // Earlier choices determine the later ones: iterates over the bit strings that are not cut short by that.
        let mut bits: u32 = 0;
        while bits < 1 << 12 {
            let mut used = 0u32;
            // Some strings lead to a thirteenth choice: it selects the old state.
            let cut = disk.after_power_cut(|| {
                used += 1;
                used <= 12 && bits >> (12 - used) & 1 == 1
            });
            let used = used.min(12);
            match open(&cut).unwrap_or_else(|error| panic!("{error} after a cut at {operation}, {bits:#b}")) {
                Some(opened) => {
                    let found = count(&opened.memory);
                    assert!((told..=most).contains(&found), "{found}, {told} were told and {most} made");
                }
                None => assert_eq!(told, 0, "the pool is gone"),
            }
            points += 1;
            // The next string that differs in the choices made.
            bits = ((bits >> (12 - used)) + 1) << (12 - used);
        }
    }
    println!("{points} subsets after {whole_sets} of {} operations", whole.done());
    assert!(whole_sets > 20);
}

#[test]
fn after_an_error_what_was_told_is_there() {
    let whole = Sim::default();
    Pool::create(&whole).expect("it works").work().expect("it works");
    for operation in 1..=whole.done() {
        let disk = Sim::default();
        disk.error_at(operation);
        let Ok(mut pool) = Pool::create(&disk) else { continue };
        // The first error is final: nothing is tried again.
        let _ = pool.work();
        let mut choose = random(operation);
        recovers(&disk.after_power_cut(&mut choose), pool.told, pool.count, &mut choose);
        recovers(&disk.after_kill(), pool.told, pool.count, &mut choose);
    }
}

/// The suite notices faults: a disk with syncs of files, or of the folder, that do nothing.
#[test]
fn planted_faults_are_caught() {
    struct Lying(Sim, bool);
    impl Disk for Lying {
        fn list(&mut self) -> std::io::Result<Vec<String>> {
            self.0.list()
        }
        fn len(&mut self, name: &str) -> std::io::Result<u64> {
            self.0.len(name)
        }
        fn read(&mut self, name: &str, at: u64, to: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(name, at, to)
        }
        fn create(&mut self, name: &str) -> std::io::Result<()> {
            self.0.create(name)
        }
        fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> std::io::Result<()> {
            self.0.write(name, at, bytes)
        }
        fn sync(&mut self, name: &str) -> std::io::Result<()> {
            if self.1 { Ok(()) } else { self.0.sync(name) }
        }
        fn rename(&mut self, from: &str, to: &str) -> std::io::Result<()> {
            self.0.rename(from, to)
        }
        fn remove(&mut self, name: &str) -> std::io::Result<()> {
            self.0.remove(name)
        }
        fn sync_folder(&mut self) -> std::io::Result<()> {
            if self.1 { self.0.sync_folder() } else { Ok(()) }
        }
        fn path(&self) -> std::path::PathBuf {
            self.0.path()
        }
    }
    for lies_of_files in [true, false] {
        let caught = (1..40).any(|seed| {
            let disk = Sim::default();
            let mut pool = Pool::create(&disk).expect("it works");
            pool.store.files = Files::of(Lying(disk.clone(), lies_of_files));
            pool.work().expect("it works");
            let mut choose = random(seed);
            let cut = disk.after_power_cut(&mut choose);
            !matches!(open(&cut), Ok(Some(opened)) if count(&opened.memory) == pool.told)
        });
        assert!(
            caught,
            "a disk that lies about syncs of {} passes",
            if lies_of_files { "files" } else { "the folder" }
        );
    }
}
