//! One replica: the order in which it is written, and whether it is whole. The machine that writes it may end at any
//! word. Writes arrive in their order, the words of one in any.

use std::alloc::Layout;

use super::head::{HEAD_BYTES, words};
use super::heads;
use crate::name::Name;

/// Writes the replica of an object of so many bytes to `start`, where its head is: `write` writes words to a place.
/// The object comes in pieces; if it is not what it was then (`is_still`), the replica does not become whole.
pub(super) fn write<E>(
    (name, bytes, secret): (Name, usize, u64),
    start: usize,
    object: impl Iterator<Item = Vec<u64>>,
    is_still: impl FnOnce() -> bool,
    mut write: impl FnMut(usize, &[u64]) -> Result<(), E>,
) -> Result<bool, E> {
    let head = words(name.version.get(), bytes, heads::check(secret, name.at));
    write(start, &[0])?;
    let mut at = start + HEAD_BYTES;
    for piece in object {
        write(at, &piece)?;
        at += piece.len() * 8;
    }
    if !is_still() {
        return Ok(false);
    }
    write(start + 8, &head[1..])?;
    write(start, &head[..1])?;
    Ok(true)
}

/// Returns whether this is the head of a whole replica of that name, where this is the secret of its machine.
pub(super) fn is_of(head: [u64; 3], secret: u64, name: Name, layout: Layout) -> bool {
    words(name.version.get(), layout.size(), heads::check(secret, name.at))[..3] == head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{At, Version};

    const SECRET: u64 = 77;

    /// The memory of a backup, of which the writer ends in the middle of the write that comes after `left` others: only
    /// the words of that one arrive that `arrives` says.
    struct Memory<'a> {
        words: Vec<u64>,
        left: usize,
        arrives: &'a dyn Fn(usize) -> bool,
    }

    impl Memory<'_> {
        fn write(&mut self, at: usize, words: &[u64]) -> Result<(), ()> {
            let is_last = self.left == 0;
            for (index, word) in words.iter().enumerate() {
                if !is_last || (self.arrives)(index) {
                    self.words[at / 8 + index] = *word;
                }
            }
            self.left = self.left.checked_sub(1).ok_or(())?;
            Ok(())
        }

        /// Returns the value that all words of the object have, if its replica is whole.
        fn value(&self, version: u64, words: usize) -> Option<u64> {
            let head = [self.words[0], self.words[1], self.words[2]];
            let layout = Layout::array::<u64>(words).unwrap();
            let object = &self.words[HEAD_BYTES / 8..][..words];
            let is_whole = is_of(head, SECRET, name(version), layout);
            assert!(!is_whole || object.iter().all(|word| *word == object[0]), "{object:?}");
            is_whole.then_some(object[0])
        }
    }

    fn name(version: u64) -> Name {
        Name { at: At::new(3, 4096), version: Version::new(version).unwrap() }
    }

    fn save(memory: &mut Memory, version: u64, words: usize) -> Result<bool, ()> {
        let pieces = [vec![version; words / 2], vec![version; words - words / 2]];
        let of = (name(version), words * 8, SECRET);
        write(of, 0, pieces.into_iter(), || true, |at, words| memory.write(at, words))
    }

    /// Whenever the writer ends: what is taken for a version has its bytes, and the one before is there until the write
    /// of the next has begun. Also where a room has an object of another length than before.
    #[test]
    fn a_replica_is_whole_or_not_taken_wherever_its_writer_ends() {
        let subsets: [&dyn Fn(usize) -> bool; 4] =
            [&|_| false, &|index| index == 0, &|index| index != 0, &|index| index % 2 == 1];
        for (before, after) in [(6, 6), (6, 3), (3, 6), (1, 1)] {
            for arrives in subsets {
                let mut ended = 0;
                for left in 0.. {
                    let mut memory = Memory { words: vec![0; 16], left: usize::MAX, arrives };
                    assert_eq!(save(&mut memory, 1, before), Ok(true));
                    assert_eq!((memory.value(1, before), memory.value(2, after)), (Some(1), None));
                    memory.left = left;
                    let saved = save(&mut memory, 2, after);
                    let values = (memory.value(1, before), memory.value(2, after));
                    assert!(matches!(values, (Some(1) | None, None) | (None, Some(2))), "{values:?}");
                    if saved.is_ok() {
                        assert_eq!(values, (None, Some(2)));
                        break;
                    }
                    ended += 1;
                }
                assert_eq!(ended, 5, "each write was the last one once");
            }
        }
    }

    #[test]
    fn a_replica_of_an_object_that_was_written_meanwhile_is_not_whole() {
        let mut memory = Memory { words: vec![0; 16], left: usize::MAX, arrives: &|_| true };
        let is_whole =
            write((name(1), 16, SECRET), 0, [vec![9, 9]].into_iter(), || false, |at, words| memory.write(at, words));
        assert_eq!((is_whole, memory.value(1, 2)), (Ok(false), None));
    }
}
