//! Moves that even out the load of workers.

use super::{BUSY, IDLE, Move, SHARE_MIN, SeatSample};

/// Returns the move of one trustee from the busiest of these workers to the least busy one: of the trustee whose share
/// is nearest to half of the difference. `None` if the load is even.
pub(super) fn balance(workers: &[usize], busy: &[f64], rates: &[f64], seats: &[SeatSample]) -> Option<Move> {
    let by_load = |one: &usize, other: &usize| busy[*one].total_cmp(&busy[*other]);
    let from = workers.iter().copied().max_by(by_load)?;
    let to = workers.iter().copied().min_by(by_load)?;
    if busy[from] < BUSY || busy[to] > IDLE {
        return None;
    }
    let gap = busy[from] - busy[to];
    let there = || (0..seats.len()).filter(|&seat| seats[seat].worker == from);
    let sum: f64 = there().map(|seat| rates[seat]).sum();
    // The worker's own fibers have a part of its time, so this is the most that the trustee can have.
    let share = |seat: usize| busy[from] * rates[seat] / sum;
    let distance = |seat: usize| (share(seat) - gap / 2.0).abs();
    let can_go = |seat: &usize| !seats[*seat].is_bound && share(*seat) > SHARE_MIN;
    // One that is all of the load would be the load of the other worker; unless that is free, and fibers stay here.
    let is_of_use = |seat: &usize| share(*seat) < gap || there().count() > 1;
    let nearest = there().filter(can_go).filter(is_of_use).min_by(|&a, &b| distance(a).total_cmp(&distance(b)));
    nearest.map(|seat| Move { seat, to })
}

/// Returns the moves after which these workers run all trustees, each about as much of the load: the trustees with most
/// requests first, each to the worker that has least, or to its own if that has no more.
pub(super) fn share_out(workers: &[usize], rates: &[f64], seats: &[SeatSample]) -> Vec<Move> {
    let mut loads = vec![(0.0, 0usize); workers.len()];
    let mut order: Vec<usize> = (0..seats.len()).collect();
    // Those that cannot move come first: they are where they are.
    order.sort_by(|&a, &b| seats[b].is_bound.cmp(&seats[a].is_bound).then(rates[b].total_cmp(&rates[a])));
    let mut moves = Vec::new();
    for seat in order {
        let SeatSample { worker, is_bound, .. } = seats[seat];
        let least = (0..loads.len()).min_by(|&a, &b| loads[a].partial_cmp(&loads[b]).unwrap_or(a.cmp(&b)));
        let Some(least) = least else { continue };
        let own = workers.iter().position(|&one| one == worker);
        let place = match own {
            Some(own) if is_bound || loads[own] <= loads[least] => own,
            None if is_bound => continue,
            _ => least,
        };
        loads[place] = (loads[place].0 + rates[seat], loads[place].1 + 1);
        if own != Some(place) {
            moves.push(Move { seat, to: workers[place] });
        }
    }
    moves
}
