//! [`Report`]: work and result, as text and as JSON, beside those of the twin. No work here.

use std::time::Duration;

use indicatif::HumanCount;
use serde_json::{Map, Value};

use crate::program::print;

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The work, in lines.
    pub text: String,
    /// The result, for programs.
    pub found: Map<String, Value>,
    /// The unit that is counted, in the plural.
    pub unit: &'static str,
    /// Number of them.
    pub count: u64,
    /// Time it took.
    pub time: Duration,
    /// Wrong things that the program found by itself.
    pub wrong: Option<String>,
    /// The twin's result, if the twin was asked for.
    pub twin: Option<Twin>,
}

/// Result of the twin.
#[derive(Debug)]
pub struct Twin {
    /// Time it took.
    pub time: Duration,
    /// Number of its threads.
    pub threads: usize,
    /// The difference of its answer.
    pub difference: Option<String>,
}

impl Twin {
    /// Compares both answers, the twin's by as many threads as the program has workers; `describe` names the
    /// difference.
    pub fn compared<A: PartialEq>(own: &A, twins: &A, time: Duration, describe: impl FnOnce(&A, &A) -> String) -> Twin {
        let threads = gossamer::rack().workers();
        Twin { time, threads, difference: (own != twins).then(|| describe(own, twins)) }
    }
}

impl Report {
    /// False if something was found to be wrong.
    pub fn is_good(&self) -> bool {
        self.wrong.is_none() && self.twin.as_ref().is_none_or(|twin| twin.difference.is_none())
    }

    /// Prints it, from a fiber of the program. Whether all is well.
    ///
    /// # Errors
    /// Standard output takes nothing.
    pub fn print(&self, as_json: bool) -> anyhow::Result<bool> {
        let rack = gossamer::rack();
        let (machines, workers) = (rack.machines().len(), rack.workers());
        let text = if as_json { format!("{}\n", self.json(machines, workers)) } else { self.text(machines, workers) };
        print(&text)?;
        Ok(self.is_good())
    }

    fn text(&self, machines: usize, workers: usize) -> String {
        let (processes, all) = (many(machines, "process", "processes"), many(workers, "worker", "workers"));
        let mut text = format!(
            "{}{processes} with {all} in all\n{} {}, {}\n",
            self.text,
            HumanCount(self.count),
            self.unit,
            self.pace(self.time)
        );
        if let Some(wrong) = &self.wrong {
            text += &format!("WRONG: {wrong}\n");
        }
        if let Some(twin) = &self.twin {
            let answer = match &twin.difference {
                None => "the same answer".to_owned(),
                Some(difference) => format!("ANOTHER answer: {difference}"),
            };
            let threads = many(twin.threads, "thread", "threads");
            let ratio = twin.time.as_secs_f64() / self.time.as_secs_f64().max(1e-9);
            text += &format!("twin, one process with {threads}: {}, {answer}\n", self.pace(twin.time));
            text += &format!("{ratio:.3} times the twin's speed\n");
        }
        text
    }

    fn pace(&self, time: Duration) -> String {
        let (seconds, each) = (time.as_secs_f64(), self.a_second(time));
        let (each, million) = if each >= 1e6 { (each / 1e6, " million") } else { (each, "") };
        format!("{seconds:.4} s, {each:.3}{million} a second")
    }

    fn a_second(&self, time: Duration) -> f64 {
        self.count as f64 / time.as_secs_f64().max(1e-9)
    }

    fn json(&self, machines: usize, workers: usize) -> Value {
        let mut all = self.found.clone();
        let mut add = |name: &str, value: Value| all.insert(name.to_owned(), value);
        add("machines", machines.into());
        add("workers", workers.into());
        add("unit", self.unit.into());
        add("count", self.count.into());
        add("time_s", self.time.as_secs_f64().into());
        add("a_second", self.a_second(self.time).into());
        add("wrong", self.wrong.clone().into());
        if let Some(twin) = &self.twin {
            add("twin_time_s", twin.time.as_secs_f64().into());
            add("twin_a_second", self.a_second(twin.time).into());
            add("difference", twin.difference.clone().into());
        }
        add("verified", self.twin.as_ref().map(|_| self.is_good()).into());
        Value::Object(all)
    }
}

/// Formats a number of things.
pub fn many(count: usize, one: &str, several: &str) -> String {
    format!("{} {}", HumanCount(count as u64), if count == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(difference: Option<&str>, wrong: Option<&str>) -> Report {
        let twin = Twin { time: Duration::from_secs(1), threads: 2, difference: difference.map(str::to_owned) };
        let (found, wrong) = (Map::new(), wrong.map(str::to_owned));
        let time = Duration::from_secs(2);
        Report { text: "first\n".to_owned(), found, unit: "gets", count: 4_000_000, time, wrong, twin: Some(twin) }
    }

    #[test]
    fn what_differs_is_said() {
        let good = report(None, None);
        assert!(good.is_good() && good.json(2, 4)["verified"] == true);
        assert_eq!(
            good.text(1, 2),
            "first\n1 process with 2 workers in all\n4,000,000 gets, 2.0000 s, 2.000 million a second\n\
             twin, one process with 2 threads: 1.0000 s, 4.000 million a second, the same answer\n0.500 times the \
             twin's speed\n"
        );
        let other = report(Some("3 keys"), None);
        assert!(!other.is_good() && other.text(1, 1).contains("ANOTHER answer: 3 keys\n"));
        assert_eq!((&other.json(1, 1)["verified"], &other.json(1, 1)["difference"]), (&false.into(), &"3 keys".into()));
        let wrong = report(None, Some("2 gets"));
        assert!(
            !wrong.is_good() && wrong.text(1, 1).contains("\nWRONG: 2 gets\n") && wrong.json(1, 1)["verified"] == false
        );
    }
}
