//! Machines by their distance, which is a number of rows and of columns: all machines see the rack alike.
//!
//! Invariant: distances add up, and the one back takes off what the one there added.

use gossamer_ways::route::Route;

/// Rows and columns, which begin anew behind the last.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub rows: u16,
    pub columns: u16,
}

impl Grid {
    /// The grid of a route, if all its rows are full.
    pub fn of(route: Route, machines: u16) -> Option<Grid> {
        let columns = route.columns();
        machines.is_multiple_of(columns).then_some(Grid { rows: machines / columns, columns })
    }

    /// The machine at a distance from one.
    pub fn add(self, machine: u16, distance: u16) -> u16 {
        let row = (machine / self.columns + distance / self.columns) % self.rows;
        let column = (machine % self.columns + distance % self.columns) % self.columns;
        row * self.columns + column
    }

    /// The distance back.
    pub fn back(self, distance: u16) -> u16 {
        let row = (self.rows - distance / self.columns) % self.rows;
        let column = (self.columns - distance % self.columns) % self.columns;
        row * self.columns + column
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_and_the_one_back_are_none() {
        let grid = Grid::of(Route::new(1000, Route::DIRECT_MAX), 1000).unwrap();
        assert_eq!((grid.rows, grid.columns), (25, 40));
        assert!((0..1000).all(|distance| grid.add(distance, grid.back(distance)) == 0));
        assert_eq!(grid.add(999, 41), 0, "a row and a column on");
    }

    #[test]
    fn routes_depend_on_the_distance_alone() {
        let route = Route::new(1000, Route::DIRECT_MAX);
        let grid = Grid::of(route, 1000).unwrap();
        for from in [1, 41, 999] {
            for distance in 1..1000 {
                let next = route.next(from, grid.add(from, distance), |_| false);
                assert_eq!(next, grid.add(from, route.next(0, distance, |_| false)), "{distance} from {from}");
            }
        }
    }
}
