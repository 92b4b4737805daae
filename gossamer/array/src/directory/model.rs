//! Model of one chunk for tests of the directory: its home, some places, and an ordered channel each way between home
//! and each place.
//!
//! The places follow the directory's documentation, and are as adverse as it allows: they request anything at any time,
//! and drop their rights. An operation is executed as soon as its right is granted. [`Model::step`] reports these
//! faults:
//! - a value was read or overwritten that is not the latest: a write or an operand is missing, or was merged twice;
//! - two parties have rights that conflict (which covers every further operation by them, as long as they have these);
//! - a place was sent data that it has, or none although it needs some;
//! - the data at home changed between the sending of a grant and its arrival;
//! - requests were granted in another order than they came in, or one took more than one round.

use super::{Entry, PlaceNumber, Right, Step, Who};
use std::collections::VecDeque;

/// Index of one of two operators, which do not commute with each other.
pub(super) type Op = usize;

pub(super) const RIGHTS: [Right<Op>; 6] =
    [Right::Glance, Right::InPlace, Right::Read, Right::Write, Right::Combine(0), Right::Combine(1)];

/// Contents of a chunk: the number of the last write, and how many operands of each operator were merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Value {
    pub(super) version: i32,
    pub(super) operands: [i32; 2],
}

/// Message from a place to home.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ToHome {
    Want(Right<Op>),
    Back { number: u64, reads: bool, data: Option<Value>, operands: [i32; 2] },
}

/// Message from home to a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ToPlace {
    Grant { right: Right<Op>, data: Option<Value> },
    Recall { number: u64, keeps_reading: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Place {
    pub(super) right: Option<Right<Op>>,
    pub(super) wants: Option<Right<Op>>,
    pub(super) copy: Option<Value>,
    /// Operands combined here and not yet sent home.
    pub(super) operands: [i32; 2],
    pub(super) to_home: VecDeque<ToHome>,
    pub(super) to_place: VecDeque<ToPlace>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Wants(Who, Right<Op>),
    /// The place drops its right.
    Drops(PlaceNumber),
    /// Home receives the next message from this place.
    AtHome(PlaceNumber),
    /// This place receives the next message from home.
    AtPlace(PlaceNumber),
}

/// State of the chunk at home, at all places and in flight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Model {
    pub(super) entry: Entry<Op>,
    pub(super) places: Vec<Place>,
    pub(super) home: Value,
    pub(super) home_wants: Option<Right<Op>>,
    /// The value that every reader should see.
    pub(super) truth: Value,
}

macro_rules! must {
    ($holds:expr, $($words:tt)+) => {
        if !$holds { return Err(format!($($words)+)); }
    };
}

impl Model {
    pub(super) fn new(places: usize) -> Self {
        let zero = Value::default();
        let places = vec![Place::default(); places];
        Model { entry: Entry::new(), places, home: zero, home_wants: None, truth: zero }
    }

    fn place(&mut self, number: PlaceNumber) -> &mut Place {
        &mut self.places[number as usize]
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = PlaceNumber> + use<> {
        0..self.places.len() as PlaceNumber
    }

    /// Returns the actions that are possible next.
    pub(super) fn actions(&self, rights: &[Right<Op>]) -> Vec<Action> {
        let mut actions = self.deliveries();
        let mut wants = |who, has: Option<Right<Op>>| {
            let new = rights.iter().filter(|wanted| !has.is_some_and(|has| has.covers(**wanted)));
            actions.extend(new.map(|wanted| Action::Wants(who, *wanted)));
        };
        if self.home_wants.is_none() {
            wants(Who::Home, self.entry.right_of_home());
        }
        let idle = || self.numbers().zip(&self.places).filter(|(_, place)| place.wants.is_none());
        idle().for_each(|(number, place)| wants(Who::Place(number), place.right));
        actions.extend(idle().filter(|(_, place)| place.right.is_some()).map(|(number, _)| Action::Drops(number)));
        actions
    }

    /// Returns the messages that may arrive next.
    pub(super) fn deliveries(&self) -> Vec<Action> {
        let places = || self.numbers().zip(&self.places);
        let at_home = places().filter(|(_, place)| !place.to_home.is_empty()).map(|(number, _)| Action::AtHome(number));
        let at_place =
            places().filter(|(_, place)| !place.to_place.is_empty()).map(|(number, _)| Action::AtPlace(number));
        at_home.chain(at_place).collect()
    }

    /// # Errors
    /// The fault of the directory.
    pub(super) fn step(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Wants(Who::Home, right) => {
                self.home_wants = Some(right);
                self.want(Who::Home, right)?;
            }
            Action::Wants(Who::Place(number), right) => {
                let place = self.place(number);
                place.wants = Some(right);
                let stops = match place.right {
                    Some(Right::Read) => right != Right::Write,
                    has => has == Some(Right::InPlace),
                };
                if stops {
                    (place.right, place.copy) = (None, None);
                }
                place.to_home.push_back(ToHome::Want(right));
            }
            Action::Drops(number) => self.place(number).give_back(0, false),
            Action::AtHome(number) => match self.place(number).to_home.pop_front().expect("a message") {
                ToHome::Want(right) => self.want(Who::Place(number), right)?,
                ToHome::Back { number: round, reads, data, operands } => {
                    self.home = data.unwrap_or(self.home);
                    (0..2).for_each(|op| self.home.operands[op] += operands[op]);
                    self.at_home(None, |entry, steps| entry.back(number, round, reads, steps).is_ok())?;
                }
            },
            Action::AtPlace(number) => match self.place(number).to_place.pop_front().expect("a message") {
                ToPlace::Grant { right, data } => self.granted(number, right, data)?,
                ToPlace::Recall { number: round, keeps_reading } => self.place(number).give_back(round, keeps_reading),
            },
        }
        self.check()
    }

