//! Exhaustive model: every order in which requests, responses, turns of fibers and ends of threads can come. It runs
//! the real `Route` and `Line`, over trustees that remember where each value is. Loom is not needed: threads
//! communicate through slots, which have models of their own (`slot/model.rs`), and the rest belongs to one trustee
//! each.
//!
//! Properties checked: a closure runs where all its values are, and nothing else has one [lent-to-one], [value-thread];
//! each call runs once and its client is notified, or does not run and its client learns why, even if threads end
//! [call-owner]; nothing waits for ever [one-call-order]; values are granted in the order in which they were asked for
//! [waiter-before-share]; each value is back in its latch in the end, or dropped once with its trustee; nothing is
//! dereferenced after it is freed [call-keeps-property]; no closure sees a value on which another has panicked
//! [poison-all].
//!
//! Here: the world. The reactions of threads to messages: `model/events.rs`. The trustees as calls see them:
//! `model/trustee.rs`. The scenarios: `model/tests.rs`. Not here: workers that leave while an answer is on its way
//! (`trust/tests/together.rs` covers that), cycles with launches inside launches (`runtime/watch`).

mod events;
mod tests;
mod trustee;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ptr::{self, NonNull};

use self::trustee::{At, Trustee};
use super::route::{Route, Step as Next, sort};
use super::{Client, Part, kind_of};
use crate::ids::TrusteeId;
use crate::runtime::worker::lines::line::{Orphan, Waiter};

/// Deviation of the model from the code: a fault that it has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Rule {
    Sound,
    /// Values are taken in the order in which they are named.
    Unsorted,
    /// The first share that is given back returns the value.
    ReturnedEarly,
    /// Fibers go to the front of the line.
    Overtaking,
    /// A call has no trusts of its own.
    NoTrusts,
    /// A trustee that ends tells none of its waiters.
    Silent,
    /// Planted fault: only the trustees that own the properties learn of a panic.
    Unspoiled,
}

/// Place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Latch,
    Fiber(usize),
    Lent(TrusteeId),
    Dropped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Outcome {
    Ran,
    Panicked,
    Refused,
}

/// A call of `together`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Call {
    /// Thread that makes the call.
    of: usize,
    /// It does not wait, has trusts of its own, and the thread drops those that the call was made with.
    is_then: bool,
    panics: bool,
    /// Properties, in the order in which they are taken.
    order: Vec<usize>,
    taken: usize,
    /// Set if its thread borrows the values itself: number of returned values that it still awaits.
    gives_back: Option<usize>,
    has_begun: bool,
    outcome: Option<Outcome>,
    is_told: bool,
}

