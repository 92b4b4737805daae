//! Supervisor of a program: it decides the meaning of its machines' events (finished, died), and which machines are
//! told to end or are killed. Fate sharing is decided here: when one machine dies, all end.
//!
//! A machine *joins* when gossamer reports from inside it, by its endpoint or `Ready`. Machines that have joined need
//! each other: the end of one before machine 0 has finished is a death. Machines that never join (any program: `ls`) do
//! not, and each runs to its own end. If some have joined and another has ended without joining, that one has died.
//!
//! [`Supervisor`] decides and has no effects: its inputs are events, signals and the time, its outputs are orders to
//! all live machines ([`Order`]). It knows nothing of processes or connections, so the machines may be on this host or
//! on many. Its state is a handful of facts, each set at most once:
//!
//! - `finished`: machine 0 has sent Finished; the others were told to end
//! - `interrupted`: the launcher got a signal; it was passed on. The end of the time limit (`timed_out`) counts as
//!   SIGTERM
//! - `death`: the first machine that died; the others were told to end. A death after an interruption is not recorded,
//!   only `broken` is set then
//! - `unwritten`: the streams of the launcher that could not be written. If that is a failure the program is ended
//! - `suspicion`: a machine has reported the loss of another one. The other one's own death, should it come in time, is
//!   the better cause; otherwise the loss is
//! - `agreement`: all machines are ready, and the program is to outlive some. A death is a *loss* then: the others are
//!   told of it, until too many are lost, machine 0 is, or the program ends
//! - `kill_at`: when all machines that are left get SIGKILL; `killed`: it was ordered

use std::process::ExitStatus;
use std::time::{Duration, Instant};
use trust::link::{deadline_after, later};

use rustix::process::Signal;

use super::agreement::Agreement;
pub use super::event::Event;
use super::outcome::{Cause, Death, Ended, Outcome, Stage, Unwritten};
use super::signals::describe;
use crate::control::Message;

/// Time that ending may take before the rest is killed.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time for the others to end by themselves after a machine has died. Well below a second, the promise of the
    /// whole.
    pub after_death: Duration,
    /// Wait for a lost machine's own end, after another machine has reported its loss.
    pub after_loss: Duration,
    /// Time to end after a signal to the launcher.
    pub after_signal: Duration,
    /// Time for the machines other than 0 to end after the program has finished.
    pub after_finish: Duration,
}

impl Default for Bounds {
    /// 250 ms, 300 ms, 3 s, 5 s.
    fn default() -> Self {
        Bounds {
            after_death: Duration::from_millis(250),
            after_loss: Duration::from_millis(300),
            after_signal: Duration::from_secs(3),
            after_finish: Duration::from_secs(5),
        }
    }
}

/// Rules by which a program ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// Time that ending may take.
    pub bounds: Bounds,
    /// Whether a machine that ends without having joined has died, even if no other one has joined.
    pub must_join: bool,
    /// Time limit of the program, from the start of its machines.
    pub time_limit: Option<Duration>,
    /// Silence of the launcher after which a machine ends itself, where the program outlives machines.
    pub silence: Duration,
}

/// Time in which a killed process must go before the launcher gives up on it.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// Order for all live machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Send this signal.
    Signal(Signal),
    /// Tell them to end, for this reason.
    End(String),
    /// Kill them.
    Kill,
    /// Send a message to one machine.
    Tell {
        /// Number of the machine.
        machine: u16,
        /// The message.
        message: Message,
    },
    /// Kill one machine, which is lost.
    KillOne(u16),
    /// Tell the user that the program goes on without this machine, in these words.
    Report {
        /// Number of the machine.
        machine: u16,
        /// The words.
        text: String,
    },
}

/// State of one machine.
#[derive(Debug)]
struct Supervised {
    pid: u32,
    host: Option<String>,
    has_ended: bool,
    /// The exit status of its process, if known.
    exit_status: Option<ExitStatus>,
    has_joined: bool,
    is_ready: bool,
    /// Number of machines that the program is to outlive, as this one says.
    survives: u16,
    failed: Option<String>,
    has_reported_loss: bool,
    /// It died while the program ended, which outlives that.
    is_left_out: bool,
    /// Cause of the end of its process, as its host knows it.
    explanation: Option<String>,
}

