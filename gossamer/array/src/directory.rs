//! Directory entry of one chunk, kept at its home: the places with rights to it (DArray 4.2 and 4.4, table 1, fig. 9).
//! Pure: it has no data and sends no messages; it returns [`Step`]s, to be executed in order.
//!
//! ```text
//! Unshared          home reads, writes and combines
//! Shared(places)    home and these read
//! Dirty(place)      this place reads, writes and combines, nobody else does anything
//! Operated(op, ..)  home and these combine with one operator; nobody reads
//! InPlace(places)   home and these, workers of its process, read and write single elements in the home's memory
//! ```
//!
//! A request that does not fit the state starts a *round*: conflicting rights are recalled, all requests queue
//! meanwhile, and after the last answer the queue is served in order.
//!
//! Guarantees for a place, if messages arrive in order from home to place and from place to home:
//! - A place has at most one request in flight, and does not drop the chunk of its own accord before it is
//!   granted.
//! - Each recall is answered once, with its number, also by a place that has dropped the chunk meanwhile. (It had
//!   announced that earlier, with number 0.)
//! - A grant says whether data comes with it: none does if the place still reads, for combining, or for access in
//!   place.
//! - [stops-first] A place that reads and wants to combine, or access in place, stops reading when it sends the
//!   request: others may change the chunk before it receives its grant. One that wants to write continues to read. A
//!   place with access in place stops that before it sends any request.

use std::collections::VecDeque;
use std::convert::Infallible;

/// Right to a chunk. `Write` includes all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Right<O> {
    Read,
    Write,
    Combine(O),
    /// Read and write single elements in the home's memory, while others of its process do. For workers of this
    /// process.
    InPlace,
    /// Read single elements. Wanted only: granted is `InPlace` where others have it, else `Read`.
    Glance,
}

impl<O: Copy + Eq> Right<O> {
    /// Does a holder of this right need no other one for `wanted`?
    pub(crate) fn covers(self, wanted: Right<O>) -> bool {
        self == Right::Write
            || self == wanted
            || wanted == Right::Glance && matches!(self, Right::Read | Right::InPlace)
    }
}

impl<O> Right<O> {
    /// Returns it as a value that can be sent, or its operator, which cannot.
    pub(crate) fn plain(self) -> Result<Right<Infallible>, O> {
        match self {
            Right::Read => Ok(Right::Read),
            Right::Write => Ok(Right::Write),
            Right::InPlace => Ok(Right::InPlace),
            Right::Glance => Ok(Right::Glance),
            Right::Combine(op) => Err(op),
        }
    }
}

impl Right<Infallible> {
    /// Returns it as a right among those to combine.
    pub(crate) fn of<O>(self) -> Right<O> {
        match self {
            Right::Read => Right::Read,
            Right::Write => Right::Write,
            Right::InPlace => Right::InPlace,
            Right::Glance => Right::Glance,
        }
    }
}

/// Number of a place among all of the rack.
pub(crate) type PlaceNumber = u32;

/// Requester or holder of a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    Home,
    Place(PlaceNumber),
}

/// Next step of the home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step<O> {
    /// Grant the right. For a remote place with `with_data` the chunk is sent along.
    Grant { to: Who, right: Right<O>, with_data: bool },
    /// Recall the right of this place: all of it or, with `keeps_reading`, only that to write.
    Recall { from: PlaceNumber, number: u64, keeps_reading: bool },
}

/// A peer sent a message that this protocol does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonsense;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State<O> {
    Unshared,
    Shared(Vec<PlaceNumber>),
    Dirty(PlaceNumber),
    Operated(O, Vec<PlaceNumber>),
    InPlace(Vec<PlaceNumber>),
}

/// Directory entry of a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Entry<O> {
    state: State<O>,
    line: VecDeque<(Who, Right<O>)>,
    /// Places that have not answered the recall of this round.
    awaited: Vec<PlaceNumber>,
    /// Number of the last round.
    number: u64,
}

impl<O: Copy + Eq> Entry<O> {
    pub(crate) fn new() -> Self {
        Entry { state: State::Unshared, line: VecDeque::new(), awaited: Vec::new(), number: 0 }
    }

    /// Returns the home's own right now.
    pub(crate) fn right_of_home(&self) -> Option<Right<O>> {
        match self.state {
            State::Unshared => Some(Right::Write),
            State::Shared(_) => Some(Right::Read),
            State::Dirty(_) => None,
            State::Operated(op, _) => Some(Right::Combine(op)),
            State::InPlace(_) => Some(Right::InPlace),
        }
    }

    /// Is it in its initial state?
    pub(crate) fn is_at_rest(&self) -> bool {
        self.state == State::Unshared && self.line.is_empty() && self.awaited.is_empty()
    }

    /// Handles a request for a right.
    pub(crate) fn want(&mut self, who: Who, right: Right<O>, steps: &mut Vec<Step<O>>) {
        // Granted at once if there is no conflict, as most are, without a queue, which would allocate.
        let is_first = self.awaited.is_empty() && self.line.is_empty();
        if !(is_first && self.grant(who, right, steps)) {
            self.line.push_back((who, right));
            self.serve(steps);
        }
    }

