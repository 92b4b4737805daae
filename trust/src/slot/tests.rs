//! Slots without threads or fibers, so that miri can run them: a reader takes the values that a writer puts, of all
//! sizes, and a trustee sees the batches that a client publishes.

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::buffer::Buffer;
use crate::config::{CHUNK_BYTES, INLINE_ALIGN, INLINE_BYTES};
use crate::fault::Fault;

/// Operation that requests name: of the size and alignment of a real one.
#[expect(dead_code, reason = "only its size and address are of use")]
struct Operation([u64; 7]);

type Pair = super::Pair<Operation>;
type ClientSide = super::ClientSide<Operation>;
type TrusteeSide = super::TrusteeSide<Operation>;

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
        // SAFETY: this half is used here alone.
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
    // SAFETY: this half is used here alone; each batch is read once.
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

/// An item that fills a part up to its last byte lies in that part.
#[test]
fn parts_are_filled_up_to_their_last_byte() {
    let half = Half::new();
    let primary_bytes = PRIMARY_BYTES - HEAD_BYTES;
    let words = |bytes: usize| (0..bytes as u64 / 8).map(move |word| word + bytes as u64);
    for beyond in [0, 8] {
        // SAFETY: this half is used here alone; the batch is read once, in the order it was written.
        unsafe {
            let mut writer = Writer::new(half.body());
            words(primary_bytes + OVERFLOW_BYTES + beyond).for_each(|word| writer.put(word));
            assert_eq!(writer.finish(), beyond > 0);
            let mut reader = Reader::new(half.body());
            words(primary_bytes + OVERFLOW_BYTES + beyond).for_each(|word| assert_eq!(reader.take::<u64>(), word));
        }
    }
    // An item one byte too long for the rest of a part lies in the next part, and so does everything behind it.
    // SAFETY: as above.
    unsafe {
        let mut writer = Writer::new(half.body());
        writer.put([1u8; 105]);
        writer.put([2u8; 8]);
        (0..4).for_each(|_| writer.put([3u8; 254]));
        assert!(!writer.finish());
        let mut reader = Reader::new(half.body());
        assert_eq!(reader.take::<[u8; 105]>(), [1; 105]);
        assert_eq!(reader.take::<[u8; 8]>(), [2; 8]);
        (0..4).for_each(|_| assert_eq!(reader.take::<[u8; 254]>(), [3; 254]));
    }
}

/// A value is in the batch itself if each part has room for it, and boxed if not.
#[test]
fn large_and_strictly_aligned_values_are_boxed() {
    assert!(is_inline(INLINE_BYTES, INLINE_ALIGN) && is_inline(0, 1));
    assert!(!is_inline(INLINE_BYTES + 1, INLINE_ALIGN) && !is_inline(INLINE_BYTES, INLINE_ALIGN + 1));
    let half = Half::new();
    // SAFETY: this half is used here alone; the batch is read once, in the order it was written.
    unsafe {
        let mut writer = Writer::new(half.body());
        writer.put([7u8; CHUNK_BYTES + 1]);
        assert!(!writer.finish());
        assert_eq!(Reader::new(half.body()).take::<[u8; CHUNK_BYTES + 1]>(), [7; CHUNK_BYTES + 1]);
    }
}

#[test]
fn packed_responses_take_little_more_memory_than_they_need() {
    for count in [1, 2, 3, 20] {
        let mut writer = Writer::packed(Buffer::default());
        (0..count).for_each(|_| writer.put(Aligned(1)));
        let (buffer, _) = writer.finish_packed();
        assert_eq!(buffer.len(), 64 * count);
        assert!(buffer.capacity() <= 128 * count + 64, "{} for {count}", buffer.capacity());
    }
}

#[test]
fn faults_are_told_once_with_the_requests_they_belong_to() {
    let indices = |faults: Vec<(u32, Fault)>| -> Vec<u32> {
        assert!(faults.iter().all(|(_, fault)| matches!(fault, Fault::Gone)));
        faults.into_iter().map(|(index, _)| index).collect()
    };
    let half = Half::new();
    // SAFETY: this half is used here alone; the batch is read once.
    let (mut writer, mut packed) = unsafe { (Writer::new(half.body()), Writer::packed(Buffer::default())) };
    for index in [3, 8] {
        writer.put_fault(index, Fault::Gone);
        packed.put_fault(index, Fault::Gone);
    }
    assert!(!writer.finish(), "faults take no room in a slot");
    // SAFETY: as above.
    let mut reader = unsafe { Reader::new(half.body()) };
    assert_eq!(indices(reader.take_faults()), [3, 8]);
    assert!(reader.take_faults().is_empty() && Reader::empty().take_faults().is_empty());
    assert_eq!(indices(packed.finish_packed().1), [3, 8]);
}

/// Every request in a body takes the 8 bytes of a head at least, so no place is beyond the marks [mark-in-range].
#[test]
fn there_are_as_many_marks_as_requests_fit() {
    assert_eq!(REQUESTS_MAX * 8, size_of::<Body>() - size_of::<u64>());
    assert_eq!(Pair::new().control.marks.len(), REQUESTS_MAX);
}

