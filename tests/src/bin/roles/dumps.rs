//! A core dump of a machine has its stacks in it, not the memory that is reserved for data.

use std::ops::Range;

use gossamer_array::Array;
use gossamer_heap::Global;
use gossamer_region::Region;

use crate::remote;

/// Anonymous memory of this length is a reservation, or data.
const LONG: usize = 64 << 20;

/// One part of the address space.
struct Mapping {
    addresses: Range<usize>,
    access: String,
    name: String,
    is_dumped: bool,
}

fn mappings() -> Vec<Mapping> {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut all: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
            let access = words.next().unwrap().to_owned();
            let name = words.skip(3).collect::<Vec<_>>().join(" ");
            all.push(Mapping { addresses: start..end, access, name, is_dumped: true });
        } else if first == "VmFlags:" {
            all.last_mut().unwrap().is_dumped = !words.any(|flag| flag == "dd");
        }
    }
    all
}

/// Uses every kind of memory at both ends of the rack, and keeps the values meanwhile.
fn with_data(then: impl FnOnce()) {
    let array = Array::<u64>::builder().build(1 << 20, 1).unwrap();
    array.set((1 << 20) - 1, 7);
    assert_eq!(array.get(0), 1);
    let object = gossamer::spawn_on(remote(), || Global::new([5u64; 64])).join().unwrap();
    assert_eq!(object.read()[63], 5);
    let region = Region::new(1 << 20).unwrap();
    let mut words = region.span::<u64>(1 << 10);
    words[0] = 9;
    then();
    drop((array, object, words));
}

/// Each machine checks its own address space.
pub fn reserved() {
    with_data(|| {
        for place in [gossamer::here(), remote()] {
            gossamer::spawn_on(place, look).join().unwrap();
        }
        println!("stacks only");
    });
}

fn look() {
    let here = 0u64; // on the stack of this fiber
    let stack = (&raw const here).addr();
    for Mapping { addresses, access, name, is_dumped } in mappings() {
        let bytes = addresses.len();
        if addresses.contains(&stack) {
            assert!(is_dumped, "the stack of a fiber is not dumped");
        } else if is_dumped && !access.starts_with("---") {
            assert!(!name.starts_with("/memfd:gossamer"), "{bytes} bytes of {name} are dumped");
            assert!(!name.is_empty() || bytes < LONG, "{bytes} bytes at {:x} are dumped", addresses.start);
        }
    }
}

/// The last machine aborts.
pub fn abort() {
    with_data(|| {
        let aborted = gossamer::spawn_on(remote(), || std::process::abort()).join();
        unreachable!("the program ends with its machine: {:?}", aborted.is_ok());
    });
}
