//! Model for tests of the agreement: the coordinator, its members, an ordered channel each way between it and each of
//! them, and the world, which is as bad as it can be. Processes end at any time, pairs break, the coordinator takes
//! healthy machines for silent, every message and every timer takes as long as it likes. A machine that was declared
//! dead runs on until its process is ended or its lease is over.
//!
//! Machines of the same parity share a host, or each has its own. On a shared one a fence ends the lost machine's
//! process.
//!
//! [`Model::step`] reports these faults:
//! - a machine answers calls to a lost one while that can still reach a machine that is not lost by the same verdict,
//!   or while its lease lasts;
//! - two machines act on verdicts of which none is a part of the other;
//! - machine 0 is declared dead, or more machines than may be;
//! - the coordinator or a living member takes a message for nonsense.

use std::collections::{BTreeSet, VecDeque};

use super::{Coordinator, CoordinatorStep, Member, MemberStep, Timer, ToCoordinator, ToMember};

/// Most that the world may do to a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct World {
    pub(super) machines: u16,
    pub(super) survives: u16,
    /// Number of pairs that may break.
    pub(super) breaks: usize,
    /// Number of beats of the last machine; without any, leases are over as soon as a machine is declared dead.
    pub(super) beats: u64,
    /// Number of machines that may stand still for ever, unnoticed.
    pub(super) stalls: usize,
    /// Whether machines share hosts.
    pub(super) share_hosts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Machine {
    member: Member,
    has_ended: bool,
    /// The coordinator has learned of that.
    is_known: bool,
    /// The coordinator has ordered its end.
    is_dismissed: bool,
    is_stalled: bool,
    sent: VecDeque<ToCoordinator>,
    to_come: VecDeque<ToMember>,
    /// Machines that are being shut out here, and those that are.
    fencing: BTreeSet<u16>,
    fenced: BTreeSet<u16>,
    /// Machines the calls to which are answered here.
    settled: BTreeSet<u16>,
    beats: u64,
    /// Leases from beats up to this one are over.
    expired: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// The process ends.
    Ends(u16),
    /// The coordinator takes the machine for silent.
    Accused(u16),
    /// The pair breaks.
    Breaks(u16, u16),
    /// The first notices that its pair with the second is broken.
    Notices(u16, u16),
    Beats(u16),
    /// The machine stands still from now on.
    Stalls(u16),
    /// The coordinator receives the next message of this machine.
    AtCoordinator(u16),
    /// This machine receives the next message of the coordinator.
    AtMember(u16),
    /// The first has shut out the second.
    Fenced(u16, u16),
    /// The coordinator learns that the process has ended.
    Known(u16),
    /// The lease of the next beat of this machine is over.
    Expires(u16),
    /// The coordinator learns that the lease of this machine, which is dead, is over.
    LeaseOver(u16),
    /// Its lease is over, and the machine ends itself.
    GivesUp(u16),
    Timer(Timer),
}

/// State of the program and of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Model {
    share_hosts: bool,
    coordinator: Coordinator,
    machines: Vec<Machine>,
    timers: BTreeSet<Timer>,
    /// Dead machines whose end the coordinator knows, by process or lease.
    gone: BTreeSet<u16>,
    broken: BTreeSet<(u16, u16)>,
    noticed: BTreeSet<(u16, u16)>,
    pub(super) is_over: bool,
}

macro_rules! must {
    ($holds:expr, $($words:tt)+) => {
        if !$holds { return Err(format!($($words)+)); }
    };
}

impl Model {
    pub(super) fn new(world: World) -> Model {
        let machine = |own| Machine {
            member: Member::new(own, world.machines),
            has_ended: false,
            is_known: false,
            is_dismissed: false,
            is_stalled: false,
            sent: VecDeque::new(),
            to_come: VecDeque::new(),
            fencing: BTreeSet::new(),
            fenced: BTreeSet::new(),
            settled: BTreeSet::new(),
            beats: 0,
            expired: 0,
        };
        Model {
            share_hosts: world.share_hosts,
            coordinator: Coordinator::new(world.machines, world.survives),
            machines: (0..world.machines).map(machine).collect(),
            timers: BTreeSet::new(),
            gone: BTreeSet::new(),
            broken: BTreeSet::new(),
            noticed: BTreeSet::new(),
            is_over: false,
        }
    }

    fn of(&mut self, machine: u16) -> &mut Machine {
        &mut self.machines[usize::from(machine)]
    }

    fn is_on_one_host(&self, a: u16, b: u16) -> bool {
        self.share_hosts && a % 2 == b % 2
    }

    fn numbered(&self) -> impl Iterator<Item = (u16, &Machine)> {
        (0u16..).zip(&self.machines)
    }

