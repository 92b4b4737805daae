//! The tables of the document, and how each comes from a file of results.
//!
//! Invariant: no figure is rounded in anybody's favour: rates are rounded down, times up, for all contenders alike.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

/// A table: rows and columns by fields of a list of series, or the targets of a file.
pub struct Table {
    /// Name in its markers.
    pub name: &'static str,
    /// The measurement it comes from.
    pub file: &'static str,
    /// The unit of its cells.
    what: &'static str,
    /// Pictures of the same, where they are there.
    pictures: &'static [&'static str],
    content: Content,
}

enum Content {
    Series {
        /// Place of the list.
        list: &'static str,
        /// Required values of fields of a series.
        only: &'static [(&'static str, &'static str)],
        row: &'static str,
        /// Rows that are shown; none: all.
        rows: &'static [&'static str],
        column: &'static str,
        /// Cells. Of several series with the same row and column the one with the largest first cell counts.
        cells: &'static [Cell],
    },
    /// All targets of a file.
    Targets,
    /// Number of a file's targets that are met, and the missed ones.
    Missed,
    /// Pictures alone.
    Plots,
}

/// A field of a series as it is shown.
struct Cell {
    field: &'static str,
    factor: f64,
    is_time: bool,
}

const fn rate(field: &'static str) -> Cell {
    Cell { field, factor: 1.0, is_time: false }
}

const fn time(field: &'static str, factor: f64) -> Cell {
    Cell { field, factor, is_time: true }
}

const fn targets(name: &'static str, file: &'static str) -> Table {
    Table { name, file, what: "Targets", pictures: &[], content: Content::Targets }
}

const fn missed(name: &'static str, file: &'static str) -> Table {
    Table { name, file, what: "Targets", pictures: &[], content: Content::Missed }
}

const fn plots(name: &'static str, file: &'static str, what: &'static str, pictures: &'static [&'static str]) -> Table {
    Table { name, file, what, pictures, content: Content::Plots }
}

const MOPS: &[Cell] = &[rate("/median_mops")];
const KOPS: &[Cell] = &[rate("/median_kops")];
const COUNTERS: &str = "Million operations a second over the number of objects";
const MEANS: &str = "Mean latency in microseconds over the load offered";
const TABLES: &str = "The tables alone: million operations a second";
const SERVERS: &str = "Servers: thousand operations a second";
const MEMCACHED: &str =
    "Thousand operations a second / for each second of the server's CPU time, over the number of keys";

const fn fetch_add(
    name: &'static str,
    file: &'static str,
    only: &'static [(&'static str, &'static str)],
    pictures: &'static [&'static str],
) -> Table {
    const ROWS: &[&str] = &["std-mutex", "spin", "mcs", "atomic", "channel", "apply", "apply_then", "bare-slots"];
    let content = Content::Series { list: "", only, row: "/contender", rows: ROWS, column: "/objects", cells: MOPS };
    Table { name, file, what: COUNTERS, pictures, content }
}

const fn kv(
    name: &'static str,
    file: &'static str,
    what: &'static str,
    only: &'static [(&'static str, &'static str)],
    column: &'static str,
    pictures: &'static [&'static str],
) -> Table {
    let (list, row, cells) = match file.as_bytes()[3] {
        b't' => ("/tables", "/contender", MOPS),
        _ => ("/servers/series", "/server", KOPS),
    };
    Table { name, file, what, pictures, content: Content::Series { list, only, row, rows: &[], column, cells } }
}

const fn by_contender(
    file: &'static str,
    name: &'static str,
    what: &'static str,
    only: &'static [(&'static str, &'static str)],
    column: &'static str,
    cells: &'static [Cell],
    pictures: &'static [&'static str],
) -> Table {
    let content = Content::Series { list: "/series", only, row: "/contender", rows: &[], column, cells };
    Table { name, file, what, pictures, content }
}

const fn array(
    name: &'static str,
    only: &'static [(&'static str, &'static str)],
    column: &'static str,
    pictures: &'static [&'static str],
) -> Table {
    by_contender("array", name, "Million elements, edges or operations a second", only, column, MOPS, pictures)
}

const fn memcached(name: &'static str, file: &'static str, only: &'static [(&'static str, &'static str)]) -> Table {
    const CELLS: &[Cell] = &[rate("/median_kops"), rate("/median_kops_per_cpu_second")];
    let content = Content::Series { list: "/series", only, row: "/server", rows: &[], column: "/keys", cells: CELLS };
    Table { name, file, what: MEMCACHED, pictures: &[], content }
}

const TUNED: &str = "Million operations a second by setting";
const UNIFORM: &[(&str, &str)] = &[("/dist", "uniform")];