    fn want(&mut self, who: Who, right: Right<Op>) -> Result<(), String> {
        self.at_home(Some((who, right)), |entry, steps| {
            entry.want(who, right, steps);
            true
        })
    }

    /// Calls the directory, and executes its steps.
    fn at_home(
        &mut self,
        new: Option<(Who, Right<Op>)>,
        act: impl FnOnce(&mut Entry<Op>, &mut Vec<Step<Op>>) -> bool,
    ) -> Result<(), String> {
        let line: Vec<_> = self.entry.line.iter().copied().chain(new).collect();
        let (round, is_in_round) = (self.entry.number, !self.entry.awaited.is_empty());
        let mut steps = Vec::new();
        must!(act(&mut self.entry, &mut steps), "this is no nonsense");
        let mut granted = Vec::new();
        for step in steps {
            match step {
                Step::Grant { to, right, with_data } => {
                    granted.push((to, right));
                    self.grant(to, right, with_data)?;
                }
                Step::Recall { from, number, keeps_reading } => {
                    self.place(from).to_place.push_back(ToPlace::Recall { number, keeps_reading });
                }
            }
        }
        must!(!is_in_round || round == self.entry.number || !granted.is_empty(), "a round for nothing");
        let after: Vec<_> = granted.into_iter().chain(self.entry.line.iter().copied()).collect();
        let is_in_order = after.len() == line.len()
            && after.iter().zip(&line).all(|((to, right), (who, wanted))| {
                to == who && (right == wanted || *wanted == Right::Glance && right.covers(*wanted))
            });
        must!(is_in_order, "{line:?} was in line, but served is {after:?}");
        Ok(())
    }

    fn grant(&mut self, to: Who, right: Right<Op>, with_data: bool) -> Result<(), String> {
        match to {
            Who::Home => {
                let wanted = self.home_wants.take();
                must!(wanted.is_some_and(|wanted| right.covers(wanted)), "home is granted what it does not want");
                must!(!with_data, "home has the data");
                must!(self.fits(Who::Home, right), "home is granted {right:?} beside others");
                self.home = self.operate(right, self.home)?;
                if let Right::Combine(op) = right {
                    self.home.operands[op] += 1;
                }
            }
            Who::Place(number) => {
                must!(self.fits(to, right), "{number} is granted {right:?} beside others");
                let data = with_data.then_some(self.home);
                self.place(number).to_place.push_back(ToPlace::Grant { right, data });
            }
        }
        Ok(())
    }

    /// A grant arrives at its place, which at once performs its operation.
    fn granted(&mut self, number: PlaceNumber, right: Right<Op>, data: Option<Value>) -> Result<(), String> {
        // A place of the same host copies the elements only now.
        must!(data.is_none_or(|data| data == self.home), "the elements at home changed while a grant was on its way");
        let place = self.place(number);
        let wanted = place.wants.take();
        must!(wanted.is_some_and(|wanted| right.covers(wanted)), "{number} is granted what it does not want");
        let needs_data = matches!(right, Right::Read | Right::Write) && place.right != Some(Right::Read);
        must!(data.is_some() == needs_data, "{number} needs data: {needs_data}, gets: {}", data.is_some());
        must!(place.operands == [0; 2], "{number} has not given back its operands");
        place.right = Some(right);
        place.copy = data.or(place.copy);
        if right == Right::InPlace {
            place.copy = None;
            self.home = self.operate(right, self.home)?;
            return Ok(());
        }
        if let Right::Combine(op) = right {
            place.copy = None;
            place.operands[op] += 1;
        }
        let copy = place.copy.unwrap_or(self.truth);
        let copy = self.operate(right, copy)?;
        let place = self.place(number);
        place.copy = place.copy.map(|_| copy);
        Ok(())
    }