    /// Returns what happens by itself, sooner or later.
    pub(super) fn deliveries(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_over {
            return actions;
        }
        for (number, machine) in self.numbered() {
            let mut add = |is_possible, action| actions.extend(Some(action).filter(|_| is_possible));
            let is_dead = self.coordinator.is_dead(number);
            add(!machine.sent.is_empty(), Action::AtCoordinator(number));
            let runs = !machine.has_ended && !machine.is_stalled;
            add(!machine.to_come.is_empty() && runs, Action::AtMember(number));
            add(machine.has_ended && !machine.is_known && machine.sent.is_empty(), Action::Known(number));
            // While a machine is alive it beats in time, unless the coordinator does not answer any more.
            add(is_dead && machine.expired < machine.beats, Action::Expires(number));
            let lease_is_over = machine.expired >= self.coordinator.lease(number);
            add(is_dead && lease_is_over && !self.gone.contains(&number), Action::LeaseOver(number));
            if runs {
                let is_done = |of: &u16| !self.is_on_one_host(number, *of) || self.machines[usize::from(*of)].has_ended;
                let done = machine.fencing.iter().copied().filter(is_done);
                actions.extend(done.map(|of| Action::Fenced(number, of)));
            }
        }
        actions.extend(self.timers.iter().map(|timer| Action::Timer(*timer)));
        actions
    }

    /// Returns all that can happen next.
    pub(super) fn actions(&self, world: World) -> Vec<Action> {
        let mut actions = self.deliveries();
        if self.is_over {
            return actions;
        }
        let stalled = self.machines.iter().filter(|machine| machine.is_stalled).count();
        for (number, machine) in self.numbered().filter(|(_, machine)| !machine.has_ended) {
            actions.push(Action::Ends(number));
            if stalled < world.stalls && !machine.is_stalled {
                actions.push(Action::Stalls(number));
            }
            if !self.coordinator.is_dead(number) {
                actions.push(Action::Accused(number));
            }
            if number + 1 == world.machines && machine.beats < world.beats {
                actions.push(Action::Beats(number));
            }
            if world.beats > 0 && machine.member.lease() < machine.expired {
                actions.push(Action::GivesUp(number));
            }
            for peer in 0..world.machines {
                let pair = (number.min(peer), number.max(peer));
                if self.broken.contains(&pair) {
                    // The reports of a zombie do not count.
                    let is_new = !self.noticed.contains(&(number, peer)) && !self.coordinator.is_dead(number);
                    actions.extend(Some(Action::Notices(number, peer)).filter(|_| is_new));
                } else if number < peer && self.broken.len() < world.breaks {
                    actions.push(Action::Breaks(number, peer));
                }
            }
        }
        actions
    }

    /// Does it, and looks for faults.
    pub(super) fn step(&mut self, action: Action) -> Result<(), String> {
        let mut steps = Vec::new();
        match action {
            Action::Ends(machine) | Action::GivesUp(machine) => self.end(machine),
            Action::Accused(machine) => self.coordinator.on_death(machine, &mut steps),
            Action::Breaks(a, b) => drop(self.broken.insert((a, b))),
            Action::Notices(machine, peer) => {
                self.noticed.insert((machine, peer));
                self.by_member(machine, |member, steps| member.on_broken(peer, steps));
            }
            Action::Stalls(machine) => self.of(machine).is_stalled = true,
            Action::Beats(machine) => {
                let beat = self.of(machine).member.beat();
                self.of(machine).beats += 1;
                self.of(machine).sent.push_back(beat);
            }
            Action::AtCoordinator(machine) => {
                let message = self.of(machine).sent.pop_front().ok_or("nothing was sent")?;
                let result = self.coordinator.on_message(machine, &message, &mut steps);
                must!(result.is_ok(), "the coordinator takes {message:?} of machine {machine} for nonsense");
            }
            Action::AtMember(machine) => {
                let message = self.of(machine).to_come.pop_front().ok_or("nothing was sent")?;
                let result = self.by_member(machine, |member, steps| member.on_message(&message, steps));
                must!(result.is_ok(), "machine {machine} takes {message:?} for nonsense");
            }
            Action::Fenced(machine, lost) => {
                self.of(machine).fencing.remove(&lost);
                self.of(machine).fenced.insert(lost);
                self.by_member(machine, |member, steps| member.on_fenced(lost, steps));
            }
            Action::Known(machine) => {
                self.of(machine).is_known = true;
                self.gone.insert(machine);
                self.coordinator.on_gone(machine, &mut steps);
            }
            Action::Expires(machine) => self.of(machine).expired += 1,
            Action::LeaseOver(machine) => {
                self.gone.insert(machine);
                self.coordinator.on_gone(machine, &mut steps);
            }
            Action::Timer(timer) => {
                self.timers.remove(&timer);
                self.coordinator.on_timer(timer, &mut steps);
            }
        }
        for step in steps {
            match step {
                CoordinatorStep::Send { to, message } => self.of(to).to_come.push_back(message),
                CoordinatorStep::Start(timer) => drop(self.timers.insert(timer)),
                CoordinatorStep::Dismiss { machine } => self.of(machine).is_dismissed = true,
                CoordinatorStep::End { .. } => self.is_over = true,
            }
        }
        self.check()
    }

