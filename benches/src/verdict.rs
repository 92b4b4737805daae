//! Verdicts: a target, its result, and the exit status of a command that has targets.
//!
//! Not here: which targets there are (each command has its own), how anything is measured.

use std::path::Path;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::{machine::Machine, options::Strict, report::Report};

/// A target and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The comparison.
    pub target: String,
    /// `at least` or `at most`.
    pub bound: &'static str,
    /// The bound.
    pub wanted: f64,
    /// The figure, if its contenders ran.
    pub reached: Option<f64>,
    /// Whether the bound holds.
    pub met: Option<bool>,
}

const AT_LEAST: &str = "at least";
const AT_MOST: &str = "at most";

fn verdict(target: impl Into<String>, bound: &'static str, wanted: f64, reached: Option<f64>) -> Verdict {
    Verdict {
        target: target.into(),
        bound,
        wanted,
        reached,
        met: reached.map(|reached| if bound == AT_LEAST { reached >= wanted } else { reached <= wanted }),
    }
}

/// A target that asks for at least so much.
pub fn verdict_at_least(target: impl Into<String>, wanted: f64, reached: Option<f64>) -> Verdict {
    verdict(target, AT_LEAST, wanted, reached)
}

/// A target that asks for at most so much.
pub fn verdict_at_most(target: impl Into<String>, wanted: f64, reached: Option<f64>) -> Verdict {
    verdict(target, AT_MOST, wanted, reached)
}

/// One figure over another, if both were measured.
pub fn ratio(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    Some(of? / to?)
}

/// Prints target, figure and yes or no.
fn print(verdicts: &[Verdict]) {
    println!("\n{:<84} {:>14} {:>9}  met", "target", "wanted", "reached");
    for verdict in verdicts {
        let bound = format!("{} {}", verdict.bound, verdict.wanted);
        let reached = verdict.reached.map_or("-".to_owned(), |reached| format!("{reached:.2}"));
        let met = match verdict.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "not measured",
        };
        println!("{:<84} {bound:>14} {reached:>9}  {met}", verdict.target);
    }
}

/// Contents of a file of results where there are targets.
#[derive(Debug, Serialize)]
struct WithTargets<R> {
    #[serde(flatten)]
    measured: R,
    targets: Vec<Verdict>,
}

/// Prints the verdicts and writes all that was measured with them, if a file is asked for.
///
/// # Errors
/// The file cannot be written; with `strict`, a target that is missed or was not measured.
pub fn conclude<O: Serialize, R: Serialize>(
    command: &str,
    machine: &Machine,
    options: &O,
    measured: R,
    targets: Vec<Verdict>,
    json: Option<&Path>,
    strict: Strict,
) -> Result<()> {
    print(&targets);
    let missed = targets.iter().filter(|target| target.met != Some(true)).count();
    Report::write(command, machine, options, WithTargets { measured, targets }, json)?;
    ensure!(!strict.strict || missed == 0, "{missed} targets are missed or were not measured");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_in_their_direction() {
        assert_eq!(verdict_at_least("a", 2.0, Some(2.5)).met, Some(true));
        assert_eq!(verdict_at_least("a", 2.0, Some(1.5)).met, Some(false));
        assert_eq!(verdict_at_most("a", 2.0, Some(1.5)).met, Some(true));
        assert_eq!(verdict_at_most("a", 2.0, Some(2.5)).met, Some(false));
        assert_eq!(verdict_at_most("a", 2.0, None).met, None);
    }
}
