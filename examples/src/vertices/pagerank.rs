//! PageRank: the part of time on each page of a surfer that follows links at random, and now and then starts again
//! anywhere.

use std::time::{Duration, Instant};

use gossamer_array::{Add, Array};
use indicatif::ProgressBar;

use super::build::{Built, Places};
use super::links::Links;

/// The share of surfers that follow a link, and do not start again anywhere.
pub const DAMPING: f64 = 0.85;
/// Number of highest ranks in the report.
pub const TOP: usize = 5;

/// The ranks of all pages, and how long they took.
pub struct Ranks {
    /// Rank of each vertex; their sum is 1.
    pub ranks: Array<f64>,
    /// Time of all rounds.
    pub time: Duration,
}

/// Computes ranks in this number of rounds. `built` has the same rank for each page, all together 1.
///
/// # Errors
/// No memory for another array; a worker that did not do its part.
pub fn rank(built: &Built<f64>, rounds: u32, bar: &ProgressBar) -> anyhow::Result<Ranks> {
    let (mut from, mut to) = (built.values.clone(), Array::new(built.values.len(), 0.0)?);
    let start = Instant::now();
    for _ in 0..rounds {
        let dangling = follow_links(&built.team, &from, &to)?;
        settle(&from, &to, dangling);
        std::mem::swap(&mut from, &mut to);
        bar.inc(1);
    }
    Ok(Ranks { ranks: from, time: start.elapsed() })
}

/// Each page's rank to the pages that it links to, in equal parts. Returns the ranks of those without links.
fn follow_links(team: &Places, from: &Array<f64>, to: &Array<f64>) -> anyhow::Result<f64> {
    let (from, to) = (from.clone(), to.clone());
    let dangling = team.on_each(move |member| member.own().launch(move |links| follow(links, &from, &to)))?;
    Ok(dangling.into_iter().sum())
}

/// The part of one place.
fn follow(links: &mut Links, from: &Array<f64>, to: &Array<f64>) -> f64 {
    // The contribution of each own page to each of its links.
    let mut shares = Vec::with_capacity(links.own().len());
    let mut dangling = 0.0;
    for chunk in from.views(links.owned) {
        for (page, rank) in chunk.indexed() {
            match links.degree(page) {
                0 => (dangling, _) = (dangling + rank, shares.push(0.0)),
                degree => shares.push(rank / f64::from(degree)),
            }
        }
    }
    for (page, tails) in links.lists() {
        to.apply(page, Add, tails.iter().map(|&tail| shares[tail as usize]).sum());
    }
    dangling
}

/// Ends a round: surfers on a page without links, and those that start again, go anywhere. `from` is empty for the next
/// round.
fn settle(from: &Array<f64>, to: &Array<f64>, dangling: f64) {
    let pages = to.len() as f64;
    let anywhere = (1.0 - DAMPING + DAMPING * dangling) / pages;
    let (from, new) = (from.clone(), to.clone());
    to.on_owners(move |own| {
        for range in own {
            new.modify(range.clone(), |_, ranks| ranks.iter_mut().for_each(|rank| *rank = anywhere + DAMPING * *rank));
            from.modify(range, |_, ranks| ranks.fill(0.0));
        }
    });
}

/// The pages of the highest ranks, with these, highest first.
pub fn top(ranks: &Array<f64>) -> Vec<(usize, f64)> {
    let all = ranks.clone();
    let found = ranks.on_owners(move |own| {
        let mut top = [(usize::MAX, f64::NEG_INFINITY); TOP];
        for chunk in all.views(own) {
            for (page, rank) in chunk.indexed().filter(|(_, rank)| rank.is_finite()) {
                // It takes the place of the first that is lower, which goes on to look for a place.
                let mut lower = (page, rank);
                top.iter_mut().filter(|at| at.1 < rank).for_each(|at| std::mem::swap(at, &mut lower));
            }
        }
        top
    });
    let mut found: Vec<_> = found.into_iter().flatten().filter(|(page, _)| *page != usize::MAX).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.truncate(TOP);
    found
}