    /// Returns the normal form: without the parts of the state that can make no difference any more.
    pub(super) fn normal(mut self, world: World) -> Model {
        if self.is_over {
            return Model { is_over: true, ..Model::new(world) };
        }
        let dead: BTreeSet<u16> = self.coordinator.dead().collect();
        for (number, machine) in (0u16..).zip(&mut self.machines) {
            if machine.has_ended {
                machine.member = Member::new(number, world.machines);
                (machine.beats, machine.expired, machine.is_stalled) = (0, 0, false);
                machine.to_come.clear();
                machine.fencing.clear();
                machine.fenced.clear();
            }
            if dead.contains(&number) {
                // The coordinator ignores what it sends; that it does not answer beats is to be found.
                machine.sent.retain(|message| matches!(message, ToCoordinator::Beat { .. }));
                machine.is_known |= machine.has_ended && self.gone.contains(&number);
            }
        }
        let machines = &self.machines;
        self.noticed.retain(|(from, _)| !machines[usize::from(*from)].has_ended && !dead.contains(from));
        let coordinator = &self.coordinator;
        self.timers.retain(|timer| coordinator.awaits(*timer));
        self
    }

    /// Ends a process. The messages that it has sent are still received.
    fn end(&mut self, machine: u16) {
        self.of(machine).has_ended = true;
    }

    fn by_member<R>(&mut self, number: u16, act: impl FnOnce(&mut Member, &mut Vec<MemberStep>) -> R) -> R {
        let mut steps = Vec::new();
        let result = act(&mut self.of(number).member, &mut steps);
        for step in steps {
            match step {
                MemberStep::Send(message) => self.of(number).sent.push_back(message),
                MemberStep::Settle(lost) => drop(self.of(number).settled.insert(lost)),
                MemberStep::Fence(lost) => {
                    self.of(number).fencing.insert(lost);
                    if self.is_on_one_host(number, lost) {
                        self.end(lost);
                    }
                }
            }
        }
        result
    }

    /// Looks for the faults of this state.
    fn check(&self) -> Result<(), String> {
        let dead: BTreeSet<u16> = self.coordinator.dead().collect();
        must!(!dead.contains(&0), "machine 0 is declared dead");
        for (number, machine) in self.numbered() {
            must!(machine.settled.is_subset(&dead), "machine {number} acts on a loss that was not declared");
            for &lost in &machine.settled {
                let reached = self.numbered().find(|(other, at)| {
                    !machine.settled.contains(other) && !at.has_ended && !at.fenced.contains(&lost)
                });
                must!(reached.is_none(), "machine {number} takes {lost} for lost, which reaches {reached:?}");
                let zombie = &self.machines[usize::from(lost)];
                let serves = !zombie.has_ended && zombie.expired < zombie.member.lease();
                must!(!serves, "machine {number} takes {lost} for lost, whose lease lasts");
            }
            let differs = self.numbered().find(|(_, other)| {
                !machine.settled.is_subset(&other.settled) && !other.settled.is_subset(&machine.settled)
            });
            must!(differs.is_none(), "machine {number} and {differs:?} act on different verdicts");
        }
        Ok(())
    }

    /// Checks a state in which nothing happens by itself any more: the program has ended, or all machines that are left
    /// agree, and no broken pair is left among them.
    pub(super) fn check_end(&self) -> Result<(), String> {
        let dead: BTreeSet<u16> = self.coordinator.dead().collect();
        for (number, machine) in self.numbered().filter(|(number, _)| !self.is_over && !dead.contains(number)) {
            must!(!machine.has_ended, "the end of machine {number} is overlooked");
            if machine.is_stalled {
                continue;
            }
            must!(machine.settled == dead, "machine {number} takes {:?} for lost, but it is {dead:?}", machine.settled);
            let broken = self.noticed.iter().find(|(from, peer)| *from == number && !dead.contains(peer));
            must!(broken.is_none(), "the broken pair {broken:?} is overlooked");
        }
        for (number, machine) in self.numbered().filter(|(number, _)| !self.is_over && dead.contains(number)) {
            must!(machine.is_dismissed, "machine {number} is not told to end");
        }
        Ok(())
    }
}
