//! Choice of a machine for a fiber: of two picked at random the one with fewer fibers for each core, then the emptier
//! one (M. Mitzenmacher, "The power of two choices in randomized load balancing", 2001).
//! Not here: how the loads are known (`mod.rs`, `meter.rs`).

use std::cmp::Ordering;
use std::ops::RangeTo;

/// Beyond this fill, in thousandths, a machine gets fibers only where the other one is as full.
const FULL: u16 = 900;

/// Machine that may get a fiber.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) machine: u16,
    /// Cores that its workers can have.
    pub(super) cores: f32,
    /// Fibers that run there, or are on the way.
    pub(super) fibers: u32,
    /// Its memory in use, in thousandths.
    pub(super) fill: u16,
}

impl Candidate {
    /// Less is better.
    fn compare(&self, other: &Candidate) -> Ordering {
        let load = |one: &Candidate| (f64::from(one.fibers) + 1.0) / f64::from(one.cores.max(0.01));
        (self.fill >= FULL)
            .cmp(&(other.fill >= FULL))
            .then(load(self).total_cmp(&load(other)))
            .then(self.fill.cmp(&other.fill))
    }
}

/// Returns the machine for a fiber; `here` where there is no candidate. `random` returns a number below the end of a
/// range.
pub(super) fn choose(candidates: &[Candidate], here: u16, random: impl Fn(RangeTo<usize>) -> usize) -> u16 {
    let picked = match candidates.len() {
        0 => return here,
        1 => candidates[0],
        count => {
            let first = random(..count);
            let second = random(..count - 1);
            let [first, second] = [first, second + usize::from(second >= first)].map(|index| candidates[index]);
            if second.compare(&first).is_lt() { second } else { first }
        }
    };
    picked.machine
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Candidate = Candidate { machine: 0, cores: 2.0, fibers: 0, fill: 100 };

    fn of(machine: u16) -> Candidate {
        Candidate { machine, ..IDLE }
    }

    fn better(a: Candidate, b: Candidate) -> u16 {
        let chosen = choose(&[a, b], 9, |range| range.end - 1);
        assert_eq!(chosen, choose(&[a, b], 9, |_| 0), "in either order");
        chosen
    }

    #[test]
    fn the_machine_with_fewer_fibers_for_each_core_is_chosen() {
        assert_eq!(better(Candidate { fibers: 3, ..of(0) }, Candidate { fibers: 2, ..of(1) }), 1);
        assert_eq!(better(Candidate { fibers: 3, ..of(0) }, Candidate { fibers: 1, cores: 0.5, ..of(1) }), 0);
        assert_eq!(better(Candidate { cores: 0.0, ..of(0) }, Candidate { fibers: 9, ..of(1) }), 1);
    }

    #[test]
    fn of_equals_the_emptier_one_is_chosen_and_a_full_one_never() {
        assert_eq!(better(of(0), Candidate { fill: 50, ..of(1) }), 1);
        assert_eq!(better(Candidate { fibers: 90, ..of(0) }, Candidate { fill: 950, ..of(1) }), 0);
        assert_eq!(better(Candidate { fibers: 90, fill: 950, ..of(0) }, Candidate { fill: 950, ..of(1) }), 1);
    }

    #[test]
    fn without_candidates_it_is_the_own_machine() {
        assert_eq!(choose(&[], 7, |_| unreachable!("nothing to pick")), 7);
        assert_eq!(choose(&[of(3)], 7, |_| unreachable!("nothing to pick")), 3);
    }

    /// A thousand fibers at once: dealt by the cores, and evenly where there are three machines.
    #[test]
    fn fibers_are_dealt_by_the_cores() {
        let deal = |cores: &[f32]| {
            let mut candidates: Vec<_> =
                (0..).zip(cores).map(|(machine, &cores)| Candidate { cores, ..of(machine) }).collect();
            let mut random = fastrand::Rng::with_seed(7);
            for _ in 0..999 {
                let random = std::cell::RefCell::new(&mut random);
                let machine = choose(&candidates, 0, |range| random.borrow_mut().usize(range));
                candidates[usize::from(machine)].fibers += 1;
            }
            candidates.iter().map(|candidate| candidate.fibers).collect::<Vec<_>>()
        };
        assert_eq!(deal(&[2.0, 1.0]), [666, 333]);
        assert!(deal(&[1.0, 1.0, 1.0]).iter().all(|fibers| (320..=346).contains(fibers)));
        let uneven = deal(&[1.0, 1.0, 0.5]);
        assert!((180..=220).contains(&uneven[2]), "{uneven:?}");
    }
}
