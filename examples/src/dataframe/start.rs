//! How `dataframe` runs: the table, the query, the twin, the report.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use gossamer_heap::{Global, Shared};
use graph::random::mix;
use indicatif::HumanCount;
use serde_json::{Map, Value, json};

use super::digest::digest;
use super::frame::{self, Frame};
use super::options::Options;
use super::query::{Answer, Chunk, Group};
use super::source::{read_labels, read_rows};
use super::twin::{self, Boxed};
use crate::heaps::options::machine_args;
use crate::heaps::report::{Report, Twin, many};
use crate::heaps::spread::Reader;
use crate::heaps::twin::note_cores;
use crate::machines;
use crate::program::Program;
use crate::progress::{self, Meter};

/// Groups that are printed.
const PRINTED: usize = 5;

/// Runs `dataframe` with the arguments of this process.
pub fn main() -> ExitCode {
    run_with(Options::parse()) // exits with status 2 and the usage where they are wrong
}

/// Runs it with these options, which are those among the arguments of this process.
pub fn run_with(options: Options) -> ExitCode {
    note_cores();
    let (program, rack) = (Program("dataframe"), options.common.rack.clone());
    program.end(machines::run(program, &rack, machine_args(), move || run(&options)))
}

/// A table that is ready.
struct Table {
    frame: Frame,
    rows: u64,
    /// Label of each key.
    labels: Vec<u32>,
    /// Texts of keys and labels, if there are any.
    texts: Option<(Vec<String>, Vec<String>)>,
    /// The same for the twin.
    twin: Vec<Chunk<Boxed>>,
}

/// Runs on a fiber of the first machine; prints the report, and returns whether all is right.
fn run(options: &Options) -> anyhow::Result<bool> {
    let table = make(options)?;
    let labels = Shared::from(Global::from(table.labels.clone()));
    let chunks = Reader::new(&table.frame.parts()).len() as u64;
    let meter = Meter::new(progress::bar(chunks, progress::NUMBERS, options.common.rack.progress_on.as_deref()));
    let start = Instant::now();
    let answer = frame::run(&table.frame, options.at_least, &labels, meter.count())?;
    let time = start.elapsed();
    meter.finish()?;
    let compare = || {
        let (twins, time) = twin::run(&table.twin, options.at_least, &table.labels, gossamer::rack().workers());
        Twin::compared(&answer, &twins, time, differs)
    };
    let report = Report {
        text: text(options, &table, &answer),
        found: found(&table, &answer),
        unit: "rows",
        count: table.rows,
        time,
        wrong: None,
        twin: options.common.verify.then(compare),
    };
    report.print(options.common.json)
}

fn make(options: &Options) -> anyhow::Result<Table> {
    let is_verified = options.common.verify;
    let (Some(rows_file), Some(labels_file)) = (&options.csv, &options.with) else {
        let (generated, chunk) = (options.generated(), options.chunk);
        let chunks = if is_verified { frame::chunks(generated, chunk) } else { 0 };
        let twin = (0..chunks).map(|i| frame::generated(generated, chunk, i)).collect();
        let frame = frame::generate(generated, chunk)?;
        return Ok(Table { frame, rows: generated.rows, labels: generated.labels(), texts: None, twin });
    };
    let (mut chunks, mut twin, mut rows) = (Vec::new(), Vec::new(), 0);
    let take = |keys: Vec<u32>, values: Vec<f64>| {
        rows += keys.len() as u64;
        if is_verified {
            twin.push(Chunk { keys: keys.clone().into(), values: values.clone().into() });
        }
        chunks.push(Chunk { keys: Global::from(keys), values: Global::from(values) });
        gossamer::yield_now();
    };
    let keys = read_rows(rows_file, options.columns(), options.chunk as usize, take)?;
    let (labels, of_labels) = read_labels(labels_file, options.columns(), &keys)?;
    let texts = Some((keys.texts(), of_labels.texts()));
    Ok(Table { frame: frame::deal(chunks)?, rows, labels, texts, twin })
}

fn differs(own: &Answer, twins: &Answer) -> String {
    let counts = |answer: &Answer| (answer.kept, answer.joined, answer.by_key.len(), answer.by_label.len());
    if counts(own) != counts(twins) {
        return format!("rows kept, joined, keys, labels: {:?}, the twin's {:?}", counts(own), counts(twins));
    }
    let groups = own.by_key.iter().chain(&own.by_label).zip(twins.by_key.iter().chain(&twins.by_label));
    let other = groups.into_iter().find(|(own, twins)| own != twins);
    other.map_or_else(String::new, |(own, twins)| format!("{own:?}, the twin's {twins:?}"))
}

/// Those with the greatest sums.
fn top(groups: &[Group]) -> Vec<Group> {
    let mut groups = groups.to_vec();
    groups.sort_by(|a, b| b.sum.total_cmp(&a.sum).then(a.key.cmp(&b.key)));
    groups.truncate(PRINTED);
    groups
}

impl Table {
    fn label(&self, code: u32) -> String {
        let text = self.texts.as_ref().and_then(|(_, labels)| labels.get(code as usize));
        text.cloned().unwrap_or_else(|| format!("label {code}"))
    }

    fn key(&self, code: u32) -> String {
        let text = self.texts.as_ref().and_then(|(keys, _)| keys.get(code as usize));
        text.cloned().unwrap_or_else(|| format!("key {code}"))
    }
}

fn text(options: &Options, table: &Table, answer: &Answer) -> String {
    let mut text = format!(
        "{} of {} have at least {}: {}; {} have a label: {}\n",
        HumanCount(answer.kept),
        many(table.rows as usize, "row", "rows"),
        options.at_least,
        many(answer.by_key.len(), "key", "keys"),
        HumanCount(answer.joined),
        many(answer.by_label.len(), "label", "labels"),
    );
    let keys = top(&answer.by_key).into_iter().map(|group| (table.key(group.key), group));
    let labels = top(&answer.by_label).into_iter().map(|group| (table.label(group.key), group));
    for (name, group) in keys.chain(labels) {
        let Group { rows, sum, least, greatest, .. } = group;
        let _ = writeln!(text, "{name}: {}, sum {sum:.2}, {least} to {greatest}", many(rows as usize, "row", "rows"));
    }
    text
}

fn found(table: &Table, answer: &Answer) -> Map<String, Value> {
    let all = answer.by_key.iter().chain(&answer.by_label);
    let numbers = all.flat_map(|group| {
        [group.key.into(), group.rows, group.sum.to_bits(), group.least.to_bits(), group.greatest.to_bits()]
    });
    let checksum = numbers.fold(0, |sum: u64, number| mix(sum ^ number));
    let digest_of = |groups: &[Group]| {
        let groups = groups.iter().map(|group| (group.key, group.rows, group.sum, group.least, group.greatest));
        format!("{:016x}", digest(groups))
    };
    let top = |name: String, group: &Group| json!({"name": name, "rows": group.rows, "sum": group.sum});
    let found = [
        ("kept", answer.kept.into()),
        ("joined", answer.joined.into()),
        ("keys", answer.by_key.len().into()),
        ("labels", answer.by_label.len().into()),
        ("checksum", json!(format!("{checksum:016x}"))),
        ("digests", json!([digest_of(&answer.by_key), digest_of(&answer.by_label)])),
        ("top", self::top(&answer.by_label).iter().map(|group| top(table.label(group.key), group)).collect()),
    ];
    found.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
