//! Losses that the program outlives: when the agreement on them begins, and its decisions as orders.

use std::time::Instant;

use super::super::agreement::{Act, Agreement, FENCE};
use super::super::outcome::Cause;
use super::{Order, Supervised, Supervisor};
use crate::control::Message;
use crate::membership::{Nonsense, Timer};

impl Supervisor {
    /// Returns whether the program outlives this machine, which is lost.
    pub(super) fn is_lost(&self, number: u16) -> bool {
        self.agreement.as_ref().is_some_and(|agreement| agreement.is_lost(number))
    }

    /// Returns whether the program goes on without machines that die.
    #[must_use]
    pub fn outlives(&self) -> bool {
        self.agreement.is_some() && !self.is_ending()
    }

    /// Leaves out a machine that died after the program had finished, if it is lost already or one more may be. The
    /// agreement is over by then: nobody waits for its verdicts.
    ///
    /// # Errors
    /// The cause, if the program fails by it.
    pub(super) fn leave_out(&mut self, number: u16, cause: Cause) -> Result<(), Cause> {
        let index = usize::from(number);
        if self.agreement.is_none() || self.finished.is_none() || self.broken || number == 0 {
            return Err(cause);
        }
        let is_out = |number: u16| self.machines[usize::from(number)].is_left_out || self.is_lost(number);
        if is_out(number) {
            return Ok(());
        }
        let out = (0..self.machines.len() as u16).filter(|other| is_out(*other)).count();
        if out >= usize::from(self.machines[index].survives) {
            return Err(cause);
        }
        let text = self.death_of(number, cause).map_or_else(String::new, |death| death.to_string());
        let text = format!("{text}; the others have finished without it");
        self.orders.push(Order::Report { machine: number, text });
        if !self.machines[index].has_ended {
            self.orders.push(Order::KillOne(number));
        }
        self.machines[index].is_left_out = true;
        Ok(())
    }

    /// Handles the end of a lost machine's process; of no effect for others.
    pub(super) fn on_gone(&mut self, number: u16, now: Instant) {
        if self.is_ending() || !self.is_lost(number) {
            return;
        }
        if let Some(agreement) = &mut self.agreement {
            let acts = agreement.on_gone(number, now);
            self.carry_out(acts, now, |_, machine| (machine, Cause::Closed));
        }
    }

    /// Handles a machine that is ready. When all are, and the program is to outlive some, the agreement begins.
    pub(super) fn on_ready(&mut self, number: u16, survives: u16, now: Instant) {
        let is_other = |machine: &Supervised| machine.is_ready && machine.survives != survives;
        if self.machines.iter().any(is_other) {
            let reason = "it is to outlive another number of machines than the others".to_owned();
            return self.on_death(number, Cause::Protocol(reason), now);
        }
        let are_ready = self.machines.iter().all(|machine| machine.is_ready);
        if survives > 0 && are_ready && !self.is_ending() {
            self.agreement = Some(Agreement::new(self.machines.len() as u16, survives, self.silence, now));
        }
    }

    /// Handles a message of the agreement.
    pub(super) fn on_agreement(&mut self, number: u16, message: &Message, now: Instant) {
        if self.is_ending() {
            return;
        }
        let Some(agreement) = &mut self.agreement else { return };
        match agreement.on_message(number, message, now) {
            Ok(acts) => self.carry_out(acts, now, |_, machine| (machine, Cause::Closed)),
            Err(Nonsense) => {
                let reason = format!("{message:?} makes no sense now");
                self.on_death(number, Cause::Protocol(reason), now);
            }
        }
    }

    /// Carries out what the agreement has decided. `blame` gives the machine that a loss is told of, and its cause.
    pub(super) fn carry_out(
        &mut self,
        acts: Vec<Act>,
        now: Instant,
        mut blame: impl FnMut(&Supervisor, u16) -> (u16, Cause),
    ) {
        for act in acts {
            match act {
                Act::Tell(machine, message) => self.orders.push(Order::Tell { machine, message }),
                Act::Lost(machine) => {
                    let (number, cause) = blame(self, machine);
                    let reason = self.death_of(number, cause).map_or_else(String::new, |death| death.to_string());
                    let text = format!("{reason}; the others go on without machine {machine}");
                    self.orders.push(Order::Report { machine, text });
                    let living = (0..self.machines.len() as u16).filter(|living| !self.is_lost(*living));
                    let tell =
                        |to| Order::Tell { machine: to, message: Message::Lost { machine, reason: reason.clone() } };
                    let told: Vec<Order> = living.map(tell).collect();
                    self.orders.extend(told);
                    if !self.machines[usize::from(machine)].has_ended {
                        self.orders.push(Order::KillOne(machine));
                    }
                }
                Act::End(machine) => {
                    let (number, cause) = blame(self, machine);
                    self.end_by(number, cause, now);
                }
            }
        }
    }

    /// Handles the timers of the agreement.
    pub(super) fn on_agreement_time(&mut self, now: Instant) {
        while !self.is_ending()
            && let Some((timer, acts)) = self.agreement.as_mut().and_then(|agreement| agreement.on_time(now))
        {
            self.carry_out(acts, now, |supervisor, machine| match timer {
                Timer::Evidence => supervisor.reported(machine),
                Timer::Fence(_) => (machine, Cause::Silent(format!("it did not shut out lost machines in {FENCE:?}"))),
            });
        }
        while !self.is_ending()
            && let Some(acts) = self.agreement.as_mut().and_then(|agreement| agreement.on_lease(now))
        {
            self.carry_out(acts, now, |_, machine| (machine, Cause::Closed));
        }
    }

    /// Returns a reporter of the loss of this machine, or, if it has only reported others, the machine itself; with the
    /// cause.
    fn reported(&self, machine: u16) -> (u16, Cause) {
        let by_others = self.reports.iter().find(|(_, peer, _)| *peer == machine);
        match by_others.or_else(|| self.reports.iter().find(|(from, ..)| *from == machine)) {
            Some((from, peer, reason)) => {
                let host = self.machines.get(usize::from(*peer)).and_then(|peer| peer.host.clone());
                (*from, Cause::Lost { peer: *peer, host, reason: reason.clone() })
            }
            None => (machine, Cause::Closed),
        }
    }
}
