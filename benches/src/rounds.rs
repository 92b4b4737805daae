//! Shared by contenders of any kind: each runs once a round, in an order shuffled anew, and one that cannot be had
//! here is SKIPPED with the reason.

use crate::basics::*;
use crate::machine::Machine;
use crate::options::Comparison;
use crate::verdict::{self, Verdict};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::fs;

/// Seed of the orders in which contenders run.
const ORDER_SEED: u64 = 1;

/// Calls `run` with each round, counted from 1, and each number below `count`, these in another order every round.
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

/// A command at work: its comparison, this machine, and the contenders that cannot be had here.
pub struct Bench {
    name: &'static str,
    comparison: Comparison,
    pub machine: Machine,
    pub skipped: Skipped,
}

impl Bench {
    /// Checks the options of the comparison, and says where it runs.
    pub fn begin(name: &'static str, comparison: &mut Comparison) -> Result<Bench> {
        comparison.prepare()?;
        let machine = Machine::here();
        println!("{machine}");
        Ok(Bench { name, comparison: comparison.clone(), machine, skipped: Skipped::default() })
    }

    /// A sample of each contender every round, by their places.
    pub fn rounds<C, S>(
        &self,
        all: &[C],
        name: impl Fn(&C) -> String,
        run: impl FnMut(&C, usize) -> Result<S>,
    ) -> Result<Vec<Vec<S>>> {
        self.some_rounds(self.comparison.rounds, all, name, run)
    }

    /// The same, so many rounds.
    pub fn some_rounds<C, S>(
        &self,
        rounds: usize,
        all: &[C],
        name: impl Fn(&C) -> String,
        mut run: impl FnMut(&C, usize) -> Result<S>,
    ) -> Result<Vec<Vec<S>>> {
        let mut samples: Vec<Vec<S>> = all.iter().map(|_| Vec::new()).collect();
        interleaved(rounds, all.len(), ORDER_SEED, |round, index| {
            let name = name(&all[index]);
            eprintln!("{}: round {round}/{rounds} {name}", self.name);
            samples[index].push(run(&all[index], round).with_context(|| name.clone())?);
            Ok(())
        })?;
        Ok(samples)
    }

    /// Prints the verdicts, and writes them with all that was measured, the fields of an object, if a file is asked
    /// for. With `--strict` a target that is missed or was not measured is an error.
    pub fn conclude(self, options: &impl Serialize, mut measured: Value, targets: &[Verdict]) -> Result<()> {
        verdict::print(targets);
        let missed = targets.iter().filter(|target| target.met != Some(true)).count();
        (measured["skipped"], measured["targets"]) = (json!(self.skipped), json!(targets));
        self.write(options, measured)?;
        ensure!(!self.comparison.strict || missed == 0, "{missed} targets are missed or were not measured");
        Ok(())
    }

    /// Writes results, if a file is asked for, with machine, command and options.
    pub fn write(&self, options: &impl Serialize, results: Value) -> Result<()> {
        let Some(path) = &self.comparison.json else { return Ok(()) };
        let command_line: Vec<String> = std::env::args().skip(1).collect();
        let file = json!({
            "command": self.name, "command_line": command_line, "machine": self.machine, "options": options,
            "results": results,
        });
        fs::write(path, format!("{}\n", rounded(file)))
            .with_context(|| format!("{} cannot be written", path.display()))?;
        println!("\nresults: {}", path.display());
        Ok(())
    }
}

/// The value with at most seven significant digits in each fraction, more than a run repeats: files of results stay
/// small.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let digits = format!("{:.6e}", number.as_f64().expect("a number of this kind"));
            Value::from(digits.parse::<f64>().expect("digits that were just written"))
        }
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, rounded(value))).collect(),
        other => other,
    }
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

    #[test]
    fn fractions_are_rounded_and_counts_are_not() {
        let value = json!({"mops": 118.83263462357506, "ops": 18446744073709551615u64, "ns": [0.00012345678, 2.0]});
        let expected = json!({"mops": 118.8326, "ops": 18446744073709551615u64, "ns": [0.0001234568, 2.0]});
        assert_eq!(rounded(value), expected);
    }
}
