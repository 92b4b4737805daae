//! The messages between a program's launcher and its part, passed on by a thread for each direction. Both stop between
//! two messages for an upgrade.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use comm::secure::{SecureReader, SecureWriter};
use gossamer::control::Message;

use super::Daemon;
use super::child::{how_it_ended, until_message};
use super::gate::Pass;
use super::handed::Handed;
use super::handover::Parked;
use super::programs::Session;
use crate::cli::size;
use crate::machines::LOOK_INTERVAL;
use crate::panics;
use crate::signals;
use crate::wire::link::Link;
use crate::wire::{FromPart, ProgramId, Receiver, Sender, Wire, WireError, Written};

/// Passes messages on until one side has gone; returns the cause, in words.
pub(super) fn converse(
    daemon: &Arc<Daemon>,
    id: ProgramId,
    session: &Session,
    link: Link,
    is_done: bool,
    pass: &Pass,
) -> String {
    let Session { channel, silence, .. } = session;
    let silence = *silence;
    let Link { mut receiver, mut sender, peer, .. } = link;
    let has_up_ended = Arc::new(AtomicBool::new(false));
    let prepared = (|| {
        receiver.set_timeout(Some(silence))?;
        sender.set_timeout(Some(silence))?;
        let from_part = channel.stream().try_clone()?;
        channel.stream().set_write_timeout(Some(silence))?;
        let (daemon, has_ended, pass) = (Arc::clone(daemon), Arc::clone(&has_up_ended), pass.another());
        let session = session.clone();
        let up = move || {
            let is_done = pass_up(&daemon, id, &session, from_part, sender, is_done, &pass);
            has_ended.store(true, Ordering::Relaxed); // a fact on its own
            is_done
        };
        Ok::<_, WireError>(std::thread::Builder::new().name(format!("{id} up")).spawn(up)?)
    })();
    let (up, why) = match prepared {
        Ok(up) => (Some(up), pass_down(&mut receiver, session, id, pass, &has_up_ended)),
        Err(error) => (None, error.to_string()),
    };
    channel.cut(); // the part may have gone first
    let _ = receiver.tcp().shutdown(Shutdown::Both); // so may the launcher
    let is_done = up.is_some_and(|up| up.join().unwrap_or(false)); // its panic was reported by itself
    let why = if is_done { "all its machines here have gone".to_owned() } else { format!("launcher at {peer}: {why}") };
    daemon.programs.ended_by(id).unwrap_or(why)
}

fn pass_down(
    receiver: &mut SecureReader,
    session: &Session,
    program: ProgramId,
    pass: &Pass,
    has_up_ended: &AtomicBool,
) -> String {
    let Session { channel, silence, .. } = session;
    let silence = *silence;
    // The end of the session, once the other thread has begun with it, is waited for.
    let park = |receiver: &SecureReader| {
        let (tcp, reader) = (Handed::of(receiver.tcp()), receiver.state().to_vec());
        (!has_up_ended.load(Ordering::Relaxed)).then_some(Parked::Down { program, tcp, reader })
    };
    loop {
        match pass.receive(receiver, silence, park) {
            Ok(message) if channel.send(&message) => {}
            // It has gone, or hangs. `pass_up` tells the launcher, which closes the connection.
            Ok(_) => return until_closed(receiver, silence),
            Err(error) => return error.to_string(),
        }
    }
}

/// Waits until the launcher has closed: an early close could destroy unread messages.
pub(super) fn until_closed(receiver: &mut SecureReader, limit: Duration) -> String {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Err(error) = receiver.receive_bytes() {
            return error.to_string();
        }
    }
    "it did not leave".to_owned()
}

/// Passes the part's messages on; returns whether the part said that it is done.
fn pass_up(
    daemon: &Daemon,
    id: ProgramId,
    session: &Session,
    mut from_part: UnixStream,
    mut sender: SecureWriter,
    mut is_done: bool,
    pass: &Pass,
) -> bool {
    let Session { part, silence, .. } = *session;
    // Detection and report lag by one look each, and both must fit into the silence that is allowed.
    let stop_limit = silence.saturating_sub(2 * LOOK_INTERVAL);
    let mut stopped = None;
    let pass_all = || loop {
        let park = |sender: &SecureWriter| Parked::Up { program: id, writer: sender.state().to_vec(), is_done };
        if let Some(signal) = until_message(part, &from_part, &mut sender, stop_limit, pass, park) {
            stopped = Some(format!("was stopped by {}", signals::describe(signal)));
            break String::new();
        }
        match from_part.receive_bytes() {
            Ok(message) => {
                let handled = note(daemon, id, &message);
                is_done |= handled == Handled::Done;
                let explained = match handled {
                    Handled::Kept => continue,
                    Handled::Explained(cause) => sender.send_message(&cause),
                    Handled::Passed | Handled::Done => Ok(()),
                };
                if explained.and_then(|()| sender.send_bytes(&message)).is_err() {
                    break "the launcher cannot be reached".to_owned();
                }
            }
            Err(error) => break error.to_string(),
        }
    };
    let ended = panics::or_text(pass_all);
    if !is_done {
        let reason = daemon.programs.ended_by(id).unwrap_or_else(|| {
            let how = match ended {
                Ok(why) => stopped.or_else(|| how_it_ended(part)).unwrap_or_else(|| format!("ended: {why}")),
                Err(panic) => format!("is no longer heard, for its daemon failed by {panic}"),
            };
            let memory = daemon.programs.out_of_memory(id).map(|limit| format!(", {}", size::out_of_memory(limit)));
            format!("its process for the program (pid {}) {how}{}", part.as_raw_nonzero(), memory.unwrap_or_default())
        });
        let _ = sender.send_message(&FromPart::Gone(reason)); // the launcher may have gone first
    }
    is_done
}

/// Handling of a message from a part.
#[derive(PartialEq, Eq)]
enum Handled {
    /// Pass it to the launcher.
    Passed,
    /// The same, after the cause.
    Explained(FromPart),
    /// Passed, and the part says that it is done.
    Done,
    /// It was for this daemon.
    Kept,
}

/// Notes the part's news about its machines for `status` and `logs`, and passes their answers to the watchers.
fn note(daemon: &Daemon, id: ProgramId, message: &[u8]) -> Handled {
    match FromPart::from_bytes(message) {
        Ok(FromPart::Started { machine, pid }) => daemon.programs.add_machine(id, machine, pid),
        Ok(FromPart::Said { machine, packet }) => match Message::decode(&packet) {
            Ok(Message::Ready { slots_bytes, .. }) => daemon.programs.set_slots(id, machine, slots_bytes),
            Ok(Message::Seen { ask, is_last, bytes }) => {
                daemon.looks.deliver(id, machine, ask, is_last, bytes);
                return Handled::Kept;
            }
            _ => {}
        },
        Ok(FromPart::Dropped { machine, ask }) => {
            daemon.looks.drop_answer(id, machine, ask);
            return Handled::Kept;
        }
        Ok(FromPart::Output { machine, stream, bytes }) => daemon.kept.push(id, Written { machine, stream, bytes }),
        Ok(FromPart::Exited { machine, status }) => {
            daemon.kept.exit(id, machine, status);
            // Also where the machine exits because a child of its own was killed.
            if status != 0
                && let Some(limit_bytes) = daemon.programs.out_of_memory(id)
            {
                return Handled::Explained(FromPart::OutOfMemory { machine, limit_bytes });
            }
        }
        Ok(FromPart::Done) => {
            daemon.programs.set_ending(id); // before its launcher hears of it, and starts the next
            return Handled::Done;
        }
        _ => {}
    }
    Handled::Passed
}
