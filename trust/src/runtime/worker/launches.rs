//! A worker's state for launched closures and promised values: as a client the callbacks for results to come, as a
//! trustee the owners of running fibers. Waiters for latched values: `lines.rs`. Launches and how a result travels:
//! `tasks/`.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::lines::Lines;
use super::{Context, Worker};
use crate::config::LAUNCHES_MAX;
use crate::deadline::deadline_after;
use crate::fiber::record;
use crate::fiber::timer::Waiter;
use crate::fiber::{FiberQueue, Waits};
use crate::ids::TrusteeId;
use crate::request::{Fault, Host};
use crate::runtime::watch;
use crate::unwind::quietly;

/// The launches of one worker, as client and as trustee.
#[derive(Default)]
pub(crate) struct Launches {
    next_token: Cell<u64>,
    /// Client: callbacks for results to come.
    awaited: RefCell<HashMap<u64, Awaited>>,
    /// Callbacks for promised values (`promise.rs`). Apart from the launches, for nothing bounds how many fibers wait
    /// for one, and no other worker's end waits for it.
    promised: RefCell<HashMap<u64, Awaited>>,
    /// Client: fibers that wait for results to come.
    waiters: FiberQueue,
    /// Trustee: clients of the fibers that run here, and how a client is notified that one of them will not begin.
    running: RefCell<HashMap<(TrusteeId, u64), Tell>>,
    /// Trustee: waiters for latched values.
    pub(crate) lines: Lines,
}

struct Awaited {
    by: Asker,
    /// Trustee that gives the result, if no other can.
    from: Option<TrusteeId>,
    then: Box<dyn Any>,
    fail: fn(Box<dyn Any>, Fault),
}

/// The code that has asked for a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asker {
    Fiber(u64),
    /// The thread's own code.
    Root,
    /// A callback or a delegated closure, which waits for nothing.
    Closure,
}

impl Asker {
    /// Code that may wait, in this fiber or on the root.
    fn waiting(fiber: Option<u64>) -> Self {
        fiber.map_or(Asker::Root, Asker::Fiber)
    }

    fn here(worker: &Worker) -> Self {
        match worker.context() {
            Context::Free => Asker::waiting(worker.scheduler.current_id()),
            _ => Asker::Closure,
        }
    }
}

pub(crate) type Callback<U> = Box<dyn FnOnce(Result<U, Fault>)>;
/// Tells a client that there will be no result.
type Tell = fn(&Worker, TrusteeId, u64, Fault);

