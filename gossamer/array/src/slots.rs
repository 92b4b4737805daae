//! Slots of the program's arrays, which place 0 has: taken, free again, and the end of arrays that lose a machine.
//! Pure: it sends nothing; it returns the [`Next`] step.
//!
//! An array ends in one step where its last handle is dropped: each place drops its part and tells place 0, which
//! reuses the slot after all have. Where it loses a machine its memory may be read by places that have not been told
//! (`room.rs`), and its handles do not count any more, since the lost machine may have had some. So it ends in two:
//! each place stops using it and tells place 0; after all have, each drops its part. Both may happen at a time, so each
//! step may come twice.

use std::collections::BTreeSet;

use gossamer::Place;

use crate::members::Members;
use crate::name::Name;

/// The most arrays at a time.
pub(crate) const ARRAYS_MAX: usize = 4096;

/// See the file's documentation.
pub(crate) struct Slots {
    of: Vec<Slot>,
}

struct Slot {
    generation: u32,
    members: Members,
    /// Places that may have a part. The slot is free if there are none.
    parts: BTreeSet<Place>,
    /// After the loss of a member: places that may still use their part.
    users: Option<BTreeSet<Place>>,
}

/// Next step of place 0 about an array.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Next {
    Nothing,
    /// Tell these places to stop using their parts, as this machine is lost.
    Stop {
        machine: u16,
        places: Vec<Place>,
    },
    /// Tell these places to drop their parts.
    End(Vec<Place>),
}

impl Slots {
    pub(crate) const fn new() -> Slots {
        Slots { of: Vec::new() }
    }

    /// Takes a slot for an array with parts at these places, those of its members.
    pub(crate) fn take(&mut self, members: Members, places: impl Iterator<Item = Place>) -> Option<Name> {
        let free = self.of.iter().position(|slot| slot.parts.is_empty() && slot.generation < u32::MAX);
        let index = free.unwrap_or(self.of.len());
        if index == ARRAYS_MAX {
            return None;
        }
        let generation = self.of.get(index).map_or(0, |slot| slot.generation) + 1;
        let slot = Slot { generation, members, parts: places.collect(), users: None };
        if index == self.of.len() {
            self.of.push(slot);
        } else {
            self.of[index] = slot;
        }
        Some(Name { slot: index as u32, generation })
    }

    /// A place has dropped its part.
    pub(crate) fn dropped(&mut self, name: Name, place: Place) -> Next {
        let Some(slot) = self.slot(name) else { return Next::Nothing };
        slot.parts.remove(&place);
        slot.without(|user| *user != place)
    }

    /// A place has stopped using its part.
    pub(crate) fn stopped(&mut self, name: Name, place: Place) -> Next {
        let Some(slot) = self.slot(name) else { return Next::Nothing };
        slot.without(|user| *user != place)
    }

    /// A machine is lost. Returns the steps for the arrays that had parts there.
    pub(crate) fn lose(&mut self, machine: u16) -> Vec<(Name, Next)> {
        let mut steps = Vec::new();
        for (slot, index) in self.of.iter_mut().zip(0..) {
            if slot.parts.is_empty() || !slot.members.has(machine) {
                continue;
            }
            slot.parts.retain(|place| place.machine != machine);
            let next = if slot.users.is_some() {
                slot.without(|user| user.machine != machine)
            } else {
                slot.users = Some(slot.parts.clone());
                Next::Stop { machine, places: slot.parts.iter().copied().collect() }
            };
            steps.push((Name { slot: index, generation: slot.generation }, next));
        }
        steps
    }

    fn slot(&mut self, name: Name) -> Option<&mut Slot> {
        self.of.get_mut(name.slot as usize).filter(|slot| slot.generation == name.generation)
    }
}

impl Slot {
    /// Removes all users but these.
    fn without(&mut self, stays: impl Fn(&Place) -> bool) -> Next {
        let Some(users) = self.users.as_mut().filter(|users| !users.is_empty()) else { return Next::Nothing };
        users.retain(stays);
        if users.is_empty() && !self.parts.is_empty() {
            Next::End(self.parts.iter().copied().collect())
        } else {
            Next::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [Place; 4] = [Place::of(0, 0), Place::of(0, 1), Place::of(1, 0), Place::of(2, 0)];

    fn take(slots: &mut Slots) -> Name {
        slots.take(Members::default(), PLACES.into_iter()).unwrap()
    }

    #[test]
    fn a_slot_is_free_when_all_places_have_dropped_their_parts() {
        let mut slots = Slots::new();
        let first = take(&mut slots);
        assert_eq!(take(&mut slots), Name { slot: 1, generation: 1 });
        for place in PLACES {
            assert_eq!(take(&mut slots).slot as usize, slots.of.len() - 1, "it has a part at {place}");
            assert_eq!(slots.dropped(first, place), Next::Nothing);
        }
        let again = take(&mut slots);
        assert_eq!(again, Name { slot: 0, generation: 2 });
        // Of the one before.
        for place in PLACES {
            assert_eq!((slots.dropped(first, place), slots.stopped(first, place)), (Next::Nothing, Next::Nothing));
        }
        assert_ne!(take(&mut slots).slot, 0);
    }

    #[test]
    fn an_array_that_loses_a_machine_ends_after_all_places_have_stopped() {
        let mut slots = Slots::new();
        let name = take(&mut slots);
        let left = [PLACES[0], PLACES[1], PLACES[3]];
        assert_eq!(slots.lose(1), [(name, Next::Stop { machine: 1, places: left.to_vec() })]);
        assert_eq!(slots.stopped(name, left[0]), Next::Nothing);
        assert_eq!(slots.stopped(name, left[0]), Next::Nothing, "twice");
        assert_eq!(slots.stopped(name, left[2]), Next::Nothing);
        assert_eq!(slots.stopped(name, left[1]), Next::End(left.to_vec()));
        assert_eq!(slots.stopped(name, left[1]), Next::Nothing, "once");
        left.iter().for_each(|place| assert_eq!(slots.dropped(name, *place), Next::Nothing));
        assert_eq!(take(&mut slots), Name { slot: 0, generation: 2 });
    }

    #[test]
    fn machines_are_lost_one_after_the_other() {
        let mut slots = Slots::new();
        let name = take(&mut slots);
        let own = PLACES[..2].to_vec();
        assert_eq!(slots.lose(1).len(), 1);
        own.iter().for_each(|place| assert_eq!(slots.stopped(name, *place), Next::Nothing));
        assert_eq!(slots.lose(2), [(name, Next::End(own.clone()))], "nobody else is waited for");
        own.iter().for_each(|place| assert_eq!(slots.dropped(name, *place), Next::Nothing));
        assert_eq!(take(&mut slots).slot, 0);
    }

    /// The last handle was dropped on the machine that is lost, which has told one place.
    #[test]
    fn an_end_that_was_begun_is_completed() {
        let mut slots = Slots::new();
        let name = take(&mut slots);
        assert_eq!(slots.dropped(name, PLACES[0]), Next::Nothing);
        assert_eq!(slots.lose(1), [(name, Next::Stop { machine: 1, places: vec![PLACES[1], PLACES[3]] })]);
        assert_eq!(slots.stopped(name, PLACES[1]), Next::Nothing);
        // It was on the way.
        assert_eq!(slots.dropped(name, PLACES[3]), Next::End(vec![PLACES[1]]));
        assert_eq!(slots.dropped(name, PLACES[1]), Next::Nothing);
        assert_eq!((slots.lose(2), take(&mut slots).slot), (vec![], 0));
    }
}
