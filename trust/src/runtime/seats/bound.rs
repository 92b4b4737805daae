//! Reasons why a trustee stays with its worker.

use std::fmt;

use crate::runtime::worker::Worker;

/// Reason why a trustee does not move: something in it belongs to the thread that runs it. All of them but values go by
/// themselves.
///
/// ```
/// assert_eq!(trust::Bound::Fibers.to_string(), "fibers of launched closures");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Bound {
    /// Values that were made on its thread and are not known to be [`Send`].
    Values,
    /// Fibers: of closures that were launched on its properties, or spawned by them.
    Fibers,
    /// Requests that its own closures have made, and whose callbacks have not run.
    Answers,
    /// Sockets that its fibers have used.
    Sockets,
    /// Clients on other machines.
    Machines,
}

impl Bound {
    const ALL: [Bound; 5] = [Bound::Values, Bound::Fibers, Bound::Answers, Bound::Sockets, Bound::Machines];

    pub(super) fn from_number(number: u8) -> Option<Bound> {
        usize::from(number).checked_sub(1).and_then(|at| Self::ALL.get(at)).copied()
    }

    /// Its number, from 1 on.
    pub(super) fn number(self) -> u8 {
        self as u8 + 1
    }

    /// Does it last as long as the trustee?
    pub(crate) fn is_lasting(self) -> bool {
        matches!(self, Bound::Values | Bound::Sockets | Bound::Machines)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bound::Values => "values that are not known to be `Send`",
            Bound::Fibers => "fibers of launched closures",
            Bound::Answers => "answers to come",
            Bound::Sockets => "sockets",
            Bound::Machines => "clients on other machines",
        })
    }
}

impl Worker {
    /// Returns why this worker, between two turns, has to stay on its thread: see [seat-settled] in `mod.rs`.
    pub(super) fn why_bound(&self) -> Option<Bound> {
        let reasons = [
            (Bound::Values, self.has_bound_values()),
            (Bound::Fibers, self.scheduler.live() > 0),
            (Bound::Sockets, self.reactor.is_active()),
            (Bound::Machines, self.remote.is_attached()),
            (Bound::Answers, self.has_callbacks()),
        ];
        reasons.into_iter().find_map(|(reason, is_so)| is_so.then_some(reason))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_number_and_a_text_of_its_own() {
        let texts: std::collections::HashSet<_> = Bound::ALL.iter().map(Bound::to_string).collect();
        assert_eq!(texts.len(), Bound::ALL.len());
        assert!(Bound::ALL.iter().all(|&bound| Bound::from_number(bound.number()) == Some(bound)));
        assert_eq!((Bound::from_number(0), Bound::from_number(6)), (None, None));
    }
}
