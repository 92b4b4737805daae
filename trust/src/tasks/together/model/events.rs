//! Reactions of a thread of the model: to requests, responses, its fibers, its end.

use super::{At, Fiber, Message, Outcome, Place, Response, Rule, World};
use crate::runtime::worker::lines::line::Waiter;
use crate::tasks::together::route::Lender;

impl World {
    /// Serves a request at a trustee.
    pub(super) fn serve(&mut self, from: usize, at: usize, message: Message) {
        match message {
            Message::Arrive(call) => {
                let mut route = self.route(call);
                match route.finds_free(&At(self, at)) {
                    Ok(true) if route.find_poisoned(&At(self, at)).is_ok() => self.run(at, call),
                    Ok(false) => return self.go_on(at, call),
                    Ok(true) | Err(_) => self.refuse(call),
                }
                self.respond(at, from, Response::Returned(call));
            }
            Message::Home(call) => self.go_back(at, call),
            Message::Tell(call) => self.tell(call),
            Message::Launch(fiber) => {
                let Fiber::Sent(property) = self.fibers[fiber] else { unreachable!() };
                self.fibers[fiber] = Fiber::InLine(property);
                // As `wait_for_value`.
                if self.trustees[at].latch(property).is_free() {
                    self.hold(fiber, property);
                } else {
                    At(self, at).stand_in_line(property, Waiter::Fiber(fiber));
                }
            }
            Message::Borrow(call) => {
                let (property, client) = (self.wanted(call), self.trustees[from].id);
                let part = self.part(property, 0);
                if self.trustees[at].latch(property).is_poisoned {
                    self.respond(at, from, Response::Lent(call, false));
                } else if At(self, at).borrow(&part, client).is_some() {
                    self.respond(at, from, Response::Lent(call, true));
                } else {
                    At(self, at).stand_in_line(property, Waiter::Share { to: client, who: call });
                }
            }
            Message::Granted(call, is_lent) => self.lent(call, is_lent),
            Message::GiveBack(call, property, has_panicked) => {
                let part = self.part(property, 0);
                if has_panicked {
                    self.trustees[at].latch(property).is_poisoned = true;
                }
                At(self, at).release(&part, has_panicked);
                self.respond(at, from, Response::GivenBack(call, property, true));
            }
            Message::Forget(lender, property) => {
                self.trustees[at].spoiled.remove(&(lender, property));
                self.respond(at, from, Response::Forgotten(property));
            }
            Message::Count(property, change) => self.count_here(at, property, change),
        }
    }

    /// Returns the property of which a borrowing call wants a share.
    fn wanted(&self, call: usize) -> usize {
        self.calls[call].order[self.calls[call].taken]
    }

    /// Refuses a request to a trustee that has ended; thread `by` drops its contents.
    pub(super) fn refuse_request(&mut self, from: usize, to: usize, message: Message, by: usize) {
        match message {
            Message::Arrive(call) => self.respond(to, from, Response::Refused(call)),
            Message::Home(call) => {
                // As `Homeward::lost`.
                let mut route = self.route(call);
                let gone = self.trustees[to].id;
                if by != to {
                    route.lose(gone, |part| self.release_orphan(part.property.addr()));
                    self.calls[call].taken = route.taken;
                }
                self.go_back(by, call);
            }
            Message::Tell(call) => self.tell(call),
            Message::Launch(fiber) => self.fibers[fiber] = Fiber::Done,
            Message::Borrow(call) => self.respond(to, from, Response::Lent(call, false)),
            Message::Granted(..) => unreachable!("who waits has not ended"),
            Message::GiveBack(call, property, _) => self.respond(to, from, Response::GivenBack(call, property, false)),
            Message::Forget(_, property) => self.respond(to, from, Response::Forgotten(property)),
            Message::Count(..) => {}
        }
    }

    /// Handles a response at its client.
    pub(super) fn resume(&mut self, at: usize, response: Response) {
        match response {
            Response::Returned(call) => self.go_back(at, call),
            Response::Refused(call) => {
                self.refuse(call);
                self.go_back(at, call);
            }
            Response::Lent(call, is_lent) => self.lent(call, is_lent),
            Response::GivenBack(call, property, is_there) => {
                if !is_there {
                    self.release_orphan(property);
                }
                let left = self.calls[call].gives_back.and_then(|left| left.checked_sub(1)).expect("it is awaited");
                self.calls[call].gives_back = Some(left);
                if left == 0 {
                    self.tell(call);
                }
            }
            Response::Forgotten(property) => {
                let part = self.part(property, 0);
                At(self, at).release(&part, false);
                if !self.trustees[at].is_ended {
                    self.count_here(at, property, -1);
                }
            }
        }
    }

