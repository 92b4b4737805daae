//! One search over all shards. This is where the work is: each relaxation that concerns another shard is a delegated call to it.
//!
//! All workers go through the same buckets of distances together. A worker expands the vertices of its own shard, sends what
//! others have to know with `apply_then`, and then tells the `Round` how far it is. Who is told that all have come, and that what
//! was sent has arrived, goes on to the next bucket; everybody comes to the same conclusion from the same sums.

use std::time::{Duration, Instant};

use gossamer::{Promise, Trust, promise};
use graph::search::Found;
use graph::{Report, Shard, Vertex};

use super::team::{Member, Team};

/// Edges that are relaxed before other requests to the shard are served.
const EDGES_PER_TURN: u64 = 1 << 14;

/// Searches from `root`. Returns what was found, and how long it took.
///
/// # Errors
/// A worker that did not do its part.
pub fn search(team: &Team, root: Vertex) -> anyhow::Result<(Found, Duration)> {
    let round = gossamer::entrust(Round::default());
    let owner = team.ranges.owner(root);
    let start = Instant::now();
    team.on_each(move |member| {
        member.own().apply(Shard::reset);
        // Nobody may hear of a vertex before it has forgotten the last search.
        agree(&round, &member, Report::NONE);
        if member.own == owner {
            member.own().apply(move |shard| shard.start(root));
        }
        search_buckets(&member, &round);
    })?;
    let time = start.elapsed();
    let found = team.on_each(|member| member.own().apply(|shard| shard.found()))?;
    Ok((found.into_iter().fold(Found::default(), Found::and), time))
}

fn search_buckets(member: &Member, round: &Trust<Round>) {
    let mut all = agree_on_report(member, round);
    while let Some(bucket) = all.next() {
        let core = all.core;
        member.own().apply(move |shard| shard.open(bucket, core));
        loop {
            relax(member);
            if agree_on_report(member, round).is_done(bucket) {
                break;
            }
        }
        member.own().apply(Shard::close);
        all = agree_on_report(member, round);
    }
}

/// Expands what there is in the current bucket, and tells the others.
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

/// Where all workers meet: what they report is summed up, and the sum told to each when the last has come.
pub(super) struct Round {
    sum: Report,
    waiting: Vec<Promise<Report>>,
}

impl Default for Round {
    fn default() -> Round {
        Round { sum: Report::NONE, waiting: Vec::new() }
    }
}

fn agree_on_report(member: &Member, round: &Trust<Round>) -> Report {
    agree(round, member, member.own().apply(|shard| shard.report()))
}

pub(super) fn agree(round: &Trust<Round>, member: &Member, report: Report) -> Report {
    let (promise, pending) = promise();
    let members = member.shards.len();
    let sum = round.apply(move |round| {
        round.sum = round.sum.and(report);
        if round.waiting.len() + 1 < members {
            round.waiting.push(promise);
            return None;
        }
        promise.discard();
        let sum = std::mem::replace(&mut round.sum, Report::NONE);
        round.waiting.drain(..).for_each(|waiting| waiting.keep(sum));
        Some(sum)
    });
    sum.unwrap_or_else(|| {
        pending.wait().unwrap_or_else(|error| panic!("the round is gone while workers wait: {error}"))
    })
}
