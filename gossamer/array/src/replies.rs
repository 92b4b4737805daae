//! Pending calls that another place answers with a message: the handlers of the answers, by number.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};

use trust::Promise;

use crate::promised::own_promise;

/// The most pending calls before a new caller waits.
const CALLS_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Replies {
    last: Cell<u64>,
    calls: RefCell<HashMap<u64, Box<dyn Any>>>,
    /// Callers that wait until there are fewer.
    crowd: RefCell<VecDeque<Promise<()>>>,
}

impl Replies {
    /// Registers the handler of an answer `A`; returns the number that the answer will carry.
    pub(crate) fn expect<A: 'static>(&self, then: impl FnOnce(A) + 'static) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        let then: Box<dyn FnOnce(A)> = Box::new(then);
        self.calls.borrow_mut().insert(number, Box::new(then));
        number
    }

    /// Handles an answer. If it was forgotten, it is dropped.
    pub(crate) fn answer<A: 'static>(&self, number: u64, answer: A) {
        let call = self.calls.borrow_mut().remove(&number);
        self.one_less();
        if let Some(then) = call.and_then(|call| call.downcast::<Box<dyn FnOnce(A)>>().ok()) {
            then(answer);
        }
    }

    /// Forgets a call: its answer will be dropped.
    pub(crate) fn forget(&self, number: u64) {
        let call = self.calls.borrow_mut().remove(&number);
        self.one_less();
        drop(call);
    }

    /// Takes all handlers, because no answers will come.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = Box<dyn Any>> + use<> {
        self.crowd.take();
        self.calls.take().into_values()
    }

    /// Waits until few enough calls are pending.
    pub(crate) fn wait_for_room(&self) {
        while self.calls.borrow().len() >= CALLS_MAX {
            let (go_on, may_go_on) = own_promise();
            self.crowd.borrow_mut().push_back(go_on);
            // An error means that no answers will come.
            if may_go_on.wait().is_err() {
                return;
            }
        }
    }

    /// Wakes one caller that waits for space; all of them if no other answer will come, because some may have been
    /// aborted.
    fn one_less(&self) {
        let calls = self.calls.borrow().len();
        if calls >= CALLS_MAX {
            return;
        }
        while let Some(go_on) = { self.crowd.borrow_mut().pop_front() } {
            go_on.keep(());
            if calls > 0 {
                return;
            }
        }
    }
}
