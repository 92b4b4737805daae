//! Coordinator: decides that a machine is lost, and when the others may act on it.

use std::collections::BTreeSet;

use super::{Nonsense, ToCoordinator, ToMember};

/// Time that the driver measures for the coordinator, and reports by [`Coordinator::on_timer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// Wait for a better cause than the reports of broken pairs.
    Evidence,
    /// Limit for all living machines to fence this epoch.
    Fence(u32),
}

/// Next step of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CoordinatorStep {
    /// Send a message.
    Send { to: u16, message: ToMember },
    /// Start a timer. A second one of the same kind replaces the first.
    Start(Timer),
    /// End this machine, which is lost, if its host can be reached. The driver calls [`Coordinator::on_gone`] when its
    /// process has ended or its lease is over.
    Dismiss { machine: u16 },
    /// End the program: this machine is lost, and that is one too many, or it is machine 0. The last step.
    End { machine: u16 },
}

/// One machine, as the coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Seat {
    is_dead: bool,
    /// Its process has ended, or its lease is over.
    is_gone: bool,
    /// Last epoch that it has fenced.
    fenced: u32,
    /// Last beat that was answered.
    answered: u64,
}

/// See the file's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Coordinator {
    seats: Vec<Seat>,
    /// Number of machines that may be lost.
    survives: u16,
    epoch: u32,
    settled: u32,
    /// Pairs of living machines of which one has reported that they are broken, the lower number first.
    broken: BTreeSet<(u16, u16)>,
    is_over: bool,
}

type Steps = Vec<CoordinatorStep>;

impl Coordinator {
    /// Makes the coordinator of so many machines, all of which run, of which so many may be lost.
    pub(crate) fn new(machines: u16, survives: u16) -> Coordinator {
        let seats = vec![Seat::default(); usize::from(machines)];
        Coordinator { seats, survives, epoch: 0, settled: 0, broken: BTreeSet::new(), is_over: false }
    }

    /// Returns whether this machine was declared dead.
    pub(crate) fn is_dead(&self, machine: u16) -> bool {
        self.seats.get(usize::from(machine)).is_some_and(|seat| seat.is_dead)
    }

    /// Returns the number of the last beat of this machine that was answered: its lease counts from there.
    #[cfg(test)]
    pub(super) fn lease(&self, machine: u16) -> u64 {
        self.seats.get(usize::from(machine)).map_or(0, |seat| seat.answered)
    }

    /// Handles certain evidence: the end of a machine's process, its own report that it cannot go on, its silence.
    pub(crate) fn on_death(&mut self, machine: u16, steps: &mut Steps) {
        self.declare([machine], steps);
    }

    /// Handles the end of a machine's process, or of its lease. A machine that has not been declared dead is now.
    pub(crate) fn on_gone(&mut self, machine: u16, steps: &mut Steps) {
        self.declare([machine], steps);
        if let Some(seat) = self.seats.get_mut(usize::from(machine)) {
            seat.is_gone = true;
        }
        self.settle(steps);
    }

    /// Handles a message of a machine. Those of the dead are ignored.
    ///
    /// # Errors
    /// If no member sends that: it is to be declared dead.
    pub(crate) fn on_message(&mut self, from: u16, message: &ToCoordinator, steps: &mut Steps) -> Result<(), Nonsense> {
        let machines = self.seats.len();
        let seat = self.seats.get_mut(usize::from(from)).ok_or(Nonsense)?;
        if seat.is_dead || self.is_over {
            return Ok(());
        }
        match *message {
            ToCoordinator::Lost { peer } if peer == from || usize::from(peer) >= machines => Err(Nonsense),
            ToCoordinator::Lost { peer } => {
                // A report about one that is declared dead crossed its `Fence`.
                if !self.is_dead(peer) && self.broken.insert((from.min(peer), from.max(peer))) {
                    steps.push(CoordinatorStep::Start(Timer::Evidence));
                }
                Ok(())
            }
            ToCoordinator::Fenced { epoch } if epoch <= seat.fenced || epoch > self.epoch => Err(Nonsense),
            ToCoordinator::Fenced { epoch } => {
                seat.fenced = epoch;
                self.settle(steps);
                Ok(())
            }
            ToCoordinator::Beat { number } if number <= seat.answered => Err(Nonsense),
            ToCoordinator::Beat { number } => {
                seat.answered = number;
                steps.push(CoordinatorStep::Send { to: from, message: ToMember::Answer { beat: number } });
                Ok(())
            }
        }
    }

