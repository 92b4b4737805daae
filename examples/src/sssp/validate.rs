//! Graph500's five rules over all shards: facts of other shards' vertices are asked for, the rest each
//! checks alone.

use graph::{Shard, Verdict, Vertex};

use super::team::{Member, Team};

/// Whether the result for `root` is right.
///
/// # Errors
/// A worker that did not do its part.
pub fn validate(team: &Team, root: Vertex) -> anyhow::Result<Verdict> {
    team.on_each(move |member: Member| {
        let ghosts = member.ask(|shard, wanted: Vec<Vertex>| shard.distances(&wanted));
        member.own().apply_with(move |shard, ghosts: Vec<(usize, Vec<f64>)>| shard.validate(root, &ghosts), ghosts);
    })?;
    loop {
        let changed = team.on_each(|member: Member| {
            let ghosts = member.ask(|shard, wanted: Vec<Vertex>| shard.grounded(&wanted));
            member.own().apply_with(|shard, ghosts: Vec<(usize, Vec<bool>)>| shard.ground(&ghosts), ghosts)
        })?;
        if changed.into_iter().sum::<u64>() == 0 {
            break;
        }
    }
    let verdicts = team.on_each(|member: Member| member.own().apply(Shard::check))?;
    Ok(verdicts.into_iter().fold(Verdict::default(), Verdict::and))
}
