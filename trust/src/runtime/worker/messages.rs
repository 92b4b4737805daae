//! Messages and calls in the worker's inbox, which come from threads without slots.

#![allow(unsafe_code)]

use std::collections::VecDeque;

use super::{Worker, reclaim, report};
use crate::registry::{Calls, Message};
use crate::request::Host;
use crate::unwind::quietly;

impl Worker {
    /// Handles the messages in the inbox.
    pub(crate) fn read_messages(&self) -> bool {
        if !self.shared.has_messages() {
            return false;
        }
        self.mark_busy();
        let (calls, messages) = self.shared.take_messages();
        self.run_calls(calls);
        self.handle_all(messages);
        self.forget_clients();
        true
    }

    /// Runs calls of threads without slots. Nothing is reclaimed meanwhile: calls still to come may be the last to need
    /// their property.
    pub(crate) fn run_calls(&self, calls: Calls) {
        if !self.in_aftermath.replace(true) {
            // A panic of dropped captures has been reported already.
            for call in calls {
                quietly(|| call.run());
            }
            return self.in_aftermath.set(false);
        }
        // In the middle of a reclamation no closure runs: later, and each with a trust of its property up to then.
        for call in calls {
            let property = call.property();
            // SAFETY: live: the sender of the call had a trust of it.
            let count = move |worker: &Worker, delta| unsafe { worker.count(property, delta) };
            if !property.is_null() {
                count(self, 1);
            }
            self.defer(Box::new(move || {
                quietly(|| call.run());
                if !property.is_null() {
                    super::with(|worker| count(worker, -1));
                }
            }));
        }
    }

    /// Handles messages. Nothing is reclaimed meanwhile: messages still to come may count a trust (`reclaim.rs`).
    pub(crate) fn handle_all(&self, messages: VecDeque<Message>) {
        let before = self.in_aftermath.replace(true);
        for message in messages {
            self.handle(message);
        }
        self.in_aftermath.set(before);
    }

    fn handle(&self, message: Message) {
        match message {
            Message::Client(client, pair) => self.accept(client, pair),
            Message::Ready(fiber) => self.scheduler.ready(fiber),
            Message::Spawn(entry) => self.start_fiber(entry.run, None, entry.origin, entry.whom),
            Message::Run(run) => self.defer(Box::new(move || super::with(|worker| worker.delegated(run)))),
            // SAFETY: the trust that this is about keeps the property until its count says otherwise [property-live].
            Message::Count(property, delta) => unsafe { self.count(property.0, delta) },
            Message::Adopt(property) => self.adopt_from_elsewhere(property.0),
            Message::Forward => reclaim::forward_counts(self),
            Message::Census(question) => self.take_question(question),
            Message::Numbers(answer) => self.take_numbers(&answer),
            Message::Probe(probe) => probe.answer(),
            Message::Report => report::answer(self),
            Message::Abort(whom) => self.abort(whom),
            Message::Interrupt(fiber, wait, why) => {
                self.scheduler.interrupt(fiber, wait, why);
            }
            Message::Nudge => {}
        }
    }
}