/// All workloads under each condition.
const BUSY: &[&str] = &["busy-quiet", "busy-half-workers", "busy-hog-pinned", "busy-workers-4x"];

/// All of them, in the order of the document.
pub const ALL: &[Table] = &[
    Table {
        name: "targets of one process",
        file: "targets",
        what: "Targets",
        pictures: &["targets-1-objects", "targets-16-objects", "targets-1000000-objects"],
        content: Content::Targets,
    },
    fetch_add("figure 6", "fetch-add-pause", UNIFORM, &[]),
    fetch_add("figure 6, 16 cores", "16-cores/fetch-add", &[("/dist", "uniform"), ("/threads", "16")], &[]),
    plots("figure 7", "fetch-add-pause", COUNTERS, &["fetch-add-pause-zipf-2-threads"]),
    plots("figure 7, empty section", "fetch-add", COUNTERS, &["fetch-add-zipf-2-threads"]),
    plots("figures 8 and 9", "latency", MEANS, &["latency-64-uniform-mean", "latency-1000000-zipf-mean"]),
    kv("figure 10", "kv-servers-keys", SERVERS, UNIFORM, "/keys", &[]),
    plots("figure 11", "kv-servers-keys", SERVERS, &["kv-servers-keys-zipf-5"]),
    kv("figure 13", "kv-servers-many-writes", SERVERS, &[], "/mix", &["kv-servers-many-writes-zipf-10000000-keys"]),
    kv(
        "figure 13, tables",
        "kv-tables-many-writes",
        TABLES,
        &[],
        "/writes",
        &["kv-tables-many-writes-zipf-10000000-keys"],
    ),
    targets("targets of tables", "kv-tables"),
    targets("targets of servers", "kv-servers"),
    memcached("figure 14, 5% writes", "memcached", &[("/dist", "uniform"), ("/writes", "5")]),
    memcached("figure 15, 5% writes", "memcached", &[("/dist", "zipf"), ("/writes", "5")]),
    memcached("figure 15, 50% writes, 16 cores", "16-cores/memcached", &[("/dist", "zipf"), ("/writes", "50")]),
    targets("targets of memcached", "memcached"),
    plots(
        "figure 23",
        "echo",
        "Million requests a second over the bytes each way, 2 processes",
        &["echo-2-processes-over-bytes"],
    ),
    plots(
        "figure 24",
        "echo",
        "99.9th percentile over million requests a second, 2 processes, 32 bytes",
        &["echo-2-processes-32-bytes-p999-over-rate"],
    ),
    targets("targets of echo", "echo"),
    plots("figure 25", "sssp", "Seconds a search over the workers, scale 20", &["sssp-workers"]),
    by_contender(
        "sssp",
        "figure 26",
        "Million traversed edges a second / milliseconds a search over the scale, 2 workers",
        &[("/workers", "2")],
        "/scale",
        &[rate("/median_mteps"), time("/median_time_s", 1e3)],
        &["sssp-teps"],
    ),
    targets("targets of shortest paths", "sssp"),
    plots("busy", "busy", "Million operations a second by workload, of each way of waiting and of locks", BUSY),
    missed("targets of busy", "busy"),
    array("array, programs", &[("/table", "programs")], "/group", &[]),
    array("array, densities", &[("/table", "densities")], "/per_chunk", &["array-dense"]),
    missed("targets of the array", "array"),
    missed("targets of regions", "region"),
    targets("targets of threads that move", "region-moves"),
    missed("targets of the heap", "heap"),
    targets("targets of durable trusts", "durable"),
    targets("targets of several objects", "transfers"),
    targets("targets of async programs", "async"),
    missed("targets of starters and the view", "operations"),
    by_contender("tune", "tuned pools, counters", TUNED, &[], "/group", MOPS, &[]),
    targets("targets of tuned pools", "tune"),
    by_contender("tune-loads", "tuned pools, other loads", TUNED, &[], "/group", MOPS, &[]),
    targets("targets of tuned pools, other loads", "tune-loads"),
    by_contender("tune-phases", "tuned pools, phases", TUNED, &[], "/group", MOPS, &[]),
    targets("targets of tuned pools, phases and moves", "tune-phases"),
];

