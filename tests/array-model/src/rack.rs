//! A rack as a loom model: each place is a thread, and has one fiber; messages lie in its inbox, in order, until it
//! looks there. The items that the array's code takes from `gossamer`, `trust` and `comm` are here, as far as it uses
//! them.
//!
//! Elements are plain memory, which loom does not see. So each chunk has a cell that loom does see ([`World::chunks`]):
//! a place that copies a chunk from its home reads the cell, and a home that finds its elements changed
//! ([`PlaceState::note_writes`]) has written it. Loom then says whether one happened before the other, in any order in
//! which it ran them. Access in place, which several places may have at a time, reads the cell as copying does.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::{fmt, slice};

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};

use crate::frame::{Frame, HEADER_BYTES, frame_bytes};

/// Effect of a planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A granted chunk is copied after one more message was handled, so maybe after the answer to a recall.
    CopiesLate,
    /// A message overtakes the one before it.
    Overtakes,
}

struct Message(Box<dyn FnOnce(&[u8]) + Send>, Vec<u8>);

#[derive(Default)]
struct Inbox {
    messages: Mutex<VecDeque<Message>>,
    come: Condvar,
}

/// State shared by all places of a model.
pub(crate) struct World {
    inboxes: Vec<Inbox>,
    /// Loom's view of each chunk's elements at home.
    chunks: Vec<UnsafeCell<()>>,
    chunk_bytes: usize,
    /// Do places copy granted chunks? Else the elements come in messages.
    pub(crate) copies: bool,
    /// Are the places workers of one machine?
    pub(crate) are_near: bool,
    fault: Fault,
    /// Chunks at home: where they are, and the known values.
    pub(crate) home: Cell<(usize, usize)>,
    known: RefCell<Vec<Vec<u8>>>,
}

// SAFETY: all of a model runs on one thread of the system; loom sees to the cells of chunks.
unsafe impl Sync for World {}
// SAFETY: as before.
unsafe impl Send for World {}

impl World {
    pub(crate) fn new(
        places: usize,
        chunks: usize,
        chunk_bytes: usize,
        copies: bool,
        are_near: bool,
        fault: Fault,
    ) -> Arc<World> {
        let inboxes = (0..places).map(|_| Inbox::default()).collect();
        let chunks = (0..chunks).map(|_| UnsafeCell::new(())).collect();
        let (home, known) = (Cell::default(), RefCell::default());
        Arc::new(World { inboxes, chunks, chunk_bytes, copies, are_near, fault, home, known })
    }

    pub(crate) fn places(&self) -> usize {
        self.inboxes.len()
    }

    /// Returns the elements of the frame at this address, at home, and the number of their chunk.
    fn elements(&self, at: usize) -> (&[u8], usize) {
        let elements = std::ptr::with_exposed_provenance_mut::<u8>(at + HEADER_BYTES);
        // SAFETY: a frame, which nobody changes meanwhile: all of a model runs on one thread of the system.
        unsafe { (slice::from_raw_parts(elements, self.chunk_bytes), Frame::of_elements(elements).chunk() as usize) }
    }

    /// Iterates over the chunks whose elements at home have changed since the last look.
    fn changed_chunks(&self) -> impl Iterator<Item = usize> {
        let (start, bytes) = self.home.get();
        let each = frame_bytes(self.chunk_bytes);
        (start..start + bytes).step_by(each).enumerate().filter_map(move |(index, at)| {
            let (now, chunk) = self.elements(at);
            let mut all = self.known.borrow_mut();
            match all.get_mut(index) {
                Some(known) if known == now => return None,
                Some(known) => known.copy_from_slice(now),
                None => all.push(now.to_vec()),
            }
            Some(chunk)
        })
    }
}

loom::thread_local! {
    static STATE: RefCell<Option<Rc<PlaceState>>> = RefCell::new(None);
}

/// State of one place.
pub(crate) struct PlaceState {
    pub(crate) world: Arc<World>,
    pub(crate) place: usize,
    /// Delegated closures that run.
    delegated: Cell<u32>,
    /// Chunks that are copied late.
    late: RefCell<Vec<u32>>,
    /// Other places that have done their work, or told this one to end.
    pub(crate) told: Cell<usize>,
}

impl PlaceState {
    /// Makes this thread a place.
    pub(crate) fn take(world: Arc<World>, place: usize) -> Rc<PlaceState> {
        let state = Rc::new(PlaceState {
            world,
            place,
            delegated: Cell::default(),
            late: RefCell::default(),
            told: Cell::default(),
        });
        STATE.with(|here| *here.borrow_mut() = Some(Rc::clone(&state)));
        state
    }

