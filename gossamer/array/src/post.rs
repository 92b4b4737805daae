//! Messages between the parts of an array: each is a function that sends, and a method of the receiving part. All use
//! `trust::link::post`, so messages between two places arrive in the order in which they were sent; the directory entry
//! of a chunk (`directory.rs`) relies on that.
//!
//! ```text
//! to home      want        read, write, or combine with an operator
//!              back        a right, with what was written or combined
//! from home    grant       a right, with the elements where they are needed
//!              recall      of a right
//! both ways    packets of bulk calls and their answers (`bulk/`), updates (`update.rs`), locks (`lock.rs`)
//! to all       poisoned, ended (`make.rs`)
//! ```
//!
//! The parts of this thread are listed here: all of them for messages, and those that hits may use.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;

use gossamer::NoRef;
use trust::link;

use crate::directory::Right;
use crate::element::Element;
use crate::lost;
use crate::name::Name;
use crate::operator::{Op, Operator};
use crate::part::{Content, Elements, Part};
use crate::slots::ARRAYS_MAX;

type Hits = [Cell<*const Part>; ARRAYS_MAX];

/// List of a thread without parts.
struct Nothing([*const Part; ARRAYS_MAX]);
// SAFETY: null pointers that never change.
unsafe impl Sync for Nothing {}
static NOTHING: Nothing = Nothing([ptr::null(); ARRAYS_MAX]);

thread_local! {
    /// Part that hits may use, for each slot, or null.
    static HITS: Cell<*const *const Part> = const { Cell::new(&raw const NOTHING.0 as *const *const Part) };
    /// This thread's own list, once it has parts. It outlives the thread, because destructors of other thread-locals
    /// may look into it.
    static OWN_HITS: Cell<Option<&'static Hits>> = const { Cell::new(None) };
    static PARTS: Parts = const { Parts(RefCell::new(Vec::new())) };
}

/// Parts by slot.
struct Parts(RefCell<Vec<Option<Rc<Part>>>>);

impl Drop for Parts {
    fn drop(&mut self) {
        HITS.set((&raw const NOTHING.0).cast());
    }
}

/// Returns the part that hits may use, if there is one.
///
/// # Safety
/// The reference is not kept while anything else runs on this thread.
#[inline(always)]
pub(crate) unsafe fn for_hits<'a>(name: Name) -> Option<&'a Part> {
    // SAFETY: names are made with slots below `ARRAYS_MAX` only; an entry that is not null points to a part in `PARTS`.
    let part = unsafe { (*HITS.get().add(name.slot as usize)).as_ref() };
    part.filter(|part| part.name.generation == name.generation)
}

/// Returns this thread's part of the array, poisoned or not.
pub(crate) fn part(name: Name) -> Option<Rc<Part>> {
    let of_thread = PARTS.try_with(|parts| {
        let parts = parts.0.try_borrow().ok()?;
        let part = parts.get(name.slot as usize)?.as_ref()?;
        (part.name == name).then(|| Rc::clone(part))
    });
    of_thread.ok().flatten()
}

/// Returns all parts of this thread.
pub(crate) fn parts() -> Vec<Rc<Part>> {
    let of_thread = PARTS.try_with(|parts| parts.0.try_borrow().map(|parts| parts.iter().flatten().cloned().collect()));
    of_thread.ok().and_then(Result::ok).unwrap_or_default()
}

/// Adds a part to this thread's list.
///
/// # Errors
/// The number of a machine of the array that is lost.
pub(crate) fn install(part: Rc<Part>) -> Result<(), u16> {
    // Of those that are lost later the part will be told.
    if let Some(machine) = part.members.lost().or_else(|| lost::by(part.name)) {
        return Err(machine);
    }
    let slot = part.name.slot as usize;
    let hits = OWN_HITS.get().unwrap_or_else(|| Box::leak(Box::new([const { Cell::new(ptr::null()) }; ARRAYS_MAX])));
    hits[slot].set(Rc::as_ptr(&part));
    OWN_HITS.set(Some(hits));
    HITS.set(hits.as_ptr().cast());
    PARTS.with(|parts| {
        let mut parts = parts.0.borrow_mut();
        let slots = parts.len().max(slot + 1);
        parts.resize_with(slots, || None);
        assert!(parts[slot].is_none(), "a slot has one part");
        parts[slot] = Some(part);
    });
    Ok(())
}

/// Ends hits on a part, unless its slot already belongs to another array.
fn no_more_hits(part: &Part) {
    let hits = OWN_HITS.get().map(|hits| &hits[part.name.slot as usize]);
    if let Some(hits) = hits.filter(|hits| ptr::eq(hits.get(), part)) {
        hits.set(ptr::null());
    }
}

/// Drops this thread's part. A view of it keeps its memory.
pub(crate) fn remove(name: Name) {
    let Some(part) = part(name) else { return };
    no_more_hits(&part);
    PARTS.with(|parts| parts.0.borrow_mut()[name.slot as usize] = None);
    part.set_poison("it is gone: its last handle was dropped, or the program ends");
}

