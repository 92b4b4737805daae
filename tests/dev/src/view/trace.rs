//! A trace of a running program, as its readers take it: JSON by the letter, events of Chrome's format, and
//! Perfetto's own importer where that can be had.

use super::{All, LIMIT};
use anyhow::{Context as _, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Loads a trace with Perfetto's importer, and says how many slices it has found. The package of PyPI fetches the
/// importer itself from elsewhere, unless one is in `PATH`.
const IMPORT: &str = "import shutil, subprocess, sys\n\
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig\n\
    shell = shutil.which('trace_processor_shell') or shutil.which('trace_processor')\n\
    try: tp = TraceProcessor(trace=sys.argv[1], config=TraceProcessorConfig(bin_path=shell))\n\
    except (OSError, subprocess.SubprocessError) as error: sys.exit('no importer: %s' % error)\n\
    bad = tp.query(\"select name, value from stats where severity in ('error', 'data_loss') and value > 0\")\n\
    bad = [(row.name, row.value) for row in bad]\n\
    assert not bad, bad\n\
    print(next(iter(tp.query('select count(*) as n from slice'))).n)\n";

impl All {
    /// A trace of two machines. Returns why Perfetto's importer was not asked, if it was not.
    pub(super) fn trace(&self, python: &Path) -> anyhow::Result<Option<String>> {
        let (_running, url) = self.program("2", "4", &self.programs.join("watched"), &[])?;
        let file = self.folder.join("trace.json");
        let end = Instant::now() + LIMIT;
        let slices = loop {
            let done = self.launcher().args(["trace", "--seconds", "0.3", "-o"]).arg(&file).arg(&url).output()?;
            // The machines may still be on their way.
            let slices = if done.status.success() { check(&fs::read(&file)?)? } else { 0 };
            if slices > 0 {
                break slices;
            }
            ensure!(Instant::now() < end, "no trace comes: {}", String::from_utf8_lossy(&done.stderr));
            std::thread::sleep(Duration::from_millis(100));
        };
        println!("a trace of {slices} slices: {}", file.display());
        let installed = Command::new("timeout")
            .arg("60")
            .arg(python)
            .args(["-m", "pip", "install", "-q", "perfetto==0.59.1"])
            .output()?;
        if !installed.status.success() {
            return Ok(Some("no package index, for PyPI's perfetto".to_owned()));
        }
        let import = Command::new("timeout").arg("60").arg(python).args(["-c", IMPORT]).arg(&file).output()?;
        let said = String::from_utf8_lossy(&import.stderr).into_owned();
        if let Some((_, why)) = said.split_once("no importer: ") {
            return Ok(Some(format!("its trace_processor_shell cannot be had: {}", why.trim())));
        }
        ensure!(import.status.success(), "Perfetto's importer: {said}");
        let found: usize = String::from_utf8_lossy(&import.stdout).trim().parse().context("a number of slices")?;
        ensure!(found == slices, "Perfetto has found {found} slices of {slices}");
        println!("Perfetto's importer has found them all");
        Ok(None)
    }
}

/// Returns the number of slices. Those of a thread follow one another or lie within one another, as a viewer draws
/// them.
fn check(json: &[u8]) -> anyhow::Result<usize> {
    let trace: serde_json::Value = serde_json::from_slice(json).context("the trace is no JSON")?;
    let events = trace["traceEvents"].as_array().context("it has no events")?;
    let mut names = 0;
    let mut threads: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events {
        match event["ph"].as_str() {
            Some("M") => names += 1,
            Some("X") => {
                let number = |name: &str| event[name].as_f64().with_context(|| format!("{event} has no {name}"));
                let place = |name: &str| event[name].as_u64().with_context(|| format!("{event} has no {name}"));
                let (start, long) = (number("ts")?, number("dur")?);
                ensure!(start >= 0.0 && long >= 0.0 && event["name"].is_string(), "{event}");
                threads.entry((place("pid")?, place("tid")?)).or_default().push((start, start + long));
            }
            other => anyhow::bail!("an event of kind {other:?}"),
        }
    }
    for (thread, slices) in &mut threads {
        slices.sort_by(|a, b| (a.0, b.1).partial_cmp(&(b.0, a.1)).expect("they are numbers"));
        let mut open: Vec<f64> = Vec::new();
        for &(start, end) in slices.iter() {
            open.retain(|outer| *outer > start);
            let crosses = open.last().is_some_and(|outer| end > *outer + 0.001);
            ensure!(!crosses, "{thread:?}: the slice from {start} to {end} us crosses the end of another");
            open.push(end);
        }
    }
    ensure!(names > threads.len(), "{} threads have no names", threads.len());
    Ok(threads.values().map(Vec::len).sum())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn slices_that_cross_and_what_is_no_trace_are_refused() {
        let of = |slices: &str| {
            let names = r#"{"ph":"M","name":"process_name"},{"ph":"M","name":"thread_name"}"#;
            check(format!(r#"{{"traceEvents":[{names}{slices}]}}"#).as_bytes())
        };
        let slice = |ts: f64, dur: f64| format!(r#",{{"ph":"X","name":"a","pid":0,"tid":1,"ts":{ts},"dur":{dur}}}"#);
        assert_eq!(of("").unwrap(), 0);
        assert_eq!(of(&(slice(0.0, 5.0) + &slice(1.0, 2.0) + &slice(3.0, 2.0) + &slice(5.0, 1.0))).unwrap(), 4);
        assert!(of(&(slice(0.0, 5.0) + &slice(4.0, 2.0))).unwrap_err().to_string().contains("crosses"));
        assert!(of(r#",{"ph":"X"}"#).is_err() && of(r#",{"ph":"Q"}"#).is_err() && check(b"{").is_err());
    }
}