/// Marks as seen by a trustee that has served this many batches; those of address 0 belong to no request.
fn marks(pair: &Pair, batches: u64) -> Vec<(u64, usize)> {
    pair.marks(batches).take_while(|(_, address)| *address != 0).collect()
}

#[test]
fn marks_are_of_batches_that_are_not_served() {
    const LAST: usize = (1 << ADDRESS_BITS) - 8;
    let pair = Pair::new();
    let (client, trustee) = (ClientSide::new(Arc::clone(&pair)), TrusteeSide::new(Arc::clone(&pair)));
    // SAFETY: places of few requests.
    let mark = |place, address| unsafe { client.mark(place, address) };
    assert_eq!(marks(&pair, 0), []);
    // A mark has the low 16 bits of its batch's number.
    for served in [0, 1, 2, 65_533, 65_534, 65_535, 65_536, 1 << 40] {
        client.batch.set(served << ADDRESS_BITS);
        [0x10, LAST, 0x20].into_iter().zip(0..).for_each(|(address, place)| mark(place, address));
        assert_eq!(marks(&pair, served), [(served, 0x10), (served, LAST), (served, 0x20)]);
        client.publish();
        mark(0, 0x30);
        assert_eq!(marks(&pair, served), [(served + 1, 0x30), (served, LAST), (served, 0x20)]);
        // Behind marks of batches that are not served there are none.
        assert_eq!(marks(&pair, served + 1), [(served + 1, 0x30)]);
        client.publish();
        assert_eq!(client.in_flight(), SLOTS);
        mark(0, 0x40);
        assert_eq!(marks(&pair, served), [(served + 2, 0x40), (served, LAST), (served, 0x20)]);
        for _ in 0..SLOTS {
            trustee.respond();
            assert!(client.has_response());
            client.release();
        }
        assert!(!client.has_response());
        assert_eq!(marks(&pair, served + 3), []);
    }
}

#[test]
fn what_is_queued_is_told_until_it_is_drained() {
    let pair = Pair::new();
    let client = ClientSide::new(Arc::clone(&pair));
    let queued = || {
        let mut found = Vec::new();
        pair.queued(|address| found.push(address));
        found
    };
    assert!(queued().is_empty());
    [0x10, 0x20, 0x10].into_iter().for_each(|address| client.note_queued(address));
    for left in [&[0x10, 0x20, 0x10][..], &[0x20, 0x10], &[0x10], &[]] {
        assert_eq!(queued(), left);
        assert_eq!(pair.control.has_queue.load(Ordering::Relaxed), !left.is_empty());
        client.note_drained();
    }
}

#[test]
fn a_client_s_words_reach_its_trustee() {
    let pair = Pair::new();
    let (client, trustee) = (ClientSide::new(Arc::clone(&pair)), TrusteeSide::new(Arc::clone(&pair)));
    assert!(std::ptr::eq(client.pair(), &*pair) && std::ptr::eq(trustee.pair(), &*pair));
    assert_eq!(pair.published(), 0);
    client.note_published(7);
    assert_eq!(pair.published(), 7);
    for slot in [0, 1, 0] {
        assert_eq!((client.in_flight(), client.next_slot()), (0, slot));
        client.publish();
        assert_eq!((client.in_flight(), client.next_slot()), (1, (slot + 1) % SLOTS));
        assert!(trustee.request().is_some() && !client.has_response());
        trustee.respond();
        assert!(trustee.request().is_none() && client.has_response());
        client.release();
    }
    assert!(!pair.left());
    client.leave();
    assert!(pair.left());
}

/// Operations that lie one behind the other: as many as there are names, so that each has one of its own, and one more.
fn neighbours() -> &'static [Operation] {
    static ALL: [Operation; 65] = [const { Operation([0; 7]) }; 65];
    &ALL
}

#[test]
fn operations_have_short_names_unless_another_has_theirs() {
    const PROPERTY: usize = (1 << ADDRESS_BITS) - 8;
    let pair = Pair::new();
    let client = ClientSide::new(Arc::clone(&pair));
    let operations = neighbours();
    for round in 0..2 {
        for (index, operation) in operations.iter().enumerate() {
            let head = client.head(operation);
            // The last one has the place of the first.
            assert_eq!(head.bytes(), if index < 64 { 8 } else { 16 }, "{index} in round {round}");
            let mut words = [0u64; 2];
            let start: *mut u8 = words.as_mut_ptr().cast();
            // SAFETY: room for the longest head; the one that is read was written.
            unsafe {
                let end = head.write(start, std::ptr::without_provenance_mut::<u8>(PROPERTY));
                assert_eq!(end, start.add(head.bytes()));
                let (found, property, captures) = pair.read_head::<u8>(start);
                assert!(std::ptr::eq(found, operation));
                assert_eq!((property.addr(), captures), (PROPERTY, end));
            }
        }
    }
}
