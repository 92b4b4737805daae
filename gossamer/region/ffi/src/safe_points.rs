//! Safe points: begin and end of calls that may wait, where a thread may go to another machine (`wishes.rs`).

use std::sync::OnceLock;

use crate::record;

/// Has the calling thread go where it is to go.
static ANSWER: OnceLock<fn()> = OnceLock::new();

/// Sets the function that is called there while a thread of this machine is to go somewhere.
pub(crate) fn note(answer: fn()) {
    ANSWER.get_or_init(|| answer);
}

/// In the program's code, at such a point.
#[inline(always)]
pub(crate) fn at_call() {
    if record::are_wishes() {
        answer();
    }
}

#[cold]
fn answer() {
    if let Some(answer) = ANSWER.get() {
        answer();
    }
}
