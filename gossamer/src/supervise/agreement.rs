//! Agreement on lost machines, as the supervisor drives it: the coordinator of `membership` with the clock and the
//! messages of the control protocol. Not here: the causes of losses, and the orders (`supervisor`).

use std::time::{Duration, Instant};
use trust::link::later;

use crate::control::Message;
use crate::membership::{Coordinator, CoordinatorStep, Nonsense, Timer, ToCoordinator, ToMember};

/// Wait for a better cause than reports of broken pairs.
const EVIDENCE: Duration = Duration::from_millis(300);
/// Limit for all living machines to shut out the lost ones.
pub(super) const FENCE: Duration = Duration::from_secs(2);

/// Result of a decision.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Send a message to a machine.
    Tell(u16, Message),
    /// This machine is lost; it is to be ended.
    Lost(u16),
    /// The program ends by the loss of this machine.
    End(u16),
}

/// See the file's documentation.
#[derive(Debug)]
pub(super) struct Agreement {
    coordinator: Coordinator,
    timers: Vec<(Instant, Timer)>,
    /// Time of the last answer to a beat of each machine; at first that of the start.
    answered: Vec<Instant>,
    /// Ends of the leases of lost machines.
    leases: Vec<(Instant, u16)>,
    lease: Duration,
}

impl Agreement {
    /// Begins, for so many machines, all of which are ready, of which so many may be lost. A machine ends itself when
    /// no beat was answered for `silence`.
    pub(super) fn new(machines: u16, survives: u16, silence: Duration, now: Instant) -> Agreement {
        Agreement {
            coordinator: Coordinator::new(machines, survives),
            timers: Vec::new(),
            answered: vec![now; usize::from(machines)],
            leases: Vec::new(),
            // The clocks of two hosts may run at different speeds.
            lease: silence.saturating_add(silence / 10),
        }
    }

    /// Returns whether this machine is lost.
    pub(super) fn is_lost(&self, machine: u16) -> bool {
        self.coordinator.is_dead(machine)
    }

    /// Handles certain evidence of a machine's death.
    pub(super) fn on_death(&mut self, machine: u16, now: Instant) -> Vec<Act> {
        self.decide(now, |coordinator, steps| coordinator.on_death(machine, steps))
    }

    /// Handles the end of a machine's process.
    pub(super) fn on_gone(&mut self, machine: u16, now: Instant) -> Vec<Act> {
        self.leases.retain(|(_, lost)| *lost != machine);
        self.decide(now, |coordinator, steps| coordinator.on_gone(machine, steps))
    }

    /// Handles a message of the agreement.
    ///
    /// # Errors
    /// If it makes no sense now.
    pub(super) fn on_message(&mut self, from: u16, message: &Message, now: Instant) -> Result<Vec<Act>, Nonsense> {
        let message = match *message {
            Message::Lost { machine, .. } => ToCoordinator::Lost { peer: machine },
            Message::Fenced { epoch } => ToCoordinator::Fenced { epoch },
            Message::Beat { number } => ToCoordinator::Beat { number },
            _ => return Err(Nonsense),
        };
        let mut result = Ok(());
        let acts = self.decide(now, |coordinator, steps| result = coordinator.on_message(from, &message, steps));
        result.map(|()| acts)
    }

    /// Handles the passing of time: the timer that is over, if one is.
    pub(super) fn on_time(&mut self, now: Instant) -> Option<(Timer, Vec<Act>)> {
        let at = self.timers.iter().position(|(at, _)| *at <= now)?;
        let (_, timer) = self.timers.swap_remove(at);
        Some((timer, self.decide(now, |coordinator, steps| coordinator.on_timer(timer, steps))))
    }

    /// Handles the passing of time: the end of a lost machine's lease, if one is over.
    pub(super) fn on_lease(&mut self, now: Instant) -> Option<Vec<Act>> {
        let (_, machine) = *self.leases.iter().find(|(at, _)| *at <= now)?;
        Some(self.on_gone(machine, now))
    }

