//! Closures on one element, at its home.

#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use gossamer::NoRef;
use trust::link::panic_text;

use crate::array::{Array, at_place};
use crate::directory::Right;
use crate::element::Element;
use crate::frame::Frame;
use crate::name::Name;
use crate::part::{Lent, Part};
use crate::post;
use crate::waits;

/// Result of a closure in the form that is sent: without pointers.
#[expect(clippy::large_enum_variant, reason = "no box can travel")]
enum Outcome<U> {
    Value(U),
    Panicked(Text),
}

/// The beginning of a panic's text.
struct Text {
    bytes: [u8; 240],
    len: u8,
}

impl<U> Outcome<U> {
    fn of(outcome: std::thread::Result<U>) -> Outcome<U> {
        outcome.map_or_else(
            |panic| {
                let text = Text::of(&panic_text(&*panic));
                post::discard(panic);
                Outcome::Panicked(text)
            },
            Outcome::Value,
        )
    }
}

impl Text {
    fn of(text: &str) -> Text {
        let mut len = text.len().min(240);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        let mut bytes = [0; 240];
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Text { bytes, len: len as u8 }
    }

    fn get(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..usize::from(self.len)]).into_owned()
    }
}

/// Runs `f` on a copy of an element; a panic leaves the element unchanged.
fn run<T: Element, U>(at: *mut T, f: impl FnOnce(&mut T) -> U) -> std::thread::Result<U> {
    // SAFETY: the element lies there and is this job's alone while its frame is busy; any bytes are a `T`.
    let mut value = unsafe { at.read() };
    let outcome = catch_unwind(AssertUnwindSafe(|| f(&mut value)));
    if outcome.is_ok() {
        // SAFETY: as before.
        unsafe { at.write(value) };
    }
    outcome
}

impl<T: Element> Array<T> {
    /// Runs `f` on element `i` at its home, atomically, and returns its result. If `f` panics the element is unchanged.
    ///
    /// Nothing may wait in `f`, and it may not access the element's chunk otherwise.
    ///
    /// # Panics
    /// With the panic of `f` (from another place only its first 240 bytes); those of [`get`](Self::get).
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 40u64).unwrap();
    ///     let before = array.update(999, |value| { *value += 2; *value - 2 });
    ///     assert_eq!((before, array.get(999)), (40, 42));
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn update<U, F>(&self, i: usize, f: F) -> U
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        assert!(i < self.len(), "index {i} is out of range of an array of {} elements", self.len());
        at_place!(self, update_at_place(i, f))
    }

    #[track_caller]
    fn update_at_place<U, F>(&self, i: usize, f: F) -> U
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        let (chunk, part) = ((i >> self.shift()) as u32, self.part());
        let home = part.shape.home(chunk);
        if home == part.own {
            drop(part);
            let outcome =
                self.access("update", chunk, Right::Write, |_, frame| run(self.elements(frame, &(i..i + 1)), f));
            return outcome.unwrap_or_else(|panic| resume_unwind(panic));
        }
        if !trust::may_wait() {
            waits::may_not_fetch("update");
        }
        let (promise, value) = trust::link::promise_at::<Outcome<U>>(part.place(home).id());
        let job = move |at: *mut T| promise.keep(Outcome::of(run(at, f)));
        send_job(&part, home, i, job);
        drop(part);
        match value.wait() {
            Ok(Outcome::Value(value)) => value,
            Ok(Outcome::Panicked(text)) => resume_unwind(Box::new(text.get())),
            Err(_) => self.gone(),
        }
    }

    /// Same as [`update`](Self::update), but returns at once; `then` is called with the result of `f`, on this thread.
    /// Allowed in every context. If `f` panics, standard error reports it, and `then` is dropped.
    ///
    /// While 1,024 calls of this place are pending, a caller that may wait does so, which bounds memory; inside
    /// delegated closures and callbacks the call is queued. Nothing may wait in `then`. On a thread that is not a place
    /// of the program it waits, as `update` does, and calls `then` itself.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 40u64).unwrap();
    ///     array.update_then(999, |value| { *value += 2; *value }, |value| println!("now {value}"));
    ///     assert_eq!(array.update(999, |value| *value), 42); // in order
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn update_then<U, F, H>(&self, i: usize, f: F, then: H)
    where
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        H: FnOnce(U) + 'static,
    {
        assert!(i < self.len(), "index {i} is out of range of an array of {} elements", self.len());
        if !self.is_here() {
            return then(self.update(i, f));
        }
        self.look();
        if trust::may_wait() {
            self.part().replies.wait_for_room();
        }
        let (chunk, part) = ((i >> self.shift()) as u32, self.part());
        let home = part.shape.home(chunk);
        part.hold(self.root());
        let told = move |part: &Part, outcome: Outcome<U>| {
            let tell = move || match outcome {
                Outcome::Value(value) => then(value),
                Outcome::Panicked(text) => {
                    eprintln!("gossamer: the closure of an `update_then` panicked: {}", text.get())
                }
            };
            post::quietly(tell);
            part.release();
        };
        if home == part.own {
            let within = i & (self.chunk() - 1);
            let job = move |part: &Part, lent: Lent| {
                let outcome = Outcome::of(run(element::<T>(lent.frame(), within), f));
                // Once no closure has the chunk any more.
                let shared = part.shared();
                part.call_back(Box::new(move || told(&shared, outcome)));
            };
            return part.access(chunk, Right::Write, Box::new(job));
        }
        let (name, back) = (part.name, part.place(part.own));
        let shared = Rc::downgrade(&part);
        let number = part.replies.expect(move |outcome: Outcome<U>| {
            if let Some(part) = shared.upgrade() {
                told(&part, outcome);
            }
        });
        let job = move |at: *mut T| {
            let outcome = Outcome::of(run(at, f));
            trust::link::post(back, move |_| post::at(name, |part| part.replies.answer(number, outcome)), &[]);
        };
        send_job(&part, home, i, job);
    }
}

fn element<T>(frame: Frame, within: usize) -> *mut T {
    frame.elements().cast::<T>().wrapping_add(within)
}

/// Runs a job on an element at its home, as soon as that has the right to write it.
fn send_job<T: Element>(part: &Part, home: usize, i: usize, job: impl FnOnce(*mut T) + NoRef + Send + 'static) {
    let (chunk, within) = ((i >> part.shape.shift) as u32, i & (part.shape.chunk() - 1));
    let name: Name = part.name;
    trust::link::post(
        part.place(home),
        move |_| {
            post::at(name, |part| {
                assert!(part.holds(chunk, within, 1), "an update of element {i}, which is not here");
                part.access(chunk, Right::Write, Box::new(move |_, lent| job(element::<T>(lent.frame(), within))));
            });
        },
        &[],
    );
}
