//! The packets of a bulk call that are under way, and how the call waits for them.

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

use trust::Promise;

use crate::part::Part;

/// Packets that one call may have under way.
const PACKETS_MAX: usize = 32;

/// The packets of one call that are under way.
pub(super) struct Flight<'a> {
    part: Rc<Part>,
    state: Rc<State>,
    /// Numbers of answers that are awaited; forgotten where the call ends early, for the answers go to memory of its
    /// caller.
    numbers: RefCell<Vec<u64>>,
    caller: PhantomData<&'a ()>,
}

#[derive(Default)]
struct State {
    under_way: Cell<usize>,
    /// How few the caller waits for.
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

/// What is done with an answer.
type Then<'a> = Box<dyn FnOnce(&[u8]) + 'a>;

/// Tells of the end of one packet, also where no answer will come.
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

    /// One packet more, whose answer is given to `then`. Gives the number for the answer, when few enough are under
    /// way.
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
        // which is within it.
        let then = unsafe { std::mem::transmute::<Then<'a>, Then<'static>>(then) };
        let ended = Ended(state);
        let number = self.part.replies.expect(move |answer: Box<[u8]>| {
            then(&answer);
            drop(ended);
        });
        self.numbers.borrow_mut().push(number);
        number
    }

    /// Waits until no more than so many are under way.
    #[track_caller]
    pub(super) fn wait(&self, few: usize) {
        while self.state.under_way.get() > few {
            let (wake, woken) = trust::promise();
            self.state.few.set(few);
            *self.state.wake.borrow_mut() = Some(wake);
            // An error cannot be: the promise is kept, or its fiber aborted.
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
