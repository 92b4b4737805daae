//! Questions to the other machines, how many requests their workers have made to a trustee of this one, before it
//! reclaims what nobody refers to (`property::reclaim`).
//!
//! The service thread asks for all trustees of its machine, in rounds. A round has the questions that there are when it
//! begins; it asks [`AT_ONCE`] machines at a time, and the next one when one of these has answered. The first question
//! begins a round at once; those that follow it soon wait for a timer, as rounds are [`TICK_MS`] apart. So questions of
//! many trustees go together, and a machine asks a thousand others a second at most, however many trustees and machines
//! there are and whatever they drop: in a large rack a property is reclaimed later instead.
//!
//! ```text
//! trustee          ask_for_numbers      Message::Census      to the service thread
//! service thread   begin_round          Census               to that of each other machine, one for each question
//!                  CensusAnswer         until all have answered
//! trustee          take_numbers         Message::Numbers     what each machine has said
//! ```
//!
//! A machine that is lost meanwhile is missing in the answer. Its trustee goes on waiting for it, until it hears of the
//! loss itself, and begins anew (`mark_old`).

#![allow(unsafe_code)] // requests are a promise

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Worker;
use super::reclaim::forward_counts;
use crate::deadline::deadline_after;
use crate::fiber::timer::Waiter;
use crate::ids::TrusteeId;
use crate::property::Header;
use crate::property::reclaim::{Answer, Question};
use crate::registry::{self, Message};
use crate::remote;
use crate::request::{Fault, Request, Response, Resuming, Serving, Target};

/// Machines that are asked at a time.
const AT_ONCE: usize = 4;
/// Milliseconds from one round to the next, for each other machine: a thousand of them are asked a second.
const TICK_MS: u64 = 1;

/// Questions at the service thread.
#[derive(Default)]
pub(crate) struct Questions {
    waiting: RefCell<Vec<Question>>,
    is_round: Cell<bool>,
    /// No round begins before.
    due: Cell<Option<Instant>>,
}

/// The questions that go together to each machine.
struct Round {
    questions: Vec<Question>,
    answers: RefCell<Vec<Answer>>,
    to_be_asked: RefCell<Vec<TrusteeId>>,
    /// Machines that were asked and have not answered.
    asked: Cell<usize>,
}

impl Worker {
    /// Asks all other machines for the numbers of their requests to this trustee.
    pub(super) fn ask_for_numbers(&self, reclamation: u64) {
        let question = Question { trustee: self.id, reclamation };
        match self.remote.service() {
            Some(service) if service != self.id => {
                // A service thread ends after all other threads of its machine.
                registry::with(service, |service| drop(service.send(Message::Census(question))));
            }
            _ => self.take_question(question),
        }
    }

    /// Service thread: takes a question of a trustee of its machine.
    pub(super) fn take_question(&self, question: Question) {
        self.questions.waiting.borrow_mut().push(question);
        self.begin_if_due();
    }

    /// Begins a round if there are questions, the last one is over, and it began long enough ago. Where it did not, a
    /// timer makes the worker look again.
    pub(super) fn begin_if_due(&self) {
        let Questions { waiting, is_round, due } = &self.questions;
        if is_round.get() || waiting.borrow().is_empty() {
            return;
        }
        match due.get() {
            Some(at) if at > Instant::now() => drop(self.timers.set(at, Waiter::default())),
            _ => {
                let others = self.remote.services().len() as u64;
                due.set(Some(deadline_after(Duration::from_millis(TICK_MS * others))));
                self.begin_round();
            }
        }
    }

    fn begin_round(&self) {
        let questions = self.questions.waiting.take();
        self.questions.is_round.set(true);
        let answer = |question: &Question| Answer { reclamation: question.reclamation, of_machines: Vec::new() };
        let round = Rc::new(Round {
            answers: RefCell::new(questions.iter().map(answer).collect()),
            questions,
            to_be_asked: RefCell::new(self.remote.services()),
            asked: Cell::new(0),
        });
        // Held until all are asked: one that is lost may answer at once.
        round.asked.set(1);
        while round.asked.get() <= AT_ONCE && self.ask_next(&round) {}
        self.end_if_answered(&round);
    }

    /// Asks one more machine. `false`: all were asked.
    fn ask_next(&self, round: &Rc<Round>) -> bool {
        // Lost ones are in no list of the carrier any more.
        let next = {
            let mut to_be_asked = round.to_be_asked.borrow_mut();
            std::iter::from_fn(|| to_be_asked.pop()).find(|service| !self.remote.is_lost(service.machine()))
        };
        let Some(service) = next else { return false };
        round.asked.set(round.asked.get() + 1);
        let left = Rc::new(Cell::new(round.questions.len()));
        for (at, question) in round.questions.iter().enumerate() {
            let answer = CensusAnswer { round: Rc::clone(round), service, at, left: Rc::clone(&left) };
            self.submit(service, ptr::null_mut(), Census { trustee: question.trustee }, answer, false);
        }
        true
    }

    /// A machine has answered all questions of the round.
    fn go_on(&self, round: &Rc<Round>) {
        self.ask_next(round);
        self.end_if_answered(round);
    }

    /// One fewer is asked; ends the round with the last one.
    fn end_if_answered(&self, round: &Round) {
        round.asked.set(round.asked.get() - 1);
        if round.asked.get() == 0 {
            round.end();
            self.questions.is_round.set(false);
            self.begin_if_due();
        }
    }

    /// Trustee: takes what the other machines have said.
    pub(super) fn take_numbers(&self, answer: &Answer) {
        self.property_table.note_numbers(self, answer);
        self.marks.set_aftermath(true);
    }
}

impl Round {
    /// Tells the trustees.
    fn end(&self) {
        for (question, answer) in self.questions.iter().zip(self.answers.take()) {
            // One that is gone has dropped its properties.
            registry::with(question.trustee, |trustee| drop(trustee.send(Message::Numbers(Box::new(answer)))));
        }
    }
}

/// Asks a machine, by its service thread, how many requests each of its workers has made to this trustee.
struct Census {
    trustee: TrusteeId,
}

impl Request for Census {
    const TARGET: Target = Target::Nothing;

    unsafe fn run(self, _property: *mut Header, serving: &mut Serving) {
        super::with(|worker| {
            // Counts noted by threads without links are included.
            forward_counts(worker);
            let numbers = remote::numbers_for(self.trustee);
            let words: Vec<u8> = numbers
                .iter()
                .flat_map(|&(worker, number)| [u64::from(worker), number])
                .flat_map(u64::to_ne_bytes)
                .collect();
            serving.out.put_bytes(&words);
        });
    }
}

/// Answer to a `Census`.
struct CensusAnswer {
    round: Rc<Round>,
    service: TrusteeId,
    /// Place of the question.
    at: usize,
    /// Answers of this machine that are still to come.
    left: Rc<Cell<usize>>,
}

impl Response for CensusAnswer {
    unsafe fn resume(self, resuming: &mut Resuming, fault: Option<Fault>) {
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let numbers_in = |bytes: &[u8]| -> Vec<(u16, u64)> {
            bytes.chunks_exact(16).map(|pair| (word(&pair[..8]) as u16, word(&pair[8..]))).collect()
        };
        // With a fault, its machine is lost.
        if fault.is_none() {
            // SAFETY: `Census` puts bytes.
            let numbers = unsafe { resuming.responses.take_bytes(numbers_in) };
            self.round.answers.borrow_mut()[self.at].of_machines.push((self.service, numbers));
        }
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            super::with(|worker| worker.go_on(&self.round));
        }
    }
}
