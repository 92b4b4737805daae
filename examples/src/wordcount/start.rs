//! How `wordcount` starts, as a rack of processes or as one, and how it ends. No counting here.
//!
//! Started by hand it is its own launcher: it starts itself once for each machine, with the library that is under
//! `gossamer-launch`. Started by a launcher it is one of these machines.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::ensure;
use clap::Parser;
use indicatif::ProgressBar;

use super::files::{Found, Wanted};
use super::options::Options;
use super::report::Report;
use super::{delegated, durable, files, single, table};
use crate::machines::{self, Machines};
use crate::program::{self, Program, is_machine, status};
use crate::progress;

const PROGRAM: Program = Program("wordcount");

/// Runs `wordcount` with the arguments of this process.
pub fn main() -> ExitCode {
    let options = Options::parse(); // exits with status 2 and the usage where they are wrong
    PROGRAM.end(run(&options))
}

fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if is_machine() {
        let is_alone = options.single || options.local.is_some() || options.durable.is_some();
        ensure!(
            !is_alone,
            "a launcher has started this process, as one of several: leave out --local, --single and --durable"
        );
    } else if let Some(counts) = &options.durable {
        return Ok(status(count_durable(options, counts)?));
    } else if options.single || !is_for_rack(options) {
        files::check(&options.folder())?; // once, before there are several to complain
        if options.single {
            return Ok(status(count_single(options)?));
        }
        if options.machines() > 1 {
            let (machines, threads) = (options.machines(), options.threads);
            return machines::launch(&Machines {
                machines,
                threads,
                args: machine_args(options),
                ..Machines::of(PROGRAM)
            });
        }
    }
    let options = options.clone();
    Ok(PROGRAM.on_rack(options.threads.unwrap_or(0), move || count_delegated(&options)))
}

/// Whether `gossamer::main` is to run this program on the hosts of a rack: their files are not here to be checked.
fn is_for_rack(options: &Options) -> bool {
    options.local.is_none() && env::var_os("GOSSAMER_RACK").is_some_and(|rack| !rack.is_empty())
}

/// The arguments for a machine: those of this process, without the ones for the start.
fn machine_args(options: &Options) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["--top".into(), options.top.to_string().into()];
    args.extend(options.json.then(|| "--json".into()));
    args.extend(options.verify.then(|| "--verify".into()));
    match options.wanted() {
        Wanted::All => args.push("--all".into()),
        Wanted::Endings(endings) => args.extend(["--only".into(), endings.join(",").into()]),
    }
    if let Some(terminal) = progress::terminal() {
        args.extend(["--progress-on".into(), terminal.into()]);
    }
    args.extend(["--".into(), options.folder().into()]);
    args
}

/// The files to count.
struct Texts {
    found: Found,
    bar: ProgressBar,
    /// The same once more, where the count is verified.
    again: Option<Found>,
}

impl Texts {
    fn find(options: &Options) -> anyhow::Result<Texts> {
        let found = files::find(&options.folder(), &options.wanted())?;
        let bytes = found.files.iter().map(|file| file.bytes).sum();
        let bar = progress::bar(bytes, progress::BYTES, options.progress_on.as_deref());
        Ok(Texts { again: options.verify.then(|| found.clone()), found, bar })
    }
}

/// The program of the rack. Whether all is well, once it is printed.
fn count_delegated(options: &Options) -> anyhow::Result<bool> {
    let Texts { found, bar, again } = Texts::find(options)?;
    let (mut report, tables) = delegated::count(found, options.top, &bar)?;
    if let Some(found) = again {
        let expected = single::count(found, usize::MAX, &ProgressBar::hidden());
        let counted = delegated::collect(&tables, usize::MAX);
        report.differences = Some(table::differences(&expected.top, &counted));
    }
    print(&report, options)
}

fn count_durable(options: &Options, counts: &Path) -> anyhow::Result<bool> {
    let Texts { found, bar, again } = Texts::find(options)?;
    let threads = options.threads.or_else(|| available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let (mut report, counted, before) = durable::count(found, counts, threads, options.top, &bar)?;
    if before > 0 {
        PROGRAM.complain(format_args!("{before} files were counted before"));
    }
    if let Some(found) = again {
        let expected = single::count(found, usize::MAX, &ProgressBar::hidden());
        report.differences = Some(table::differences(&expected.top, &counted));
    }
    print(&report, options)
}

fn count_single(options: &Options) -> anyhow::Result<bool> {
    let Texts { found, bar, .. } = Texts::find(options)?;
    let report = single::count(found, options.top, &bar);
    bar.finish_and_clear();
    print(&report, options)
}

fn print(report: &Report, options: &Options) -> anyhow::Result<bool> {
    for line in report.complaints() {
        PROGRAM.complain(line);
    }
    let text = if options.json { format!("{:#}\n", report.json(&options.folder())) } else { report.to_string() };
    program::print(&text)?;
    Ok(!report.differs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_get_what_was_asked_for() {
        let options = Options::parse_from(["wordcount", "--local", "3", "--threads", "6", "--json", "--top", "7"]);
        let args = machine_args(&options);
        let machine = Options::parse_from([OsString::from("wordcount")].into_iter().chain(args));
        assert_eq!((machine.local, machine.json, machine.verify, machine.top), (None, true, false, 7));
        assert_eq!((machine.folder(), machine.wanted()), (options.folder(), options.wanted()));
    }

    #[test]
    fn a_folder_may_look_like_an_option() {
        let options = Options::parse_from(["wordcount", "--", "--odd"]);
        let machine = Options::parse_from([OsString::from("wordcount")].into_iter().chain(machine_args(&options)));
        assert_eq!(machine.folder(), std::path::Path::new("--odd"));
    }
}
