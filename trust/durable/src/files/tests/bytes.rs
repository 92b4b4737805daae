//! Files with changed bytes, and missing files.

use super::super::disk::Disk;
use super::super::sim::Sim;
use super::{Pool, count, open};
use crate::error::Error;

/// Makes a pool, does some work and closes it in order.
fn sample() -> (Sim, u64) {
    let disk = Sim::default();
    let mut pool = Pool::create(&disk).expect("it works");
    pool.work().expect("it works");
    pool.store.close().expect("it works");
    (disk, pool.count)
}

#[test]
fn any_bytes_are_opened_or_refused_by_file_and_offset() {
    let (disk, most) = sample();
    let mut random = fastrand::Rng::with_seed(99);
    let mut next = move |n: u64| random.u64(..n);
    let (mut refused, mut opened) = (0, 0);
    for _ in 0..3000 {
        let changed = disk.copy();
        let names: Vec<String> = changed.names();
        let name = &names[next(names.len() as u64) as usize];
        changed.edit(name, |bytes| {
            let used = (bytes.len() as u64).min(80_000);
            match next(4) {
                0 => bytes.truncate(next(used) as usize),
                1 => bytes.extend((0..next(9000)).map(|n| n as u8)),
                _ => (0..1 + next(4)).for_each(|_| bytes[next(used) as usize] ^= 1 << next(8)),
            }
        });
        match open(&changed) {
            Ok(Some(pool)) => {
                assert!(count(&pool.memory) <= most);
                opened += 1;
            }
            Ok(None) => panic!("it was taken for an empty folder"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("sim/") && (text.contains("offset") || text.contains("limit")), "{text}");
                refused += 1;
            }
        }
    }
    assert!(refused > 500 && opened > 100, "{refused} refused, {opened} opened");
}

#[test]
fn a_log_cut_below_what_the_image_needs_is_refused_and_above_it_is_a_torn_tail() {
    let (disk, most) = sample();
    let log = disk.names().into_iter().find(|name| name.starts_with("log")).expect("a log");
    let mut verdicts = Vec::new();
    for pages in 1..20 {
        let cut = disk.copy();
        cut.edit(&log, |bytes| bytes.truncate(pages * 4096));
        verdicts.push(match open(&cut) {
            Ok(opened) => opened.map(|opened| count(&opened.memory)),
            Err(Error::Truncated { .. }) => None,
            Err(other) => panic!("{other}"),
        });
    }
    let first_good = verdicts.iter().position(Option::is_some).expect("at its full length it opens");
    assert!(first_good > 0, "the image was copied while groups were open, so it needs some of the log");
    let counts: Vec<u64> =
        verdicts[first_good..].iter().map(|count| count.expect("longer ones open as well")).collect();
    assert!(counts.is_sorted() && counts.last() == Some(&most));
}

#[test]
fn a_bad_record_before_a_good_one_is_damage() {
    let (disk, _) = sample();
    let log = disk.names().into_iter().find(|name| name.starts_with("log")).expect("a log");
    disk.edit(&log, |bytes| bytes[4096 + 100] ^= 1);
    let error = open(&disk).err().expect("damage");
    assert!(matches!(&error, Error::Damaged { offset: 4096, .. }), "{error}");
}

