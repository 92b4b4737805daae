//! End of this machine when it cannot go on or is told to end: it reports the reason to the launcher, and the process
//! ends at once. All machines of a program share one fate; the launcher ends the others.
//!
//! Two threads keep watch: one on the launcher (`listen`), one on the fabric (`watch`). The death of a peer is reported
//! to the launcher, which mostly knows the better cause and answers with `End`; without an answer this machine ends by
//! itself. At the end of the program machine 0 leaves the fabric in order before it reports that it has finished. The
//! launcher ends the others at any time; a peer that takes this for a death reports it to the launcher, which knows
//! better.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use trust::link::{deadline_after, panic_text};

use comm::secure::Key;
use comm::{Fabric, Loss, MachineId};

use crate::complain::complain;
use crate::control::{Control, Message};
use crate::error::StartError;
use crate::membership::ToMember;
use crate::rendezvous::bridge;
use crate::view::answer::Answers;

/// Exit status when this machine cannot go on (`EX_SOFTWARE` of sysexits.h).
const FAILURE_STATUS: i32 = 70;
/// Exit status of a program after a panic of `gsm_main`, as of any Rust program.
pub(crate) const PANIC_STATUS: u8 = 101;
/// Time for which a machine that has lost a peer waits for its launcher to end it.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Messages of the launcher while the program starts.
#[derive(Debug)]
pub(crate) enum StartMessage {
    /// The key of the program.
    Secret(Key),
    /// The endpoint of another machine.
    Peer(u16, Vec<u8>),
}

struct FateSharing {
    control: Arc<Control>,
    /// This machine has reported that the program is over: the fate of the others no longer matters.
    is_over: AtomicBool,
    /// Set once the fabric is open.
    fabric: OnceLock<Weak<dyn Fabric>>,
    losses: OnceLock<Box<dyn Outlive>>,
}

/// A program that outlives the loss of machines: this one's part in that.
pub(crate) trait Outlive: Send + Sync {
    /// Handles a message of the launcher.
    fn on_message(&self, message: &ToMember);
    /// All machines are ready, and the launcher knows it.
    fn on_begun(&self);
    /// Notes the cause of a loss.
    fn on_cause(&self, machine: u16, cause: String);
    /// Handles a broken pair: this peer cannot be reached, or has closed the connection.
    fn on_broken(&self, peer: u16, reason: &str);
}

/// Lets the program go on where a peer is lost: from here on `part` is told.
pub(crate) fn outlive(part: Box<dyn Outlive>) {
    if let Some(sharing) = FATE_SHARING.get() {
        let _ = sharing.losses.set(part); // a process runs one program
    }
}

fn losses() -> Option<&'static dyn Outlive> {
    FATE_SHARING.get()?.losses.get().map(|part| &**part)
}

static FATE_SHARING: OnceLock<FateSharing> = OnceLock::new();

/// Ends the process with this cause, and with it the program. If a peer has died, its loss is reported as the cause.
pub(crate) fn end(cause: &str) -> ! {
    end_after(lost_peer(), cause)
}

/// Ends the process as [`end`] does, after an access to a peer that failed because the peer is gone. Its loss is the
/// cause also where the fabric does not know of it yet: a connection may notice it before the watch does.
pub(crate) fn end_without(peer: u16, cause: &str) -> ! {
    end_after(Some(lost_peer().unwrap_or((peer, None))), cause)
}

fn end_after(loss: Option<(u16, Option<String>)>, cause: &str) -> ! {
    if let Some((peer, reason)) = loss {
        report_loss(peer, &reason.unwrap_or_else(|| cause.to_owned()));
    }
    complain(format_args!("{cause}"));
    report_failure(cause);
    std::process::exit(FAILURE_STATUS)
}

/// Ends the process by SIGABRT, with this cause, and with it the program. No exit handlers run: these may wait for a
/// thread that waits for the caller.
pub(crate) fn abort(cause: &str) -> ! {
    complain(format_args!("{cause}"));
    report_failure(cause);
    std::process::abort()
}

/// Reports to the launcher, if there is one, that this machine cannot go on.
fn report_failure(cause: &str) {
    if let Some(sharing) = FATE_SHARING.get() {
        // If the launcher has gone there is no receiver.
        let _ = sharing.control.send(&Message::Failed { reason: cause.to_owned() });
        bridge::send_last_messages();
    }
}

