//! One search over all shards. This is where the work is: each relaxation that concerns another shard is a delegated
//! call to it.
//!
//! All workers go through the same buckets of distances together. A worker expands the vertices of its own shard, sends
//! the messages for others with `apply_then`, and then tells the `Round` how far it is. A worker that is notified that
//! all have come, and that all messages have arrived, goes on to the next bucket; all come to the same conclusion from
//! the same sums. Where a worker panics the round is broken, and the others stop.

use std::mem;
use std::time::{Duration, Instant};

use anyhow::ensure;
use gossamer::{Promise, Trust, promise};
use graph::search::Found;
use graph::{Report, Shard, Vertex};

use super::team::{Member, Team};

/// Edges that are relaxed before other requests to the shard are served.
const EDGES_PER_TURN: u64 = 1 << 14;

/// Searches from `root`. Returns the result and the time.
///
/// # Errors
/// A worker that did not do its part.
pub fn search(team: &Team, root: Vertex) -> anyhow::Result<(Found, Duration)> {
    let round = gossamer::entrust(Round::default());
    let owner = team.ranges.owner(root);
    let start = Instant::now();
    let ended = team.on_each(move |member| take_part(&round, || search_here(&member, &round, root, owner)))?;
    let time = start.elapsed();
    check_whole(&ended)?;
    let found = team.on_each(|member| member.own().apply(|shard| shard.found()))?;
    Ok((found.into_iter().fold(Found::default(), Found::and), time))
}

/// The part of one worker. `None` if another one does not do its part.
fn search_here(member: &Member, round: &Trust<Round>, root: Vertex, owner: usize) -> Option<()> {
    member.own().apply(Shard::reset);
    // Nobody may hear of a vertex before it has forgotten the last search.
    agree(round, member, Report::NONE)?;
    if member.own == owner {
        member.own().apply(move |shard| shard.start(root));
    }
    let mut all = agree_on_report(member, round)?;
    while let Some(bucket) = all.next() {
        let core = all.core;
        member.own().apply(move |shard| shard.open(bucket, core));
        loop {
            relax(member);
            if agree_on_report(member, round)?.is_done(bucket) {
                break;
            }
        }
        member.own().apply(Shard::close);
        all = agree_on_report(member, round)?;
    }
    Some(())
}

/// Expands the vertices of the current bucket, and tells the others.
fn relax(member: &Member) {
    let mut is_more = true;
    while is_more {
        let (sent, rest) = member.own().apply_with(Shard::work, EDGES_PER_TURN);
        is_more = rest || !sent.is_empty();
        for sent in sent {
            let relax = sent.relax;
            member.shards[usize::from(sent.owner)].apply_then(move |shard| shard.receive(relax), |()| ());
        }
        gossamer::yield_now();
    }
}

/// The meeting point of all workers: their reports are summed up, and the sum told to each when the last has come.
pub(super) struct Round {
    sum: Report,
    waiting: Vec<Promise<Report>>,
    is_broken: bool,
}

impl Default for Round {
    fn default() -> Round {
        Round { sum: Report::NONE, waiting: Vec::new(), is_broken: false }
    }
}

/// Does the part of one worker, which is `None` where another one has left. True if it is done; a panic breaks the
/// round.
pub(super) fn take_part(round: &Trust<Round>, part: impl FnOnce() -> Option<()>) -> bool {
    let breaker = Breaker(round);
    let is_done = part().is_some();
    mem::forget(breaker);
    is_done
}

/// Whether all workers did their parts.
pub(super) fn check_whole(ended: &[bool]) -> anyhow::Result<()> {
    ensure!(ended.iter().all(|is_done| *is_done), "a worker has left the search");
    Ok(())
}

/// Breaks the round if its worker's part ends in a panic, and does not forget it: nobody is to wait for that worker.
struct Breaker<'a>(&'a Trust<Round>);

impl Drop for Breaker<'_> {
    fn drop(&mut self) {
        let break_up = |round: &mut Round| {
            round.is_broken = true;
            round.waiting.clear(); // the waiters are notified that there will be no sum
        };
        self.0.apply_then(break_up, |()| ()); // a fiber that panics cannot wait
    }
}

fn agree_on_report(member: &Member, round: &Trust<Round>) -> Option<Report> {
    agree(round, member, member.own().apply(|shard| shard.report()))
}

/// The sum of all reports, once all have come. `None` if the round is broken.
pub(super) fn agree(round: &Trust<Round>, member: &Member, report: Report) -> Option<Report> {
    let (promise, pending) = promise();
    let members = member.shards.len();
    let sum = round.apply(move |round| {
        if round.is_broken {
            return None; // and the promise with it
        }
        round.sum = round.sum.and(report);
        if round.waiting.len() + 1 < members {
            round.waiting.push(promise);
            return None;
        }
        promise.discard();
        let sum = mem::replace(&mut round.sum, Report::NONE);
        round.waiting.drain(..).for_each(|waiting| waiting.keep(sum));
        Some(sum)
    });
    sum.or_else(|| pending.wait().ok())
}