    pub(crate) fn here() -> Rc<PlaceState> {
        STATE.with(|here| here.borrow().clone()).expect("a place of a model")
    }

    pub(crate) fn tell(&self, place: usize) {
        let told = |_: &[u8]| {
            let state = PlaceState::here();
            state.told.set(state.told.get() + 1);
        };
        link::post(TrusteeReference(place), told, &[]);
    }

    /// Handles a message, if one is there.
    pub(crate) fn poll(&self) -> bool {
        let message = self.pop(&mut self.inbox().messages.lock().unwrap());
        let is_there = message.is_some();
        message.into_iter().for_each(|message| self.handle(message));
        is_there
    }

    /// Handles messages until it is so. Where none comes any more loom says so: a deadlock.
    pub(crate) fn serve_until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            let mut messages = self.inbox().messages.lock().unwrap();
            let message = loop {
                match self.pop(&mut messages) {
                    Some(message) => break message,
                    None => messages = self.inbox().come.wait(messages).unwrap(),
                }
            };
            drop(messages);
            self.handle(message);
        }
    }

    fn inbox(&self) -> &Inbox {
        &self.world.inboxes[self.place]
    }

    fn pop(&self, messages: &mut VecDeque<Message>) -> Option<Message> {
        let at = usize::from(self.world.fault == Fault::Overtakes && messages.len() > 1);
        messages.remove(at)
    }

    fn handle(&self, Message(handler, bytes): Message) {
        let late = self.late.take();
        link::without_waiting(|| handler(&bytes));
        late.into_iter().for_each(|chunk| self.world.chunks[chunk as usize].with(|_| ()));
        self.note_writes();
    }

    /// Tells loom of the elements that this place has changed since it looked last, as their home. Before anybody else
    /// can hear of it.
    pub(crate) fn note_writes(&self) {
        if self.place == 0 {
            self.world.changed_chunks().for_each(|chunk| self.world.chunks[chunk].with_mut(|_| ()));
        }
    }

    /// Tells loom of access in place, if this is one.
    pub(crate) fn uses_in_place(&self, address: usize) {
        let world = &self.world;
        let (start, bytes) = world.home.get();
        if world.are_near && (start..start + bytes).contains(&address) {
            let at = start + (address - start) / frame_bytes(world.chunk_bytes) * frame_bytes(world.chunk_bytes);
            world.chunks[world.elements(at).1].with(|_| ());
        }
    }

    /// Notes the elements that were stored in place.
    pub(crate) fn has_stored(&self) {
        if self.world.are_near {
            self.world.changed_chunks().for_each(drop);
        }
    }
}

/// Memory of another machine.
pub struct Share;

impl Share {
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Infallible> {
        let state = PlaceState::here();
        let elements = std::ptr::with_exposed_provenance_mut::<u8>(offset);
        // SAFETY: where the home of a chunk says that its elements are.
        let chunk = unsafe { Frame::of_elements(elements) }.chunk();
        if state.world.fault == Fault::CopiesLate {
            state.late.borrow_mut().push(chunk);
        } else {
            state.world.chunks[chunk as usize].with(|_| ());
        }
        // SAFETY: as before; all of a model runs on one thread of the system.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(elements, into.len()) };
        Ok(())
    }
}

/// A place, which is a machine of its own, or a worker of the only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrusteeReference(pub(crate) usize);

impl TrusteeReference {
    pub(crate) fn id(self) -> Self {
        self
    }

    pub(crate) fn machine(self) -> u16 {
        if PlaceState::here().world.are_near { 0 } else { self.0 as u16 }
    }
}

pub mod link {
    use super::{Any, Message, PlaceState, TrusteeReference};

    pub(crate) fn post(to: TrusteeReference, handler: impl FnOnce(&[u8]) + Send + 'static, bytes: &[u8]) {
        let state = PlaceState::here();
        state.note_writes();
        let inbox = &state.world.inboxes[to.0];
        inbox.messages.lock().unwrap().push_back(Message(Box::new(handler), bytes.to_vec()));
        inbox.come.notify_one();
    }

    pub(crate) fn without_waiting<R>(f: impl FnOnce() -> R) -> R {
        let state = PlaceState::here();
        state.delegated.set(state.delegated.get() + 1);
        let result = f();
        state.delegated.set(state.delegated.get() - 1);
        result
    }

    pub(crate) fn outlives_losses() -> bool {
        false
    }

