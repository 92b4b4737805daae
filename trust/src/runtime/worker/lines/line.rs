//! The line of one latched value: its waiters, and the trustee it is lent to. It touches neither values nor workers, so
//! the models of `tasks/together/model.rs` try all orders of events with this very code.

use std::collections::VecDeque;

use crate::ids::TrusteeId;

/// A waiter for a latched value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Waiter<F, S> {
    /// Takes the value itself, when it is resumed.
    Fiber(F),
    /// Waits for a share of it, for closures at this trustee.
    Share { to: TrusteeId, who: S },
}

/// A value that is out of its latch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Loan<V> {
    pub(crate) to: TrusteeId,
    shares: usize,
    pub(crate) value: V,
    /// A closure has panicked there; the trustee keeps the record until it is notified that there are no shares any
    /// more.
    is_spoiled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Line<F, S, V> {
    waiters: VecDeque<Waiter<F, S>>,
    loan: Option<Loan<V>>,
    /// A fiber whose turn it is has been resumed, and has not tried yet.
    is_turn: bool,
}

impl<F, S, V> Default for Line<F, S, V> {
    fn default() -> Self {
        Line { waiters: VecDeque::new(), loan: None, is_turn: false }
    }
}

/// Result of giving a share back.
#[must_use]
pub(crate) enum Returned<V> {
    /// The value is not lent.
    Unknown,
    /// There are other shares still.
    Shared,
    /// It was the last share of a value on which a closure has panicked: the value is kept until the caller has asked
    /// that trustee to forget the panic.
    Spoiled(TrusteeId),
    /// It was the last share: the value is to go back to its latch.
    Last(V),
}

/// Next turn when the value is back.
#[must_use]
pub(crate) enum Turn<F> {
    /// A fiber or trustee has the value, or is about to.
    Taken,
    /// There are no waiters.
    Over,
    /// This fiber is to try.
    Fiber(F),
    /// Calls that go to this trustee: [`Line::grant`].
    Shares(TrusteeId),
}

impl<F: Copy + PartialEq, S, V: Copy> Line<F, S, V> {
    pub(crate) fn is_over(&self) -> bool {
        self.waiters.is_empty() && self.loan.is_none() && !self.is_turn
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Waiter<F, S>> {
        self.waiters.iter()
    }

    pub(crate) fn push(&mut self, waiter: Waiter<F, S>) {
        self.waiters.push_back(waiter);
    }

    /// Next waiter, unless the value is out or about to be.
    pub(crate) fn next(&self) -> Option<&Waiter<F, S>> {
        if self.is_turn || self.loan.is_some() { None } else { self.waiters.front() }
    }

    /// Puts a fiber whose turn brought no value at the front again.
    pub(crate) fn push_first(&mut self, fiber: F) {
        self.is_turn = false;
        self.waiters.push_front(Waiter::Fiber(fiber));
    }

    /// Takes this fiber out of the line. False if it is not in line: its turn had come.
    pub(crate) fn leave(&mut self, fiber: F) -> bool {
        let is_it = |waiter: &Waiter<F, S>| matches!(waiter, Waiter::Fiber(other) if *other == fiber);
        let place = self.waiters.iter().position(is_it);
        place.is_some_and(|place| self.waiters.remove(place).is_some())
    }

    /// Ends a fiber's turn: it has the value.
    pub(crate) fn end_turn(&mut self) {
        self.is_turn = false;
    }

    /// Notes that the value was taken from its latch, and the number of closures at this trustee that share it.
    pub(crate) fn lend(&mut self, to: TrusteeId, value: V, shares: usize) {
        debug_assert!(self.loan.is_none() && !self.is_turn, "somebody has it");
        self.loan = Some(Loan { to, shares, value, is_spoiled: false });
    }

    /// Takes a further share, if the value is lent to that trustee and there are no waiters before
    /// [waiter-before-share].
    pub(crate) fn share(&mut self, to: TrusteeId) -> Option<V> {
        let loan = self.loan.as_mut().filter(|loan| loan.to == to && self.waiters.is_empty())?;
        loan.shares += 1;
        Some(loan.value)
    }

    /// Gives a share back.
    pub(crate) fn release(&mut self, is_spoiled: bool) -> Returned<V> {
        let Some(loan) = &mut self.loan else { return Returned::Unknown };
        loan.is_spoiled |= is_spoiled;
        if loan.shares > 1 {
            loan.shares -= 1;
            return Returned::Shared;
        }
        if std::mem::take(&mut loan.is_spoiled) {
            return Returned::Spoiled(loan.to);
        }
        let value = loan.value;
        self.loan = None;
        Returned::Last(value)
    }

    /// Returns the next turn, now that the value is back in its latch.
    pub(crate) fn turn(&mut self) -> Turn<F> {
        if self.is_turn || self.loan.is_some() {
            return Turn::Taken;
        }
        match self.waiters.front() {
            None => Turn::Over,
            Some(&Waiter::Fiber(fiber)) => {
                self.is_turn = true;
                self.waiters.pop_front();
                Turn::Fiber(fiber)
            }
            Some(&Waiter::Share { to, .. }) => Turn::Shares(to),
        }
    }

    /// The first waiter, if it waits for a share.
    pub(crate) fn first_share(&self) -> Option<&S> {
        match self.waiters.front() {
            Some(Waiter::Share { who, .. }) => Some(who),
            _ => None,
        }
    }

    /// Lends the value, taken again: each call that goes to this trustee gets a share of it, up to the first fiber.
    pub(crate) fn grant(&mut self, to: TrusteeId, value: V, mut granted: impl FnMut(S)) {
        let (mut place, mut shares) = (0, 0);
        while let Some(Waiter::Share { to: other, .. }) = self.waiters.get(place) {
            if *other != to {
                place += 1;
            } else if let Some(Waiter::Share { who, .. }) = self.waiters.remove(place) {
                granted(who);
                shares += 1;
            }
        }
        self.lend(to, value, shares);
    }

    /// The trustee ends: returns the loan, and the waiters, which would wait for ever.
    pub(crate) fn abandon(self) -> (Option<Loan<V>>, VecDeque<Waiter<F, S>>) {
        (self.loan, self.waiters)
    }
}

/// A value whose trustee has ended while it was lent: dropped with the last share, on whichever thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Orphan<V> {
    /// None before the trustee has abandoned it: it takes no requests any more by then, but may not have come so far.
    loan: Option<Loan<V>>,
    /// Shares of it that were given back.
    released: usize,
}

impl<V> Default for Orphan<V> {
    fn default() -> Self {
        Orphan { loan: None, released: 0 }
    }
}

impl<V> Orphan<V> {
    pub(crate) fn abandon(&mut self, loan: Loan<V>) {
        self.loan = Some(loan);
    }

    pub(crate) fn release(&mut self) {
        self.released += 1;
    }

    /// Are there no shares of it any more?
    pub(crate) fn is_over(&self) -> bool {
        self.loan.as_ref().is_some_and(|loan| loan.shares == self.released)
    }

    pub(crate) fn into_loan(self) -> Option<Loan<V>> {
        self.loan
    }
}
