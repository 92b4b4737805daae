//! A program that waits for room on its hosts (`run --wait`).
//!
//! It asks one host after the other, in the order of their names, and keeps its reserved room while it waits for more.
//! So do all waiting programs: of two that wait for each other's hosts none is before the other on both, and each gets
//! its turn. A host is connected to when it is asked, and lets the program wait for as long as it takes, with signs of
//! life.

use super::dialer::{Dialer, admit_in_turn, no_thread, prepare, spawn};
use super::plan::Files;
use super::{Event, RackError};
use crate::panics;
use crate::wire::{Start, link};

/// Starts asking. Each host that has the program, or one that refuses it, is an [`Event::Connected`].
///
/// # Errors
/// When the system has no threads left.
pub fn enter(dialer: &Dialer<'_>, start: &Start, files: &Files) -> Result<(), RackError> {
    let mut order: Vec<usize> = (0..dialer.chosen.len()).collect();
    order.sort_by_key(|host| &dialer.chosen[*host].name);
    let (rack, chosen, keys, event_sender) =
        (dialer.rack.clone(), dialer.chosen.to_vec(), dialer.keys.clone(), dialer.event_sender.clone());
    let (start, files) = (start.clone(), files.clone());
    let limit = dialer.options.start_limit();
    let ask_all = move || {
        let mut order = order.into_iter();
        for number in order.by_ref() {
            let mut told = None;
            let tell = |before, most| {
                if told.replace(before) != Some(before) {
                    let _ = event_sender.send(Event::Queued(number, before, most)); // a signal came meanwhile
                }
            };
            let linked = link::connect(&rack, &chosen[number], &keys).map_err(|error| error.to_string());
            let admitted = linked.and_then(|link| admit_in_turn(link, start.of_host(number), limit, tell));
            let files = files.clone();
            let outcome = admitted.map(|link| spawn(number, &event_sender, move || prepare(link, &files, limit)));
            let failure = match outcome {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(reason) => reason,
            };
            let _ = event_sender.send(Event::Connected(number, Err(failure))); // as above
            break;
        }
        for number in order {
            let _ = event_sender.send(Event::Connected(number, Err("it was not asked".to_owned()))); // as above
        }
    };
    panics::spawn("queue", ask_all).map(drop).map_err(no_thread)
}

/// Returns the message for the user.
pub fn notice(host: &str, before: u32, most: u16) -> String {
    let before = match before {
        0 => "this one is next".to_owned(),
        1 => "1 program waits before this one".to_owned(),
        before => format!("{before} programs wait before this one"),
    };
    format!("waiting for room on host {host}, where {most} programs may run (limits.programs); {before}")
}
