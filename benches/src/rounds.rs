//! Shared by contenders of any kind: each runs once a round, in an order shuffled anew, and one that cannot be had
//! here is SKIPPED with the reason.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};

/// Calls `run` with each round, counted from 1, and each number below `count`, these in another order every round.
///
/// # Errors
/// The first that `run` returns.
pub fn interleaved(
    rounds: usize,
    count: usize,
    seed: u64,
    mut run: impl FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut rng = StdRng::seed_from_u64(seed);
    for round in 1..=rounds {
        order.shuffle(&mut rng);
        for &index in &order {
            run(round, index)?;
        }
    }
    Ok(())
}

/// Those with these names, all where there are none; `what` is their kind, for the message.
///
/// # Errors
/// A name that nobody has, with the names there are.
pub fn chosen<T>(what: &str, mut all: Vec<T>, name_of: impl Fn(&T) -> &str, only: &[String]) -> Result<Vec<T>> {
    if let Some(unknown) = only.iter().find(|name| all.iter().all(|one| name_of(one) != *name)) {
        let known: Vec<_> = all.iter().map(name_of).collect();
        bail!("no {what} is called {unknown:?}; there are {}", known.join(", "));
    }
    all.retain(|one| only.is_empty() || only.iter().any(|name| name == name_of(one)));
    Ok(all)
}

/// Contenders that did not run, and why.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Skipped(BTreeMap<String, String>);

impl Skipped {
    /// Keeps a contender that there is; of the others says once that it is skipped.
    pub fn sort<T>(&mut self, contender: &str, prepared: std::result::Result<T, String>) -> Option<T> {
        let why = match prepared {
            Ok(prepared) => return Some(prepared),
            Err(why) => why,
        };
        if self.0.insert(contender.to_owned(), why.clone()).is_none() {
            println!("SKIPPED: {contender}: {why}");
        }
        None
    }
}

/// Contents of a file of results.
#[derive(Debug, Serialize)]
pub struct Compared<'a, S> {
    /// All samples.
    pub series: &'a [S],
    /// Contenders that did not run, and why.
    pub skipped: &'a Skipped,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_round_has_all_and_orders_differ() {
        let mut rounds = vec![Vec::new(); 20];
        let mut run = |round: usize, index: usize| {
            rounds[round - 1].push(index);
            Ok(())
        };
        interleaved(20, 4, 1, &mut run).unwrap();
        assert!(rounds.iter().collect::<HashSet<_>>().len() > 1, "the order is always {:?}", rounds[0]);
        for mut round in rounds {
            round.sort_unstable();
            assert_eq!(round, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn who_is_unknown_is_answered_with_all() {
        let of = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            chosen("letter", vec!["a", "b", "c"], |name| name, &only)
        };
        assert_eq!(of(&[]).unwrap(), ["a", "b", "c"]);
        assert_eq!(of(&["c", "a"]).unwrap(), ["a", "c"]);
        assert_eq!(of(&["a", "d"]).unwrap_err().to_string(), "no letter is called \"d\"; there are a, b, c");
    }

    #[test]
    fn who_is_not_there_is_kept_with_the_reason() {
        let mut skipped = Skipped::default();
        assert_eq!(skipped.sort("a", Ok(1)), Some(1));
        assert_eq!(skipped.sort::<u8>("b", Err("it is away".to_owned())), None);
        assert_eq!(serde_json::to_string(&skipped).unwrap(), r#"{"b":"it is away"}"#);
    }
}