    /// Returns when time is to be told next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let timers = self.timers.iter().map(|(at, _)| *at);
        timers.chain(self.leases.iter().map(|(at, _)| *at)).min()
    }

    fn decide(&mut self, now: Instant, act: impl FnOnce(&mut Coordinator, &mut Vec<CoordinatorStep>)) -> Vec<Act> {
        let mut steps = Vec::new();
        act(&mut self.coordinator, &mut steps);
        steps.into_iter().filter_map(|step| self.carry_out(step, now)).collect()
    }

    fn carry_out(&mut self, step: CoordinatorStep, now: Instant) -> Option<Act> {
        match step {
            CoordinatorStep::Send { to, message: ToMember::Answer { beat } } => {
                if let Some(answered) = self.answered.get_mut(usize::from(to)) {
                    *answered = now;
                }
                Some(Act::Tell(to, Message::Answer { beat, has_begun: true }))
            }
            CoordinatorStep::Send { to, message: ToMember::Fence { epoch, dead } } => {
                Some(Act::Tell(to, Message::Fence { epoch, dead }))
            }
            CoordinatorStep::Send { to, message: ToMember::Settled { epoch } } => {
                Some(Act::Tell(to, Message::Settled { epoch }))
            }
            CoordinatorStep::Start(timer) => {
                let wait = match timer {
                    Timer::Evidence => EVIDENCE,
                    Timer::Fence(_) => FENCE,
                };
                self.timers.retain(|(_, other)| *other != timer);
                self.timers.push((later(now, wait), timer));
                None
            }
            CoordinatorStep::Dismiss { machine } => {
                let since = self.answered.get(usize::from(machine)).copied().unwrap_or(now);
                self.leases.push((later(since, self.lease), machine));
                Some(Act::Lost(machine))
            }
            CoordinatorStep::End { machine } => Some(Act::End(machine)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(5);

    #[test]
    fn a_lease_counts_from_the_last_answer_and_ends_later_than_the_machine() {
        let start = Instant::now();
        let mut agreement = Agreement::new(3, 1, SILENCE, start);
        let beat = start + Duration::from_secs(3);
        let answer = vec![Act::Tell(2, Message::Answer { beat: 1, has_begun: true })];
        assert_eq!(agreement.on_message(2, &Message::Beat { number: 1 }, beat), Ok(answer));
        let acts = agreement.on_death(2, beat + Duration::from_secs(1));
        let fence = |to| Act::Tell(to, Message::Fence { epoch: 1, dead: vec![2] });
        assert_eq!(acts, [Act::Lost(2), fence(0), fence(1)]);
        for machine in [0, 1] {
            assert_eq!(agreement.on_message(machine, &Message::Fenced { epoch: 1 }, beat), Ok(vec![]));
        }
        assert_eq!(agreement.on_message(2, &Message::Beat { number: 2 }, beat), Ok(vec![]), "no answer to the lost");
        assert_eq!(agreement.on_lease(beat + SILENCE), None);
        let settled = |to| Act::Tell(to, Message::Settled { epoch: 1 });
        let over = agreement.on_lease(beat + SILENCE + SILENCE / 10);
        assert_eq!(over, Some(vec![settled(0), settled(1)]));
    }

    #[test]
    fn the_end_of_the_process_settles_before_the_lease_is_over() {
        let start = Instant::now();
        let mut agreement = Agreement::new(2, 1, SILENCE, start);
        assert_eq!(agreement.on_gone(1, start)[0], Act::Lost(1));
        let settled = vec![Act::Tell(0, Message::Settled { epoch: 1 })];
        assert_eq!(agreement.on_message(0, &Message::Fenced { epoch: 1 }, start), Ok(settled));
        assert_eq!(agreement.on_time(start + FENCE), Some((Timer::Fence(1), vec![])), "it was in time");
        assert_eq!(agreement.deadline(), Some(start + SILENCE + SILENCE / 10));
        assert_eq!(agreement.on_lease(start + 2 * SILENCE), Some(vec![]), "and nothing comes of it");
        assert_eq!(agreement.deadline(), None);
    }

    #[test]
    fn messages_that_are_none_of_the_agreement_are_nonsense() {
        let mut agreement = Agreement::new(2, 1, SILENCE, Instant::now());
        let nonsense = [Message::Finished { status: 0 }, Message::Fenced { epoch: 1 }, Message::Settled { epoch: 1 }];
        for message in nonsense {
            assert_eq!(agreement.on_message(1, &message, Instant::now()), Err(Nonsense), "{message:?}");
        }
    }
}
