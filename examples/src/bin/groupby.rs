//! Sixth step of the tutorial: the lines of all files of a folder, grouped by their first word over all workers of a
//! rack.
//!
//! ```sh
//! cargo run --release -p gossamer-examples --bin groupby -- docs
//! ```
//!
//! This runs it in one process. As four, which read files and exchange groups; the output is the same:
//!
//! ```sh
//! cargo build --release -p gossamer-daemon -p gossamer-examples
//! target/release/gossamer-launch run --local 4 --no-prefix target/release/groupby docs
//! ```
//!
//! `--single` behind the folder groups on one thread, with no rack, for comparison.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::PathBuf;

use gossamer::file::{self, EntryKind};
use gossamer::sync::{Receiver, channel};
use gossamer::{Exchange, Inbox};

/// Lines and bytes, by their first word.
type Groups = HashMap<String, (u64, u64)>;
type Group = (String, (u64, u64));

fn add(groups: &mut Groups, reader: impl BufRead) -> io::Result<()> {
    for line in reader.split(b'\n') {
        let line = line?;
        let word = line.trim_ascii_start().split(u8::is_ascii_whitespace).next().unwrap_or(b"");
        let group = groups.entry(String::from_utf8_lossy(word).into_owned()).or_default();
        *group = (group.0 + 1, group.1 + line.len() as u64);
    }
    Ok(())
}

/// Reads files while there are any, and sends each group to the place to which its word belongs.
fn read((files, exchange): (Receiver<OsString>, Exchange<Group>)) -> Result<(), String> {
    let mut groups = Groups::new();
    for path in files {
        let open = file::open(gossamer::here(), &path).map_err(|error| error.to_string())?;
        add(&mut groups, open.reader()).map_err(|error| error.to_string())?;
    }
    let mut outbox = exchange.outbox();
    groups.into_iter().try_for_each(|group| outbox.send_by(&group.0, &group)).map_err(|error| error.to_string())
}

/// Merges the groups of one place, which come from all readers.
fn merge(inbox: Inbox<Group>) -> Vec<Group> {
    let mut groups = Groups::new();
    for (word, (lines, bytes)) in inbox {
        let group = groups.entry(word).or_default();
        *group = (group.0 + lines, group.1 + bytes);
    }
    groups.into_iter().collect()
}

fn on_the_rack(paths: Vec<PathBuf>) -> Result<Vec<Group>, String> {
    // Each reader takes the next file when it has done one.
    let (feed, files) = channel();
    paths.into_iter().for_each(|path| feed.post(path.into_os_string())); // a `PathBuf` serialises only as UTF-8
    drop(feed);
    let (exchange, inboxes) = gossamer::exchange();
    let readers: Vec<_> = gossamer::rack()
        .places()
        .map(|place| gossamer::spawn_with(place, read, (files.clone(), exchange.clone())))
        .collect();
    drop(exchange); // the readers have their own, and the inboxes end with the last
    let merged: Vec<_> = inboxes.into_iter().map(|inbox| gossamer::spawn_with(inbox.place(), merge, inbox)).collect();
    for reader in readers {
        reader.join().expect("nothing panics in it")?;
    }
    Ok(merged.into_iter().flat_map(|groups| groups.join().expect("nothing panics in it")).collect())
}

fn gsm_main() -> Result<(), String> {
    let mut arguments = std::env::args_os().skip(1);
    let mut folders = vec![PathBuf::from(arguments.next().ok_or("usage: groupby FOLDER [--single]")?)];
    let is_single = arguments.next().is_some_and(|option| option == "--single");
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in file::read_dir(gossamer::here(), &folder).map_err(|error| error.to_string())? {
            match entry.kind {
                EntryKind::File => paths.push(entry.path),
                // A link may lead to a folder above it: the walk would go in a circle.
                EntryKind::Folder if !entry.is_link => folders.push(entry.path),
                _ => {}
            }
        }
    }
    let mut groups = if is_single {
        let mut groups = Groups::new();
        for path in paths {
            let opened = std::fs::File::open(&path).map(io::BufReader::new);
            opened.and_then(|file| add(&mut groups, file)).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        groups.into_iter().collect()
    } else {
        on_the_rack(paths)?
    };
    groups.sort_unstable();
    let mut output = BufWriter::new(io::stdout().lock());
    let written = groups.iter().try_for_each(|(word, (lines, bytes))| writeln!(output, "{lines} {bytes} {word}"));
    written.and_then(|()| output.flush()).map_err(|error| format!("standard output: {error}"))
}

fn main() {
    gossamer::main(gsm_main, 4); // four workers in all, however many machines there are
}
