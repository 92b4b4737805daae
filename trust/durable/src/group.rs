//! A commit group as a log record: the one step from memory to files. Record buffers are reused, because the system
//! maps larger allocations page by page.

use crate::files::format::Record;
use crate::memory::Memory;
use crate::memory::copy::LINE;

/// Closes the group: copies its changed lines into a record in `buffer`; `None` if nothing changed.
pub(crate) fn close(memory: &Memory, group: u64, buffer: Vec<u8>) -> Option<Record> {
    let runs = memory.take_changes();
    if runs.is_empty() {
        return None;
    }
    let mut record = Record::begin(group, &runs, buffer);
    for (start, count) in runs {
        memory.copy_out(start as usize * LINE, count as usize * LINE, record.buffer());
    }
    Some(record)
}

/// Pool of record buffers that the disk thread has returned.
#[derive(Default)]
pub(crate) struct Rooms(Vec<Vec<u8>>);

impl Rooms {
    /// The most records that the disk thread has at a time.
    const COUNT_MAX: usize = 2;
    /// A larger buffer, of an unusually large group, is not kept.
    const BYTES_MAX: usize = 1 << 20;

    /// Closes the group in one of these buffers.
    pub(crate) fn close(&mut self, memory: &Memory, group: u64) -> Option<Record> {
        if !memory.has_changes() {
            return None;
        }
        close(memory, group, self.0.pop().unwrap_or_default())
    }

    pub(crate) fn give_back(&mut self, room: Vec<u8>) {
        if (1..=Self::BYTES_MAX).contains(&room.capacity()) && self.0.len() < Self::COUNT_MAX {
            self.0.push(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PVec;

    #[test]
    fn the_room_of_a_record_is_used_again_and_holds_nothing_of_the_one_before() {
        let memory = Memory::reserve(1 << 20).expect("room");
        assert!(memory.init::<PVec<u64>>(|tx| PVec::of((0..600).map(|_| 1), tx)).is_ok());
        let mut rooms = Rooms::default();
        let mut sealed = |group| {
            let mut record = rooms.close(&memory, group).expect("it has changed something");
            record.seal(1, 2);
            let (bytes, at) = (record.bytes().to_vec(), record.bytes().as_ptr());
            rooms.give_back(record.into_buffer());
            (bytes, at)
        };
        let (first, place) = sealed(1);
        assert!(first.len() > 4800 && (cfg!(miri) || place.addr().is_multiple_of(4096)), "at a page");
        assert!(memory.init::<PVec<u64>>(|_| PVec::new()).is_ok(), "another root, of one line");
        let (second, again) = sealed(2);
        assert_eq!((second.len(), again), (4096, place));
        let Some(record) = Record::decode(second.clone()) else { panic!("a record") };
        assert_eq!((record.group, record.lines()), (2, 1));
        assert!(second[64 + 8 + 64..].iter().all(|&byte| byte == 0), "nothing behind its line");
        assert!(rooms.close(&memory, 3).is_none());
    }
}
