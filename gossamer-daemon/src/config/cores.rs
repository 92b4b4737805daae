//! Set of cores, as `rack.yaml` names it: `3`, `0,2,4-7`, or a list of numbers.

use serde::{Deserialize, Deserializer, Serialize};

/// Highest core number: the system's own sets end there.
const MAX_CORE: usize = 1023;

/// Cores of a host, in rising order, without duplicates; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cores(Vec<usize>);

impl Cores {
    /// Returns the numbers.
    #[must_use]
    pub fn numbers(&self) -> &[usize] {
        &self.0
    }

    fn new(mut numbers: Vec<usize>) -> Result<Cores, String> {
        numbers.sort_unstable();
        numbers.dedup();
        match numbers.last() {
            None => Err("cores: name at least one, or leave it out for all".into()),
            Some(last) if *last > MAX_CORE => Err(format!("cores: {last} is no core; they go from 0 to {MAX_CORE}")),
            Some(_) => Ok(Cores(numbers)),
        }
    }

    fn parse(text: &str) -> Result<Cores, String> {
        let wrong = |part: &str| format!("cores: {part:?} is neither a core nor a range: write 3, or 0,2,4-7");
        let mut numbers = Vec::new();
        for part in text.split(',').map(str::trim) {
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong(part));
            match part.split_once('-') {
                None => numbers.push(number(part)?),
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last || last > MAX_CORE {
                        return Err(wrong(part));
                    }
                    numbers.extend(first..=last);
                }
            }
        }
        Cores::new(numbers)
    }
}

impl<'de> Deserialize<'de> for Cores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cores, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "cores: a number, a text such as 0,2,4-7, or a list of numbers")]
        enum Form {
            One(usize),
            Text(String),
            List(Vec<usize>),
        }
        let cores = match Form::deserialize(deserializer)? {
            Form::One(number) => Cores::new(vec![number]),
            Form::Text(text) => Cores::parse(&text),
            Form::List(numbers) => Cores::new(numbers),
        };
        cores.map_err(serde::de::Error::custom)
    }
}
