//! Who may do what with one chunk: the record that its home keeps (DArray 4.2 and 4.4, table 1, fig. 9). Pure: no data,
//! no messages; what is to be sent comes out as [`Step`]s, to be done in order.
//!
//! ```text
//! Unshared          home reads, writes and combines
//! Shared(places)    home and these read
//! Dirty(place)      this place reads, writes and combines, nobody else does anything
//! Operated(op, ..)  home and these combine with one operator; nobody reads
//! ```
//!
//! A request that does not fit the state starts a *round*: those in the way are recalled, all requests wait in line
//! meanwhile, and with the last answer the line is served in order.
//!
//! What a place may rely on, with messages that arrive in order from home to place and from place to home:
//! - (K1) A place has at most one request under way, and does not drop the chunk of its own accord before it is
//!   granted.
//! - (K2) Each recall is answered once, by its number, also by a place that has dropped the chunk meanwhile (number 0
//!   said so, before).
//! - (K3) A grant says whether data comes with it: not where the place still reads, nor to combine.
//! - (K4) A place that reads and wants to combine reads no more from when it asks: others may combine before it hears
//!   of its grant. One that wants to write reads on.

use std::collections::VecDeque;

/// What may be done with a chunk. `Write` includes all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Right<O> {
    Read,
    Write,
    Combine(O),
}

impl<O: Copy + Eq> Right<O> {
    /// Does who has this right need no other one for `wanted`?
    pub(crate) fn covers(self, wanted: Right<O>) -> bool {
        self == Right::Write || self == wanted
    }
}

/// The number of a place among all of the rack.
pub(crate) type PlaceNumber = u32;

/// Who wants something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    Home,
    Place(PlaceNumber),
}

/// What the home has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step<O> {
    /// This one may; to a place the chunk goes along, `with_data`.
    Grant { to: Who, right: Right<O>, with_data: bool },
    /// This place has to give back its right, all of it or (`keeps_reading`) that to write.
    Recall { from: PlaceNumber, number: u64, keeps_reading: bool },
}

/// A peer sent what no peer of this protocol sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonsense;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State<O> {
    Unshared,
    Shared(Vec<PlaceNumber>),
    Dirty(PlaceNumber),
    Operated(O, Vec<PlaceNumber>),
}

/// See the file's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Keeper<O> {
    state: State<O>,
    line: VecDeque<(Who, Right<O>)>,
    /// Who has not answered the recall of this round.
    awaited: Vec<PlaceNumber>,
    /// Of the last round.
    number: u64,
}

impl<O: Copy + Eq> Keeper<O> {
    pub(crate) fn new() -> Self {
        Keeper { state: State::Unshared, line: VecDeque::new(), awaited: Vec::new(), number: 0 }
    }

    /// What home itself may do now.
    pub(crate) fn right_of_home(&self) -> Option<Right<O>> {
        match self.state {
            State::Unshared => Some(Right::Write),
            State::Shared(_) => Some(Right::Read),
            State::Dirty(_) => None,
            State::Operated(op, _) => Some(Right::Combine(op)),
        }
    }

    /// Is all as if it had just been made?
    pub(crate) fn is_at_rest(&self) -> bool {
        self.state == State::Unshared && self.line.is_empty() && self.awaited.is_empty()
    }

    /// Somebody wants a right.
    pub(crate) fn want(&mut self, who: Who, right: Right<O>, steps: &mut Vec<Step<O>>) {
        // At once if nobody is in the way: as most are, without a line, for which memory is taken.
        let is_first = self.awaited.is_empty() && self.line.is_empty();
        if !(is_first && self.grant(who, right, steps)) {
            self.line.push_back((who, right));
            self.serve(steps);
        }
    }

    /// A place has given its right back: as an answer to the recall with this number, or, with 0, of its own accord.
    /// What it has written or combined is at home already. `reads` says that it has kept the right to read.
    ///
    /// # Errors
    /// If nothing of this kind was asked.
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

    /// This place has no right any more, or reads only.
    fn leave(&mut self, place: PlaceNumber, reads: bool) -> Result<(), Nonsense> {
        match &mut self.state {
            State::Dirty(holder) if *holder == place => {
                self.state = if reads { State::Shared(vec![place]) } else { State::Unshared };
                Ok(())
            }
            State::Shared(places) | State::Operated(_, places) => {
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

    /// Serves the line as far as it goes.
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

    /// Grants a right if nobody is in the way.
    fn grant(&mut self, to: Who, right: Right<O>, steps: &mut Vec<Step<O>>) -> bool {
        let with_data = match (&mut self.state, to) {
            (State::Unshared, Who::Home) => false,
            (State::Unshared, Who::Place(place)) => {
                self.state = Self::held_by(place, right);
                !matches!(right, Right::Combine(_))
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
            _ => return false,
        };
        steps.push(Step::Grant { to, right, with_data });
        true
    }

    fn held_by(place: PlaceNumber, right: Right<O>) -> State<O> {
        match right {
            Right::Read => State::Shared(vec![place]),
            Right::Write => State::Dirty(place),
            Right::Combine(op) => State::Operated(op, vec![place]),
        }
    }

    /// Begins a round: recalls those in the way of this right.
    fn recall(&mut self, who: Who, right: Right<O>, steps: &mut Vec<Step<O>>) {
        self.number += 1;
        let (from, keeps_reading) = match &self.state {
            State::Unshared => unreachable!("nobody is in the way"),
            State::Dirty(place) => (vec![*place], right == Right::Read),
            State::Operated(_, places) => (places.clone(), false),
            // Who reads and wants more keeps what it reads.
            State::Shared(places) => {
                (places.iter().copied().filter(|place| Who::Place(*place) != who).collect(), false)
            }
        };
        for &from in &from {
            steps.push(Step::Recall { from, number: self.number, keeps_reading });
        }
        self.awaited = from;
    }
}

/// A place that asks for what it has, as none of this protocol does, is kept once, or its own writes would wait for it
/// for ever.
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