    /// Handles a right that a place gives back: as an answer to the recall with this number, or, with 0, of its own
    /// accord. Its writes and operands are already merged at home. With `reads` it has kept the right to read.
    ///
    /// # Errors
    /// If nothing of this kind was requested.
    pub(crate) fn back(
        &mut self,
        from: PlaceNumber,
        number: u64,
        reads: bool,
        steps: &mut Vec<Step<O>>,
    ) -> Result<(), Nonsense> {
        if number == 0 {
            self.leave(from, false)?;
        } else {
            let place = self.awaited.iter().position(|awaited| *awaited == from);
            let place = place.filter(|_| number == self.number).ok_or(Nonsense)?;
            self.awaited.swap_remove(place);
            // It may have left before.
            let _ = self.leave(from, reads);
        }
        self.serve(steps);
        Ok(())
    }

    /// Removes the right of this place, or reduces it to reading.
    fn leave(&mut self, place: PlaceNumber, reads: bool) -> Result<(), Nonsense> {
        match &mut self.state {
            State::Dirty(holder) if *holder == place => {
                self.state = if reads { State::Shared(vec![place]) } else { State::Unshared };
                Ok(())
            }
            State::Shared(places) | State::Operated(_, places) | State::InPlace(places) => {
                let at = places.iter().position(|other| *other == place).ok_or(Nonsense)?;
                places.swap_remove(at);
                if places.is_empty() {
                    self.state = State::Unshared;
                }
                Ok(())
            }
            State::Dirty(_) | State::Unshared => Err(Nonsense),
        }
    }

    /// Serves the queue as far as possible.
    fn serve(&mut self, steps: &mut Vec<Step<O>>) {
        while self.awaited.is_empty()
            && let Some(&(who, right)) = self.line.front()
        {
            if self.grant(who, right, steps) {
                self.line.pop_front();
            } else {
                self.recall(who, right, steps);
            }
        }
    }

    /// Grants a right if there is no conflict.
    fn grant(&mut self, to: Who, wanted: Right<O>, steps: &mut Vec<Step<O>>) -> bool {
        let right = match (wanted, &self.state) {
            (Right::Glance, State::InPlace(_)) => Right::InPlace,
            (Right::Glance, _) => Right::Read,
            _ => wanted,
        };
        let with_data = match (&mut self.state, to) {
            (State::Unshared, Who::Home) => false,
            (State::Unshared, Who::Place(place)) => {
                self.state = Self::held_by(place, right);
                matches!(right, Right::Read | Right::Write)
            }
            (State::Shared(_), Who::Home) if right == Right::Read => false,
            (State::Shared(places), Who::Place(place)) if right == Right::Read => {
                join(places, place);
                true
            }
            // The only reader: it has the data.
            (State::Shared(places), Who::Place(place)) if places[..] == [place] => {
                self.state = Self::held_by(place, right);
                false
            }
            (State::Operated(op, places), to) if right == Right::Combine(*op) => {
                if let Who::Place(place) = to {
                    join(places, place);
                }
                false
            }
            (State::InPlace(places), to) if right == Right::InPlace => {
                if let Who::Place(place) = to {
                    join(places, place);
                }
                false
            }
            // The only one, which has stopped [stops-first].
            (State::InPlace(places), Who::Place(place)) if places[..] == [place] => {
                self.state = Self::held_by(place, right);
                matches!(right, Right::Read | Right::Write)
            }
            _ => return false,
        };
        steps.push(Step::Grant { to, right, with_data });
        true
    }

    fn held_by(place: PlaceNumber, right: Right<O>) -> State<O> {
        match right {
            Right::Read | Right::Glance => State::Shared(vec![place]),
            Right::Write => State::Dirty(place),
            Right::Combine(op) => State::Operated(op, vec![place]),
            Right::InPlace => State::InPlace(vec![place]),
        }
    }

    /// Begins a round: recalls the rights that conflict with this one.
    fn recall(&mut self, who: Who, right: Right<O>, steps: &mut Vec<Step<O>>) {
        self.number += 1;
        let (from, keeps_reading) = match &self.state {
            State::Unshared => unreachable!("nobody is in the way"),
            State::Dirty(place) => (vec![*place], matches!(right, Right::Read | Right::Glance)),
            State::Operated(_, places) => (places.clone(), false),
            // A reader that wants more keeps its right to read; one in place has stopped [stops-first].
            State::Shared(places) | State::InPlace(places) => {
                (places.iter().copied().filter(|place| Who::Place(*place) != who).collect(), false)
            }
        };
        for &from in &from {
            steps.push(Step::Recall { from, number: self.number, keeps_reading });
        }
        self.awaited = from;
    }
}

/// Adds a place. A place that requests a right that it has, which none of this protocol does, is recorded once;
/// otherwise its own writes would wait for it for ever.
fn join(places: &mut Vec<PlaceNumber>, place: PlaceNumber) {
    if !places.contains(&place) {
        places.push(place);
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;