/// State of one program, from its start to its outcome.
#[derive(Debug)]
pub struct Supervisor {
    machines: Vec<Supervised>,
    bounds: Bounds,
    must_join: bool,
    /// The first machine that ended without having joined, and the first of them that failed.
    ended_outside: Option<(u16, ExitStatus)>,
    failed_outside: Option<(u16, ExitStatus)>,
    orders: Vec<Order>,
    finished: Option<u8>,
    finish_by: Option<Instant>,
    interrupted: Option<Signal>,
    /// The time limit, and when it is over.
    limit: Option<(Duration, Instant)>,
    timed_out: Option<Duration>,
    broken: bool,
    death: Option<Death>,
    unwritten: Vec<Unwritten>,
    suspicion: Option<(Instant, u16, Cause)>,
    silence: Duration,
    agreement: Option<Agreement>,
    /// Reports of broken pairs while there is an agreement: reporter, peer, reason.
    reports: Vec<(u16, u16, String)>,
    kill_at: Option<Instant>,
    killed: bool,
    gave_up: bool,
}

impl Supervisor {
    /// Makes the supervisor for a program of so many machines.
    #[must_use]
    pub fn new(machines: u16, policy: Policy) -> Supervisor {
        let unknown = |_| Supervised {
            pid: 0,
            host: None,
            has_ended: false,
            exit_status: None,
            has_joined: false,
            is_ready: false,
            survives: 0,
            failed: None,
            has_reported_loss: false,
            is_left_out: false,
            explanation: None,
        };
        Supervisor {
            machines: (0..machines).map(unknown).collect(),
            bounds: policy.bounds,
            must_join: policy.must_join,
            ended_outside: None,
            failed_outside: None,
            orders: Vec::new(),
            finished: None,
            finish_by: None,
            interrupted: None,
            limit: policy.time_limit.map(|limit| (limit, deadline_after(limit))),
            timed_out: None,
            broken: false,
            death: None,
            unwritten: Vec::new(),
            suspicion: None,
            silence: policy.silence,
            agreement: None,
            reports: Vec::new(),
            kill_at: None,
            killed: false,
            gave_up: false,
        }
    }

    /// Sets a machine's names in messages: its process, and its host if there are several hosts.
    pub fn introduce(&mut self, machine: u16, pid: u32, host: Option<String>) {
        if let Some(known) = self.machines.get_mut(usize::from(machine)) {
            (known.pid, known.host) = (pid, host);
        }
    }

    /// Notes why a machine's process has ended, for the message about that.
    pub fn explain(&mut self, machine: u16, cause: String) {
        if let Some(known) = self.machines.get_mut(usize::from(machine)) {
            known.explanation = Some(cause);
        }
    }

    /// Handles the join of a machine. A machine that ended without joining has died then.
    pub fn on_join(&mut self, number: u16, now: Instant) {
        let Some(machine) = self.machines.get_mut(usize::from(number)) else { return };
        machine.has_joined = true;
        if let Some((left, status)) = self.failed_outside.or(self.ended_outside) {
            self.on_death(left, Cause::Exited { status, stage: Stage::Outside }, now);
        }
    }

    /// Handles an event of a machine. Endpoints are handled elsewhere ([`super::gather`]), but their arrival is
    /// [`Supervisor::on_join`].
    pub fn on_event(&mut self, event: Event, now: Instant) {
        match event {
            Event::Said { machine, message } => self.on_message(machine, message, now),
            Event::Nonsense { machine, error } => self.on_death(machine, Cause::Protocol(error.to_string()), now),
            Event::Stood { machine, signal } => self.on_death(machine, Cause::Stood(signal), now),
            Event::Exited { machine, status } => self.on_exit(machine, status, now),
        }
    }

    /// Handles a signal to the launcher: the first is passed on; the second, or one while the program is being ended,
    /// kills.
    pub fn on_signal(&mut self, signal: Signal, now: Instant) {
        if self.interrupted.is_some() || self.death.is_some() {
            return self.kill(now);
        }
        self.interrupt(signal, now);
    }

    fn interrupt(&mut self, signal: Signal, now: Instant) {
        self.interrupted = Some(signal);
        self.kill_at = Some(later(now, self.bounds.after_signal));
        self.orders.push(Order::Signal(signal));
    }