/// Runs work that other threads wait for, and whose loss none of them would notice: a panic ends the process, and with
/// it the program, with the panic as the cause.
pub(crate) fn or_end<R>(whose: &str, work: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        // A fiber that is ended does not lose anything that others wait for.
        if panic.is::<trust::Aborted>() {
            resume_unwind(panic);
        }
        abort(&format!("{whose} has panicked: {}", panic_text(&*panic)))
    })
}

/// Starts a thread that others wait for: a panic ends the process, as in [`or_end`].
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    let whose = format!("the thread `{name}`");
    thread::Builder::new().name(name.to_owned()).spawn(move || or_end(&whose, body))
}

/// Ends a process that could not start for this reason.
pub(crate) fn fail_to_start(error: &StartError) -> ! {
    if let Some(peer) = error.lost() {
        report_loss(peer, &error.to_string());
    }
    end(&error.to_string())
}

/// Makes the process end when the launcher says so, or has gone. Returns the launcher's other messages.
pub(crate) fn share(control: Control) -> std::io::Result<(Arc<Control>, Receiver<StartMessage>)> {
    let control = Arc::new(control);
    let sharing = FateSharing {
        control: Arc::clone(&control),
        is_over: AtomicBool::new(false),
        fabric: OnceLock::new(),
        losses: OnceLock::new(),
    };
    if FATE_SHARING.set(sharing).is_err() {
        return Err(std::io::Error::other("the machine has a control channel already"));
    }
    let listener = Arc::clone(&control);
    let (sender, messages) = mpsc::channel();
    spawn("gossamer-control", move || listen(&listener, &sender))?;
    Ok((control, messages))
}

/// Thread that watches the peers.
#[derive(Debug)]
pub(crate) struct Watch {
    thread: JoinHandle<()>,
}

/// Starts the watch: from here on the process ends when a peer dies.
pub(crate) fn watch(fabric: &Arc<dyn Fabric>) -> std::io::Result<Watch> {
    if let Some(sharing) = FATE_SHARING.get() {
        let _ = sharing.fabric.set(Arc::downgrade(fabric)); // a process opens one fabric
    }
    let fabric = Arc::clone(fabric);
    let keep_watch = move || {
        let mut known = Vec::new();
        loop {
            match fabric.watch(&known, Duration::MAX) {
                Ok(None) => return, // the watch was ended
                Ok(Some(peer)) => {
                    let reason = fabric.cause(peer).unwrap_or_else(|| "it has ended".to_owned());
                    match losses() {
                        Some(losses) => losses.on_broken(peer.0, &reason),
                        None => return report_loss(peer.0, &reason),
                    }
                    known.push(peer);
                }
                Err(error) => end(&format!("the other machines cannot be watched: {error}")),
            }
        }
    };
    Ok(Watch { thread: spawn("gossamer-watch", keep_watch)? })
}

/// Reports that the program is over, with this exit status: to the peers by leaving the fabric, which nothing else on
/// this machine holds any more, then to the launcher.
pub(crate) fn finish(fabric: Arc<dyn Fabric>, watch: Watch, control: &Control, status: u8) {
    if let Some(sharing) = FATE_SHARING.get() {
        // Relaxed: the other threads' reactions come after `end_watch` and `send`, which order more than any store.
        sharing.is_over.store(true, Ordering::Relaxed);
    }
    fabric.end_watch();
    let _ = watch.thread.join(); // a loss that it has seen no longer matters
    drop(fabric);
    if let Err(error) = control.send(&Message::Finished { status }) {
        complain(format_args!("the end cannot be reported to the launcher: {error}"));
    }
    bridge::wait_for_the_others();
}

pub(crate) fn is_over() -> bool {
    FATE_SHARING.get().is_some_and(|sharing| sharing.is_over.load(Ordering::Relaxed))
}

/// Returns a peer that has died, with the fabric's reason.
fn lost_peer() -> Option<(u16, Option<String>)> {
    let fabric = FATE_SHARING.get()?.fabric.get()?.upgrade()?;
    let mut peers = (0..fabric.machines()).map(MachineId).filter(|peer| *peer != fabric.machine());
    let peer = peers.find(|peer| matches!(fabric.lost(*peer), Ok(Some(Loss::Died))))?;
    Some((peer.0, fabric.cause(peer)))
}

