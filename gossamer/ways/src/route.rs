//! The next machine on the way of a frame to its machine.
//!
//! Up to some number of machines each has a way to each other one. Above it they stand in rows and columns: a frame
//! goes along the column of its sender into the row of its receiver, then along that row. So a machine has ways to the
//! others of its row and of its column alone, 2 x sqrt(m) in place of m, and a frame goes in two writes. A frame that
//! has come into its row stays in it, so no two frames wait for each other in a circle.
//!
//! Where that partner in the row is lost, or the last row is too short to have one, the next machine of the row takes
//! its place.
//!
//! Invariant: a frame is in its row after one write and at its machine after two, whoever is lost besides.

/// Rack as a grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    machines: u16,
    /// Machines of a row; all of them where each has a way to each.
    columns: u16,
}

impl Route {
    /// Most machines that have ways to each other.
    pub const DIRECT_MAX: u16 = 256;

    /// The grid of so many machines; a single row, if they are `direct_max` at most.
    pub fn new(machines: u16, direct_max: u16) -> Route {
        if machines <= direct_max {
            return Route { machines, columns: machines.max(1) };
        }
        let square = (1..=machines).find(|side| u32::from(*side).pow(2) >= u32::from(machines)).unwrap_or(machines);
        // Full rows, if the grid does not become long by it: each machine then passes on as much as the others.
        let full = (square..=square.saturating_mul(2)).find(|columns| machines.is_multiple_of(*columns));
        Route { machines, columns: full.unwrap_or(square) }
    }

    /// Machines of a row.
    pub fn columns(self) -> u16 {
        self.columns
    }

    fn row(self, machine: u16) -> u16 {
        machine / self.columns
    }

    /// Returns the machine to which a frame for `to` goes from `here`, if that is another one. A frame whose receiver
    /// is lost goes there as if it were not: the loss has to be told elsewhere.
    pub fn next(self, here: u16, to: u16, is_lost: impl Fn(u16) -> bool) -> u16 {
        if self.row(here) == self.row(to) {
            return to;
        }
        let first = self.row(to) * self.columns;
        let length = self.columns.min(self.machines - first);
        let in_turn = (0..length).map(|step| first + (here % self.columns + step) % length);
        in_turn.into_iter().find(|partner| *partner == to || !is_lost(*partner)).unwrap_or(to)
    }

    /// Number of machines to which a machine has ways, while none is lost.
    pub fn channels(self, machine: u16) -> usize {
        let next = |to| self.next(machine, to, |_| false);
        let others = (0..self.machines).filter(|to| *to != machine);
        // Ways of the own row, and one into each other row. Those of shorter rows' stand-ins count with their row.
        others.filter(|to| next(*to) == *to).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(route: Route, from: u16, to: u16, is_lost: impl Fn(u16) -> bool) -> Vec<u16> {
        let mut path = Vec::new();
        let mut here = from;
        while here != to && path.len() < 4 {
            here = route.next(here, to, &is_lost);
            path.push(here);
        }
        path
    }

    #[test]
    fn few_machines_have_a_way_to_each_other() {
        let route = Route::new(256, Route::DIRECT_MAX);
        assert_eq!((route.columns(), route.channels(17)), (256, 255));
        assert_eq!(path(route, 3, 255, |_| false), [255]);
    }

    #[test]
    fn a_thousand_machines_have_63_ways_each() {
        let route = Route::new(1000, Route::DIRECT_MAX);
        assert_eq!(route.columns(), 40, "25 full rows");
        assert!((0..1000).all(|machine| route.channels(machine) == 39 + 24));
        assert_eq!(path(route, 41, 999, |_| false), [961, 999], "along the column, then along the row");
        assert_eq!(path(route, 41, 999, |machine| machine == 961), [962, 999], "the next of the row");
        assert_eq!(path(route, 41, 999, |_| true), [999], "nobody is left in that row");
    }

    #[test]
    fn rows_that_cannot_be_full_have_stand_ins() {
        let route = Route::new(1009, Route::DIRECT_MAX);
        assert_eq!(route.columns(), 32);
        assert_eq!(path(route, 31, 1008, |_| false), [992 + 31 % 17, 1008], "column 31 ends above the last row");
    }

    proptest! {
        #[test]
        fn a_frame_arrives_after_two_writes_whoever_is_lost(
            machines in 2..1025_u16,
            (from, to) in (0..1025_u16, 0..1025_u16),
            lost in prop::collection::hash_set(0..1025_u16, 0..200),
        ) {
            let route = Route::new(machines, 16);
            let (from, to) = (from % machines, to % machines);
            let path = path(route, from, to, |machine| lost.contains(&machine));
            prop_assert!(path.len() <= 2 && path.iter().all(|machine| *machine < machines), "{path:?}");
            prop_assert_eq!(path.last().copied().unwrap_or(to), to);
            prop_assert!(path.iter().all(|machine| *machine == to || !lost.contains(machine)), "{path:?}");
        }

        #[test]
        fn ways_grow_with_the_root(machines in 17..1025_u16) {
            let route = Route::new(machines, 16);
            let most = (0..machines).map(|machine| route.channels(machine)).max().unwrap_or(0);
            let side = f64::from(machines).sqrt();
            prop_assert!(most as f64 <= 2.5 * side + 1.0, "{most} ways, {side} a side");
        }
    }
}
