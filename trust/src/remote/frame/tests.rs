//! Frames against random requests and damage.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::property::Header;
use crate::request::{OperationOf, Request, Serving, Target};

/// Requests of which only the operation matters here.
struct Fixed<const N: usize>;
struct Varied;

impl<const N: usize> Request for Fixed<N> {
    const TARGET: Target = Target::Nothing;
    const PACKED_BYTES: Option<usize> = Some(N);
    unsafe fn run(self, _: *mut Header, _: &mut Serving) {}
}

impl Request for Varied {
    const TARGET: Target = Target::Nothing;
    const PACKED_BYTES: Option<usize> = None;
    unsafe fn run(self, _: *mut Header, _: &mut Serving) {}
}

macro_rules! operations {
    ($($n:literal)*) => { [OperationOf::<Varied>::INLINE, $(OperationOf::<Fixed<$n>>::INLINE),*] };
}

/// Kinds of requests: more than a frame has names for.
const KINDS: usize = 21;
static OPERATIONS: [&Operation; KINDS] = operations!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 40 100 300);

fn resolve(position: u64) -> Option<&'static Operation> {
    OPERATIONS.get(usize::try_from(position).ok()?.checked_sub(1000)?).copied()
}

#[derive(Debug, Clone)]
struct Call {
    kind: usize,
    property: u64,
    bytes: Vec<u8>,
}

fn call() -> impl Strategy<Value = Call> {
    let bytes = prop::collection::vec(any::<u8>(), 0..120);
    // Runs of like requests are as likely as changes.
    let kind = prop_oneof![2 => 0usize..3, 1 => 0..KINDS];
    (kind, any::<u64>(), bytes).prop_map(|(kind, property, mut bytes)| {
        if let Some(len) = OPERATIONS[kind].packed_bytes() {
            bytes.resize(len, 7);
        }
        Call { kind, property, bytes }
    })
}

/// Writes a call; false if the frame is full.
fn add(writer: &mut Writer, call: &Call, room: usize) -> bool {
    let operation = OPERATIONS[call.kind];
    let varies = operation.packed_bytes().is_none();
    let mut bytes = call.property.to_ne_bytes().to_vec();
    if varies {
        bytes.extend_from_slice(&(call.bytes.len() as u32).to_ne_bytes());
    }
    bytes.extend_from_slice(&call.bytes);
    let Some(at) = writer.add(operation, bytes.len(), room, || 1000 + call.kind as u64) else { return false };
    // SAFETY: `add` gave out this many bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    true
}

/// Puts the calls into one frame, as many as fit.
fn filled(calls: &[Call], room: usize) -> (Vec<u8>, usize) {
    let mut writer = Writer::new();
    let taken = calls.iter().take_while(|call| add(&mut writer, call, room)).count();
    assert_eq!(taken, writer.requests() as usize);
    (writer.frame().bytes().to_vec(), taken)
}

fn read(frame: &[u8]) -> Result<Vec<Item<&'static Operation>>, Malformed> {
    let mut cursor = Cursor::new();
    std::iter::from_fn(|| cursor.next(frame, resolve).transpose()).collect()
}

fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }) }
}

/// Most calls of a case; the rooms are such that some do not take all of them.
const CALLS: usize = if cfg!(miri) { 12 } else { 200 };

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn what_is_written_is_read(calls in prop::collection::vec(call(), 1..CALLS), room in 500..500 + CALLS * 42) {
        let (frame, taken) = filled(&calls, room);
        prop_assert!(taken > 0 && (frame.len() <= room || taken == 1));
        let items = read(&frame).unwrap();
        prop_assert_eq!(items.len(), taken);
        for (call, item) in calls.iter().zip(&items) {
            prop_assert!(ptr::eq(item.operation, OPERATIONS[call.kind]));
            prop_assert_eq!(item.property, call.property);
            prop_assert_eq!(&frame[item.start..item.start + item.len], &call.bytes[..]);
        }
        if let Some(next) = calls.get(taken) {
            prop_assert!(frame.len() + 8 + 8 + 8 + 4 + next.bytes.len() > room, "there was room");
        }
    }
}

#[test]
fn like_ones_share_a_head_and_an_operation_is_spelled_out_once() {
    let call = |kind: usize| Call { kind, property: 5, bytes: vec![1; OPERATIONS[kind].packed_bytes().unwrap_or(1)] };
    let bytes = |kinds: &[usize]| filled(&kinds.iter().map(|&kind| call(kind)).collect::<Vec<_>>(), 9000).0.len();
    let each = |kind: usize| 8 + OPERATIONS[kind].packed_bytes().unwrap();
    assert_eq!(bytes(&[9]), 16 + each(9));
    assert_eq!(bytes(&[9, 9, 9]), 16 + 3 * each(9));
    assert_eq!(bytes(&[9, 5, 9]), 16 + 16 + 8 + 2 * each(9) + each(5));
}

#[test]
fn one_that_is_larger_than_the_room_is_alone_in_its_frame() {
    let mut writer = Writer::new();
    let large = Call { kind: 0, property: 1, bytes: vec![3; 50_000] };
    assert!(add(&mut writer, &large, 4000));
    assert!(!add(&mut writer, &large, 4000));
    assert!(!add(&mut writer, &Call { bytes: Vec::new(), ..large.clone() }, 4000));
    let frame = writer.frame().bytes().to_vec();
    assert_eq!(read(&frame).unwrap()[0].len, 50_000);
    writer.clear();
    assert!(add(&mut writer, &large, 4000) && writer.frame().bytes() == frame);
}

