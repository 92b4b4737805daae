//! Fuzzing of changed files, whose checksums may be valid all the same. A pool that opens is sound under every
//! operation; a file that does not open is refused by name and left as it is.
//!
//! Contains a target for a fuzzer (`tests/fuzz`, behind the feature `fuzz`), whose input selects the changes, and a
//! test with random input.
//!
//! Invariant: everything made here could also be written by an attacker who writes the files.

#![allow(unsafe_code)]

use std::convert::Infallible;

use crate::files::disk::Disk;
use crate::files::format::{HEAD, LogHead, PAGE, RecordHead, SLICE, checksum};
use crate::files::named::Files;
use crate::files::recover::{self, Opened};
use crate::files::sim::Sim;
use crate::files::store::{Identity, Store};
use crate::group;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::tx::Ended;
use crate::walk::Walk;
use crate::{Maybe, PBTreeMap, PBox, PCell, PMap, PRefCell, PString, PVec, PWeak, Persist, Prc, Tx};

/// Function that a fuzzer calls with each of its inputs.
pub type Target = Box<dyn FnMut(&[u8])>;

const LIMIT: usize = 1 << 20;

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Node<'p> {
    key: u64,
    next: Option<PBox<'p, Node<'p>>>,
}

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Shared<'p> {
    value: PCell<'p, u64>,
    other: PRefCell<'p, Option<Prc<'p, Shared<'p>>>>,
    back: Option<PWeak<'p, Shared<'p>>>,
}

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(u8)]
enum Choice<'p> {
    Nothing,
    Letter(char, bool) = 7,
    Text(PString<'p>),
    Boxed(PBox<'p, [u16; 9]>),
}

#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Root<'p> {
    list: Option<PBox<'p, Node<'p>>>,
    shared: PVec<'p, Prc<'p, Shared<'p>>>,
    map: PMap<'p, u32, PString<'p>>,
    tree: PBTreeMap<'p, u32, PString<'p>>,
    choices: PVec<'p, Choice<'p>>,
    maybe: Maybe<PBox<'p, bool>>,
    pages: PVec<'p, u64>,
}

fn fill<'p>(root: &mut Root<'p>, from: u64, tx: &Tx<'p>) {
    for key in from..from + 8 {
        let next = root.list.take();
        root.list = Some(PBox::new(Node { key, next }, tx));
        root.map.insert(key as u32, PString::of("some text", tx), tx);
        root.tree.insert(key as u32 * 7 % 100, PString::of("more text", tx), tx);
        root.pages.push(key, tx);
    }
    let one = Prc::new(Shared { value: PCell::new(from), other: PRefCell::new(None), back: None }, tx);
    let two =
        Shared { value: PCell::new(2), other: PRefCell::new(Some(one.pclone(tx))), back: Some(one.downgrade(tx)) };
    let two = Prc::new(two, tx);
    *one.other.borrow_mut(tx) = root.shared.last().map(|last| last.pclone(tx));
    root.shared.push(two, tx);
    root.choices.push(Choice::Letter('x', from.is_multiple_of(2)), tx);
    root.choices.push(Choice::Text(PString::of("other text", tx)), tx);
    root.choices.push(Choice::Boxed(PBox::new([3; 9], tx)), tx);
    root.choices.push(Choice::Nothing, tx);
    root.maybe = Maybe::Some(PBox::new(true, tx));
}