/// Each byte of the last group's record, and of the end record behind it.
#[test]
fn of_a_closed_pool_no_changed_record_is_taken_for_a_torn_one() {
    let disk = Sim::default();
    let mut pool = Pool::create(&disk).expect("it works");
    pool.work().expect("it works");
    let at = pool.store.log.at as usize;
    pool.step();
    pool.commit().expect("it works");
    let (log, end) = (pool.store.log.name.clone(), pool.store.log.at as usize);
    let killed = disk.copy();
    pool.store.close().expect("it works");
    let changed = |disk: &Sim, place: usize| {
        let changed = disk.copy();
        changed.edit(&log, |bytes| bytes[place] ^= 1 << (place % 8));
        open(&changed)
    };
    let mut refused = 0;
    for place in at..end {
        match changed(&disk, place) {
            Ok(opened) => assert_eq!(count(&opened.expect("a pool").memory), pool.count, "padding of the record"),
            Err(error) => {
                assert!(matches!(&error, Error::Damaged { offset, .. } if *offset == at as u64), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 64, "{refused} places");
    for place in end..end + 64 {
        let opened = changed(&disk, place).expect("no group is behind it").expect("a pool");
        assert_eq!(count(&opened.memory), pool.count);
    }
    let opened = changed(&killed, at + 64).expect("a torn record, perhaps").expect("a pool");
    assert_eq!(count(&opened.memory), pool.count - 1);
    assert!(opened.cut > 0);
}

/// Opened and closed again and again, a log does not grow.
#[test]
fn an_end_record_is_not_kept() {
    let (disk, most) = sample();
    let mut ends = Vec::new();
    for _ in 0..3 {
        let mut opened = open(&disk).expect("opens").expect("a pool");
        assert_eq!((count(&opened.memory), opened.cut), (most, 0));
        ends.push(opened.store.log.at);
        opened.store.close().expect("it works");
    }
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
}

#[test]
fn files_of_others_stay_and_what_an_opening_left_goes() {
    let (mut disk, most) = sample();
    for name in ["letter.txt", "letter.tmp", "image-9.tmp", "log-9.tmp"] {
        disk.create(name).expect("it works");
    }
    let opened = open(&disk).expect("opens").expect("a pool");
    assert_eq!(count(&opened.memory), most);
    let names = disk.names();
    assert!(names.len() == 4 && names.iter().filter(|name| name.starts_with("letter")).count() == 2, "{names:?}");
}

#[test]
fn logs_without_an_image_are_no_new_pool() {
    let (mut disk, _) = sample();
    let image = disk.names().into_iter().find(|name| name.starts_with("image")).expect("an image");
    disk.remove(&image).expect("it works");
    let before = disk.names();
    let error = open(&disk).err().expect("the image is gone");
    assert!(matches!(&error, Error::Truncated { file, .. } if file.ends_with(&image)), "{error}");
    assert_eq!(disk.names(), before);
    // The first log, with groups in it.
    disk.rename(&image.replace("image", "log"), "log-0").expect("it works");
    let error = open(&disk).err().expect("the image is gone");
    assert!(matches!(&error, Error::Truncated { file, .. } if file.ends_with("image-0")), "{error}");
}

#[test]
fn what_an_opening_shows_is_durable_the_image_as_well() {
    let (mut disk, most) = sample();
    // A copied folder: nothing of it is certain to be on the disk.
    for name in disk.names() {
        let mut bytes = vec![0; disk.len(&name).expect("it works") as usize];
        disk.read(&name, 0, &mut bytes).expect("it works");
        disk.create(&name).expect("it works");
        disk.write(&name, 0, &bytes).expect("it works");
    }
    assert_eq!(count(&open(&disk).expect("opens").expect("a pool").memory), most);
    let cut = disk.after_power_cut(|| false);
    assert_eq!(count(&open(&cut).expect("opens").expect("a pool").memory), most);
}

#[test]
fn a_record_that_cannot_be_read_is_not_the_end_of_the_log() {
    let (disk, most) = sample();
    let mut refused = 0;
    for operation in 1.. {
        let failing = disk.copy();
        failing.read_error_at(operation);
        match open(&failing) {
            Ok(opened) => {
                assert_eq!(count(&opened.expect("a pool").memory), most);
                break;
            }
            Err(error) => assert!(matches!(error, Error::Io { .. }), "{error}"),
        }
        refused += 1;
    }
    assert!(refused > 5);
}

/// A log in the file of an old one: no old record is found, however the new log ends.
#[test]
fn trap_old_records_in_a_log_that_is_used_again() {
    let disk = Sim::default();
    let mut pool = Pool::create(&disk).expect("it works");
    // The third generation's log has the blocks of the first's.
    for _ in 0..3 {
        pool.work().expect("it works");
    }
    let log = disk.names().into_iter().find(|name| name == "log-3").expect("a log");
    let stale = |bytes: &[u8]| bytes.chunks(4096).filter(|page| page.starts_with(b"trustrec") && page[24] == 1).count();
    let mut bytes = vec![0; disk.clone().len(&log).expect("it works") as usize];
    disk.clone().read(&log, 0, &mut bytes).expect("it works");
    assert!(stale(&bytes) > 0, "records of generation 1 are still there");
    let opened = open(&disk.copy()).expect("opens").expect("a pool");
    assert_eq!((count(&opened.memory), opened.cut), (pool.count, 0));
    // Each of its own records in turn as the last one.
    for page in (2..bytes.len() / 4096).rev() {
        let cut = disk.copy();
        cut.edit(&log, |bytes| bytes[page * 4096..].iter_mut().skip(8).step_by(4096).for_each(|byte| *byte ^= 1));
        match open(&cut) {
            Ok(opened) => assert!(count(&opened.expect("a pool").memory) <= pool.count),
            Err(error) => assert!(matches!(error, Error::Truncated { .. }), "{error}"),
        }
    }
}

#[test]
fn at_most_two_images_and_two_logs() {
    let disk = Sim::default();
    let mut pool = Pool::create(&disk).expect("it works");
    for _ in 0..4 {
        pool.work().expect("it works");
        let names = disk.names();
        let of = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).count();
        assert_eq!(
            (of("image"), of("log"), names.len()),
            (1, 2, 3),
            "the second log is that of the next generation: {names:?}"
        );
    }
    assert_eq!(count(&open(&disk).expect("opens").expect("a pool").memory), pool.count);
}