impl Table {
    /// The table as the files of the folder have it; how to measure it, where its file is not there.
    ///
    /// # Errors
    /// A file that is no file of results.
    pub fn markdown(&self, folder: &Path) -> anyhow::Result<String> {
        let path = folder.join(format!("{}.json", self.file));
        if !path.exists() {
            return Ok(format!("\n{}: Not measured yet: `{}`\n\n", self.what, super::command(self.file)));
        }
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let file: Value =
            serde_json::from_str(&text).with_context(|| format!("{} is no file of results", path.display()))?;
        let mut out = format!("\n{}.", self.what);
        for (number, picture) in self.pictures.iter().filter(|name| has_picture(folder, name)).enumerate() {
            let _ =
                write!(out, "{}[{picture}](benchmarks/{picture}.svg)", if number == 0 { " Plotted: " } else { ", " });
        }
        let rows = match &self.content {
            Content::Series { list, only, row, rows, column, cells } => {
                let all = file["results"].pointer(list).and_then(Value::as_array).cloned().unwrap_or_default();
                let is_shown = |series: &Value| {
                    let name = series.pointer(row).map_or(String::new(), crate::book::tables::text);
                    rows.is_empty() || rows.contains(&name.as_str())
                };
                let all: Vec<Value> = all.into_iter().filter(is_shown).collect();
                series(&all, only, (row, column), cells)
            }
            Content::Targets => verdicts(&file["results"]["targets"], |_| true),
            Content::Missed => {
                let targets = &file["results"]["targets"];
                format!("{}\n\n{}", met_of(targets), verdicts(targets, |target| target["met"] == false))
            }
            Content::Plots => String::new(),
        };
        let end = if out.ends_with(')') { "." } else { "" };
        let _ = writeln!(out, "{end}\n{}\n", origin(&file));
        if !rows.is_empty() {
            let _ = writeln!(out, "{rows}\n");
        }
        Ok(out)
    }
}

fn has_picture(folder: &Path, name: &str) -> bool {
    folder.join(format!("{name}.svg")).exists()
}

/// Machine, time and command of the measurement.
fn origin(file: &Value) -> String {
    let machine = |field: &str| text(&file["machine"][field]);
    let line: Vec<String> = file["command_line"].as_array().into_iter().flatten().map(text).collect();
    let line = line.join(" ");
    let command = line.split(" --json").next().unwrap_or_default();
    let rounds = ["/options/rounds", "/options/common/rounds"].into_iter().find_map(|at| file.pointer(at));
    format!(
        "`gossamer-bench {command}`, {} rounds, {}, {} cores, commit {}{}.",
        rounds.map_or("?".to_owned(), text),
        machine("cpu"),
        machine("cores"),
        machine("commit"),
        if machine("profile") == "release" { "" } else { ", **a debug build: no figures**" }
    )
}

fn series(all: &[Value], only: &[(&str, &str)], (row, column): (&str, &str), cells: &[Cell]) -> String {
    let at = |series: &Value, field: &str| series.pointer(field).map_or(String::new(), text);
    let chosen: Vec<&Value> =
        all.iter().filter(|series| only.iter().all(|(field, wanted)| at(series, field) == *wanted)).collect();
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    for series in &chosen {
        for (list, value) in [(&mut rows, at(series, row)), (&mut columns, at(series, column))] {
            if !list.contains(&value) {
                list.push(value);
            }
        }
    }
    let is_number = |column: &String| column.parse::<f64>().is_ok();
    if columns.iter().all(is_number) {
        columns.sort_by(|a, b| f64::total_cmp(&a.parse().unwrap_or_default(), &b.parse().unwrap_or_default()));
    }
    if rows.is_empty() {
        return "The file has no series of these.".to_owned();
    }
    let title = |value: &String| if is_number(value) { grouped(value) } else { value.clone() };
    let mut out = format!("| | {} |\n|---|", columns.iter().map(title).collect::<Vec<_>>().join(" | "));
    out += &"---|".repeat(columns.len());
    for name in &rows {
        let _ = write!(out, "\n| `{name}` |");
        for place in &columns {
            let here = chosen.iter().filter(|series| at(series, row) == *name && at(series, column) == *place);
            let first = |series: &Value| series.pointer(cells[0].field).and_then(Value::as_f64).unwrap_or_default();
            let best = here.max_by(|a, b| first(a).total_cmp(&first(b)));
            let _ = write!(out, " {} |", best.map_or(String::new(), |series| shown(series, cells)));
        }
    }
    out
}

fn shown(series: &Value, cells: &[Cell]) -> String {
    let cells = cells.iter().map(|cell| {
        let value = series.pointer(cell.field).and_then(Value::as_f64);
        value.map_or("-".to_owned(), |value| rounded(value * cell.factor, cell.is_time))
    });
    cells.collect::<Vec<_>>().join(" / ")
}

/// Returns the number of targets that are met, in words.
fn met_of(targets: &Value) -> String {
    let all = targets.as_array().map_or(&[][..], Vec::as_slice);
    let met = all.iter().filter(|target| target["met"] == true).count();
    let unknown = all.iter().filter(|target| target["met"].is_null()).count();
    let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} not measured") };
    format!("{met} of {} are met{unknown}; missed are:", all.len())
}