    /// Continues the next call in the queue of deferred ones.
    pub(super) fn run_deferred(&mut self, at: usize) {
        let Some((call, is_lost)) = self.trustees[at].deferred.pop_front() else { return };
        if self.calls[call].gives_back.is_some() {
            // As `InLine::go_on`, of a client that borrows.
            let property = self.wanted(call);
            let is_lent = !is_lost && !self.trustees[at].latch(property).is_poisoned;
            if !is_lost && !is_lent {
                let part = self.part(property, 0);
                At(self, at).release(&part, false);
            }
            self.send(at, self.calls[call].of, Message::Granted(call, is_lent));
        } else if is_lost {
            self.go_back(at, call);
        } else {
            self.go_on(at, call);
        }
    }

    /// Takes the value for the fiber, which then waits for something else before it gives the value back.
    fn hold(&mut self, fiber: usize, property: usize) {
        let before = self.values.insert(property, Place::Fiber(fiber));
        assert_eq!(before, Some(Place::Latch), "fiber {fiber} takes {property}");
        self.trustees[self.homes[&property]].latch(property).is_there = false;
        self.fibers[fiber] = Fiber::Holds(property);
    }

    pub(super) fn run_fiber(&mut self, fiber: usize) {
        match self.fibers[fiber] {
            Fiber::Resumed(property) => {
                let home = self.homes[&property];
                let latch = self.trustees[home].latch(property);
                assert!(latch.is_there, "whose turn it is finds the value, unless the latch is replaced");
                latch.had_by(&[Waiter::Fiber(fiber)]);
                latch.line.end_turn();
                self.hold(fiber, property);
            }
            Fiber::Holds(property) => {
                let home = self.homes[&property];
                self.fibers[fiber] = Fiber::Done;
                assert_eq!(self.values[&property], Place::Fiber(fiber), "it holds it");
                At(self, home).put_back(property);
            }
            other => unreachable!("{other:?} runs"),
        }
    }

    pub(super) fn count_here(&mut self, at: usize, property: usize, change: i32) {
        let latch = self.trustees[at].latch(property);
        latch.trusts += change;
        if latch.trusts == 0 {
            assert!(latch.is_at_rest(), "{property} is freed while somebody has its value, or waits for it");
            self.drop_value(property);
        }
    }

    fn drop_value(&mut self, property: usize) {
        let before = self.values.insert(property, Place::Dropped);
        assert_ne!(before, Some(Place::Dropped), "{property} is dropped twice");
    }

    /// Gives back a share of a value of a trustee that has ended, or is about to.
    pub(super) fn release_orphan(&mut self, property: usize) {
        self.orphans.entry(property).or_default().release();
        self.drop_orphan(property);
    }

    fn drop_orphan(&mut self, property: usize) {
        if !self.orphans[&property].is_over() {
            return;
        }
        let loan = self.orphans.remove(&property).and_then(|orphan| orphan.into_loan());
        let loan = loan.expect("it is over");
        assert_eq!(self.values[&property], Place::Lent(loan.to), "an orphan is lent");
        self.drop_value(property);
        let (to, lender) = (self.thread(loan.to), self.trustees[self.homes[&property]].id);
        // The sender makes no difference here: nobody awaits the answer.
        self.trustees[to].spoiled.remove(&(lender, property));
    }

    /// Ends a thread, as `Worker::end`: its lines are abandoned, and its properties dropped.
    pub(super) fn end(&mut self, at: usize) {
        let latches = self.trustees[at].latches.clone();
        for (property, latch) in latches {
            let (loan, waiters) = std::mem::take(&mut self.trustees[at].latch(property).line).abandon();
            if let Some(loan) = loan {
                self.orphans.entry(property).or_default().abandon(loan);
                self.drop_orphan(property);
            } else if latch.trusts > 0 {
                self.drop_value(property);
            }
            for waiter in waiters {
                let Waiter::Share { who: call, .. } = waiter else { unreachable!("its fibers are at their ends") };
                if self.rule == Rule::Silent {
                    continue;
                }
                if self.calls[call].gives_back.is_none() {
                    self.calls[call].outcome = Some(Outcome::Refused);
                }
                self.trustees[at].deferred.push_back((call, true));
            }
        }
        while !self.trustees[at].deferred.is_empty() {
            self.run_deferred(at);
        }
        self.trustees[at].is_ended = true;
    }
}
