//! Frames that have come for a thread: out of its mailbox, or directly, into their turn.

use gossamer_ways::ways::{Stamp, Way as Route};

use super::super::super::slot::Violation;
use super::super::pair::Letter;
use super::super::way::breach;
use super::super::wire::{Head, Kind, frame_bytes};
use super::WaysCarrier;
use crate::losses::record;

impl WaysCarrier {
    /// Takes what is in the mailbox.
    pub(super) fn take_mail(&mut self) {
        if let Err((place, violation)) = self.sort_mail() {
            self.fail(place, "a message of", &violation);
        }
    }

    pub(in super::super) fn sort_mail(&mut self) -> Result<(), (usize, Violation)> {
        let mailbox = self.ways.mailbox(self.own.worker);
        if !mailbox.has_some() {
            return Ok(());
        }
        self.is_busy = true;
        let mut mail = std::mem::take(&mut self.mail);
        mailbox.take(&mut mail);
        for (from, head, data) in mail.frames().filter(|(from, ..)| !record::is_shut_out(from.machine)) {
            // The dealing thread has checked that there is such a thread.
            let place = self.place_of(from);
            let taken = match head.kind {
                Kind::Open | Kind::Refuse | Kind::Close => self.hear(place, &head),
                _ => {
                    let data = self.buffers.copy(data);
                    self.sort(place, Route::Machine, Letter { head, data })
                }
            };
            taken.map_err(|violation| (place, violation))?;
        }
        self.mail = mail;
        Ok(())
    }

    /// Takes a frame in its turn, with those that have waited for it.
    pub(super) fn sort(&mut self, place: usize, way: Route, letter: Letter) -> Result<(), Violation> {
        let Head { kind, number, changes, .. } = letter.head;
        let from = self.peers[place];
        let bytes = if kind.is_batch() { frame_bytes(letter.data.len()) } else { 0 };
        let stamp = Stamp { number, after: changes.then(|| number.wrapping_sub(1)) };
        let mut ready = std::mem::take(&mut self.ready);
        let now_ns = self.now_ns();
        self.order.receive(from, (way, stamp), (letter, bytes), now_ns, &mut ready).map_err(breach)?;
        for letter in ready.drain(..) {
            let Head { kind, given, .. } = letter.head;
            let exchange = self.exchanges[place].get_or_insert_default();
            for (under_way, given) in exchange.under_way.iter_mut().zip(given) {
                under_way.give(given as usize).map_err(breach)?;
            }
            if !kind.is_batch() {
                self.buffers.give_back(letter.data);
                continue;
            }
            match (exchange.take(letter, &mut self.buffers)?, kind) {
                (false, _) => self.owing.push(place),
                (true, Kind::Answer) => self.answers += 1,
                (true, _) => self.note_requests(place),
            }
        }
        self.ready = ready;
        match &self.exchanges[place] {
            Some(exchange) if exchange.direct.is_some() => self.settle(place),
            _ => Ok(()),
        }
    }

    fn note_requests(&mut self, place: usize) {
        if let Err(at) = self.requests.binary_search(&place) {
            self.requests.insert(at, place);
        }
    }
}
