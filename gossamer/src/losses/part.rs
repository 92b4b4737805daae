//! This machine's part in the agreement on lost machines ([`membership`](crate::membership)), where a program outlives
//! some: its beats and its lease; fences; and its workers, which learn of a loss when it is settled.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use comm::{Fabric, MachineId};
use trust::TrusteeReference;

use super::record::{self, Loss};
use crate::control::{Control, Message};
use crate::fate::{self, Outlive};
use crate::membership::{Member, MemberStep, ToCoordinator, ToMember};

/// Limit for the end of a lost machine's process.
const FENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// Beats in the time of a lease.
const BEATS: u32 = 8;
/// Pause between beats until the agreement has begun, for which `gsm_main` waits.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

struct Losses {
    state: Mutex<State>,
    /// The agreement has begun.
    begun: Condvar,
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
    /// Causes of losses, as the launcher has told them.
    causes: HashMap<u16, String>,
    /// Beats without an answer, with the time of their sending.
    unanswered: VecDeque<(u64, Instant)>,
    /// The sending of the last beat that was answered.
    answered: Instant,
    /// The launcher knows that all machines are ready: the agreement has begun.
    has_begun: bool,
}

/// Takes part from now on: to be called before this machine tells the launcher that it is ready. `trustees` are its
/// delegating threads.
pub(crate) fn begin(
    member: Member,
    control: &Arc<Control>,
    fabric: &Arc<dyn Fabric>,
    trustees: Vec<TrusteeReference>,
    lease: Duration,
) -> Part {
    record::expect_some();
    let (causes, unanswered) = (HashMap::new(), VecDeque::new());
    let state = Mutex::new(State { member, causes, unanswered, answered: Instant::now(), has_begun: false });
    let begun = Condvar::new();
    let (control, fabric) = (Arc::clone(control), Arc::downgrade(fabric));
    let losses = Arc::new(Losses { state, begun, control, fabric, trustees, lease });
    fate::outlive(Box::new(Arc::clone(&losses)));
    Part(losses)
}

/// This machine's part, whose beats are to begin.
pub(crate) struct Part(Arc<Losses>);

impl Part {
    /// Begins to beat, when this machine has said that it is ready. The lease counts from before that.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn beat(self) -> std::io::Result<Beating> {
        let losses = Arc::clone(&self.0);
        fate::spawn("gossamer-lease", move || losses.beat())?;
        Ok(Beating(self.0))
    }
}

/// This machine's part, which beats.
pub(crate) struct Beating(Arc<Losses>);

impl Beating {
    /// Waits until the agreement has begun: from then on the program outlives losses. If the launcher never answers the
    /// process ends with its lease.
    pub(crate) fn wait(self) {
        let waits = |state: &mut State| !state.has_begun;
        drop(self.0.begun.wait_while(self.0.state(), waits).unwrap_or_else(PoisonError::into_inner));
    }
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

    fn on_begun(&self) {
        self.state().has_begun = true;
        self.begun.notify_all();
    }

    fn on_cause(&self, machine: u16, cause: String) {
        self.state().causes.insert(machine, cause);
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
            let (beat, pause) = {
                let mut state = self.state();
                if state.answered.elapsed() > self.lease {
                    fate::end_lease();
                }
                let beat = state.member.beat();
                if let ToCoordinator::Beat { number } = beat {
                    state.unanswered.push_back((number, Instant::now()));
                }
                (beat, if state.has_begun { self.lease / BEATS } else { FIRST_PAUSE })
            };
            self.send(beat, "");
            thread::sleep(pause);
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

    fn carry_out(self: &Arc<Self>, steps: Vec<MemberStep>, reason: &str) {
        let (mut lost, mut settled) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                MemberStep::Send(message) => self.send(message, reason),
                MemberStep::Fence(machine) => lost.push(machine),
                MemberStep::Settle(machine) => settled.push(machine),
            }
        }
        if !lost.is_empty() {
            self.fence(lost);
        }
        if !settled.is_empty() {
            self.settle(settled);
        }
    }

    /// Shuts these machines out: by a thread that ends, since the end of a process may take longer than the lease, and
    /// the launcher's answers must be heard meanwhile.
    fn fence(self: &Arc<Self>, machines: Vec<u16>) {
        let losses = Arc::clone(self);
        let fence = move || {
            for machine in machines {
                let Some(fabric) = losses.fabric.upgrade() else { return };
                record::shut_out(machine);
                if let Err(error) = fabric.fence(MachineId(machine), FENCE_TIMEOUT) {
                    fate::end(&error.to_string());
                }
                drop(fabric);
                let mut steps = Vec::new();
                // Sent under the lock, so that an older epoch is never told after a newer one.
                let mut state = losses.state();
                state.member.on_fenced(machine, &mut steps);
                for step in steps {
                    if let MemberStep::Send(message) = step {
                        losses.send(message, "");
                    }
                }
            }
        };
        spawn("gossamer-fence", fence);
    }

    /// Tells the process and all workers that these machines are lost: by a thread that ends, since a worker may be
    /// long in one closure, and the launcher's messages must not wait for it.
    fn settle(&self, machines: Vec<u16>) {
        let losses: Vec<Loss> = {
            let causes = &mut self.state().causes;
            let mut loss = |&machine: &u16| Loss { machine, cause: causes.remove(&machine).unwrap_or_default() };
            machines.iter().map(&mut loss).collect()
        };
        let callbacks = record::note(&losses);
        let (hooks, trustees) = (record::worker_hooks(), self.trustees.clone());
        let tell = move || {
            let told: Vec<_> = trustees
                .iter()
                .map(|trustee| {
                    let (machines, hooks) = (machines.clone(), hooks.clone());
                    trust::spawn_on(trustee, move || {
                        machines.iter().copied().for_each(trust::link::lose);
                        hooks.iter().for_each(|hook| machines.iter().copied().for_each(hook));
                    })
                })
                .collect();
            // No answers are waited for: such a thread may be long in its own code.
            machines.iter().copied().for_each(trust::link::lose_elsewhere);
            told.into_iter().for_each(|told| drop(told.join()));
            super::call_back(callbacks, losses);
        };
        spawn("gossamer-losses", tell);
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    if let Err(error) = fate::spawn(name, work) {
        fate::end(&format!("no thread to handle the loss of a machine: {error}"));
    }
}
