//! Calls of this place that another one answers with a message: what to do with the answer, by number.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};

use trust::Promise;

/// Calls that may be unanswered before who makes one waits.
const CALLS_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Replies {
    last: Cell<u64>,
    calls: RefCell<HashMap<u64, Box<dyn Any>>>,
    /// Those that wait until there are fewer.
    crowd: RefCell<VecDeque<Promise<()>>>,
}

impl Replies {
    /// Keeps what is to be done with an answer `A`; under which number the answer comes.
    pub(crate) fn expect<A: 'static>(&self, then: impl FnOnce(A) + 'static) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        let then: Box<dyn FnOnce(A)> = Box::new(then);
        self.calls.borrow_mut().insert(number, Box::new(then));
        number
    }

    /// An answer has come. Nobody waits for it where it was forgotten.
    pub(crate) fn answer<A: 'static>(&self, number: u64, answer: A) {
        let call = self.calls.borrow_mut().remove(&number);
        self.one_less();
        if let Some(then) = call.and_then(|call| call.downcast::<Box<dyn FnOnce(A)>>().ok()) {
            then(answer);
        }
    }

    /// No call waits for this answer any more.
    pub(crate) fn forget(&self, number: u64) {
        let call = self.calls.borrow_mut().remove(&number);
        self.one_less();
        drop(call);
    }

    /// There will be no answers: what was to be done with them.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = Box<dyn Any>> + use<> {
        self.crowd.take();
        self.calls.take().into_values()
    }

    /// Waits until few enough calls are unanswered.
    pub(crate) fn wait_for_room(&self) {
        while self.calls.borrow().len() >= CALLS_MAX {
            let (go_on, may_go_on) = trust::promise();
            self.crowd.borrow_mut().push_back(go_on);
            // An error: there will be no answers.
            if may_go_on.wait().is_err() {
                return;
            }
        }
    }

    /// Lets one of those that wait for room go on; all of them if no other answer will come, for some may have been
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