/// Reports the loss of a peer to the launcher, and waits to be ended. Ends the process if that takes too long; returns
/// only if the program is over.
fn report_loss(peer: u16, reason: &str) {
    let Some(sharing) = FATE_SHARING.get() else { return };
    if is_over() {
        return;
    }
    let _ = sharing.control.send(&Message::Lost { machine: peer, reason: reason.to_owned() });
    let deadline = deadline_after(END_TIMEOUT);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if is_over() {
            return;
        }
        if left.is_zero() {
            break;
        }
        thread::park_timeout(left); // `listen` ends the process meanwhile
    }
    complain(format_args!("machine {peer} is lost: {reason}"));
    std::process::exit(FAILURE_STATUS)
}

fn to_losses(message: &ToMember) {
    if let Some(losses) = losses() {
        losses.on_message(message);
    }
}

/// Ends the process: its launcher has not answered for so long that the others may have declared it dead.
pub(crate) fn end_lease() -> ! {
    complain(format_args!("the launcher has not answered in time: this machine may be declared dead"));
    std::process::exit(FAILURE_STATUS)
}

fn listen(control: &Arc<Control>, start: &Sender<StartMessage>) {
    let answers = Answers::default();
    let end = loop {
        // If the receiver has gone the program has started: late messages are dropped.
        match control.receive() {
            Ok(Some(Message::End { .. })) => break Ok(()),
            Ok(Some(Message::Secret { key })) => drop(start.send(StartMessage::Secret(key))),
            Ok(Some(Message::Peer { machine, endpoint })) => drop(start.send(StartMessage::Peer(machine, endpoint))),
            Ok(Some(Message::Look { ask, look })) => answers.look(control, ask, look),
            Ok(Some(Message::Lost { machine, reason })) => {
                if let Some(losses) = losses() {
                    losses.on_cause(machine, reason);
                }
            }
            Ok(Some(Message::Fence { epoch, dead })) => to_losses(&ToMember::Fence { epoch, dead }),
            Ok(Some(Message::Settled { epoch })) => to_losses(&ToMember::Settled { epoch }),
            Ok(Some(Message::Answer { beat, has_begun })) => {
                to_losses(&ToMember::Answer { beat });
                if let Some(losses) = losses().filter(|_| has_begun) {
                    losses.on_begun();
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => break Err("the launcher has gone".to_owned()),
            Err(error) => break Err(error.to_string()),
        }
    };
    if is_over() {
        return;
    }
    match end {
        Ok(()) => std::process::exit(0),
        Err(cause) => {
            complain(format_args!("{cause}"));
            std::process::exit(FAILURE_STATUS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set in a child of the test: kind of work that panics there.
    const PANICS: &str = "GOSSAMER_FATE_TEST_PANICS";

    /// Waits for work that panics, of a thread or of the caller's own.
    fn wait_for(kind: &str) {
        let (tell, told) = mpsc::channel::<()>();
        let work = move || {
            let _tell = tell;
            panic!("planted in {kind}", kind = std::env::var(PANICS).unwrap());
        };
        let keep = match kind {
            "a thread" => spawn("gossamer-planted", work).unwrap(),
            _ => thread::spawn(|| or_end("the planted work", work)),
        };
        let _ = told.recv_timeout(limits::HANG);
        // The waiters of such threads have no end of a channel that tells them.
        thread::sleep(limits::HANG);
        drop(keep);
        std::process::exit(0);
    }

    #[test]
    fn a_panic_that_waiters_would_not_notice_ends_the_process_and_is_named() {
        if let Ok(kind) = std::env::var(PANICS) {
            return wait_for(&kind);
        }
        const SELF: &str = "fate::tests::a_panic_that_waiters_would_not_notice_ends_the_process_and_is_named";
        for (kind, whose) in [("a thread", "the thread `gossamer-planted`"), ("a worker", "the planted work")] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", SELF, "--nocapture"])
                .env(PANICS, kind)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stderr);
            let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
            assert_eq!(signal, Some(libc::SIGABRT), "{said}");
            assert!(said.contains(&format!("gossamer: {whose} has panicked: planted in {kind}\n")), "{said}");
        }
    }
}
