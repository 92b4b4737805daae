//! Finds a task after the loss of a machine: is it lost?
//!
//! All living machines are asked, each when it knows of the losses that the asker knows of. None of them takes anything
//! in from a lost machine by then. So a task is lost if none has it or has seen its end, and its last move that they
//! know of went to a lost machine.

use std::time::Duration;

use gossamer::link;

use super::registry::{self, Whereabouts};
use super::task_id::TaskId;

/// Time between rounds, where a machine is behind or a task is on its way.
const PAUSE: Duration = Duration::from_millis(1);

/// Result of a round.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// A machine has it, or its outcome is on the way.
    Alive,
    /// It is on its way, or a machine does not know enough yet.
    Unsettled,
    /// It is lost, with this machine if a living one sent it there.
    Lost(Option<u16>),
}

/// Returns the machine with which a task is lost; none if it is not. Waits for the answers of the living machines, and
/// until this one knows of the loss that another one tells of.
pub(super) fn lost_with(id: TaskId) -> Option<u16> {
    while link::outlives_losses() && gossamer::rack().machines().len() > 1 {
        match found(&ask_all(id, link::losses()), link::is_lost) {
            Found::Alive => return None,
            Found::Lost(machine) => return machine.or_else(|| link::lost_machines().last().copied()),
            Found::Unsettled => gossamer::sleep(PAUSE),
        }
    }
    None
}

fn ask_all(id: TaskId, losses: u32) -> Vec<Whereabouts> {
    let rack = gossamer::rack();
    let ask = |machine: u16| {
        // This machine too: its service thread may be about to take the task in.
        let answer = trust::link::call(link::service(machine), move || registry::lock().whereabouts(id, losses));
        // It is lost meanwhile, or ends with the program: the next round knows.
        answer.unwrap_or(Whereabouts::Behind)
    };
    (0..rack.machines().len() as u16).filter(|machine| !link::is_lost(*machine)).map(ask).collect()
}

/// Judges the answers of a round.
fn found(answers: &[Whereabouts], is_lost: impl Fn(u16) -> bool) -> Found {
    if answers.iter().any(|answer| matches!(answer, Whereabouts::Here | Whereabouts::Ended)) {
        return Found::Alive;
    }
    if answers.contains(&Whereabouts::Behind) {
        return Found::Unsettled;
    }
    let went = |answer: &Whereabouts| match answer {
        Whereabouts::WentTo(machine, moves) => Some((*moves, *machine)),
        _ => None,
    };
    match answers.iter().filter_map(went).max() {
        Some((_, machine)) if !is_lost(machine) => Found::Unsettled,
        last => Found::Lost(last.map(|(_, machine)| machine)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Whereabouts::{Behind, Ended, Here, Unknown, WentTo};

    #[test]
    fn a_task_is_lost_if_no_living_machine_has_it_or_sent_it_to_one() {
        let of = |answers: &[Whereabouts]| found(answers, |machine| machine == 7);
        assert_eq!(of(&[Unknown, Here, WentTo(7, 1)]), Found::Alive, "it went there, and came back by another way");
        assert_eq!(of(&[Ended, Unknown]), Found::Alive);
        assert_eq!(of(&[Unknown, WentTo(7, 1)]), Found::Lost(Some(7)));
        assert_eq!(of(&[WentTo(1, 1), WentTo(7, 2)]), Found::Lost(Some(7)), "from the one to the other");
        assert_eq!(of(&[WentTo(1, 3), WentTo(7, 2)]), Found::Unsettled, "on its way");
        assert_eq!(of(&[Unknown, Unknown]), Found::Lost(None));
        assert_eq!(of(&[WentTo(7, 1), Behind]), Found::Unsettled);
    }
}