    /// Handles the end of a time.
    pub(crate) fn on_timer(&mut self, timer: Timer, steps: &mut Steps) {
        match timer {
            Timer::Evidence => {
                let accused = self.accused();
                self.declare(accused, steps);
            }
            Timer::Fence(epoch) if epoch == self.epoch => {
                let late: Vec<u16> = self.living().filter(|machine| self.seat(*machine).fenced < epoch).collect();
                self.declare(late, steps);
            }
            Timer::Fence(_) => {} // a newer epoch has a timer of its own
        }
    }

    /// Returns whether the end of this time could have an effect.
    #[cfg(test)]
    pub(super) fn awaits(&self, timer: Timer) -> bool {
        match timer {
            Timer::Evidence => !self.broken.is_empty(),
            Timer::Fence(epoch) => {
                epoch == self.epoch && self.living().any(|machine| self.seat(machine).fenced < epoch)
            }
        }
    }

    /// Returns the machines to blame for the broken pairs: as long as one is left, the machine with most of them, of
    /// several the last. Machine 0 is never blamed: its partner is.
    fn accused(&self) -> Vec<u16> {
        let mut broken = self.broken.clone();
        let mut accused = Vec::new();
        while !broken.is_empty() {
            let pairs_of = |machine: u16| broken.iter().filter(|(a, b)| machine == *a || machine == *b).count();
            let most = (1..self.seats.len() as u16).max_by_key(|machine| pairs_of(*machine));
            let Some(most) = most else { break };
            broken.retain(|(a, b)| most != *a && most != *b);
            accused.push(most);
        }
        accused
    }

    /// Declares those of these machines dead that are not so yet: a new epoch, or the end of the program.
    fn declare(&mut self, machines: impl IntoIterator<Item = u16>, steps: &mut Steps) {
        let before = self.epoch;
        for machine in machines {
            if self.is_over || self.is_dead(machine) || usize::from(machine) >= self.seats.len() {
                continue;
            }
            if machine == 0 || self.dead().count() >= usize::from(self.survives) {
                self.is_over = true;
                steps.push(CoordinatorStep::End { machine });
                return;
            }
            self.seats[usize::from(machine)].is_dead = true;
            self.epoch = before + 1;
            steps.push(CoordinatorStep::Dismiss { machine });
        }
        if self.epoch == before {
            return;
        }
        let seats = &self.seats;
        self.broken.retain(|(a, b)| !seats[usize::from(*a)].is_dead && !seats[usize::from(*b)].is_dead);
        let dead: Vec<u16> = self.dead().collect();
        for to in self.living() {
            let message = ToMember::Fence { epoch: self.epoch, dead: dead.clone() };
            steps.push(CoordinatorStep::Send { to, message });
        }
        steps.push(CoordinatorStep::Start(Timer::Fence(self.epoch)));
    }

    /// Settles the newest epoch as soon as it may be (settled after fences, and after the end).
    fn settle(&mut self, steps: &mut Steps) {
        let has_fenced = |machine: u16| self.seat(machine).fenced == self.epoch;
        if self.is_over
            || self.settled == self.epoch
            || !self.living().all(has_fenced)
            || !self.dead().all(|machine| self.seat(machine).is_gone)
        {
            return;
        }
        self.settled = self.epoch;
        let message = ToMember::Settled { epoch: self.epoch };
        steps.extend(self.living().map(|to| CoordinatorStep::Send { to, message: message.clone() }));
    }

    fn seat(&self, machine: u16) -> &Seat {
        &self.seats[usize::from(machine)]
    }