/// A launched closure, which waits once while it has the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Fiber {
    /// Launched by this thread, on this property.
    New(usize, usize),
    Sent(usize),
    /// The call waits in line at its trustee.
    InLine(usize),
    /// Its turn has come.
    Resumed(usize),
    Holds(usize),
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Message {
    Arrive(usize),
    Home(usize),
    Tell(usize),
    Launch(usize),
    Borrow(usize),
    /// Whether the share was granted, in turn.
    Granted(usize, bool),
    GiveBack(usize, usize, bool),
    Forget(TrusteeId, usize),
    Count(usize, i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Response {
    Returned(usize),
    Refused(usize),
    Lent(usize, bool),
    GivenBack(usize, usize, bool),
    Forgotten(usize),
}

/// Possible next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin(usize),
    Launch(usize),
    /// A request from this thread to that one is served.
    Request(usize, usize),
    /// The request finds that thread gone.
    Bounce(usize, usize),
    Response(usize, usize),
    Deferred(usize),
    Fiber(usize),
    End(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    rule: Rule,
    trustees: Vec<Trustee>,
    /// Thread of each property.
    homes: BTreeMap<usize, usize>,
    values: BTreeMap<usize, Place>,
    calls: Vec<Call>,
    fibers: Vec<Fiber>,
    /// Threads that may end.
    ends: BTreeSet<usize>,
    requests: BTreeMap<(usize, usize), VecDeque<Message>>,
    responses: BTreeMap<(usize, usize), VecDeque<Response>>,
    orphans: BTreeMap<usize, Orphan<usize>>,
    /// Values that a panic has left half-changed.
    spoiled: BTreeSet<usize>,
}

impl World {
    /// Makes a part of a call; its value has the number of the property.
    fn part(&self, property: usize, argument: usize) -> Part {
        let trustee = self.trustees[self.homes[&property]].id;
        let value = NonNull::new(ptr::without_provenance_mut(property)).expect("numbers begin with 1");
        Part { trustee, property: ptr::without_provenance_mut(property), kind: kind_of::<u8>(), value, argument }
    }

    fn route(&self, call: usize) -> Route<Vec<Part>> {
        let Call { order, taken, of, .. } = &self.calls[call];
        let parts = order.iter().enumerate().map(|(at, property)| self.part(*property, at)).collect();
        Route { parts, taken: *taken, client: Client::Waits(self.trustees[*of].id, ptr::null()) }
    }

    /// Returns the order in which the values of a call are taken.
    fn order(&self, names: &[usize]) -> Vec<usize> {
        let mut parts: Vec<Part> = names.iter().enumerate().map(|(at, name)| self.part(*name, at)).collect();
        if self.rule != Rule::Unsorted {
            sort(&mut parts).expect("each once");
        }
        parts.iter().map(|part| part.property.addr()).collect()
    }

    fn thread(&self, id: TrusteeId) -> usize {
        self.trustees.iter().position(|trustee| trustee.id == id).expect("a thread")
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        self.requests.entry((from, to)).or_default().push_back(message);
    }

    fn respond(&mut self, from: usize, to: usize, response: Response) {
        self.responses.entry((from, to)).or_default().push_back(response);
    }

    /// Returns all possible next events.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let calls =
            self.calls.iter().enumerate().filter(|(_, call)| !call.has_begun && !self.trustees[call.of].is_ended);
        steps.extend(calls.map(|(call, _)| Step::Begin(call)));
        for (at, fiber) in self.fibers.iter().enumerate() {
            match *fiber {
                Fiber::New(..) => steps.push(Step::Launch(at)),
                Fiber::Resumed(_) | Fiber::Holds(_) => steps.push(Step::Fiber(at)),
                _ => {}
            }
        }
        for (&(from, to), _) in self.requests.iter().filter(|(_, queue)| !queue.is_empty()) {
            steps.push(Step::Request(from, to));
            if self.trustees[to].is_ended {
                steps.push(Step::Bounce(from, to));
            }
        }
        let answered = self.responses.iter().filter(|(_, queue)| !queue.is_empty());
        steps.extend(answered.map(|(&(from, to), _)| Step::Response(from, to)));
        for (at, trustee) in self.trustees.iter().enumerate() {
            if !trustee.deferred.is_empty() {
                steps.push(Step::Deferred(at));
            } else if self.ends.contains(&at) && !trustee.is_ended && !self.has_fibers(at) {
                steps.push(Step::End(at));
            }
        }
        steps
    }

    /// Returns whether a thread has fibers, those that run there and those that wait: it ends only without any.
    fn has_fibers(&self, thread: usize) -> bool {
        self.fibers.iter().any(|fiber| match fiber {
            Fiber::New(of, _) => *of == thread,
            Fiber::InLine(property) | Fiber::Resumed(property) | Fiber::Holds(property) => {
                self.homes[property] == thread
            }
            Fiber::Sent(_) | Fiber::Done => false,
        }) || self.calls.iter().any(|call| call.of == thread && (!call.has_begun || !call.is_told && !call.is_then))
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Begin(call) => self.begin(call),
            Step::Launch(fiber) => {
                let Fiber::New(of, property) = self.fibers[fiber] else { unreachable!() };
                self.fibers[fiber] = Fiber::Sent(property);
                self.send(of, self.homes[&property], Message::Launch(fiber));
            }
            Step::Request(from, to) | Step::Bounce(from, to) => {
                let message = self.requests.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("it is there");
                if self.trustees[to].is_ended {
                    let by = if step == Step::Request(from, to) { to } else { from };
                    self.refuse_request(from, to, message, by);
                } else {
                    self.serve(from, to, message);
                }
            }
            Step::Response(from, to) => {
                let response = self.responses.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("it is there");
                self.resume(to, response);
            }
            Step::Deferred(at) => self.run_deferred(at),
            Step::Fiber(fiber) => self.run_fiber(fiber),
            Step::End(at) => self.end(at),
        }
        self.check();
    }

    /// Same as `together_and_wait` and `together_and_call_back`.
    fn begin(&mut self, call: usize) {
        let Call { of, is_then, order, .. } = self.calls[call].clone();
        self.calls[call].has_begun = true;
        if is_then {
            if self.rule != Rule::NoTrusts {
                order.iter().for_each(|property| self.count(of, *property, 1));
            }
            self.go_on(of, call);
            // The thread drops its own trusts.
            return order.iter().for_each(|property| self.count(of, *property, -1));
        }
        let mut route = self.route(call);
        let me = self.trustees[of].id;
        if order.iter().all(|property| self.homes[property] == of) && is_free(route.finds_free(&At(self, of))) {
            self.run(of, call);
            return self.tell(call);
        }
        // As `others_before`.
        let is_last_here = route.last() == Some(me);
        let first_here = order.iter().position(|property| self.homes[property] == of);
        if is_last_here && first_here.is_some_and(|first| order[first..].iter().all(|other| self.homes[other] == of)) {
            self.calls[call].gives_back = Some(0);
            self.fetch(call);
        } else {
            self.go_on(of, call);
        }
    }

    fn count(&mut self, from: usize, property: usize, change: i32) {
        let home = self.homes[&property];
        if home != from {
            self.send(from, home, Message::Count(property, change));
        } else if !self.trustees[home].is_ended {
            self.count_here(home, property, change);
        }
    }

    /// Same as `borrow_others`, and the steps after it.
    fn fetch(&mut self, call: usize) {
        let Call { of, order, taken, .. } = self.calls[call].clone();
        let next = self.homes[&order[taken]];
        if next != of {
            return self.send(of, next, Message::Borrow(call));
        }
        let mut route = self.route(call);
        if is_free(route.finds_free(&At(self, of))) && route.find_poisoned(&At(self, of)).is_ok() {
            self.run(of, call);
            self.calls[call].gives_back = Some(taken);
            let has_panicked = self.calls[call].outcome == Some(Outcome::Panicked);
            for property in &order[..taken] {
                self.send(of, self.homes[property], Message::GiveBack(call, *property, has_panicked));
            }
        } else {
            self.calls[call].gives_back = None;
            self.go_on(of, call);
        }
    }

    fn lent(&mut self, call: usize, is_lent: bool) {
        if is_lent {
            self.calls[call].taken += 1;
            return self.fetch(call);
        }
        let of = self.calls[call].of;
        self.calls[call].gives_back = None;
        self.refuse(call);
        self.go_back(of, call);
    }

    /// Same as `At::go_on`.
    fn go_on(&mut self, at: usize, call: usize) {
        let mut route = self.route(call);
        let next = route.advance(&mut At(self, at));
        self.calls[call].taken = route.taken;
        match next {
            Next::To(trustee) => return self.send(at, self.thread(trustee), Message::Arrive(call)),
            Next::Line(part) => {
                let to = route.last().expect("it has parts");
                return At(self, at).stand_in_line(part.property.addr(), Waiter::Share { to, who: call });
            }
            Next::Run => self.run(at, call),
            Next::Refuse(_) => self.refuse(call),
        }
        self.go_back(at, call);
    }

    /// Same as `At::go_back`.
    fn go_back(&mut self, at: usize, call: usize) {
        let mut route = self.route(call);
        let panic = (self.calls[call].outcome == Some(Outcome::Panicked)).then_some(&() as _);
        let next = route.give_back(&mut At(self, at), panic);
        self.calls[call].taken = route.taken;
        match next {
            Some(trustee) => self.send(at, self.thread(trustee), Message::Home(call)),
            None if self.calls[call].of == at => self.tell(call),
            None => self.send(at, self.calls[call].of, Message::Tell(call)),
        }
    }

    fn refuse(&mut self, call: usize) {
        let before = self.calls[call].outcome.replace(Outcome::Refused);
        assert_eq!(before, None, "call {call} is refused, and has run");
    }

    fn tell(&mut self, call: usize) {
        let Call { of, is_then, order, .. } = self.calls[call].clone();
        assert!(!std::mem::replace(&mut self.calls[call].is_told, true), "call {call} is told twice");
        if is_then && self.rule != Rule::NoTrusts {
            order.into_iter().for_each(|property| self.count(of, property, -1));
        }
    }

    /// Runs the closure of a call, at this trustee.
    fn run(&mut self, at: usize, call: usize) {
        let here = self.trustees[at].id;
        let Call { order, taken, panics, .. } = self.calls[call].clone();
        for (place, property) in order.iter().enumerate() {
            let wanted = if place < taken { Place::Lent(here) } else { Place::Latch };
            assert_eq!(self.values[property], wanted, "call {call} runs, and has not got {property}");
            assert!(place < taken || self.homes[property] == at, "call {call} runs on {property} elsewhere");
            assert!(!self.spoiled.contains(property), "call {call} sees what a panic has left of {property}");
        }
        let outcome = if panics { Outcome::Panicked } else { Outcome::Ran };
        assert_eq!(self.calls[call].outcome.replace(outcome), None, "call {call} runs twice");
        for property in order.into_iter().filter(|_| panics) {
            self.spoiled.insert(property);
            if self.homes[&property] == at {
                self.trustees[at].latch(property).is_poisoned = true;
            } else if self.rule != Rule::Unspoiled {
                let lender = self.trustees[self.homes[&property]].id;
                self.trustees[at].spoiled.insert((lender, property));
            }
        }
    }

    /// Checks in each state that every call has one owner [call-owner].
    fn check(&self) {
        for (call, Call { has_begun, is_told, gives_back, .. }) in self.calls.iter().enumerate() {
            let is_it = |message: &&Message| {
                let (Message::Arrive(it) | Message::Home(it) | Message::Tell(it)) = message else { return false };
                *it == call
            };
            let is_response =
                |it: &&Response| matches!(it, Response::Returned(it) | Response::Refused(it) if *it == call);
            let places = self.requests.values().flatten().filter(is_it).count()
                + self.responses.values().flatten().filter(is_response).count()
                + self.trustees.iter().map(|trustee| trustee.places_of(call)).sum::<usize>();
            let wanted = usize::from(*has_begun && !is_told);
            assert!(
                gives_back.is_some() || places == wanted || self.rule == Rule::Silent,
                "call {call}: {places} places"
            );
        }
    }

    /// Checks a final state, in which nothing can happen any more.
    fn check_end(&self) {
        for (at, call) in self.calls.iter().enumerate() {
            assert!(call.is_told || !call.has_begun, "call {at} waits for ever: {self:#?}");
        }
        assert!(self.fibers.iter().all(|fiber| *fiber == Fiber::Done), "a fiber waits for ever: {self:#?}");
        assert!(self.orphans.is_empty(), "nobody drops {:?}", self.orphans);
        for (property, place) in &self.values {
            let home = &self.trustees[self.homes[property]];
            let wanted =
                if home.is_ended || home.latches[property].trusts == 0 { Place::Dropped } else { Place::Latch };
            assert_eq!(*place, wanted, "{property} is not where it belongs");
            assert!(home.is_ended || home.latches[property].is_at_rest(), "the line of {property}: {home:?}");
            let is_poisoned = home.latches[property].is_poisoned;
            assert!(
                home.is_ended || is_poisoned == self.spoiled.contains(property),
                "{property}, poisoned: {is_poisoned}"
            );
        }
        assert!(
            self.trustees.iter().all(|trustee| trustee.spoiled.is_empty() || trustee.is_ended),
            "{:?}",
            self.trustees
        );
    }
}

fn is_free(found: Result<bool, Part>) -> bool {
    matches!(found, Ok(true))
}
