//! Verdicts: a target, its result, and the exit status of a command that has targets.
//!
//! Not here: which targets there are (each command has its own), how anything is measured.

use crate::basics::*;
use crate::report::{row, table};

/// A target and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    pub target: String,
    /// `at least` or `at most`.
    pub bound: &'static str,
    pub wanted: f64,
    /// The figure, if its contenders ran.
    pub reached: Option<f64>,
    pub met: Option<bool>,
}

const AT_LEAST: &str = "at least";
const AT_MOST: &str = "at most";

fn verdict(target: impl Into<String>, bound: &'static str, wanted: f64, reached: Option<f64>) -> Verdict {
    let reached = reached.filter(|reached| reached.is_finite());
    let met = reached.map(|reached| if bound == AT_LEAST { reached >= wanted } else { reached <= wanted });
    Verdict { target: target.into(), bound, wanted, reached, met }
}

pub fn at_least(target: impl Into<String>, wanted: f64, reached: Option<f64>) -> Verdict {
    verdict(target, AT_LEAST, wanted, reached)
}

pub fn at_most(target: impl Into<String>, wanted: f64, reached: Option<f64>) -> Verdict {
    verdict(target, AT_MOST, wanted, reached)
}

/// Prints target, figure and yes or no.
pub fn print(verdicts: &[Verdict]) {
    let rows = verdicts.iter().map(|Verdict { target, bound, wanted, reached, met }| {
        let met = met.map_or("not measured", |met| if met { "yes" } else { "NO" });
        row![target, format!("{bound} {wanted}"), reached, met]
    });
    table("targets", &["", "wanted", "reached", "met"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_in_their_direction() {
        assert_eq!(at_least("a", 2.0, Some(2.5)).met, Some(true));
        assert_eq!(at_least("a", 2.0, Some(1.5)).met, Some(false));
        assert_eq!(at_most("a", 2.0, Some(1.5)).met, Some(true));
        assert_eq!(at_most("a", 2.0, Some(2.5)).met, Some(false));
        assert_eq!(at_most("a", 2.0, None).met, None);
    }
}
