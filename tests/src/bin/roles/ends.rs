//! How programs end.

use crate::far;

/// Prints the process of each machine, then works until somebody ends it.
pub fn wait() {
    for (index, machine) in gossamer::rack().machines().iter().enumerate() {
        println!("machine {index} is process {}", machine.process);
        println!("machine {index} has {} bytes of slots", machine.slots_bytes);
    }
    println!("works");
    let counter = gossamer::entrust_on(far(), 0u64);
    loop {
        counter.apply(|c| *c += 1);
    }
}

pub fn panic() {
    gossamer::entrust_on(far(), 0u64).apply(|c| *c += 1);
    panic!("gsm_main is meant to panic");
}

/// A function pointer that the type system lets through: it has more arguments than any that `NoRef` names.
pub fn function_pointer() {
    type Long = for<'a> fn(&'a u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u64;
    #[expect(clippy::too_many_arguments, reason = "that is the point")]
    fn sum(a: &u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64, j: u64) -> u64 {
        a + b + c + d + e + f + g + h + i + j
    }
    let long = std::hint::black_box(sum as Long);
    let there = gossamer::entrust_on(far(), 1u64);
    println!("sum {}", there.apply(move |value| long(value, 1, 1, 0, 0, 0, 0, 0, 0, 0)));
}

/// A fiber of this machine is waited for, though nobody joins it.
pub fn leave_running() {
    let there = gossamer::entrust_on(far(), 0u64);
    let fiber = move || {
        for _ in 0..100 {
            there.apply(|c| *c += 1);
        }
        println!("counted to {}", there.apply(|c| *c));
    };
    drop(gossamer::spawn(fiber));
}

/// The last machine ends as by a bug in unsafe code.
pub fn abort() {
    let aborted = gossamer::spawn_on(far(), || std::process::abort()).join();
    unreachable!("the program ends with its machine: {:?}", aborted.is_ok());
}

/// A program that has done its work before it started.
pub fn nothing() {}