    /// Called where a panic would poison the array: the model has found it.
    pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        panic!("{}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic"))
    }
}

/// Called in models of losses alone, of which there are none.
pub(crate) fn sleep(_: std::time::Duration) {
    panic!("no machine of a model is lost")
}

pub(crate) fn may_wait() -> bool {
    PlaceState::here().delegated.get() == 0
}

/// Handles the messages that are there.
pub(crate) fn yield_now() {
    let state = PlaceState::here();
    while state.poll() {}
}

/// The value that is kept of it, or that it never will be.
type Kept<T> = Rc<RefCell<Option<Result<T, Dropped>>>>;

#[derive(Debug, Clone, Copy)]
pub struct Dropped;

pub struct Promise<T>(Kept<T>);

pub struct Waiter<T>(Kept<T>);

pub(crate) fn promise<T>() -> (Promise<T>, Waiter<T>) {
    let kept = Kept::default();
    (Promise(Rc::clone(&kept)), Waiter(kept))
}

impl<T> Promise<T> {
    pub(crate) fn keep(self, value: T) {
        *self.0.borrow_mut() = Some(Ok(value));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.borrow_mut().get_or_insert(Err(Dropped));
    }
}

impl<T> Waiter<T> {
    pub(crate) fn wait(self) -> Result<T, Dropped> {
        assert!(may_wait(), "it waits in a delegated closure");
        PlaceState::here().serve_until(|| self.0.borrow().is_some());
        self.0.take().unwrap()
    }
}

/// A property, of which a model needs nothing.
pub struct Trust<T>(PhantomData<fn() -> T>);

impl<T> Trust<T> {
    pub(crate) fn new() -> Self {
        Trust(PhantomData)
    }
}

impl<T> Clone for Trust<T> {
    fn clone(&self) -> Self {
        Trust::new()
    }
}

pub trait NoRef {}
impl<T> NoRef for T {}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub(crate) machine: u16,
    pub(crate) worker: u16,
}

impl Place {
    pub(crate) const fn of(machine: u16, worker: u16) -> Place {
        Place { machine, worker }
    }

    pub(crate) fn trustee(self) -> TrusteeReference {
        TrusteeReference(usize::from(self.machine))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.machine)
    }
}

#[derive(Debug)]
pub struct Rack(Rc<PlaceState>);

pub(crate) fn rack() -> Rack {
    Rack(PlaceState::here())
}

impl Rack {
    pub(crate) fn machine(&self) -> u16 {
        TrusteeReference(self.0.place).machine()
    }

    pub(crate) fn has(&self, place: Place) -> bool {
        self.places().any(|other| other == place)
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = Place> + use<> {
        (0..self.0.world.places() as u16).map(|machine| Place::of(machine, 0))
    }
}

impl fmt::Display for Rack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a rack of {} places", self.places().count())
    }
}

impl fmt::Debug for PlaceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlaceState({})", self.place)
    }
}

/// A fiber that there never is.
pub struct JoinHandle<R>(Infallible, PhantomData<R>);

impl<R> JoinHandle<R> {
    pub(crate) fn join(self) -> Result<R, Box<dyn Any + Send>> {
        match self.0 {}
    }
}

pub(crate) fn spawn_on<R>(_: &TrusteeReference, _: impl FnOnce() -> R) -> JoinHandle<R> {
    panic!("each thread of a model is a place, which does its calls itself")
}

/// Each place's own: `thread_local!`. All of a model runs on one thread of the system, where it is kept
/// from run to run.
pub(crate) struct Local<T: 'static>(pub(crate) fn() -> T);

std::thread_local! {
    static LOCALS: RefCell<HashMap<(usize, usize), &'static dyn Any>> = RefCell::default();
}

impl<T> Local<T> {
    fn of_place(&'static self) -> &'static T {
        let key = (PlaceState::here().place, std::ptr::from_ref(self).addr());
        let of_place =
            LOCALS.with_borrow_mut(|locals| *locals.entry(key).or_insert_with(|| Box::leak(Box::new((self.0)()))));
        of_place.downcast_ref().expect("each static has one type")
    }

    pub(crate) fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        f(self.of_place())
    }

    pub(crate) fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, Infallible> {
        Ok(self.with(f))
    }
}

impl<T: Copy> Local<Cell<T>> {
    pub(crate) fn get(&'static self) -> T {
        self.of_place().get()
    }

    pub(crate) fn set(&'static self, value: T) {
        self.of_place().set(value);
    }
}