/// Sums up everything that a root reaches. The lists of shared values may have become cycles.
fn sum(root: &Root<'_>) -> u64 {
    let mut sum = 0u64;
    let mut add = |number: u64| sum = sum.wrapping_mul(31).wrapping_add(number);
    std::iter::successors(root.list.as_deref(), |node| node.next.as_deref()).for_each(|node| add(node.key));
    for shared in root.shared.iter() {
        add(shared.value.get());
        add(shared.strong_count());
        if let Some(next) = &*shared.other.borrow() {
            add(next.value.get());
        }
    }
    let entry = |(key, text): (&u32, &PString<'_>)| u64::from(*key) + text.chars().map(u64::from).sum::<u64>();
    add(root.map.iter().map(entry).fold(0, u64::wrapping_add));
    add(root.tree.iter().map(entry).fold(0, u64::wrapping_add));
    add(root.tree.range(20..70).rev().map(entry).fold(0, u64::wrapping_add));
    for choice in root.choices.iter() {
        match choice {
            Choice::Nothing => add(0),
            Choice::Letter(letter, is_it) => add(u64::from(*letter) + u64::from(*is_it)),
            Choice::Text(text) => text.chars().for_each(|letter| add(letter.into())),
            Choice::Boxed(boxed) => boxed.iter().for_each(|&number| add(number.into())),
        }
    }
    add(root.maybe.as_ref().map_or(2, |boxed| (**boxed).into()));
    root.pages.iter().for_each(|&number| add(number));
    sum
}

fn run<U>(memory: &Memory, f: impl for<'a, 'p> FnOnce(&'a mut Root<'p>, &'a Tx<'p>) -> U) -> U {
    // SAFETY: `init` made a `Root`, or `recover::open` found one.
    match unsafe { memory.run::<Root<'static>, U, Infallible>(|root, tx| Ok(f(root, tx))) } {
        Ended::Done(value) => value,
        Ended::Panicked(panic) => std::panic::resume_unwind(panic),
        Ended::Refused(never) => match never {},
    }
}

fn commit(memory: &Memory, store: &mut Store, group: &mut u64) {
    if let Some(mut record) = group::close(memory, *group, Vec::new()) {
        store.commit(&mut record).expect("the disk works");
        *group += 1;
    }
}

/// Makes a pool with some groups in its log; with `is_between`, between two generations: two images, two logs.
fn sample(is_between: bool) -> Sim {
    let disk = Sim::default();
    let memory = Memory::reserve(LIMIT).expect("room");
    let init = memory.init::<Root<'static>>(|_| Root {
        list: None,
        shared: PVec::new(),
        map: PMap::new(),
        tree: PBTreeMap::new(),
        choices: PVec::new(),
        maybe: Maybe::None,
        pages: PVec::new(),
    });
    assert!(init.is_ok());
    run(&memory, |root, tx| fill(root, 0, tx));
    let mut bytes = Vec::new();
    memory.copy_out(0, memory.high_water(), &mut bytes);
    memory.take_changes();
    let layout = serde_json::to_string(&Layout::of::<Root<'static>>()).expect("it is data");
    let identity = Identity { pool: 7, seed: 1, layout };
    let mut store = Store::create(Files::of(disk.clone()), identity, &bytes).expect("the disk works");
    let mut group = 1;
    for round in 1..5 {
        run(&memory, |root, tx| fill(root, 100 * round, tx));
        commit(&memory, &mut store, &mut group);
        if is_between && round == 2 {
            store.begin_generation(group, memory.high_water() as u64).expect("the disk works");
        }
    }
    disk
}

fn read(disk: &mut Sim, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; disk.len(name).expect("it is there") as usize];
    disk.read(name, 0, &mut bytes).expect("the disk works");
    bytes
}

/// Returns the files, except those that an opening left unfinished.
fn kept(disk: &mut Sim) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.names();
    names.retain(|name| !name.ends_with(".tmp"));
    names.into_iter().map(|name| (name.clone(), read(disk, &name))).collect()
}

/// Reader of numbers from the input; zeros at its end.
struct Input<'i>(&'i [u8]);

impl Input<'_> {
    fn number(&mut self, bytes: usize) -> u64 {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn below(&mut self, end: usize) -> usize {
        self.number(3) as usize % end.max(1)
    }
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// Makes one change of one file, selected by the input.
fn change(disk: &Sim, input: &mut Input<'_>) {
    let names = disk.names();
    if names.is_empty() {
        return;
    }
    let name = names[input.below(names.len())].clone();
    let other = read(&mut disk.clone(), &names[input.below(names.len())]);
    let kind = input.number(1) % 8;
    disk.edit(&name, |bytes| {
        let at = input.below(bytes.len());
        let pages = bytes.len() / PAGE as usize;
        match kind {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] = input.number(1) as u8,
            2 => bytes.extend(std::iter::repeat_n(input.number(1) as u8, input.below(9000))),
            3 if pages > 0 => {
                let from = input.below(other.len() / PAGE as usize) * PAGE as usize;
                let to = at / PAGE as usize % pages * PAGE as usize;
                let page = other.get(from..from + PAGE as usize).unwrap_or(&[]);
                bytes[to..to + page.len()].copy_from_slice(page);
            }
            4 => *bytes = other,
            // Words are counts and offsets: small values, values that occur in the file, any value.
            5 => put(bytes, at / 8 * 8, input.number(1)),
            6 => put(bytes, at / 8 * 8, input.number(3) * 16),
            _ => put(bytes, at / 8 * 8, input.number(8)),
        }
    });
}

/// Corrects the checksums of a log.
fn sum_up_log(bytes: &mut [u8]) {
    if bytes.len() < PAGE as usize {
        return;
    }
    let sum = checksum([&bytes[..48]]);
    put(bytes, 48, sum);
    if LogHead::decode(bytes).is_none() {
        return;
    }
    let mut at = PAGE as usize;
    while let Some(len) = bytes.get(at..at + HEAD).and_then(RecordHead::decode).map(|head| head.len() as usize) {
        let Some(record) = bytes.get_mut(at..at + len) else { return };
        let sum = checksum([&record[..48], &[0; 8], &record[56..]]);
        put(record, 48, sum);
        at += len.next_multiple_of(PAGE as usize);
    }
}

