//! This machine's part in the agreement on lost machines ([`membership`](crate::membership)), where a program outlives
//! some: its beats and its lease; fences; and its workers, which learn of a loss when it is settled.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use comm::{Fabric, MachineId};
use trust::TrusteeReference;

use crate::control::{Control, Message};
use crate::fate::{self, Outlive};
use crate::membership::{Member, MemberStep, ToCoordinator, ToMember};

/// Limit for the end of a lost machine's process.
const FENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// Beats in the time of a lease.
const BEATS: u32 = 8;

struct Losses {
    state: Mutex<State>,
    control: Arc<Control>,
    /// Not kept: who ends the program waits until nobody else has it.
    fabric: Weak<dyn Fabric>,
    /// The delegating threads of this machine.
    trustees: Vec<TrusteeReference>,
    /// Time for which a machine that hears nothing of its launcher counts as alive.
    lease: Duration,
}

struct State {
    member: Member,
    /// Beats without an answer, with the time of their sending.
    unanswered: VecDeque<(u64, Instant)>,
    /// The sending of the last beat that was answered.
    answered: Instant,
}

/// Begins, once all machines of the plan run.
///
/// # Errors
/// If no thread can be started.
pub(crate) fn begin(
    member: Member,
    control: &Arc<Control>,
    fabric: &Arc<dyn Fabric>,
    trustees: Vec<TrusteeReference>,
    lease: Duration,
) -> std::io::Result<()> {
    let state = Mutex::new(State { member, unanswered: VecDeque::new(), answered: Instant::now() });
    let (control, fabric) = (Arc::clone(control), Arc::downgrade(fabric));
    let losses = Arc::new(Losses { state, control, fabric, trustees, lease });
    fate::outlive(Box::new(Arc::clone(&losses)));
    fate::spawn("gossamer-lease", move || losses.beat()).map(drop)
}

impl Outlive for Arc<Losses> {
    fn on_message(&self, message: &ToMember) {
        let mut steps = Vec::new();
        {
            let state = &mut *self.state();
            if state.member.on_message(message, &mut steps).is_err() {
                fate::end(&format!("the launcher sent a message that no launcher sends: {message:?}"));
            }
            let answered = state.member.lease();
            while let Some((_, sent)) = state.unanswered.pop_front_if(|(number, _)| *number <= answered) {
                state.answered = sent;
            }
        }
        self.carry_out(steps, "");
    }

    fn on_broken(&self, peer: u16, reason: &str) {
        let mut steps = Vec::new();
        self.state().member.on_broken(peer, &mut steps);
        self.carry_out(steps, reason);
    }
}

impl Losses {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Beats until the program is over. Ends the process when the launcher has not answered for the time of the lease.
    fn beat(&self) {
        while !fate::is_over() {
            let beat = {
                let mut state = self.state();
                if state.answered.elapsed() > self.lease {
                    fate::end_lease();
                }
                let beat = state.member.beat();
                if let ToCoordinator::Beat { number } = beat {
                    state.unanswered.push_back((number, Instant::now()));
                }
                beat
            };
            self.send(beat, "");
            thread::sleep(self.lease / BEATS);
        }
    }

    fn send(&self, message: ToCoordinator, reason: &str) {
        let message = match message {
            ToCoordinator::Lost { peer } => Message::Lost { machine: peer, reason: reason.to_owned() },
            ToCoordinator::Fenced { epoch } => Message::Fenced { epoch },
            ToCoordinator::Beat { number } => Message::Beat { number },
        };
        // If the launcher has gone, the thread that listens to it ends the process.
        let _ = self.control.send(&message);
    }

    fn carry_out(&self, steps: Vec<MemberStep>, reason: &str) {
        let mut steps = VecDeque::from(steps);
        let mut settled = Vec::new();
        while let Some(step) = steps.pop_front() {
            match step {
                MemberStep::Send(message) => self.send(message, reason),
                MemberStep::Fence(machine) => {
                    let Some(fabric) = self.fabric.upgrade() else { return };
                    if let Err(error) = fabric.fence(MachineId(machine), FENCE_TIMEOUT) {
                        fate::end(&error.to_string());
                    }
                    let mut more = Vec::new();
                    self.state().member.on_fenced(machine, &mut more);
                    steps.extend(more);
                }
                MemberStep::Settle(machine) => settled.push(machine),
            }
        }
        if !settled.is_empty() {
            self.settle(settled);
        }
    }

    /// Tells all workers that these machines are lost: by a thread that ends, since a worker may be long in one
    /// closure, and the launcher's messages must not wait for it.
    fn settle(&self, machines: Vec<u16>) {
        let trustees = self.trustees.clone();
        let tell = move || {
            let told: Vec<_> = trustees
                .iter()
                .map(|trustee| {
                    let machines = machines.clone();
                    trust::spawn_on(trustee, move || machines.into_iter().for_each(trust::link::lose))
                })
                .collect();
            told.into_iter().for_each(|told| drop(told.join()));
        };
        if let Err(error) = fate::spawn("gossamer-losses", tell) {
            fate::end(&format!("no thread to tell the workers of a loss: {error}"));
        }
    }
}
