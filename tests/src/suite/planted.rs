//! Behaviours that do not hold, for a test of the harness (`tests/suite`): it has to report each of these, and no
//! other.

use super::ground::remote;

pub fn holds_at_first() {}

/// The machines stay able to work meanwhile.
pub fn waits_for_ever() {
    gossamer::sleep(std::time::Duration::MAX);
}

pub fn holds_after_a_hang() {
    assert_eq!(gossamer::entrust_with(remote(), || 7).apply(|number| *number), 7);
}

/// Nothing comes from that worker any more, on any machine.
pub fn never_lets_its_worker_go() {
    gossamer::entrust_with(remote(), || ()).apply(|()| {
        loop {
            std::hint::spin_loop();
        }
    });
}

pub fn panics() {
    panic!("as planted");
}

pub fn holds_after_a_panic() {
    holds_after_a_hang();
}

pub fn ends_the_program() {
    std::process::abort();
}

pub fn holds_at_last() {
    holds_after_a_hang();
}