/// Corrects the checksums of an image, as far as its head locates its parts.
fn sum_up_image(bytes: &mut [u8]) {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|word| word.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word)) as usize
    };
    let (len, layout_len) = (word(bytes, 56), word(bytes, 72));
    let end = bytes.len();
    if end < PAGE as usize || len > end || layout_len > end {
        return;
    }
    let page = PAGE as usize;
    let data_at = page + layout_len.next_multiple_of(page);
    let sums_at = data_at + len.next_multiple_of(page);
    let sums_end = sums_at + len.div_ceil(SLICE) * 8;
    if sums_end <= end {
        for (index, at) in (sums_at..sums_end).step_by(8).enumerate() {
            let start = data_at + index * SLICE;
            let sum = checksum([&bytes[start..start + SLICE.min(len - index * SLICE)]]);
            put(bytes, at, sum);
        }
        let sum = checksum([&bytes[page..page + layout_len], &bytes[sums_at..sums_end]]);
        put(bytes, 80, sum);
    }
    let sum = checksum([&bytes[..88]]);
    put(bytes, 88, sum);
}

fn open(disk: &Sim) -> crate::error::Result<Option<Opened>> {
    let layout = Layout::of::<Root<'static>>();
    recover::open(Files::of(disk.clone()), &layout, LIMIT, |memory| Walk::all::<Root<'static>>(memory)).map(Result::ok)
}

/// Runs every operation on an opened pool; its commits are there when it is opened again.
fn use_up(disk: &Sim, Opened { memory, mut store, last, .. }: Opened) {
    let mut group = last + 1;
    run(&memory, |root, _| sum(root));
    // Otherwise an allocation may fail, and the operation panics.
    let has_room = memory.high_water() <= LIMIT / 4;
    let expected = run(&memory, |root, tx| {
        if has_room {
            fill(root, 7, tx);
        }
        if let Some(node) = &mut root.list {
            node.key = node.key.wrapping_add(1);
        }
        root.pages.iter_mut().for_each(|number| *number = number.wrapping_add(1));
        (0..40).for_each(|key| _ = root.tree.remove(&key));
        _ = (root.tree.pop_first(), root.tree.pop_last());
        root.shared.iter().for_each(|shared| shared.value.set(1, tx));
        _ = root.shared.iter().filter_map(|shared| shared.back.as_ref()?.upgrade(tx)).count();
        sum(root)
    });
    commit(&memory, &mut store, &mut group);
    drop((memory, store));
    let Ok(Some(Opened { memory, mut store, last, .. })) = open(disk) else { panic!("it opened before") };
    let mut group = last + 1;
    assert_eq!(run(&memory, |root, _| sum(root)), expected, "it is as it was left");
    run(&memory, |root, _| {
        root.list = None;
        root.map.clear();
        root.tree.clear();
        root.shared = PVec::new();
        root.choices.clear();
        root.maybe = Maybe::None;
    });
    commit(&memory, &mut store, &mut group);
    drop((memory, store));
    let Ok(Some(opened)) = open(disk) else { panic!("it opened before") };
    assert!(run(&opened.memory, |root, _| root.list.is_none() && root.choices.is_empty()));
}

/// Target that opens the files of a pool after the changes that the input selects.
pub fn files() -> Target {
    let samples = [sample(false), sample(true)];
    Box::new(move |input| {
        let mut input = Input(input);
        let kind = input.number(1);
        let mut disk = samples[kind as usize & 1].copy();
        loop {
            change(&disk, &mut input);
            if input.0.is_empty() {
                break;
            }
        }
        if kind & 2 == 0 {
            for name in disk.names() {
                disk.edit(&name, |bytes| if name.starts_with("log") { sum_up_log(bytes) } else { sum_up_image(bytes) });
            }
        }
        let before = kept(&mut disk);
        match open(&disk) {
            Ok(Some(opened)) => use_up(&disk, opened),
            Ok(None) => assert!(before.iter().all(|(name, _)| !name.starts_with("image")), "an image is no new folder"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("sim/"), "{text}");
                assert_eq!(kept(&mut disk), before, "what is refused stays as it is");
            }
        }
    })
}

#[cfg(test)]
#[test]
fn forged_files_are_refused_or_sound() {
    let mut target = files();
    let mut random = fastrand::Rng::with_seed(17);
    for _ in 0..if cfg!(miri) { 3 } else { 3000 } {
        let mut input = vec![0; random.usize(1..=60)];
        random.fill(&mut input);
        target(&input);
    }
}