/// The targets that are `shown`; a missed one is bold.
fn verdicts(targets: &Value, shown: impl Fn(&Value) -> bool) -> String {
    let mut out = "| target | wanted | reached |\n|---|---|---|".to_owned();
    for target in targets.as_array().into_iter().flatten().filter(|target| shown(target)) {
        let at_most = target["bound"] == "at most";
        let reached = target["reached"].as_f64().map_or("not measured".to_owned(), |value| rounded(value, at_most));
        let reached = if target["met"] == false { format!("**{reached}**") } else { reached };
        let wanted = target["wanted"].as_f64().unwrap_or_default();
        let wanted = if wanted.fract() == 0.0 { wanted.to_string() } else { rounded(wanted, !at_most) };
        let bound = if at_most { '≤' } else { '≥' };
        let _ = write!(out, "\n| {} | {bound}{wanted} | {reached} |", text(&target["target"]));
    }
    out
}

/// Three digits and no more; rates go down, times up.
fn rounded(value: f64, up: bool) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let decimals = (2 - value.abs().log10().floor() as i32).max(0);
    let scale = 10f64.powi(decimals);
    // The difference of a binary fraction from a decimal one is no reason to go to the next.
    let scaled = value * scale;
    let whole = if (scaled - scaled.round()).abs() < 1e-6 {
        scaled.round()
    } else if up {
        scaled.ceil()
    } else {
        scaled.floor()
    };
    grouped(&format!("{:.*}", decimals as usize, whole / scale))
}

/// Formats a number with commas between thousands.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// A value as a reader wants it: `{"Writes": 5}` is 5.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) if fields.len() == 1 => fields.values().next().map_or(String::new(), text),
        Value::Number(number) => number.to_string().trim_end_matches(".0").to_owned(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_is_rounded_in_anybodys_favour() {
        let down = [
            (43.589, "43.5"),
            (0.06789, "0.0678"),
            (189.9, "189"),
            (12_345.9, "12,345"),
            (2.0, "2.00"),
            (47.0, "47.0"),
        ];
        for (value, expected) in down {
            assert_eq!(rounded(value, false), expected);
        }
        let up = [(43.501, "43.6"), (1.0001, "1.01"), (999.1, "1,000"), (0.33, "0.330")];
        for (value, expected) in up {
            assert_eq!(rounded(value, true), expected);
        }
    }

    #[test]
    fn rows_and_columns_are_those_of_the_series() {
        fn point(contender: &str, keys: u32, writes: u32, mops: f64) -> Value {
            json!({"contender": contender, "keys": keys, "mix": {"Writes": writes}, "m": mops})
        }
        let all = [
            point("b", 1000, 5, 1.0),
            point("b", 2, 5, 2.0),
            point("a", 2, 5, 3.0),
            point("a", 2, 5, 4.0),
            point("a", 2, 50, 9.0),
        ];
        let table = series(&all, &[("/mix", "5")], ("/contender", "/keys"), &[rate("/m"), time("/none", 1.0)]);
        assert_eq!(table, "| | 2 | 1,000 |\n|---|---|---|\n| `b` | 2.00 / - | 1.00 / - |\n| `a` | 4.00 / - |  |");
        assert!(series(&all, &[("/mix", "A")], ("/contender", "/keys"), &[rate("/m")]).contains("no series"));
    }

    #[test]
    fn targets_that_are_missed_are_said_so() {
        fn target(bound: &str, reached: Option<f64>, met: Option<bool>) -> Value {
            json!({"target": "t", "bound": bound, "wanted": 2.0, "reached": reached, "met": met})
        }
        let targets = json!([
            target("at least", Some(1.999), Some(false)),
            target("at most", Some(1.991), Some(true)),
            target("at least", None, None)
        ]);
        let head = "| target | wanted | reached |\n|---|---|---|\n";
        let (missed, met, none) = ("| t | ≥2 | **1.99** |", "| t | ≤2 | 2.00 |", "| t | ≥2 | not measured |");
        assert_eq!(verdicts(&targets, |_| true), format!("{head}{missed}\n{met}\n{none}"));
        assert_eq!(verdicts(&targets, |target| target["met"] == false), format!("{head}{missed}"));
        assert_eq!(met_of(&targets), "1 of 3 are met, 1 not measured; missed are:");
    }

    #[test]
    fn a_file_is_said_with_its_command_and_machine() {
        let file = json!({"command_line": ["kv", "--mix", "5", "--json", "x"], "options": {"common": {"rounds": 3}},
            "machine": {"cpu": "C", "cores": 2, "commit": "abc", "profile": "debug"}});
        let origin = origin(&file);
        assert!(origin.starts_with("`gossamer-bench kv --mix 5`, 3 rounds, C, 2 cores, commit abc"), "{origin}");
        assert!(origin.contains("debug build"));
    }
}
