//! Member: one machine's part in the agreement on those that are lost.

use std::collections::BTreeSet;

use super::{Nonsense, ToCoordinator, ToMember};

/// Next step of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum MemberStep {
    /// Send a message to the coordinator.
    Send(ToCoordinator),
    /// Shut out this machine: nothing that it sends may arrive here any more. When that is so the driver calls
    /// [`Member::on_fenced`].
    Fence(u16),
    /// Answer the calls to this machine, now and later.
    Settle(u16),
}

/// See the file's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    own: u16,
    machines: u16,
    epoch: u32,
    /// Lost machines, by the newest epoch.
    dead: BTreeSet<u16>,
    /// Those of them that are not shut out yet.
    unfenced: BTreeSet<u16>,
    /// Those of them for whom calls are answered.
    settled: BTreeSet<u16>,
    /// Peers whose pair with this machine is broken, as was reported.
    reported: BTreeSet<u16>,
    beats: u64,
    answered: u64,
}

type Steps = Vec<MemberStep>;

impl Member {
    /// Makes the member for this machine of so many, all of which run.
    pub(crate) fn new(own: u16, machines: u16) -> Member {
        Member {
            own,
            machines,
            epoch: 0,
            dead: BTreeSet::new(),
            unfenced: BTreeSet::new(),
            settled: BTreeSet::new(),
            reported: BTreeSet::new(),
            beats: 0,
            answered: 0,
        }
    }

    /// Sends the next beat; the driver notes the time.
    pub(crate) fn beat(&mut self) -> ToCoordinator {
        self.beats += 1;
        ToCoordinator::Beat { number: self.beats }
    }

    /// Returns the number of the beat since whose sending the lease counts (lease from sending).
    pub(crate) fn lease(&self) -> u64 {
        self.answered
    }

    /// Handles a pair that is broken: the peer cannot be reached, or it closed the connection.
    pub(crate) fn on_broken(&mut self, peer: u16, steps: &mut Steps) {
        if !self.dead.contains(&peer) && self.reported.insert(peer) {
            steps.push(MemberStep::Send(ToCoordinator::Lost { peer }));
        }
    }

    /// Handles the end of [`MemberStep::Fence`].
    pub(crate) fn on_fenced(&mut self, machine: u16, steps: &mut Steps) {
        if self.unfenced.remove(&machine) && self.unfenced.is_empty() {
            steps.push(MemberStep::Send(ToCoordinator::Fenced { epoch: self.epoch }));
        }
    }

    /// Handles a message of the coordinator.
    ///
    /// # Errors
    /// If no coordinator sends that: this machine cannot go on.
    pub(crate) fn on_message(&mut self, message: &ToMember, steps: &mut Steps) -> Result<(), Nonsense> {
        match message {
            ToMember::Fence { epoch, dead } => {
                let dead: BTreeSet<u16> = dead.iter().copied().collect();
                let is_valid = |machine: u16| machine != 0 && machine != self.own && machine < self.machines;
                let grows = dead.len() > self.dead.len() && dead.is_superset(&self.dead);
                if *epoch != self.epoch + 1 || !grows || !dead.iter().all(|machine| is_valid(*machine)) {
                    return Err(Nonsense);
                }
                self.epoch = *epoch;
                for &machine in dead.difference(&self.dead) {
                    self.unfenced.insert(machine);
                    steps.push(MemberStep::Fence(machine));
                }
                self.dead = dead;
                Ok(())
            }
            ToMember::Settled { epoch } => {
                if *epoch != self.epoch || !self.unfenced.is_empty() || self.settled.len() == self.dead.len() {
                    return Err(Nonsense);
                }
                steps.extend(self.dead.difference(&self.settled).map(|machine| MemberStep::Settle(*machine)));
                self.settled.clone_from(&self.dead);
                Ok(())
            }
            ToMember::Answer { beat } => {
                if *beat <= self.answered || *beat > self.beats {
                    return Err(Nonsense);
                }
                self.answered = *beat;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(epoch: u32, dead: &[u16]) -> ToMember {
        ToMember::Fence { epoch, dead: dead.to_vec() }
    }

    #[test]
    fn a_member_reports_when_all_are_shut_out_and_settles_when_told() {
        let mut member = Member::new(1, 5);
        let mut steps = Vec::new();
        member.on_broken(3, &mut steps);
        member.on_broken(3, &mut steps);
        assert_eq!(steps, [MemberStep::Send(ToCoordinator::Lost { peer: 3 })], "once");
        steps.clear();
        member.on_message(&fence(1, &[3]), &mut steps).unwrap();
        member.on_message(&fence(2, &[2, 3]), &mut steps).unwrap();
        member.on_broken(2, &mut steps);
        assert_eq!(steps, [MemberStep::Fence(3), MemberStep::Fence(2)], "and no report about the dead");
        assert_eq!(member.on_message(&ToMember::Settled { epoch: 2 }, &mut steps), Err(Nonsense), "too early");
        steps.clear();
        member.on_fenced(3, &mut steps);
        assert_eq!(steps, []);
        member.on_fenced(2, &mut steps);
        assert_eq!(steps, [MemberStep::Send(ToCoordinator::Fenced { epoch: 2 })]);
        steps.clear();
        member.on_message(&ToMember::Settled { epoch: 2 }, &mut steps).unwrap();
        assert_eq!(steps, [MemberStep::Settle(2), MemberStep::Settle(3)]);
        steps.clear();
        member.on_message(&fence(3, &[2, 3, 4]), &mut steps).unwrap();
        member.on_fenced(4, &mut steps);
        member.on_message(&ToMember::Settled { epoch: 3 }, &mut steps).unwrap();
        assert_eq!(steps.last(), Some(&MemberStep::Settle(4)), "each once");
    }

    #[test]
    fn messages_that_no_coordinator_sends_are_refused() {
        let mut member = Member::new(1, 4);
        member.on_message(&fence(1, &[3]), &mut Vec::new()).unwrap();
        let nonsense = [
            fence(1, &[2, 3]),
            fence(3, &[2, 3]),
            fence(2, &[2]),
            fence(2, &[3]),
            fence(2, &[1, 3]),
            fence(2, &[0, 3]),
            fence(2, &[3, 4]),
            ToMember::Settled { epoch: 1 },
            ToMember::Settled { epoch: 2 },
            ToMember::Answer { beat: 1 },
        ];
        for message in nonsense {
            let before = member.clone();
            assert_eq!(member.on_message(&message, &mut Vec::new()), Err(Nonsense), "{message:?}");
            assert_eq!(member, before);
        }
    }
}
