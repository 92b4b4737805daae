//! Trustee of the model, as calls see it: the real lines of its properties, and the places of their values.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ptr::NonNull;

use super::{Fiber, Message, Place, Rule, World};
use crate::ids::TrusteeId;
use crate::runtime::worker::lines::line::{self, Returned, Turn};
use crate::tasks::together::Part;
use crate::tasks::together::route::Lender;

pub(super) type Waiter = line::Waiter<usize, usize>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Latch {
    pub(super) is_there: bool,
    pub(super) is_poisoned: bool,
    /// Number of trusts; at 0 the property is freed.
    pub(super) trusts: i32,
    pub(super) line: line::Line<usize, usize, usize>,
    /// Waiters that have asked and have not had the value, in order.
    waiting: Vec<Waiter>,
}

impl Latch {
    pub(super) fn new(trusts: i32) -> Latch {
        Latch { is_there: true, is_poisoned: false, trusts, line: line::Line::default(), waiting: Vec::new() }
    }

    /// Returns whether there is a waiter, a turn or a loan.
    fn has_line(&self) -> bool {
        !self.line.is_over()
    }

    pub(super) fn is_free(&self) -> bool {
        self.is_there && !self.has_line()
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.is_free() && self.waiting.is_empty()
    }

    /// Checks that these waiters may have the value at the same time: the first in line is among them, and no fiber is
    /// overtaken.
    pub(super) fn had_by(&mut self, these: &[Waiter]) {
        assert!(these.contains(&self.waiting[0]), "{these:?} have it before {:?}", self.waiting);
        let last = self.waiting.iter().rposition(|waiter| these.contains(waiter)).unwrap_or(0);
        let overtaken = self.waiting[..last].iter().filter(|waiter| !these.contains(waiter));
        assert!(
            overtaken.clone().all(|it| matches!(it, Waiter::Share { .. })),
            "{these:?} overtake {:?}",
            self.waiting
        );
        self.waiting.retain(|waiter| !these.contains(waiter));
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Trustee {
    pub(super) id: TrusteeId,
    pub(super) is_ended: bool,
    pub(super) latches: BTreeMap<usize, Latch>,
    /// Values lent to it on which a closure has panicked.
    pub(super) spoiled: BTreeSet<(TrusteeId, usize)>,
    /// Calls that are to continue, or to go back because they are lost.
    pub(super) deferred: VecDeque<(usize, bool)>,
}

impl Trustee {
    /// Returns a property that is not freed.
    pub(super) fn latch(&mut self, property: usize) -> &mut Latch {
        let latch = self.latches.get_mut(&property).expect("it is one of its own");
        assert!(latch.trusts > 0 && !self.is_ended, "{property} is followed, and is freed");
        latch
    }

    /// Returns how often this call is here.
    pub(super) fn places_of(&self, call: usize) -> usize {
        let is_it = |waiter: &&Waiter| matches!(waiter, Waiter::Share { who, .. } if *who == call);
        let in_lines = self.latches.values().map(|latch| latch.line.waiters().filter(is_it).count());
        in_lines.sum::<usize>() + self.deferred.iter().filter(|(other, _)| *other == call).count()
    }
}

/// One thread of the world.
pub(super) struct At<'w>(pub(super) &'w mut World, pub(super) usize);

impl At<'_> {
    pub(super) fn stand_in_line(&mut self, property: usize, waiter: Waiter) {
        let is_overtaking = self.0.rule == Rule::Overtaking;
        let latch = self.latch(property);
        latch.waiting.push(waiter.clone());
        match waiter {
            Waiter::Fiber(fiber) if is_overtaking => latch.line.push_first(fiber),
            waiter => latch.line.push(waiter),
        }
    }

    fn latch(&mut self, property: usize) -> &mut Latch {
        self.0.trustees[self.1].latch(property)
    }

    /// Same as `Lines::let_next`, when the value is back.
    pub(super) fn put_back(&mut self, property: usize) {
        self.0.values.insert(property, Place::Latch);
        let latch = self.latch(property);
        latch.is_there = true;
        match latch.line.turn() {
            Turn::Taken | Turn::Over => {}
            Turn::Fiber(fiber) => self.0.fibers[fiber] = Fiber::Resumed(property),
            Turn::Shares(to) => {
                let (mut granted, mut these) = (Vec::new(), Vec::new());
                latch.is_there = false;
                latch.line.grant(to, property, |who| {
                    granted.push(who);
                    these.push(Waiter::Share { to, who });
                });
                latch.had_by(&these);
                self.0.values.insert(property, Place::Lent(to));
                for call in granted {
                    // As `CallerVtable::granted`.
                    if self.0.calls[call].gives_back.is_none() {
                        self.0.calls[call].taken += 1;
                    }
                    self.0.trustees[self.1].deferred.push_back((call, false));
                }
            }
        }
    }
}

impl Lender for At<'_> {
    fn id(&self) -> TrusteeId {
        self.0.trustees[self.1].id
    }

    fn home(&self) -> TrusteeId {
        let trustee = &self.0.trustees[self.1];
        if trustee.is_ended { TrusteeId::NOBODY } else { trustee.id }
    }

    fn is_poisoned(&self, part: &Part) -> bool {
        let latch = &self.0.trustees[self.1].latches[&part.property.addr()];
        assert!(latch.trusts > 0, "it is looked at, and is freed");
        latch.is_poisoned
    }

    fn is_spoiled(&self, part: &Part) -> bool {
        self.0.trustees[self.1].spoiled.contains(&(part.trustee, part.property.addr()))
    }

    fn free(&self, part: &Part) -> Option<NonNull<()>> {
        let latch = &self.0.trustees[self.1].latches[&part.property.addr()];
        latch.is_free().then_some(part.value)
    }

    /// Same as `Lines::borrow`.
    fn borrow(&mut self, part: &Part, to: TrusteeId) -> Option<NonNull<()>> {
        let property = part.property.addr();
        let latch = self.latch(property);
        if latch.is_free() {
            assert!(latch.waiting.is_empty(), "it is had before {:?}", latch.waiting);
            latch.line.lend(to, property, 1);
            latch.is_there = false;
            let before = self.0.values.insert(property, Place::Lent(to));
            assert_eq!(before, Some(Place::Latch), "{property} is lent");
            return Some(part.value);
        }
        latch.line.share(to)?;
        assert!(latch.waiting.is_empty(), "it is had before {:?}", latch.waiting);
        Some(part.value)
    }

    fn poison(&mut self, part: &Part, _: &(dyn Any + Send)) {
        self.latch(part.property.addr()).is_poisoned = true;
    }

    /// Same as `release` and `Lines::release`.
    fn release(&mut self, part: &Part, is_spoiled: bool) {
        let property = part.property.addr();
        if self.home() != self.id() {
            return self.0.release_orphan(property);
        }
        let is_early = self.0.rule == Rule::ReturnedEarly;
        match self.latch(property).line.release(is_spoiled) {
            Returned::Shared if is_early => self.put_back(property),
            Returned::Shared => {}
            Returned::Unknown => self.0.release_orphan(property),
            Returned::Last(_) => self.put_back(property),
            Returned::Spoiled(to) => {
                let (lender, to) = (self.id(), self.0.thread(to));
                self.latch(property).trusts += 1;
                self.0.send(self.1, to, Message::Forget(lender, property));
            }
        }
    }
}
