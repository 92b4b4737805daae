//! Is there memory for an array? Asked on each machine before anything is taken, for what is touched beyond it ends in the system's killing the program.

use std::fs;
use std::path::Path;

use gossamer::Place;
use rustix::process::{Resource, getrlimit};

use crate::Error;
use crate::frame::frame_bytes;
use crate::settings::Settings;
use crate::shape::Shape;

/// Has each machine, with these numbers of workers, the memory for its part?
///
/// # Errors
/// [`Error::Memory`] for the first that has not.
pub(crate) fn check(shape: &Shape, settings: &Settings, workers: &[usize]) -> Result<(), Error> {
    let mut first = 0;
    for (machine, &count) in workers.iter().enumerate() {
        let places = first..first + count;
        first += count;
        let bytes = places.fold(0u64, |sum, place| sum.saturating_add(needed(shape, settings, place)));
        let fiber = gossamer::spawn_on(Place::of(machine as u16, 0), left);
        let left = fiber.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if bytes > left {
            return Err(Error::Memory { machine: machine as u16, bytes, left });
        }
    }
    Ok(())
}

/// Bytes that a place needs: its elements, the table, the cache, which holds what is combined too.
fn needed(shape: &Shape, settings: &Settings, place: usize) -> u64 {
    let chunks = shape.chunks() as u64;
    let frame = frame_bytes(shape.chunk_bytes()) as u64;
    let home = (shape.owned_chunks(place).count as u64).saturating_mul(frame);
    // Of a small array not even all is ever cached.
    let cache = (settings.cache_bytes as u64).min(chunks.saturating_mul(frame));
    home.saturating_add(chunks * 8).saturating_add(cache)
}

/// Bytes that this machine has left: the least that the system, the control groups of this process and its limits say.
fn left() -> u64 {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned();
        room_in_groups(Path::new("/sys/fs/cgroup"), Path::new(&path))
    });
    let limit = getrlimit(Resource::As).current.map(|limit| {
        let pages = fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|text| text.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0);
        limit.saturating_sub(pages.saturating_mul(rustix::param::page_size() as u64))
    });
    system.into_iter().chain(groups).chain(limit).min().unwrap_or(u64::MAX)
}

/// Bytes of memory that the system has.
pub(crate) fn total() -> Option<usize> {
    let bytes = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    usize::try_from(bytes).ok()
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemAvailable:")
}

fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least room of a control group (version 2) and of those above it. What files take that the system can drop counts as room.
fn room_in_groups(root: &Path, group: &Path) -> Option<u64> {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let room = |group: &Path| {
        let folder = root.join(group);
        let (most, used) = (number(&folder.join("memory.max"))?, number(&folder.join("memory.current"))?);
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let files = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
        Some(most.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
    };
    group.ancestors().filter_map(room).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Split;

    #[test]
    fn da21_what_the_system_says_is_read() {
        assert_eq!(available("MemTotal: 5 kB\nMemAvailable:   123 kB\nBuffers: 1 kB\n"), Some(123 << 10));
        assert_eq!(available("MemTotal: 5 kB\n"), None);
        assert!(left() > 1 << 20);
    }

    #[test]
    fn da21_the_tightest_control_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let write = |folder: &Path, most: &str, used: &str| {
            fs::write(folder.join("memory.max"), most).unwrap();
            fs::write(folder.join("memory.current"), used).unwrap();
        };
        assert_eq!(room_in_groups(root.path(), Path::new("a/b")), None);
        write(&inner, "max\n", "10\n");
        assert_eq!(room_in_groups(root.path(), Path::new("a/b")), None);
        write(&root.path().join("a"), "1000\n", "400\n");
        assert_eq!(room_in_groups(root.path(), Path::new("a/b")), Some(600));
        write(&inner, "500\n", "450\n");
        assert_eq!(room_in_groups(root.path(), Path::new("a/b")), Some(50));
        fs::write(inner.join("memory.stat"), "anon 20\ninactive_file 30\n").unwrap();
        assert_eq!(room_in_groups(root.path(), Path::new("a/b")), Some(80));
        write(&inner, "500\n", "900\n");
        assert_eq!(room_in_groups(root.path(), Path::new("a/b")), Some(0));
    }

    #[test]
    fn da21_needs_are_those_of_elements_tables_and_caches() {
        let shape = Shape::new(1 << 20, 8, &Split::Even, &[1, 1]).unwrap();
        let settings = Settings { cache_bytes: 1 << 20, ..Settings::default() };
        assert_eq!(needed(&shape, &settings, 0), 1024 * (4096 + 64) + 2048 * 8 + (1 << 20));
    }
}
