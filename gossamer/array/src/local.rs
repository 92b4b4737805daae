//! Local part of the calls for single elements and chunks: hits, and how a call waits for its chunk.
//!
//! A hit is a look-up in the table of this thread's part, and a plain load or store of this thread's own memory: no
//! lock, no atomic read-modify-write, no fence (DArray 4.1 has two atomic writes). Each 1,024th call first serves
//! requests of others to this worker, so that a fiber in a loop of hits delays no other place (DArray fig. 4 and 5 have
//! a flag for that).

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::{Duration, Instant};

use trust::link::without_waiting;

use crate::array::Array;
use crate::directory::Right;
use crate::element::Element;
use crate::frame::Frame;
use crate::lost;
use crate::operator::{Op, Operator, checked_combine};
use crate::part::{IN_PLACE, Lent, Part, READS, WRITES};
use crate::post;
use crate::promised::own_promise;
use crate::waits;
use crate::word;

/// The longest that a place is told later of a poisoned array than another one.
const NOTICE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

impl<T: Element> Array<T> {
    #[inline(always)]
    #[track_caller]
    fn check(&self, i: usize) {
        if i >= self.len() {
            self.out_of_range(i);
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn out_of_range(&self, i: usize) -> ! {
        panic!("index {i} is out of range of an array of {} elements", self.len())
    }

    /// Returns the address of element `i` here, if a wanted bit of its chunk's word is set.
    #[inline(always)]
    #[track_caller]
    fn hit(&self, i: usize, wanted: u64) -> Option<*mut T> {
        self.check(i);
        // SAFETY: nothing else runs before the caller has done its load or store; `i` is in range, so the part has its
        // chunk.
        let elements = unsafe { post::for_hits(self.name())?.hit(i >> self.shift(), wanted) }?;
        Some(elements.cast::<T>().wrapping_add(self.within(i)))
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn get_here(&self, i: usize) -> Option<T> {
        // SAFETY: the element lies there and may be read.
        self.hit(i, READS | IN_PLACE).map(|at| unsafe { word::load(at) })
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn set_here(&self, i: usize, value: T) -> bool {
        let hit = self.hit(i, WRITES | IN_PLACE);
        if let Some(at) = hit {
            // SAFETY: the element lies there, may be written, and has no views.
            unsafe { word::store(at, value) };
        }
        hit.is_some()
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn apply_here<O: Operator<T>>(&self, i: usize, x: T) -> bool {
        if !O::PLAIN.is_plain() {
            return false; // the operator's code has to find the chunk busy
        }
        // One test for both writable and combinable chunks: with two, the branch predictor fails where a program
        // alternates between them at random.
        let Some(at) = self.hit(i, O::PLAIN.bit()) else { return false };
        // SAFETY: the element lies there, may be written, and has no views; the crate's own operators call nothing.
        unsafe { at.write(O::combine(at.read(), x)) };
        true
    }

    /// Called after a miss, or before a call that does not try for a hit: lets others run if it is time to. True if
    /// that was the whole reason for the miss, and a hit should be tried again.
    pub(crate) fn look(&self) -> bool {
        let is_time = post::part(self.name()).is_some_and(|part| part.is_time_to_look());
        if is_time && trust::may_wait() {
            trust::yield_now();
        }
        is_time
    }

    /// Returns the part at this place.
    ///
    /// # Panics
    /// If the array is poisoned, or the program is ending.
    #[track_caller]
    pub(crate) fn part(&self) -> Rc<Part> {
        let Some(part) = post::part(self.name()) else { self.ended() };
        part.check_poison();
        part
    }

    /// Panics for a call of an array that has no part here any more.
    #[cold]
    #[track_caller]
    fn ended(&self) -> ! {
        match lost::by(self.name()) {
            Some(machine) => panic!("the array is poisoned: {}", lost::cause(machine)),
            None => panic!("the array is gone: its program ends"),
        }
    }

    /// Runs `f` on the frame of a chunk with this right: at once, or as soon as it is granted, while other fibers run.
    /// Nothing may wait in `f`.
    ///
    /// # Panics
    /// With the panic of `f`; if the right is not at this place and the caller may not wait, naming `call`; if the
    /// array is poisoned.
    #[track_caller]
    pub(crate) fn access<R>(&self, call: &str, chunk: u32, right: Right<Op>, f: impl FnOnce(&Part, Frame) -> R) -> R {
        self.look();
        self.borrow(call, chunk, right, |part, lent| f(part, lent.frame()))
    }

    /// Same as [`access`](Self::access), also for access in place, in which `f` loads or stores one element
    /// (`word.rs`).
    #[track_caller]
    pub(crate) fn borrow<R>(&self, call: &str, chunk: u32, right: Right<Op>, f: impl FnOnce(&Part, Lent) -> R) -> R {
        let part = self.part();
        let mut outcome = None;
        let mut f = Some(f);
        let mut run = |part: &Part, lent: Lent| {
            let f = f.take().unwrap_or_else(|| unreachable!("it runs once"));
            outcome = Some(catch_unwind(AssertUnwindSafe(|| f(part, lent))));
        };
        if let Some(frame) = part.ready(call, chunk, right) {
            without_waiting(|| part.work(frame, |part, frame| run(part, Lent::Frame(frame))));
        } else {
            if !trust::may_wait() {
                waits::may_not_fetch(call);
            }
            wait_for(&part, chunk, right, &mut run);
        }
        drop(part);
        match outcome {
            Some(outcome) => outcome.unwrap_or_else(|panic| resume_unwind(panic)),
            None => self.gone(),
        }
    }

    /// Returns element `i` as soon as its chunk is here.
    #[track_caller]
    pub(crate) fn get_once_here(&self, i: usize) -> T {
        let chunk = (i >> self.shift()) as u32;
        let right = self.part().right_to_get(chunk);
        // SAFETY: the element lies there and may be read.
        self.borrow("get", chunk, right, |_, lent| unsafe { word::load(self.element(lent, i)) })
    }

    /// Sets element `i` as soon as its chunk is here.
    #[track_caller]
    pub(crate) fn set_once_here(&self, i: usize, value: T) {
        let chunk = (i >> self.shift()) as u32;
        let right = self.part().right_to_set(chunk);
        // SAFETY: the element lies there, may be written, and has no views.
        self.borrow("set", chunk, right, |_, lent| unsafe { word::store(self.element(lent, i), value) });
    }

    fn element(&self, lent: Lent, i: usize) -> *mut T {
        lent.elements().cast::<T>().wrapping_add(self.within(i))
    }

    /// Panics for a call in flight that will not be executed.
    #[track_caller]
    pub(crate) fn gone(&self) -> ! {
        self.wait_for_poison();
        panic!("the array is poisoned, or its program ends")
    }

    /// A call has failed: panics if the array is poisoned, also if this place is told of it after another one.
    #[track_caller]
    pub(crate) fn wait_for_poison(&self) {
        wait_for_notice(|| post::part(self.name()).is_none_or(|part| part.is_poisoned.get()));
        self.part();
    }

    /// A call has failed: returns the machine by whose loss the array has ended, also if this place is told of it after
    /// another one.
    pub(crate) fn wait_for_loss(&self) -> Option<u16> {
        wait_for_notice(|| lost::by(self.name()).is_some());
        lost::by(self.name())
    }

    /// Returns the elements of a piece of a chunk, in its frame.
    pub(crate) fn elements(&self, frame: Frame, piece: &Range<usize>) -> *mut T {
        frame.elements().cast::<T>().wrapping_add(self.within(piece.start))
    }

    /// Returns those elements for reading.
    pub(crate) fn slice(&self, frame: Frame, piece: &Range<usize>) -> &[T] {
        // SAFETY: [frame-one-thread] they lie there; any bytes are a `T`; nothing writes them while the frame is busy
        // or pinned ([pinned-unchanged], [busy-exclusive]), and it is one of both in every caller.
        unsafe { std::slice::from_raw_parts(self.elements(frame, piece), piece.len()) }
    }

    /// Returns those elements for writing.
    #[expect(clippy::mut_from_ref, reason = "of the frame, which is busy")]
    pub(crate) fn slice_mut(&self, frame: Frame, piece: &Range<usize>) -> &mut [T] {
        // SAFETY: as in `slice`; the frame is busy and without views, so this is the only reference to them.
        unsafe { std::slice::from_raw_parts_mut(self.elements(frame, piece), piece.len()) }
    }

    /// Combines one element with a value, by an operator of the program's own or after a miss.
    #[track_caller]
    pub(crate) fn apply_slowly<O: Operator<T>>(&self, i: usize, x: T) {
        let chunk = (i >> self.shift()) as u32;
        let right = Right::Combine(Op::of::<T, O>());
        self.access("apply", chunk, right, |_, frame| {
            let at = self.elements(frame, &(i..i + 1));
            // SAFETY: the element lies there, may be written, has no views, and the frame is busy meanwhile.
            unsafe { at.write(checked_combine::<T, O>(at.read(), x)) };
        });
    }
}

/// Waits, where machines may be lost, until this place is told what another one has been told.
fn wait_for_notice(is_told: impl Fn() -> bool) {
    let start = Instant::now();
    while gossamer::link::outlives_losses() && !is_told() && trust::may_wait() && start.elapsed() < NOTICE {
        trust::sleep(PAUSE);
    }
}

/// A call that waits for its chunk: the closure to run on it, on the stack of the waiting fiber.
struct Call(Cell<Option<NonNull<Run<'static>>>>);
type Run<'a> = dyn FnMut(&Part, Lent) + 'a;

/// Queues for a chunk, and waits until `run` was called, or never will be.
fn wait_for(part: &Part, chunk: u32, right: Right<Op>, run: &mut Run<'_>) {
    /// Guard that clears the pointer to this stack, also if the fiber is aborted.
    struct TakeBack(Rc<Call>);
    impl Drop for TakeBack {
        fn drop(&mut self) {
            self.0.0.set(None);
        }
    }
    // SAFETY: the lifetime alone changes; the pointer is cleared before this returns or unwinds.
    let run = unsafe { std::mem::transmute::<NonNull<Run<'_>>, NonNull<Run<'static>>>(NonNull::from(run)) };
    let call = Rc::new(Call(Cell::new(Some(run))));
    let _take_back = TakeBack(Rc::clone(&call));
    let (promise, done) = own_promise::<()>();
    part.access(
        chunk,
        right,
        Box::new(move |part, lent| {
            if let Some(mut run) = call.0.take() {
                // SAFETY: not cleared, so the fiber is still in `wait_for`, and everything it borrows is there; it does
                // not run now.
                unsafe { run.as_mut()(part, lent) };
            }
            promise.keep(());
        }),
    );
    if matches!(right, Right::Read | Right::Glance) {
        part.read_ahead(chunk);
    }
    // An error means that it will never be called.
    let _ = done.wait();
}
