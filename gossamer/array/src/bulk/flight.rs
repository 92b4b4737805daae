//! The packets in flight of a bulk call, and how the call waits for them.

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

use trust::Promise;

use crate::part::Part;
use crate::promised::own_promise;

/// The most packets that one call has in flight.
const PACKETS_MAX: usize = 32;

/// The packets in flight of one call.
pub(super) struct Flight<'a> {
    part: Rc<Part>,
    state: Rc<State>,
    /// Numbers of pending answers. They are forgotten if the call ends early, because the answers go to memory of its
    /// caller.
    numbers: RefCell<Vec<u64>>,
    caller: PhantomData<&'a ()>,
}

#[derive(Default)]
struct State {
    under_way: Cell<usize>,
    /// Number of packets in flight at which the waiting caller is woken.
    few: Cell<usize>,
    wake: RefCell<Option<Promise<()>>>,
}

impl State {
    fn ended(&self) {
        self.under_way.set(self.under_way.get() - 1);
        if self.under_way.get() <= self.few.get()
            && let Some(wake) = self.wake.take()
        {
            wake.keep(());
        }
    }
}

/// Handler of an answer.
type Then<'a> = Box<dyn FnOnce(&[u8]) + 'a>;

/// Guard that counts a packet as ended, also if no answer will come.
struct Ended(Rc<State>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended();
    }
}

impl<'a> Flight<'a> {
    pub(super) fn new(part: Rc<Part>) -> Self {
        Flight { part, state: Rc::default(), numbers: RefCell::default(), caller: PhantomData }
    }

    /// Starts a packet; `then` handles its answer. Returns the answer's number, once few enough packets are in flight.
    #[track_caller]
    pub(super) fn begin(&self, then: impl FnOnce(&[u8]) + 'a) -> u64 {
        self.wait(PACKETS_MAX - 1);
        if self.state.under_way.get() == 0 {
            self.numbers.borrow_mut().clear();
        }
        self.state.under_way.set(self.state.under_way.get() + 1);
        let state = Rc::clone(&self.state);
        let then: Then<'a> = Box::new(then);
        // SAFETY: the lifetime alone changes; the answer is forgotten, and `then` dropped, before this flight ends,
        // which is within that lifetime.
        let then = unsafe { std::mem::transmute::<Then<'a>, Then<'static>>(then) };
        let ended = Ended(state);
        let number = self.part.replies.expect(move |answer: Box<[u8]>| {
            then(&answer);
            drop(ended);
        });
        self.numbers.borrow_mut().push(number);
        number
    }

    /// Waits until at most `few` packets are in flight.
    #[track_caller]
    pub(super) fn wait(&self, few: usize) {
        while self.state.under_way.get() > few {
            let (wake, woken) = own_promise();
            self.state.few.set(few);
            *self.state.wake.borrow_mut() = Some(wake);
            // It never fails: the promise is kept, or this fiber aborted.
            let _ = woken.wait();
        }
        self.part.check_poison();
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.numbers.take().into_iter().for_each(|number| self.part.replies.forget(number));
    }
}
