//! Checkpoints of arrays over the rack. The machines of these tests share a file system; paths below a process's own
//! descriptors lead each to another folder.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use gossamer::NoRef;
use gossamer_array::{Add, Array, Element, Error};
use tempfile::TempDir;

use crate::suite::ground::{JoinOutcome, effort, is_rack, none_is_lost, places, remote};

/// Writes an array at all places, and checks that a checkpoint has all of it, whatever the split.
fn is_restored<T, F>(n: usize, make: F)
where
    T: Element + PartialEq + std::fmt::Debug,
    F: Fn(usize) -> T + Copy + NoRef + Send + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("of/an/array");
    for build in [|| Array::<T>::builder(), || Array::<T>::builder().cyclic()] {
        let array = build().build(n, T::new_zeroed()).unwrap();
        let (all, count) = (array.clone(), places().len());
        // Most elements are set by others than their owners, which still have the chunks then.
        array.on_owners(move |_| {
            let own = places().iter().position(|place| *place == gossamer::here()).unwrap();
            let other = (own + 1) % count;
            (n * other / count..n * (other + 1) / count).for_each(|i| all.set(i, make(i)));
        });
        array.checkpoint(&path).unwrap();
        array.fill(T::new_zeroed());
        for restored in [Array::<T>::restore(&path).unwrap(), build().restore(&path).unwrap()] {
            let all = restored.clone();
            let lengths = restored.on_owners(move |own| {
                for (i, element) in all.views(own).flat_map(|view| view.indexed().collect::<Vec<_>>()) {
                    assert_eq!(element, make(i), "element {i}");
                }
                own.len()
            });
            assert_eq!(lengths.into_iter().sum::<usize>(), n);
        }
    }
}

pub fn array_checkpoints_are_restored() {
    is_restored(0, |i| i as u64);
    is_restored(5, |i| i as u64);
    is_restored(30_000, |i| i as u32 + 1);
    // Several blocks at a place.
    is_restored(effort(10_000) as usize, |i| [i as u64; 100]);
    is_restored(7000, |i| [i as u8, 1, 2]);
    is_restored(100, |i| [i as u8; 3000]);
    // Operands that nobody has read are merged first, and a later checkpoint takes the place of the one before.
    let folder = tempfile::tempdir().unwrap();
    let counts = Array::new(3000, 1u64).unwrap();
    for round in 1..4 {
        let all = counts.clone();
        counts.on_owners(move |_| (0..3000).for_each(|i| all.apply(i, Add, i as u64)));
        counts.checkpoint(folder.path()).unwrap();
        let check = move |path: PathBuf| {
            let restored = Array::<u64>::restore(path).unwrap();
            let expected = |i: usize| 1 + (round * places().len() * i) as u64;
            assert!(restored.views(0..3000).all(|view| view.indexed().all(|(i, value)| value == expected(i))));
        };
        gossamer::spawn_with(remote(), check, folder.path().to_owned()).join().or_its_panic();
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 1 + places().len(), "a manifest, and a part of each place");
    }
}

/// A folder that only its machine reaches by the path that all have.
struct OwnDisk {
    folder: TempDir,
    descriptor: OwnedFd,
}

impl OwnDisk {
    /// Beyond the descriptors of the program.
    const FIRST: i32 = 700;

    fn new() -> OwnDisk {
        let folder = tempfile::tempdir().unwrap();
        let open = fs::File::open(folder.path()).unwrap();
        OwnDisk { descriptor: rustix::io::fcntl_dupfd_cloexec(open, OwnDisk::FIRST).unwrap(), folder }
    }

    fn files(&self) -> usize {
        fs::read_dir(self.folder.path().join("array")).map_or(0, Iterator::count)
    }
}

pub fn array_checkpoints_on_disks_of_machines() {
    let machines = gossamer::rack().machines();
    let firsts: Vec<_> = places().into_iter().filter(|place| place.worker == 0).collect();
    let disks: Vec<_> = firsts.iter().map(|place| gossamer::entrust_with(*place, OwnDisk::new)).collect();
    let numbers: Vec<i32> = disks.iter().map(|disk| disk.apply(|disk| disk.descriptor.as_raw_fd())).collect();
    assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    let path = PathBuf::from(format!("/proc/self/fd/{}/array", numbers[0]));
    let array = Array::new(10_000, 0u64).unwrap();
    for round in 1..4 {
        let own = array.clone();
        array.on_owners(move |owned| owned.flatten().for_each(|i| own.set(i, round * i as u64)));
        array.checkpoint(&path).unwrap();
        let restored = Array::<u64>::restore(&path);
        if restored.is_err() {
            none_is_lost(); // the living have the chunks of the lost one, and its part lies on its disk
        }
        let restored = restored.unwrap();
        assert!(restored.views(0..10_000).all(|view| view.indexed().all(|(i, value)| value == round * i as u64)));
        for (machine, disk) in machines.iter().zip(&disks) {
            let is_first = usize::from(machine.process == machines[0].process);
            assert_eq!(disk.apply(|disk| disk.files()), is_first + usize::from(machine.workers));
        }
    }
    if is_rack() {
        // With another split a place needs a part that is elsewhere: machine 0 has all chunks but one for each other.
        let chunks = 10_000_usize.div_ceil(array.chunk());
        let start = |machine| if machine == 0 { 0 } else { (chunks - machines.len() + machine) * array.chunk() };
        let starts: Vec<usize> = (0..machines.len()).map(start).collect();
        let refused = Array::<u64>::builder().starts(&starts).restore(&path).unwrap_err();
        let is_missing = matches!(&refused, Error::Checkpoint { what, .. } if what.starts_with("is missing"));
        if !is_missing {
            none_is_lost(); // a lost machine may have no chunks
        }
        assert!(is_missing, "{refused}");
    }
}

/// Elements are written meanwhile: each chunk is as it was at some moment of the call.
pub fn array_checkpoints_have_whole_chunks() {
    let (n, rounds) = (20_000, effort(40));
    let array = Array::new(n, 0u64).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let own = array.clone();
    let writer = gossamer::spawn_on(remote(), move || {
        for round in 1..=rounds {
            own.modify(0..n, |_, chunk| chunk.fill(round));
        }
    });
    let mut last = 0;
    while last < rounds {
        let is_over = writer.is_finished();
        array.checkpoint(folder.path()).unwrap();
        let restored = Array::<u64>::restore(folder.path()).unwrap();
        assert!(restored.views(0..n).all(|view| view.iter().all(|round| *round == view[0] && *round >= last)));
        last = (0..n).step_by(array.chunk()).map(|i| restored.get(i)).min().unwrap();
        assert!(!is_over || last == rounds);
    }
    writer.join().or_its_panic();
}
