//! Steps a second of a task, in windows of its time, and whether one rate is worse than another.

use std::collections::VecDeque;

/// Most windows that count.
const WINDOWS: usize = 10;
/// Fewest windows from which a rate is known.
const WINDOWS_MIN: usize = 4;
/// Worse than before by more than this part, and by so many deviations.
const PART: f64 = 0.03;
const DEVIATIONS: f64 = 2.0;

/// Steps a second, and the deviation of that mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Rate {
    /// Is it worse than the one before?
    pub(super) fn is_worse_than(self, before: Rate) -> bool {
        let less = before.mean - self.mean;
        less > PART * before.mean && less > DEVIATIONS * before.deviation.hypot(self.deviation)
    }
}

/// The last windows of a task.
#[derive(Debug, Default)]
pub(super) struct Windows(VecDeque<f64>);

impl Windows {
    /// Adds a window with so many steps a second.
    pub(super) fn add(&mut self, rate: f64) {
        if self.0.len() == WINDOWS {
            self.0.pop_front();
        }
        self.0.push_back(rate);
    }

    /// Returns the rate, once enough windows are known.
    pub(super) fn rate(&self) -> Option<Rate> {
        if self.0.len() < WINDOWS_MIN {
            return None;
        }
        let count = self.0.len() as f64;
        let mean = self.0.iter().sum::<f64>() / count;
        let squares: f64 = self.0.iter().map(|rate| (rate - mean) * (rate - mean)).sum();
        Some(Rate { mean, deviation: (squares / (count - 1.0) / count).sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rates: &[f64]) -> Option<Rate> {
        let mut windows = Windows::default();
        rates.iter().for_each(|rate| windows.add(*rate));
        windows.rate()
    }

    #[test]
    fn a_rate_is_known_after_some_windows_and_forgets_old_ones() {
        assert_eq!(of(&[5.0; WINDOWS_MIN - 1]), None);
        assert_eq!(of(&[5.0; WINDOWS_MIN]), Some(Rate { mean: 5.0, deviation: 0.0 }));
        let rates: Vec<f64> = [900.0; 5].into_iter().chain([5.0; WINDOWS]).collect();
        assert_eq!(of(&rates), Some(Rate { mean: 5.0, deviation: 0.0 }));
    }

    #[test]
    fn worse_is_by_a_part_and_by_deviations() {
        let exactly = |mean| Rate { mean, deviation: 0.0 };
        assert!(exactly(96.0).is_worse_than(exactly(100.0)));
        assert!(!exactly(98.0).is_worse_than(exactly(100.0)), "by 2% only");
        assert!(!exactly(120.0).is_worse_than(exactly(100.0)));
        let about = |mean| Rate { mean, deviation: 5.0 };
        assert!(!about(90.0).is_worse_than(about(100.0)), "within the deviations");
        assert!(about(80.0).is_worse_than(about(100.0)));
    }
}
