//! Questions of a program's viewers, on their way to the thread that talks to its machines, and the answers on their
//! way back.
//!
//! Here: which answer belongs to which question. Not here: how that thread is woken, and how it asks the machines:
//! `gossamer-launch` and the hub of `rendezvous` each have their own way.
//!
//! Without questions, that thread is not woken.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::backlog::{self, Backlog, Giver, Part};
use super::source::{Answer, Parts, Source};
use crate::control::Look;

/// Most bytes of answers to a question that wait for the asker.
const WAITING_MAX: usize = 64 << 20;
/// Most open questions; the oldest goes.
const OPEN_MAX: usize = 64;

/// Side of the asker.
pub struct Looker {
    machines: u16,
    lost: Arc<Mutex<Vec<u16>>>,
    ask: Mutex<Sender<(Look, Giver)>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// Side of the thread that talks to the machines.
pub struct Looks {
    lost: Arc<Mutex<Vec<u16>>>,
    asked: Receiver<(Look, Giver)>,
    open: Vec<(u32, Giver)>,
    next: u32,
}

/// Makes both sides, for a program of so many machines. `wake` makes that thread call [`Looks::questions`].
///
/// ```
/// use gossamer::view::{Look, Source, looks};
/// use std::time::Duration;
/// let (looker, mut looks) = looks::channel(1, || ());
/// let asking = std::thread::spawn(move || looker.look(Look::Dump, Duration::from_secs(60)));
/// let (ask, _) = loop {
///     match looks.questions().pop() {
///         Some(question) => break question,
///         None => std::thread::yield_now(),
///     }
/// };
/// looks.on_seen(0, ask, true, b"nothing".to_vec());
/// assert_eq!(asking.join().unwrap().machines, [(0, b"nothing".to_vec())]);
/// ```
#[must_use]
pub fn channel(machines: u16, wake: impl Fn() + Send + Sync + 'static) -> (Looker, Looks) {
    let (ask, asked) = mpsc::channel();
    let lost = Arc::default();
    let looker = Looker { machines, lost: Arc::clone(&lost), ask: Mutex::new(ask), wake: Box::new(wake) };
    (looker, Looks { lost, asked, open: Vec::new(), next: 0 })
}

impl Source for Looker {
    fn look(&self, look: Look, limit: Duration) -> Answer {
        let lost = locked(&self.lost).clone();
        let mut parts = Parts::new((0..self.machines).filter(|machine| !lost.contains(machine)), look, limit);
        let (tell, told) = backlog::channel(vec![Backlog::new(WAITING_MAX)]);
        let is_there = self.ask.lock().unwrap_or_else(PoisonError::into_inner).send((look, tell)).is_ok();
        (self.wake)();
        while is_there && let Some(left) = parts.left() {
            let Ok(given) = told.recv_timeout(left) else { break }; // it is late, or the program is over
            match &given.part {
                Part::Bytes(bytes, is_last) => parts.add(given.machine, bytes, *is_last),
                Part::Dropped => parts.drop_answer(given.machine),
            }
        }
        parts.into_answer()
    }
}

fn locked(lost: &Mutex<Vec<u16>>) -> MutexGuard<'_, Vec<u16>> {
    lost.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Looks {
    /// Notes that the program goes on without this machine, whose answers are not waited for any more.
    pub fn lose(&mut self, machine: u16) {
        locked(&self.lost).push(machine);
    }

    /// Returns the questions since the last call, each with its number.
    pub fn questions(&mut self) -> Vec<(u32, Look)> {
        let mut questions = Vec::new();
        while let Ok((look, tell)) = self.asked.try_recv() {
            self.next = self.next.wrapping_add(1);
            self.open.push((self.next, tell));
            questions.push((self.next, look));
        }
        // Questions that were answered, or given up, are found when the next part for them comes; the oldest go.
        if self.open.len() > OPEN_MAX {
            self.open.drain(..self.open.len() - OPEN_MAX);
        }
        questions
    }

    /// Passes on a part of a machine's answer.
    pub fn on_seen(&mut self, machine: u16, ask: u32, is_last: bool, bytes: Vec<u8>) {
        let Some(place) = self.open.iter().position(|(number, _)| *number == ask) else { return };
        if !self.open[place].1.give(machine, is_last, bytes) {
            self.open.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_find_who_asked_and_late_ones_nobody() {
        let (looker, mut looks) = channel(2, || ());
        assert!(looks.questions().is_empty());
        let asking = std::thread::spawn(move || {
            let first = looker.look(Look::Dump, Duration::from_secs(30));
            (first, looker.look(Look::Sample, Duration::from_millis(50)))
        });
        let mut next = || loop {
            if let Some(question) = looks.questions().pop() {
                return (question, std::mem::take(&mut looks.open));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let ((ask, look), open) = next();
        assert_eq!(look, Look::Dump);
        looks.open = open;
        looks.on_seen(1, ask, true, b"one".to_vec());
        looks.on_seen(0, ask, false, b"ze".to_vec());
        looks.on_seen(0, ask.wrapping_add(1), true, b"nobody's".to_vec());
        looks.on_seen(0, ask, true, b"ro".to_vec());
        let (first, second) = asking.join().unwrap();
        assert_eq!(first.machines, [(0, b"zero".to_vec()), (1, b"one".to_vec())]);
        assert!(second.machines.is_empty() && second.troubles.len() == 2);
        let (late, _) = looks.questions()[0];
        looks.on_seen(0, late, true, Vec::new());
        assert!(looks.open.iter().all(|(number, _)| *number != late));
    }
}