    /// Handles an output stream of the launcher that cannot be written. If its reader has closed it, the machines see
    /// that themselves, and do as they like. On a failure the program is ended: its output would be lost.
    pub fn on_unwritten(&mut self, stream: Unwritten, now: Instant) {
        if !stream.is_closed() && !self.is_ending() && !self.is_over() {
            self.broken = true;
            self.kill_at = Some(later(now, self.bounds.after_death));
            self.suspicion = None;
            self.orders.push(Order::End(format!("the launcher {stream}")));
        }
        self.unwritten.push(stream);
    }

    fn output_failed(&self) -> bool {
        self.unwritten.iter().any(|stream| !stream.is_closed())
    }

    /// Returns the orders to be carried out now, in order.
    pub fn orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// Returns the latest time at which [`Supervisor::on_time`] must be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let suspicion = self.suspicion.as_ref().map(|(at, ..)| *at);
        let limit = self.limit.map(|(_, at)| at);
        let agreement = self.agreement.as_ref().and_then(Agreement::deadline).filter(|_| !self.is_ending());
        [self.kill_at, self.finish_by, suspicion, limit, agreement].into_iter().flatten().min()
    }

    /// Returns whether nothing is left to wait for: all machines have exited, or cannot even be killed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_left = |(number, machine): (u16, &Supervised)| {
            // A lost machine that cannot be killed holds up nobody.
            !(machine.has_ended || machine.is_left_out || self.is_ending() && self.is_lost(number))
        };
        self.gave_up || !(0u16..).zip(&self.machines).any(is_left)
    }

    /// Returns whether machines are left that cannot even be killed.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.gave_up
    }

    /// Returns whether the program has broken down or finished: later failures are not reported.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.broken || self.finished.is_some() || self.interrupted.is_some()
    }

    fn on_exit(&mut self, number: u16, status: ExitStatus, now: Instant) {
        let is_lost = self.is_lost(number);
        let Some(machine) = self.machines.get_mut(usize::from(number)) else { return };
        machine.has_ended = true;
        machine.exit_status = Some(status);
        if is_lost {
            return self.on_gone(number, now);
        }
        if let Some(death) = self.death.as_mut().filter(|death| death.machine == number) {
            death.exit = Some(status);
            return;
        }
        if !machine.has_joined && self.finished.is_none() {
            return self.on_exit_outside(number, status, now);
        }
        match (self.finished, status.code()) {
            // Code of main after gossamer::main may still fail: its own affair, and its own status.
            (Some(announced), Some(code)) if number == 0 => {
                self.finished = Some(if code == 0 { announced } else { u8::try_from(code).unwrap_or(announced) });
            }
            (Some(_), Some(0)) => {}
            // A machine that reported a loss may exit before the cause is known.
            (_, Some(_)) if machine.has_reported_loss && self.suspicion.is_some() => {}
            _ => {
                let stage = if machine.is_ready { Stage::Ready } else { Stage::Joining };
                let cause = match machine.failed.clone() {
                    Some(reason) => Cause::Failed(reason),
                    None => Cause::Exited { status, stage },
                };
                self.on_death(number, cause, now);
                self.on_gone(number, now);
            }
        }
    }

    /// Handles a machine that has left, as it was told to; its launcher sees how its process ends.
    pub fn on_leave(&mut self, number: u16, now: Instant) {
        if let Some(machine) = self.machines.get_mut(usize::from(number)) {
            machine.has_ended = true;
            self.on_gone(number, now);
        }
    }

    /// Handles a connection that was closed without a message that the machine leaves.
    pub fn on_closed(&mut self, number: u16, now: Instant) {
        let Some(machine) = self.machines.get_mut(usize::from(number)) else { return };
        let cause = machine.failed.clone().map_or(Cause::Closed, Cause::Failed);
        let could_not_wait = machine.has_reported_loss && self.suspicion.is_some(); // until the cause is known
        // A machine that was told to end may go without a message.
        if !std::mem::replace(&mut machine.has_ended, true) && !could_not_wait && !self.is_ending() {
            self.on_death(number, cause, now);
            self.on_gone(number, now);
        }
    }

    /// Handles a machine that was silent for so long that it counts as dead.
    pub fn on_silence(&mut self, number: u16, since: Duration, now: Instant) {
        if !self.is_ending() {
            self.on_death(number, Cause::Silent(format!("nothing was heard of it for {since:?}")), now);
        }
    }

    /// Handles the end of a machine that never joined: its own affair, unless it had to, or another one waits for it.
    fn on_exit_outside(&mut self, number: u16, status: ExitStatus, now: Instant) {
        self.ended_outside.get_or_insert((number, status));
        if !status.success() {
            self.failed_outside.get_or_insert((number, status));
        }
        if self.must_join || self.machines.iter().any(|machine| machine.has_joined) {
            self.on_death(number, Cause::Exited { status, stage: Stage::Outside }, now);
        }
    }

    fn on_message(&mut self, number: u16, message: Message, now: Instant) {
        self.on_join(number, now);
        let Some(machine) = self.machines.get_mut(usize::from(number)) else { return };
        match message {
            Message::Ready { survives, .. } if !machine.is_ready => {
                (machine.is_ready, machine.survives) = (true, survives);
                self.on_ready(number, survives, now);
            }
            // Its lease begins before the agreement does.
            Message::Beat { number: beat } if machine.survives > 0 && self.agreement.is_none() => {
                self.orders.push(Order::Tell { machine: number, message: Message::Answer { beat, has_begun: false } });
            }
            Message::Fenced { .. } | Message::Beat { .. } if self.agreement.is_some() => {
                self.on_agreement(number, &message, now);
            }
            Message::Lost { machine: peer, ref reason } if self.agreement.is_some() => {
                self.reports.push((number, peer, reason.clone()));
                self.on_agreement(number, &message, now);
            }
            Message::Ready { pid, .. } => {
                let second = format!("process {pid} started gossamer as this machine, but another had done so before");
                self.on_death(number, Cause::Protocol(second), now);
            }
            Message::Finished { status } if number == 0 && self.finished.is_none() => {
                self.finished = Some(status);
                self.finish_by = Some(later(now, self.bounds.after_finish));
                self.suspicion = None; // machines that leave in order may be reported as lost
                self.orders.push(Order::End("the program has finished".to_owned()));
            }
            Message::Failed { reason } => {
                machine.failed = Some(reason.clone());
                self.on_death(number, Cause::Failed(reason), now);
            }
            Message::Lost { machine: peer, reason } => {
                machine.has_reported_loss = true;
                let host = self.machines.get(usize::from(peer)).and_then(|peer| peer.host.clone());
                if self.suspicion.is_none() && !self.is_ending() {
                    self.suspicion =
                        Some((later(now, self.bounds.after_loss), number, Cause::Lost { peer, host, reason }));
                }
            }
            Message::Finished { .. } => {
                self.on_death(number, Cause::Protocol("only machine 0 can finish the program, and once".into()), now);
            }
            Message::Seen { .. } => {} // the asker has its answer, or has gone
            Message::Fenced { .. }
            | Message::Beat { .. }
            | Message::Fence { .. }
            | Message::Settled { .. }
            | Message::Answer { .. }
            | Message::Look { .. }
            | Message::Endpoint { .. }
            | Message::End { .. }
            | Message::Secret { .. }
            | Message::Peer { .. } => {
                self.on_death(number, Cause::Protocol("it sent a message that is not allowed now".into()), now);
            }
        }
    }

    fn death_of(&self, number: u16, cause: Cause) -> Option<Death> {
        let machine = self.machines.get(usize::from(number))?;
        let (pid, host, explanation) = (machine.pid, machine.host.clone(), machine.explanation.clone());
        Some(Death { machine: number, pid, host, cause, exit: machine.exit_status, explanation })
    }

    /// Handles the death of a machine: a loss that the program outlives, or the end of all.
    pub fn on_death(&mut self, number: u16, cause: Cause, now: Instant) {
        if usize::from(number) >= self.machines.len() {
            return;
        }
        if self.is_ending() {
            if let Err(cause) = self.leave_out(number, cause) {
                self.end_by(number, cause, now);
            }
            return;
        }
        match &mut self.agreement {
            Some(agreement) => {
                let acts = agreement.on_death(number, now);
                let mut cause = Some(cause);
                self.carry_out(acts, now, |_, machine| (machine, cause.take().unwrap_or(Cause::Closed)));
            }
            None => self.end_by(number, cause, now),
        }
    }

    /// Records that the program cannot go on because of this machine (the first cause counts), and ends all.
    fn end_by(&mut self, number: u16, cause: Cause, now: Instant) {
        let Some(death) = self.death_of(number, cause) else { return };
        let soon = later(now, self.bounds.after_death);
        if !self.killed {
            self.kill_at = Some(self.kill_at.map_or(soon, |at| at.min(soon)));
        }
        self.suspicion = None;
        if std::mem::replace(&mut self.broken, true) {
            return;
        }
        match self.interrupted {
            Some(signal) => self.orders.push(Order::End(match self.timed_out {
                Some(limit) => format!("the time limit of {limit:?} is over"),
                None => format!("the launcher got {}", describe(signal.as_raw())),
            })),
            // It may have gone because its output was closed, which is reported with the cause.
            None if self.output_failed() => self.orders.push(Order::End(death.to_string())),
            None => {
                self.orders.push(Order::End(death.to_string()));
                self.death = Some(death);
            }
        }
    }

    /// Handles the passing of time.
    pub fn on_time(&mut self, now: Instant) {
        if let Some((_, machine, cause)) = self.suspicion.take_if(|(at, ..)| *at <= now) {
            self.on_death(machine, cause, now);
        }
        self.on_agreement_time(now);
        if self.finish_by.is_some_and(|at| at <= now) {
            self.finish_by = None; // machine 0 itself may take as long as it likes
            let others = (0u16..).zip(&self.machines).skip(1);
            let lingers = |(number, machine): &(u16, &Supervised)| !machine.has_ended && !self.is_lost(*number);
            let lingering: Vec<u16> = others.filter(lingers).map(|(number, _)| number).collect();
            for number in lingering {
                self.on_death(number, Cause::Lingered(self.bounds.after_finish), now);
                if self.broken {
                    self.kill(now);
                    break;
                }
            }
        }
        if let Some((limit, _)) = self.limit.take_if(|(_, at)| *at <= now)
            && self.interrupted.is_none()
            && !self.broken
            && !self.is_over()
        {
            self.timed_out = Some(limit);
            self.interrupt(Signal::TERM, now);
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            if self.killed {
                self.gave_up = true;
            } else {
                self.kill(now);
            }
        }
    }

    fn kill(&mut self, now: Instant) {
        self.orders.push(Order::Kill);
        self.killed = true;
        self.kill_at = Some(later(now, AFTER_KILL));
    }

    /// Returns the end of the program; to be called when [`Supervisor::is_over`].
    pub fn ended(mut self) -> Ended {
        let unwritten = std::mem::take(&mut self.unwritten);
        Ended { outcome: self.outcome(), unwritten }
    }

    fn outcome(mut self) -> Outcome {
        if let Some((now, machine, cause)) = self.suspicion.take() {
            self.on_death(machine, cause, now); // all have gone, and none had a better one
        }
        let all_well =
            !self.broken && self.machines.iter().all(|machine| machine.exit_status.is_some_and(|s| s.success()));
        let failed_outside = self.failed_outside.filter(|_| !self.broken);
        if let Some(limit) = self.timed_out {
            return Outcome::TimedOut(limit);
        }
        match (self.death, self.interrupted, self.finished) {
            (Some(death), ..) => Outcome::Died(death),
            (None, _, None) if all_well => Outcome::Finished(0), // none has joined
            (None, None, Some(status)) => Outcome::Finished(status),
            (None, Some(_), Some(status)) if !self.broken => Outcome::Finished(status),
            (None, Some(signal), _) => Outcome::Interrupted(signal.as_raw()),
            (None, None, None) => match failed_outside {
                Some((number, status)) => {
                    let Supervised { pid, host, explanation, .. } = &self.machines[usize::from(number)];
                    let cause = Cause::Exited { status, stage: Stage::Alone };
                    let (pid, host, explanation) = (*pid, host.clone(), explanation.clone());
                    Outcome::Exited(Death { machine: number, pid, host, cause, exit: Some(status), explanation })
                }
                None => Outcome::Unwritten, // every other end sets one of them
            },
        }
    }
}

mod losses;
#[cfg(test)]
mod tests;