impl Launches {
    /// Number of results that have not come yet.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.borrow().len()
    }

    /// Are there callbacks for results or promised values to come, or fibers for clients?
    pub(crate) fn has_callbacks(&self) -> bool {
        self.awaited() > 0 || !self.promised.borrow().is_empty() || !self.running.borrow().is_empty()
    }

    /// Tokens of the results that this fiber has asked for and that have not come yet.
    pub(crate) fn awaited_by(&self, fiber: Option<u64>) -> Vec<u64> {
        let by = Asker::waiting(fiber);
        self.awaited.borrow().iter().filter(|(_, awaited)| awaited.by == by).map(|(&token, _)| token).collect()
    }

    /// Waits until these results have come, and their callbacks have run.
    pub(crate) fn wait_for(&self, worker: &Worker, tokens: Vec<u64>) {
        for token in tokens {
            let done = || !self.awaited.borrow().contains_key(&token);
            if !done() {
                watch::note_wait();
                worker.scheduler.waiting(record::Awaited::Result(token), || worker.wait_in(&self.waiters, done));
            }
        }
    }

    /// Bounds the fibers that run for this client: waits for some to end, where the caller may wait.
    pub(crate) fn wait_for_place(&self, worker: &Worker) {
        // Not a fiber that holds a value, for the running fibers may wait for that value.
        if self.awaited() >= LAUNCHES_MAX && worker.context() == Context::Free && !worker.scheduler.is_holding() {
            worker.wait_in(&self.waiters, || self.awaited() < LAUNCHES_MAX);
        }
    }

    /// Same as `wait_for_place`, but no longer than up to `end`. Is there a place?
    pub(crate) fn wait_for_place_until(&self, worker: &Worker, end: Option<Instant>) -> bool {
        let has_place = || self.awaited() < LAUNCHES_MAX || worker.scheduler.is_holding();
        while !has_place() && end.is_none_or(|end| Instant::now() < end) {
            // The fiber that frees a place does not know of this waiter.
            let look = deadline_after(Duration::from_millis(1));
            let look = end.map_or(look, |end| end.min(look));
            worker.wait_unless_aborted(record::Awaited::Time, Some(look), &Waiter::default(), has_place);
            worker.heed_abort();
        }
        has_place()
    }

    pub(crate) fn expect<U: 'static>(&self, from: TrusteeId, then: Callback<U>) -> u64 {
        self.await_in(&self.awaited, Some(from), then)
    }

    /// Same as `expect`, of a value that was promised: `from` is its keeper, if that is known.
    pub(crate) fn expect_promised<U: 'static>(&self, from: Option<TrusteeId>, then: Callback<U>) -> u64 {
        self.await_in(&self.promised, from, then)
    }

    /// Drops the callback of a promised value that is no longer awaited.
    pub(crate) fn forget_promised(&self, token: u64) {
        let forgotten = self.promised.borrow_mut().remove(&token);
        drop(forgotten);
    }

    fn await_in<U: 'static>(
        &self,
        awaited: &RefCell<HashMap<u64, Awaited>>,
        from: Option<TrusteeId>,
        then: Callback<U>,
    ) -> u64 {
        let token = self.next_token.replace(self.next_token.get() + 1);
        let fail = |then: Box<dyn Any>, fault| {
            if let Ok(then) = then.downcast::<Callback<U>>() {
                then(Err(fault));
            }
        };
        let by = super::with(Asker::here);
        awaited.borrow_mut().insert(token, Awaited { by, from, then: Box::new(then), fail });
        token
    }

    fn take(&self, token: u64) -> Option<Awaited> {
        let launched = self.awaited.borrow_mut().remove(&token);
        if launched.is_some() {
            // The waiters run when the callback has, which is the next thing to happen, and may panic.
            super::with(|worker| worker.scheduler.resume_all(&self.waiters));
        }
        launched.or_else(|| self.promised.borrow_mut().remove(&token))
    }

    /// Takes a result. A token that is not awaited, or with a result of another type, is ignored.
    pub(crate) fn complete<U: 'static>(&self, token: u64, outcome: Result<U, Fault>) {
        if let Some(Ok(then)) = self.take(token).map(|awaited| awaited.then.downcast::<Callback<U>>()) {
            then(outcome);
        }
    }

    /// Trustee: notes that a fiber for this client runs.
    pub(crate) fn note_running(&self, client: TrusteeId, token: u64, tell: Tell) {
        self.running.borrow_mut().insert((client, token), tell);
    }
    pub(crate) fn note_ended(&self, client: TrusteeId, token: u64) {
        self.running.borrow_mut().remove(&(client, token));
    }

    /// Completes the token with a fault: there will be no result.
    pub(crate) fn fail(&self, token: u64, fault: Fault) {
        if let Some(awaited) = self.take(token) {
            (awaited.fail)(awaited.then, fault);
        }
    }

    /// This machine is lost: fails the results that were to come from there, and all promised values whose keeper is
    /// not known, for any machine may have had the promise.
    pub(crate) fn lose(&self, worker: &Worker, machine: u16) {
        let is_from = |awaited: &Awaited| awaited.from.map(|from| from.machine() == machine);
        let mut tokens = Vec::new();
        for (awaited, unknown) in [(&self.awaited, false), (&self.promised, true)] {
            let awaited = awaited.borrow();
            let lost = awaited.iter().filter(|(_, awaited)| is_from(awaited).unwrap_or(unknown));
            tokens.extend(lost.map(|(&token, _)| token));
        }
        for token in tokens {
            worker.call_back(|| quietly(|| self.fail(token, Fault::Lost(machine))));
        }
    }

    /// The trustee ends: tells the clients of fibers that did not begin.
    pub(crate) fn abandon(&self, worker: &Worker) {
        let running = std::mem::take(&mut *self.running.borrow_mut());
        for ((client, token), tell) in running {
            tell(worker, client, token, Fault::Gone);
        }
        self.lines.abandon(worker);
    }

    /// The client ends: drops the callbacks with their captures, without calling them.
    pub(crate) fn close(&self) {
        for awaited in [&self.awaited, &self.promised] {
            loop {
                let token = awaited.borrow().keys().next().copied();
                let Some(token) = token else { break };
                let forgotten = awaited.borrow_mut().remove(&token);
                quietly(|| drop(forgotten));
            }
        }
    }
}