/// Damaged frames are errors, or requests that lie inside them; nothing panics.
#[test]
fn damaged_frames_are_refused_or_in_range() {
    let rounds = if cfg!(miri) { 30 } else { 100_000 };
    let mut random = fastrand::Rng::with_seed(9);
    let mut next = |below: usize| random.usize(..below);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..rounds {
        let calls: Vec<Call> = (0..1 + next(12))
            .map(|_| {
                let kind = next(KINDS);
                let len = OPERATIONS[kind].packed_bytes().unwrap_or_else(|| next(60));
                Call { kind, property: next(1 << 30) as u64, bytes: vec![next(256) as u8; len] }
            })
            .collect();
        let (mut frame, _) = filled(&calls, 9000);
        for _ in 0..1 + next(3) {
            let at = next(frame.len());
            frame[at] = if next(2) == 0 { next(256) as u8 } else { frame[at] ^ (1 << next(8)) };
        }
        if next(4) == 0 {
            frame.truncate(next(frame.len() + 1));
        }
        match read(&frame) {
            Err(Malformed(text)) => refused += usize::from(!text.is_empty()),
            Ok(items) => {
                let end = Cell::new(0);
                for item in items {
                    assert!(end.get() <= item.start && item.start + item.len <= frame.len());
                    end.set(item.start + item.len);
                }
                assert_eq!(end.get(), frame.len());
                taken += 1;
            }
        }
    }
    assert!(refused > rounds / 10 && taken > rounds / 100, "the damage tests something: {refused}, {taken}");
}

/// Each byte of a frame belongs to the request that it was written for: a request's own length is not trusted.
#[test]
fn a_request_never_goes_beyond_its_frame() {
    let call = |kind: usize, len: usize| Call { kind, property: 5, bytes: vec![9; len] };
    let beyond = Some(Malformed("a request that goes beyond its frame"));
    // As long as it says: the last request of the frame, whose length is behind two heads of 8 bytes and its property.
    let (frame, _) = filled(&[call(0, 10)], 9000);
    let length_at = 8 + 8 + 8;
    assert_eq!(frame.len(), length_at + 4 + 10);
    for (says, error) in [(10, None), (11, beyond), (12, beyond), (u32::MAX, beyond), (1 << 31, beyond)] {
        let mut frame = frame.clone();
        frame[length_at..length_at + 4].copy_from_slice(&u32::to_ne_bytes(says));
        assert_eq!(read(&frame).err(), error, "{says}");
    }
    // Shorter than its operation's length, which the frame does not contain.
    let fixed = (1..KINDS).find(|&kind| OPERATIONS[kind].packed_bytes() == Some(40)).unwrap();
    let (frame, _) = filled(&[call(fixed, 40), call(fixed, 40)], 9000);
    for cut in 1..=40 {
        assert_eq!(read(&frame[..frame.len() - cut]).err(), beyond, "{cut}");
    }
    assert_eq!(read(&frame).unwrap().len(), 2);
}

#[test]
fn a_frame_is_filled_to_its_last_byte_and_no_further() {
    let fixed = |len: usize| (1..KINDS).find(|&kind| OPERATIONS[kind].packed_bytes() == Some(len)).unwrap();
    let call = |len: usize| Call { kind: fixed(len), property: 5, bytes: vec![9; len] };
    // Each opens a run: its head, the position, and the request.
    let bytes = |len: usize| 8 + 8 + 8 + len;
    let exactly = bytes(100) + bytes(40);
    for (room, fits) in [(exactly, true), (exactly - 1, false)] {
        let mut writer = Writer::new();
        assert!(add(&mut writer, &call(100), room));
        assert_eq!(add(&mut writer, &call(40), room), fits, "{room}");
    }
    // Another request of the open run needs no head.
    for (room, fits) in [(bytes(40) + 8 + 40, true), (bytes(40) + 8 + 39, false)] {
        let mut writer = Writer::new();
        assert!(add(&mut writer, &call(40), room));
        assert_eq!(add(&mut writer, &call(40), room), fits, "{room}");
    }
}

#[test]
fn memory_is_taken_for_a_whole_room_and_what_a_carrier_puts_behind() {
    let mut writer = Writer::new();
    assert!(add(&mut writer, &Call { kind: 0, property: 1, bytes: vec![3; 10] }, 4000));
    let needed = 4000 + crate::remote::BEHIND_BYTES;
    assert_eq!(writer.frame().capacity(), needed.next_multiple_of(64));
}

#[test]
fn operations_beyond_those_with_names_are_spelled_out_each_time() {
    let call = |kind: usize| Call { kind, property: 5, bytes: vec![1; OPERATIONS[kind].packed_bytes().unwrap_or(1)] };
    let kinds: Vec<usize> = (1..=NAMES + 2).chain([1, NAMES, NAMES + 1]).collect();
    let (frame, taken) = filled(&kinds.iter().map(|&kind| call(kind)).collect::<Vec<_>>(), 9000);
    assert_eq!(taken, kinds.len());
    let (mut at, mut names) = (0, Vec::new());
    for (index, &kind) in kinds.iter().enumerate() {
        let name = u32::from_ne_bytes(frame[at..at + 4].try_into().unwrap());
        let is_spelled_out = name == NAMELESS || index < NAMES;
        at += 8 + if is_spelled_out { 8 } else { 0 } + 8 + OPERATIONS[kind].packed_bytes().unwrap();
        names.push(name);
    }
    assert_eq!(at, frame.len());
    let first = 0..NAMES as u32;
    let expected: Vec<u32> = first.chain([NAMELESS, NAMELESS, 0, NAMES as u32 - 1, NAMELESS]).collect();
    assert_eq!(names, expected);
    assert_eq!(read(&frame).unwrap().len(), kinds.len());
}
