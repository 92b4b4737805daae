//! Standard input, output and error.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use processes::{ChildProcess, send_signal, wait_until_gone};
use rustix::process::Signal;

use crate::rig::{Complaints, command, parse_pid, run, start};

crate::tests![
    a_million_lines_arrive_whole,
    lines_stay_whole_when_both_streams_are_one,
    without_prefix_lines_are_the_programs,
    input_goes_to_machine_0,
    death_is_seen_while_nobody_reads_the_output,
    a_closed_output_ends_the_program,
];

/// Returns the text of machine `me`'s line number `line` on a stream.
pub fn line_of(stream: &str, me: u16, line: usize) -> String {
    format!("{stream} {me} {line} {}", "x".repeat((line * 7 + usize::from(me)) % 61))
}

/// Checks that `lines` hold exactly `count` lines of each machine on this stream, each machine's in order.
fn check<'a>(lines: impl Iterator<Item = &'a str>, stream: &str, machines: u16, count: usize) {
    let mut next = vec![0; usize::from(machines)];
    for line in lines {
        let (name, text) = line.split_once(" | ").unwrap_or_else(|| panic!("no prefix: {line:?}"));
        let machine: u16 = name.strip_prefix('m').and_then(|m| m.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        let place = &mut next[usize::from(machine)];
        assert_eq!(text, line_of(stream, machine, *place));
        *place += 1;
    }
    assert_eq!(next, vec![count; usize::from(machines)]);
}

fn a_million_lines_arrive_whole() {
    const EACH: usize = 250_000;
    let ended = run(command(4, &[], &["lines", &EACH.to_string()]));
    assert_eq!(ended.code(), Some(0));
    let lines = ended.stdout.lines().filter(|line| parse_pid(line).is_none());
    check(lines, "out", 4, EACH);
    check(ended.stderr.lines(), "err", 4, EACH / 10);
}

fn lines_stay_whole_when_both_streams_are_one() {
    const EACH: usize = 20_000;
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = command(3, &[], &["lines", &EACH.to_string()]);
    let launcher = ChildProcess::from(command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap());
    drop(command); // it holds the pipe's other end
    let lines: Vec<String> = BufReader::new(reader).lines().map(Result::unwrap).collect();
    launcher.end().assert(0, None);
    for (stream, count) in [("out", EACH), ("err", EACH / 10)] {
        let of_stream = |line: &&str| line.contains(&format!(" | {stream} "));
        check(lines.iter().map(String::as_str).filter(of_stream), stream, 3, count);
    }
    assert_eq!(lines.len(), 3 * (EACH + EACH / 10 + 1), "a line was torn, or came from nowhere");
}

fn without_prefix_lines_are_the_programs() {
    let ended = run(command(2, &["--no-prefix"], &["end"]));
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(ended.stdout.lines().count() == 2 && ended.stdout.lines().all(|line| line.starts_with("pid ")), "{ended}");
}

fn input_goes_to_machine_0() {
    let text: Vec<u8> = (0..3_000_000u32).map(|i| i.wrapping_mul(i).to_le_bytes()[1]).collect();
    let sum = text.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    for machines in [1u16, 3] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut command = command(machines, &["--no-prefix"], &["cat"]);
        command.stdin(reader);
        let launch = start(command);
        let text = text.clone();
        let feeder = std::thread::spawn(move || writer.write_all(&text));
        feeder.join().unwrap().unwrap();
        let ended = launch.end();
        ended.assert(0, None);
        let has = |line: String| ended.stdout.lines().filter(|found| *found == line).count();
        assert_eq!(has(format!("read {} bytes", 3_000_000)), 1, "{ended}");
        assert_eq!(has(format!("sum {sum}")), 1, "{ended}");
        assert_eq!(has("read 0 bytes".into()), usize::from(machines) - 1, "{ended}");
    }
}

/// Machine 0 writes without end; the launcher's stdout is read up to a point, and then no more.
fn death_is_seen_while_nobody_reads_the_output() {
    let mut command = command(2, &[], &["flood"]);
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(launcher.stdout.take().unwrap());
    let launcher = ChildProcess::from(launcher);
    let mut pids = std::collections::BTreeMap::new();
    while pids.len() < 2 {
        let mut line = String::new();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the output ended early");
        pids.extend(parse_pid(line.trim_end()));
    }
    send_signal(pids[&1], Signal::KILL);
    let took = wait_until_gone(pids.values().copied());
    assert!(took.as_secs_f64() < 1.0, "{took:?}");
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    launcher.end().complains(137, &format!("machine 1 (pid {}) was killed by signal 9", pids[&1]));
}

fn a_closed_output_ends_the_program() {
    for machines in [1, 2] {
        let mut command = command(machines, &[], &["flood"]);
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        BufReader::new(launcher.stdout.take().unwrap()).read_line(&mut String::new()).unwrap(); // and closes it
        let ended = ChildProcess::from(launcher).end();
        // The next machine that writes gives the cause in its own words.
        ended.complains(101, "gossamer-launch: machine ");
        ended.complains(101, "panicked (exit status 101)");
    }
}
