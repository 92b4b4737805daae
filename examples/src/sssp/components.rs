//! Connected components over all shards, and on one thread: messages and agreement; the work is in the package `graph`.

use std::fmt;
use std::time::{Duration, Instant};

use gossamer::Trust;
use graph::components::Components;
use graph::{Report, Shard};
use indicatif::HumanCount;
use serde_json::{Value, json};

use super::build::{self, Built};
use super::options::Options;
use super::search::{Round, agree, check_whole, take_part};
use super::single;
use super::team::Member;

/// Edges that labels spread along before other requests to the shard are served.
const EDGES_PER_TURN: u64 = 1 << 14;

/// Result and time.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    workers: usize,
    components: Components,
    time: Duration,
}

impl Found {
    /// Returns the report as JSON.
    pub fn json(&self) -> Value {
        let Components { count, sent, checksum } = self.components;
        let (time_s, checksum) = (self.time.as_secs_f64(), format!("{checksum:016x}"));
        json!({"workers": self.workers, "components": count, "time_s": time_s, "messages": sent, "checksum": checksum})
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Components { count, sent, checksum } = self.components;
        let (count, sent, time) = (HumanCount(count), HumanCount(sent), self.time.as_secs_f64());
        let workers = self.workers;
        writeln!(
            f,
            "{count} components of vertices with edges, {workers} workers, {time:.4} s, {sent} messages, checksum \
             {checksum:016x}"
        )
    }
}

/// Finds them by the workers of the rack; from a fiber of the first machine.
///
/// # Errors
/// A file that is no graph; a worker that did not do its part.
pub fn run(options: &Options) -> anyhow::Result<Found> {
    let Built { team, .. } = build::build(options)?;
    let round = gossamer::entrust(Round::default());
    let start = Instant::now();
    let ended = team.on_each(move |member| take_part(&round, || label_here(&member, &round)))?;
    let time = start.elapsed();
    check_whole(&ended)?;
    let found = team.on_each(|member| member.own().apply(|shard| shard.components()))?;
    let components = found.into_iter().fold(Components::default(), Components::and);
    Ok(Found { workers: team.shards.len(), components, time })
}

/// The part of one worker. `None` if another one does not do its part.
fn label_here(member: &Member, round: &Trust<Round>) -> Option<()> {
    member.own().apply(Shard::label);
    // Nobody may hear of a label before it has its own.
    agree(round, member, Report::NONE)?;
    loop {
        spread(member);
        if agree(round, member, member.own().apply(|shard| shard.labelling()))?.is_done(0) {
            return Some(());
        }
    }
}

fn spread(member: &Member) {
    let mut is_more = true;
    while is_more {
        let (told, rest) = member.own().apply_with(Shard::spread_labels, EDGES_PER_TURN);
        is_more = rest || !told.is_empty();
        for told in told {
            let to: &Trust<Shard> = &member.shards[told.owner as usize];
            to.apply_then(move |shard| shard.receive_label(told), |()| ());
        }
        gossamer::yield_now();
    }
}

/// The same on this thread.
///
/// # Errors
/// A file that is no graph.
pub fn single(options: &Options) -> anyhow::Result<Found> {
    let (_, _, _, mut shard) = single::build(options)?;
    let start = Instant::now();
    shard.label();
    while shard.spread_labels(u64::MAX).1 {}
    Ok(Found { workers: 1, components: shard.components(), time: start.elapsed() })
}