/// Runs `f` with this thread's part; not at all if the array is gone. A panic poisons the array, because its state is
/// then unknown.
pub(crate) fn at(name: Name, f: impl FnOnce(&Part)) {
    if let Some(part) = part(name) {
        guarded(&part, "the handling of a message", || f(&part));
    }
}

/// Sends a message to another place, where `f` is called with its part and the bytes.
pub(crate) fn send<F>(part: &Part, place: usize, f: F, bytes: &[u8])
where
    F: FnOnce(&Part, &[u8]) + NoRef + Send + 'static,
{
    debug_assert_ne!(place, part.own, "a message to oneself");
    part.counters.count(|stats| stats.bytes += bytes.len() as u64);
    let name = part.name;
    link::post(part.place(place), move |bytes| at(name, |part| f(part, bytes)), bytes);
}

/// Requests a right other than to combine.
pub(crate) fn want(part: &Part, chunk: u32, right: Right<Infallible>) {
    let (by, home) = (part.own, part.shape.home(chunk));
    let copies = part.sees(home);
    send(part, home, move |part, _| part.wanted(chunk, by, right.of(), copies), &[]);
}

pub(crate) fn want_to_combine<T: Element, O: Operator<T>>(part: &Part, chunk: u32) {
    let by = part.own;
    let right = || Right::Combine(Op::of::<T, O>());
    send(part, part.shape.home(chunk), move |part, _| part.wanted(chunk, by, right(), false), &[]);
}

/// Grants a right, with the elements if they are needed.
pub(crate) fn grant(part: &Part, to: usize, chunk: u32, right: Right<Op>, elements: Elements<'_>) {
    // The type of an operator cannot be sent as data, so its table has the function that sends.
    let right = match right.plain() {
        Ok(right) => right,
        Err(op) => return (op.0.send_grant)(part, to, chunk),
    };
    match elements {
        Elements::None => send(part, to, move |part, _| part.granted(chunk, right.of(), Elements::None), &[]),
        Elements::At(offset) => {
            send(part, to, move |part, _| part.granted(chunk, right.of(), Elements::At(offset)), &[]);
        }
        Elements::Bytes(data) => {
            send(part, to, move |part, data| part.granted(chunk, right.of(), Elements::Bytes(data)), data);
        }
    }
}

/// Grants another worker of this process access to single elements in place: at this address.
pub(crate) fn grant_near(part: &Part, to: usize, chunk: u32, elements: usize) {
    send(part, to, move |part, _| part.granted_near(chunk, elements), &[]);
}

pub(crate) fn grant_to_combine<T: Element, O: Operator<T>>(part: &Part, to: usize, chunk: u32) {
    send(part, to, move |part, _| part.granted(chunk, Right::Combine(Op::of::<T, O>()), Elements::None), &[]);
}

pub(crate) fn recall(part: &Part, from: usize, chunk: u32, number: u64, keeps_reading: bool) {
    send(part, from, move |part, _| part.recalled(chunk, number, keeps_reading), &[]);
}

/// Gives back a right other than combining, with the written elements.
pub(crate) fn back(part: &Part, chunk: u32, number: u64, reads: bool, written: Option<&[u8]>) {
    let (from, is_written) = (part.own, written.is_some());
    let came_back = move |part: &Part, bytes: &[u8]| {
        let content = if is_written { Content::Written(bytes) } else { Content::Nothing };
        part.came_back(chunk, from, number, reads, content);
    };
    send(part, part.shape.home(chunk), came_back, written.unwrap_or_default());
}

pub(crate) fn combined<T: Element, O: Operator<T>>(part: &Part, chunk: u32, number: u64, elements: &[u8]) {
    let from = part.own;
    let came_back = move |part: &Part, bytes: &[u8]| {
        part.came_back(chunk, from, number, false, Content::Combined(Op::of::<T, O>(), bytes));
    };
    send(part, part.shape.home(chunk), came_back, elements);
}

/// Runs code that may panic while the array's parts are being changed; a panic poisons the array at all places.
pub(crate) fn guarded(part: &Part, what: &str, f: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(f)) else { return };
    poison_all(part, &format!("{what} panicked: {}", link::panic_text(&*panic)));
    discard(panic);
}

/// Poisons the array at all places.
fn poison_all(part: &Part, why: &str) {
    let name = part.name;
    for place in (0..part.places()).filter(|place| *place != part.own) {
        let poisoned = move |why: &[u8]| {
            if let Some(part) = self::part(name) {
                poison(&part, &String::from_utf8_lossy(why));
            }
        };
        link::post(part.place(place), poisoned, why.as_bytes());
    }
    poison(part, why);
}

/// Runs code of the program that no caller waits for. A panic ends here; the panic hook has already reported it.
pub(crate) fn quietly(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        discard(panic);
    }
}

/// Drops the payload of a panic. If its destructor panics in turn it is leaked.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
}

/// Poisons the array at this place, by the loss of a machine that had a part of it.
pub(crate) fn lose(name: Name, machine: u16) {
    lost::note(name, machine);
    if let Some(part) = part(name) {
        link::without_waiting(|| poison(&part, &lost::cause(machine)));
    }
}

fn poison(part: &Part, why: &str) {
    no_more_hits(part);
    part.set_poison(why);
}