    fn living(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.seats).filter(|(_, seat)| !seat.is_dead).map(|(machine, _)| machine)
    }

    /// Iterates over the machines that were declared dead, in ascending order.
    pub(crate) fn dead(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.seats).filter(|(_, seat)| seat.is_dead).map(|(machine, _)| machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs = &'static [(u16, u16)];

    fn step<R>(act: impl FnOnce(&mut Steps) -> R) -> (R, Steps) {
        let mut steps = Vec::new();
        let result = act(&mut steps);
        (result, steps)
    }

    fn fences(steps: &Steps) -> Vec<(u16, Vec<u16>)> {
        let fence = |step: &CoordinatorStep| match step {
            CoordinatorStep::Send { to, message: ToMember::Fence { dead, .. } } => Some((*to, dead.clone())),
            _ => None,
        };
        steps.iter().filter_map(fence).collect()
    }

    fn lost(coordinator: &mut Coordinator, from: u16, peer: u16) {
        coordinator.on_message(from, &ToCoordinator::Lost { peer }, &mut Vec::new()).unwrap();
    }

    #[test]
    fn the_machine_of_most_broken_pairs_is_declared_dead() {
        // The pairs that are broken, and the machines that are blamed.
        let cases: [(Pairs, &[u16]); 6] = [
            (&[(1, 2)], &[2]),
            (&[(2, 1), (1, 3)], &[1]),
            (&[(0, 1)], &[1]),
            (&[(1, 0), (2, 0)], &[1, 2]),
            (&[(1, 2), (2, 1), (3, 2)], &[2]),
            (&[(1, 2), (3, 4)], &[2, 4]),
        ];
        for (pairs, blamed) in cases {
            let mut coordinator = Coordinator::new(5, 3);
            pairs.iter().for_each(|(from, peer)| lost(&mut coordinator, *from, *peer));
            assert_eq!(coordinator.dead().count(), 0, "it waits for a better cause");
            let ((), steps) = step(|steps| coordinator.on_timer(Timer::Evidence, steps));
            assert_eq!(coordinator.dead().collect::<Vec<_>>(), blamed, "{pairs:?}");
            assert!(fences(&steps).iter().all(|(to, dead)| dead == blamed && !blamed.contains(to)), "{steps:?}");
        }
    }

    #[test]
    fn a_death_explains_the_reports_before_it() {
        let mut coordinator = Coordinator::new(4, 3);
        lost(&mut coordinator, 1, 3);
        lost(&mut coordinator, 3, 2);
        coordinator.on_gone(3, &mut Vec::new());
        let ((), steps) = step(|steps| coordinator.on_timer(Timer::Evidence, steps));
        assert_eq!((steps, coordinator.dead().collect::<Vec<_>>()), (vec![], vec![3]));
    }

    #[test]
    fn one_loss_too_many_and_that_of_machine_0_end_the_program() {
        let mut coordinator = Coordinator::new(4, 1);
        coordinator.on_death(2, &mut Vec::new());
        assert_eq!(step(|steps| coordinator.on_death(2, steps)).1, [], "it is dead already");
        assert_eq!(step(|steps| coordinator.on_death(3, steps)).1, [CoordinatorStep::End { machine: 3 }]);
        assert_eq!(step(|steps| coordinator.on_death(1, steps)).1, [], "the end is the last step");
        let mut coordinator = Coordinator::new(4, 3);
        assert_eq!(step(|steps| coordinator.on_gone(0, steps)).1, [CoordinatorStep::End { machine: 0 }]);
    }

    #[test]
    fn messages_that_no_member_sends_are_refused() {
        let mut coordinator = Coordinator::new(3, 1);
        let nonsense = [
            (1, ToCoordinator::Lost { peer: 1 }),
            (1, ToCoordinator::Lost { peer: 3 }),
            (3, ToCoordinator::Lost { peer: 1 }),
            (1, ToCoordinator::Fenced { epoch: 0 }),
            (1, ToCoordinator::Fenced { epoch: 1 }),
            (1, ToCoordinator::Beat { number: 0 }),
        ];
        for (from, message) in nonsense {
            let before = coordinator.clone();
            assert_eq!(coordinator.on_message(from, &message, &mut Vec::new()), Err(Nonsense), "{message:?}");
            assert_eq!(coordinator, before);
        }
        coordinator.on_death(2, &mut Vec::new());
        let (result, steps) = step(|steps| coordinator.on_message(2, &ToCoordinator::Lost { peer: 1 }, steps));
        assert_eq!((result, steps), (Ok(()), vec![]), "what the dead say does not count");
    }
}