    /// Performs the operation of this right on this value. Returns the result, without the operand.
    fn operate(&mut self, right: Right<Op>, value: Value) -> Result<Value, String> {
        match right {
            Right::Read => must!(value == self.truth, "{value:?} is read in place of {:?}", self.truth),
            Right::Glance => return Err("nobody is granted that".to_owned()),
            Right::Write | Right::InPlace => {
                must!(value == self.truth, "{value:?} is written over in place of {:?}", self.truth);
                self.truth.version += 1;
                return Ok(self.truth);
            }
            Right::Combine(op) => self.truth.operands[op] += 1,
        }
        Ok(value)
    }

    /// Iterates over the rights that all other parties have or are being granted.
    fn others(&self, who: Who) -> impl Iterator<Item = Right<Op>> {
        let places = self.numbers().zip(&self.places).filter(move |(number, _)| Who::Place(*number) != who);
        places.flat_map(|(_, place)| {
            let granted = place.to_place.iter().filter_map(|message| match message {
                ToPlace::Grant { right, .. } => Some(*right),
                ToPlace::Recall { .. } => None,
            });
            place.right.into_iter().chain(granted)
        })
    }

    /// Is this right of `who` compatible with all others?
    fn fits(&self, who: Who, right: Right<Op>) -> bool {
        self.others(who).all(|other| other == right && right != Right::Write)
    }

    /// Checks the invariants.
    fn check(&self) -> Result<(), String> {
        if let Some(right) = self.entry.right_of_home() {
            let fits = self.fits(Who::Home, right) || right == Right::Write && self.others(Who::Home).next().is_none();
            must!(fits, "home may {right:?} beside others");
            must!(!right.covers(Right::Glance) || self.home == self.truth, "home reads what is not true");
        }
        for (number, place) in self.numbers().zip(&self.places) {
            let Some(right) = place.right else {
                must!(place.operands == [0; 2] && place.copy.is_none(), "{number} has more than its right");
                continue;
            };
            must!(self.fits(Who::Place(number), right), "{number} may {right:?} beside others");
            let seen = if right == Right::InPlace { Some(self.home) } else { place.copy };
            must!(!right.covers(Right::Glance) || seen == Some(self.truth), "{number} reads what is not true");
        }
        // No operand was lost or merged twice, wherever it is now.
        let (mut pending, mut written) = ([0; 2], false);
        for place in &self.places {
            let back = place.to_home.iter().filter_map(|message| match message {
                ToHome::Back { data, operands, .. } => Some((data.is_some(), *operands)),
                ToHome::Want(_) => None,
            });
            for (data, operands) in back.chain([(place.right == Some(Right::Write), place.operands)]) {
                (0..2).for_each(|op| pending[op] += operands[op]);
                written |= data;
            }
        }
        must!(pending.contains(&0), "two operators at a time");
        let at_home = [0, 1].map(|op| self.home.operands[op] + pending[op]);
        must!(written || at_home == self.truth.operands, "operands: {at_home:?} of {:?}", self.truth.operands);
        Ok(())
    }

    /// Checks a state without messages in flight: every request is granted, and after all places drop their rights the
    /// initial state is reached.
    pub(super) fn check_end(&mut self) -> Result<(), String> {
        must!(self.home_wants.is_none(), "home waits for ever");
        for number in self.numbers() {
            must!(self.place(number).wants.is_none(), "{number} waits for ever");
            if self.place(number).right.is_some() {
                self.step(Action::Drops(number))?;
                self.step(Action::AtHome(number))?;
            }
        }
        must!(self.entry.is_at_rest() && self.home == self.truth, "not at rest");
        must!(self.deliveries().is_empty(), "a message to nobody");
        Ok(())
    }
}

impl Place {
    fn give_back(&mut self, number: u64, keeps_reading: bool) {
        let data = self.copy.filter(|_| self.right == Some(Right::Write));
        let reads = keeps_reading && data.is_some();
        self.right = reads.then_some(Right::Read);
        self.copy = self.copy.filter(|_| reads);
        let operands = std::mem::take(&mut self.operands);
        self.to_home.push_back(ToHome::Back { number, reads, data, operands });
    }
}
