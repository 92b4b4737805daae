//! Slots without threads or fibers, so that miri can run them: what a writer puts a reader takes, whatever the
//! sizes, and what a client publishes its trustee sees.

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::buffer::Buffer;

#[repr(align(64))]
#[derive(Debug, PartialEq, Clone, Copy)]
struct Aligned(u8);

#[repr(align(256))]
#[derive(Debug, PartialEq, Clone, Copy)]
struct VeryAligned(u8);

/// Counts its drops.
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn put(writer: &mut Writer, round: usize) {
    writer.put(round as u8);
    writer.put(());
    writer.put(round as u64);
    writer.put(Aligned(round as u8));
    writer.put([round as u8; 300]);
    writer.put(VeryAligned(round as u8));
    writer.put_bytes(&vec![round as u8; round * 40]);
}

fn take(reader: &mut Reader, round: usize) {
    // SAFETY: the order and types of `put`.
    unsafe {
        assert_eq!(reader.take::<u8>(), round as u8);
        reader.take::<()>();
        assert_eq!(reader.take::<u64>(), round as u64);
        assert_eq!(reader.take::<Aligned>(), Aligned(round as u8));
        assert_eq!(reader.take::<[u8; 300]>(), [round as u8; 300]);
        assert_eq!(reader.take::<VeryAligned>(), VeryAligned(round as u8));
        reader.take_bytes(|bytes| assert_eq!(bytes, vec![round as u8; round * 40]));
    }
}

#[test]
fn responses_of_all_sizes_come_back_in_order_and_beyond_the_slot() {
    let half = Half::new();
    for rounds in [1, 3, 40] {
        // SAFETY: nobody else has this half.
        let mut writer = unsafe { Writer::new(half.body()) };
        (0..rounds).for_each(|round| put(&mut writer, round));
        assert_eq!(writer.finish(), rounds == 40, "{rounds} rounds");
        // SAFETY: as above; read once.
        let mut reader = unsafe { Reader::new(half.body()) };
        (0..rounds).for_each(|round| take(&mut reader, round));
    }
}

#[test]
fn packed_responses_cost_what_they_hold() {
    let mut writer = Writer::packed(Buffer::default());
    (0..1000).for_each(|_| writer.put(()));
    writer.put(7u64);
    writer.put(());
    assert_eq!(writer.finish_packed().0.len(), 8);
}

#[test]
fn packed_responses_come_back_in_order() {
    let mut writer = Writer::packed(Buffer::default());
    (0..20).for_each(|round| put(&mut writer, round));
    let (mut bytes, faults) = writer.finish_packed();
    assert!(faults.is_empty());
    // SAFETY: only the reader looks at the bytes.
    let mut reader = unsafe { Reader::packed(&mut bytes) };
    (0..20).for_each(|round| take(&mut reader, round));
}

#[test]
fn responses_are_moved_not_copied() {
    let half = Half::new();
    let drops = Rc::new(Cell::new(0));
    // SAFETY: nobody else has this half; each batch is read once.
    unsafe {
        let mut writer = Writer::new(half.body());
        writer.put(Counted(Rc::clone(&drops)));
        writer.put([Counted(Rc::clone(&drops)), Counted(Rc::clone(&drops))]);
        writer.finish();
        assert_eq!(drops.get(), 0);
        let mut reader = Reader::new(half.body());
        drop(reader.take::<Counted>());
        drop(reader.take::<[Counted; 2]>());
    }
    assert_eq!(drops.get(), 3);
}

#[test]
fn a_ring_of_slots_hands_bodies_over_in_order() {
    let pair = Pair::new();
    let client = ClientSide::new(Arc::clone(&pair));
    let trustee = TrusteeSide::new(pair);
    let (mut sent, mut served, mut seen) = (0u64, 0u64, 0u64);
    for step in 0..200 {
        if let Some((_, body)) = client.filling() {
            sent += 1;
            // SAFETY: the slot is the client's until it is published.
            unsafe { (*body).head = sent };
            client.publish();
        }
        if step % 3 != 0
            && let Some((request, response)) = trustee.request()
        {
            served += 1;
            // SAFETY: a published slot is the trustee's until it responds.
            unsafe {
                assert_eq!((*request).head, served);
                (*response).head = served * 10;
            }
            trustee.respond();
        }
        while let Some((_, body)) = client.response() {
            seen += 1;
            // SAFETY: an answered slot is the client's.
            assert_eq!(unsafe { (*body).head }, seen * 10);
            client.release();
        }
        assert!(sent - seen <= SLOTS as u64);
    }
    assert!(seen > 100, "only {seen}");
}
