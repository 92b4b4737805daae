//! Which operations a client makes: reads and writes in a proportion, or the workloads of YCSB.

use super::protocol::{Operation, Step};
use crate::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution as _, Zipf};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Operations in a hundred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mix {
    /// So many write, the others read.
    Writes(u32),
    /// YCSB C: all read.
    #[default]
    C,
    /// YCSB D: 95 read the latest inserts, 5 insert.
    D,
}

impl Mix {
    /// In a hundred: writes and inserts.
    fn shares(self) -> (u32, u32) {
        match self {
            Mix::Writes(writes) => (writes, 0),
            Mix::C => (0, 0),
            Mix::D => (0, 5),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mix::Writes(writes) => write!(f, "{writes}"),
            letter => write!(f, "{letter:?}"),
        }
    }
}

impl FromStr for Mix {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "C" | "c" => Mix::C,
            "D" | "d" => Mix::D,
            number => Mix::Writes(number.parse().ok().filter(|writes| *writes <= 100).ok_or_else(|| {
                anyhow!("{text:?} is neither a number of writes in a hundred, 0 to 100, nor a workload of YCSB: C, D")
            })?),
        })
    }
}

/// The operations of one client, one after the other.
pub enum Source {
    /// Writes of all keys, in order.
    Fill {
        next: u32,
        /// Behind the last one.
        keys: u32,
    },
    /// Without end.
    Mixed(Box<Mixed>),
}

/// The operations of a [`Mix`].
pub struct Mixed {
    picks: Box<[u32]>,
    at: usize,
    writes: u32,
    inserts: u32,
    rng: StdRng,
    /// The object that is inserted next, by whichever client.
    newest: Arc<AtomicU32>,
    /// Where reads prefer the latest insert: the distance from it.
    age: Option<Zipf<f64>>,
}

impl Source {
    /// Without end: `mix` over these picks; inserted objects come behind `newest`.
    pub fn new(mix: Mix, picks: &[u32], keys: u32, newest: Arc<AtomicU32>, seed: u64) -> Self {
        let (writes, inserts) = mix.shares();
        let age = (mix == Mix::D).then(|| Zipf::new(f64::from(keys), 1.0).expect("at least one key, alpha 1"));
        let rng = StdRng::seed_from_u64(seed);
        let picks = picks.into();
        Self::Mixed(Box::new(Mixed { picks, at: 0, writes, inserts, rng, newest, age }))
    }

    /// Is there an end to it?
    pub fn has_end(&self) -> bool {
        matches!(self, Source::Fill { .. })
    }

    /// The next operation, made `now`.
    #[inline]
    pub fn next(&mut self, now: u64) -> Option<Operation> {
        match self {
            Source::Fill { next, keys } => (*next < *keys).then(|| {
                *next += 1;
                Operation { object: *next - 1, step: Step::Write, began: now, may_miss: false }
            }),
            Source::Mixed(mixed) => Some(mixed.next(now)),
        }
    }
}

impl Mixed {
    #[inline]
    fn next(&mut self, now: u64) -> Operation {
        let draw = self.rng.random_range(0..100);
        let mut operation = Operation { object: 0, step: Step::Read, began: now, may_miss: false };
        if draw < self.inserts {
            operation.step = Step::Write;
            operation.object = self.newest.fetch_add(1, Ordering::Relaxed);
            return operation;
        }
        operation.object = match &self.age {
            None => {
                self.at = (self.at + 1) & (self.picks.len() - 1);
                self.picks[self.at]
            }
            Some(age) => {
                operation.may_miss = true;
                self.newest.load(Ordering::Relaxed) - (age.sample(&mut self.rng) as u32).max(1)
            }
        };
        if draw < self.writes {
            operation.step = Step::Write;
        }
        operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(mix: Mix) -> usize {
        let newest = Arc::new(AtomicU32::new(1000));
        let mut source = Source::new(mix, &[1, 2, 3, 4], 1000, newest.clone(), 7);
        let mut writes = 0;
        for _ in 0..10_000 {
            let operation = source.next(0).unwrap();
            assert!(operation.object < newest.load(Ordering::Relaxed), "{operation:?}");
            writes += usize::from(operation.step == Step::Write);
        }
        let inserted = newest.load(Ordering::Relaxed) as usize - 1000;
        assert_eq!(inserted, if mix == Mix::D { writes } else { 0 });
        writes
    }

    #[test]
    fn each_mix_has_its_shares() {
        assert_eq!([writes(Mix::C), writes(Mix::Writes(100))], [0, 10_000]);
        assert!(writes(Mix::D).abs_diff(500) < 200 && writes(Mix::Writes(50)).abs_diff(5000) < 200);
    }

    #[test]
    fn mixes_are_read_as_they_are_written() {
        for mix in [Mix::C, Mix::D, Mix::Writes(0), Mix::Writes(100)] {
            assert_eq!(mix.to_string().parse::<Mix>().unwrap(), mix);
        }
        assert!("101".parse::<Mix>().unwrap_err().to_string().contains("C, D"));
        assert!("E".parse::<Mix>().is_err());
    }

    #[test]
    fn a_fill_writes_each_key_once() {
        let mut fill = Source::Fill { next: 0, keys: 3 };
        let objects: Vec<u32> = std::iter::from_fn(|| fill.next(0)).map(|operation| operation.object).collect();
        assert_eq!((objects, fill.has_end()), (vec![0, 1, 2], true));
    }
}
