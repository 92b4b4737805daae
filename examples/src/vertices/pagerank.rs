//! PageRank: the part of time on each page of a surfer that follows links at random, and now and then starts again
//! anywhere.
//!
//! Pages have a number by their links from them: at each place those with most come first. A page's share of its rank
//! is read as often as it has links, so most reads are of few elements, which lie together and stay in the caches; as
//! `f32` twice as many do, and sums of these are `f64`.

use std::time::{Duration, Instant};

use gossamer_array::{Array, Snapshot};
use graph::Vertex;
use indicatif::ProgressBar;

use super::build::Built;
use super::links::{Links, Places};

/// The share of surfers that follow a link, and do not start again anywhere.
pub const DAMPING: f64 = 0.85;
/// Number of highest ranks in the report.
pub const TOP: usize = 5;

/// The ranks of all pages, and how long they took.
pub struct Ranks {
    /// Rank of each page, by number; their sum is 1.
    pub ranks: Array<f64>,
    /// Time of all rounds.
    pub time: Duration,
}

/// Computes ranks in this number of rounds. `built` has the same rank for each page, all together 1.
///
/// # Errors
/// No memory for another array; a worker that did not do its part.
pub fn rank(built: &Built<f64>, rounds: u32, bar: &ProgressBar) -> anyhow::Result<Ranks> {
    let (ranks, shares) = (built.values.clone(), Array::new(built.values.len(), 0.0f32)?);
    let start = Instant::now();
    for _ in 0..rounds {
        let dangling = share(&built.team, &ranks, &shares)?;
        follow_links(&built.team, &shares.snapshot()?, &ranks, dangling)?;
        bar.inc(1);
    }
    Ok(Ranks { ranks, time: start.elapsed() })
}

/// Sets the part of each page's rank that goes along each of its links. Returns the ranks of pages without links.
fn share(team: &Places, ranks: &Array<f64>, shares: &Array<f32>) -> anyhow::Result<f64> {
    let (ranks, shares) = (ranks.clone(), shares.clone());
    let dangling = team.on_each(move |member| member.own().launch(move |links| share_own(links, &ranks, &shares)))?;
    Ok(dangling.into_iter().sum())
}

/// The part of one place.
fn share_own(links: &Links, ranks: &Array<f64>, shares: &Array<f32>) -> f64 {
    let (own, mut dangling) = (links.own(), 0.0);
    for chunk in ranks.views(links.owned) {
        let start = chunk.start();
        shares.modify(start..start + chunk.len(), |first, shares| {
            let degrees = &links.degrees[first - own.start..];
            for ((rank, share), degree) in chunk[first - start..].iter().zip(shares).zip(degrees) {
                *share = if *degree > 0 { (rank / f64::from(*degree)) as f32 } else { 0.0 };
                dangling += if *degree > 0 { 0.0 } else { *rank };
            }
        });
    }
    dangling
}

/// Sets each page's rank to the sum of the shares of all pages with links to it. Surfers on a page without links, and
/// those that start again, go anywhere.
fn follow_links(team: &Places, shares: &Snapshot<f32>, ranks: &Array<f64>, dangling: f64) -> anyhow::Result<()> {
    let anywhere = (1.0 - DAMPING + DAMPING * dangling) / ranks.len() as f64;
    let (shares, ranks) = (shares.clone(), ranks.clone());
    let follow = move |links: &mut Links| {
        let shares = shares.slice();
        for range in links.owned {
            ranks.modify(range, |first, ranks| {
                (first..).zip(ranks).for_each(|(page, rank)| *rank = anywhere + DAMPING * sum(links.of(page), &shares));
            });
        }
    };
    team.on_each(move |member| member.own().launch(follow)).map(|_| ())
}

/// Sums up the shares of these pages: four sums at a time, so that an addition does not wait for the one before. No
/// iterator over both sums and pages, which is a call for each four pages where the compiler does not inline it.
#[inline]
fn sum(pages: &[Vertex], shares: &[f32]) -> f64 {
    let share = |page: Vertex| f64::from(shares[page as usize]);
    let (fours, rest) = pages.as_chunks();
    let [mut a, mut b, mut c, mut d] = [0.0; 4];
    for &[first, second, third, fourth] in fours {
        a += share(first);
        b += share(second);
        c += share(third);
        d += share(fourth);
    }
    rest.iter().fold((a + b) + (c + d), |sum, page| sum + share(*page))
}

/// The pages of the highest ranks, with these, highest first.
pub fn top(ranks: &Array<f64>, pages: &Array<Vertex>) -> Vec<(usize, f64)> {
    let (all, pages) = (ranks.clone(), pages.clone());
    let found = ranks.on_owners(move |own| {
        let mut top = [(usize::MAX, f64::NEG_INFINITY); TOP];
        for chunk in all.views(own) {
            for (number, rank) in chunk.indexed().filter(|(_, rank)| rank.is_finite()) {
                if rank < top[TOP - 1].1 {
                    continue;
                }
                let page = pages.get(number) as usize;
                if let Some(at) = top.iter().position(|other| is_above((page, rank), *other)) {
                    top[at..].rotate_right(1);
                    top[at] = (page, rank);
                }
            }
        }
        top
    });
    let mut found: Vec<_> = found.into_iter().flatten().filter(|(page, _)| *page != usize::MAX).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.truncate(TOP);
    found
}

/// Is the first of two pages with their ranks higher? Of two with equal ranks the lower page is.
fn is_above(a: (usize, f64), b: (usize, f64)) -> bool {
    a.1 > b.1 || a.1 == b.1 && a.0 < b.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_any_number_of_pages_are_summed_up() {
        let shares: Vec<f32> = (0..10u8).map(|page| f32::from(1u16 << page)).collect();
        for count in 0..10 {
            let pages: Vec<Vertex> = (0..count).rev().collect();
            assert_eq!(sum(&pages, &shares), f64::from((1 << count) - 1));
        }
    }

    #[test]
    fn of_equal_ranks_the_lower_page_is_above() {
        assert!(is_above((7, 0.5), (3, 0.25)) && is_above((3, 0.5), (7, 0.5)));
        assert!(!is_above((7, 0.5), (7, 0.5)) && !is_above((7, 0.5), (3, 0.5)));
    }
}
