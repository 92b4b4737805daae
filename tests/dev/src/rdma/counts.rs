//! The cost of a request to another machine over `verbs`, counted: instructions, beside those over `shm`, and writes,
//! posts, bytes and completions. Two machines on this host; a stub stands for libibverbs (`tests/verbs-stub`), and its
//! work is left out, as that of a card and its driver would be.
//!
//! Here: which programs, the table, the bounds. Not here: counting (`steps`), the program (`traced` of `test-roles`).

use super::parts::executables;
use super::steps::{self, Steps};
use crate::command::Context;
use crate::count::Counts;
use crate::tier::Verdict;
use anyhow::{Context as _, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Requests between the marks, and after how many of them the client lets others run.
const REQUESTS: u64 = 1000;
const BATCH: u64 = 25;
/// Limit of the cost of `verbs` over that of `shm`.
const RATIO_MAX: f64 = 1.3;
/// Time limit of a program, in seconds: ten times that on a quiet machine.
const LIMIT_S: &str = "1200";

/// A fabric, and the variables of its stub.
struct Variant {
    name: &'static str,
    fabric: &'static str,
    is_in_order: &'static str,
}

const VARIANTS: [Variant; 3] = [
    Variant { name: "shm", fabric: "shm", is_in_order: "0" },
    Variant { name: "verbs, flag in the same write", fabric: "verbs", is_in_order: "1" },
    Variant { name: "verbs, flag in a second write", fabric: "verbs", is_in_order: "0" },
];

/// Work of one end for the requests between the marks.
struct Counted {
    steps: Steps,
    batches: u64,
    posts: u64,
    writes: u64,
    bytes: u64,
    wake_messages: u64,
    signed: u64,
    registered: u64,
}

/// Counts, and judges by the bounds.
pub fn check(context: &Context) -> anyhow::Result<Verdict> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Ok(Verdict::skipped("instructions are counted on x86-64 Linux".to_owned()));
    }
    let build = [
        "build",
        "--release",
        "-p",
        "gossamer-tests",
        "-p",
        "verbs-stub",
        "--bin",
        "test-roles",
        "--bin",
        "test-launch",
        "--lib",
    ];
    let built = executables(context, &build, "bin")?;
    let folder = context.target.join("rdma").join("counts");
    fs::create_dir_all(&folder)?;
    let of = |name: &str| built.iter().find(|(built, _)| built == name).map(|(_, path)| path.clone());
    let launcher = of("test-launch").context("cargo has not built test-launch")?;
    let stub = launcher.with_file_name("libverbs_stub.so");
    fs::copy(&stub, folder.join("libibverbs.so.1")).with_context(|| format!("copying {}", stub.display()))?;
    println!("per request of 32 bytes, {BATCH} and more a batch:");
    println!(
        "{:32} {:>8} {:>8} {:>8}   per 1,000 requests, at the client + at the trustee",
        "", "client", "trustee", "ratio"
    );
    let mut first = None;
    let mut failures = Vec::new();
    for variant in &VARIANTS {
        let [client, trustee] = ["client", "trustee"].map(|end| counted(&launcher, &folder, variant, end));
        let (client, trustee) = (client?, trustee?);
        let each = [&client, &trustee].map(|counted| counted.steps.instructions as f64 / REQUESTS as f64);
        let sum = each[0] + each[1];
        let ratio = sum / *first.get_or_insert(sum);
        println!("{:32} {:8.1} {:8.1} {ratio:8.2}   {}", variant.name, each[0], each[1], told(&client, &trustee));
        if ratio > RATIO_MAX {
            failures.push(format!("{}: {ratio:.2} times the instructions of shm", variant.name));
        }
        // One more than was asked for: the request that waits for the others.
        if (client.batches - 1) * BATCH > REQUESTS {
            failures.push(format!("{}: {} batches for {REQUESTS} requests", variant.name, client.batches));
        }
        let writes = if variant.is_in_order == "1" { client.batches } else { 2 * client.batches };
        if variant.fabric == "verbs"
            && (client.writes > writes + writes / 10 || client.posts > client.batches + client.batches / 10)
        {
            let (writes, posts) = (client.writes, client.posts);
            failures.push(format!("{}: {writes} writes in {posts} posts for {} batches", variant.name, client.batches));
        }
    }
    let tests = Counts { passed: VARIANTS.len(), ..Counts::default() };
    Ok(if failures.is_empty() { Verdict::passed().with_tests(tests) } else { Verdict::failed(failures.join("; ")) })
}

fn told(client: &Counted, trustee: &Counted) -> String {
    if client.posts == 0 {
        return format!("{} batches", client.batches);
    }
    format!(
        "{} batches: {}+{} posts of {}+{} writes, {}+{} bytes, {}+{} signalled, {}+{} wake messages; {} KiB registered \
         a machine",
        client.batches,
        client.posts,
        trustee.posts,
        client.writes,
        trustee.writes,
        client.bytes,
        trustee.bytes,
        client.signed,
        trustee.signed,
        client.wake_messages,
        trustee.wake_messages,
        client.registered / 1024,
    )
}

/// One program, with one end traced.
fn counted(launcher: &Path, folder: &Path, variant: &Variant, end: &str) -> anyhow::Result<Counted> {
    let log = folder.join("log");
    let _ = fs::remove_file(&log);
    let mut program = Command::new("timeout")
        .arg(LIMIT_S)
        .arg(launcher)
        .args(["run", "--local", "2", "--threads", "2", "--fabric", variant.fabric])
        .arg(launcher.with_file_name("test-roles"))
        .args(["traced", end, &BATCH.to_string()])
        .envs([("LD_LIBRARY_PATH", folder.as_os_str()), ("VERBS_STUB_LOG", log.as_os_str())])
        .env("VERBS_STUB_IN_ORDER", variant.is_in_order)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start test-launch")?;
    let mut output = BufReader::new(program.stdout.take().context("its output is piped")?);
    let result = follow(&mut output, &log, folder, &format!("{}-{end}", variant.name));
    let mut rest = String::new();
    output.read_to_string(&mut rest)?;
    let status = program.wait()?;
    let counted = result.with_context(|| format!("{} over {}: {rest}", end, variant.name))?;
    ensure!(status.success(), "{end} over {}: {status}: {rest}", variant.name);
    let batches = rest.split_once(" requests in ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    Ok(Counted { batches: batches.with_context(|| format!("it does not tell its batches: {rest}"))?, ..counted })
}

/// Traces the thread that asks for it.
fn follow(output: &mut impl BufRead, log: &Path, folder: &Path, name: &str) -> anyhow::Result<Counted> {
    let mut line = String::new();
    let thread: i32 = loop {
        line.clear();
        ensure!(output.read_line(&mut line)? > 0, "it ended before it was traced");
        if let Some((_, thread)) = line.split_once("trace ") {
            break thread.trim().parse()?;
        }
    };
    let length = || fs::metadata(log).map_or(0, |log| log.len() as usize);
    let (mut from, mut to) = (0, 0);
    let steps = steps::count(thread, "libibverbs.so.1", || from = length(), || to = length())?;
    profile(&steps, &folder.join(format!("{name}.addresses").replace([' ', ','], "-")))?;
    let log = fs::read_to_string(log).unwrap_or_default();
    let mut counted =
        Counted { steps, batches: 0, posts: 0, writes: 0, bytes: 0, wake_messages: 0, signed: 0, registered: 0 };
    let process = |line: &str| line.split('/').next().map(str::to_owned);
    let own =
        log.get(from..to).unwrap_or_default().lines().filter_map(|line| line.split_once(&format!("/{thread} post ")));
    for (_, numbers) in own {
        let numbers: Vec<u64> = numbers.split(' ').filter_map(|number| number.parse().ok()).collect();
        let [writes, bytes, wake_messages, signed] = numbers[..] else { continue };
        counted.posts += 1;
        counted.writes += writes;
        counted.bytes += bytes;
        counted.wake_messages += wake_messages;
        counted.signed += signed;
    }
    let first = log.lines().next().and_then(process);
    let registered =
        log.lines().filter(|line| process(line) == first).filter_map(|line| line.split_once(" registered "));
    counted.registered = registered.filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum();
    Ok(counted)
}

/// Leaves how often each address was executed, for a closer look (`addr2line`, less the address of the mapping).
fn profile(steps: &Steps, path: &PathBuf) -> anyhow::Result<()> {
    let mut addresses: Vec<_> = steps.at.iter().collect();
    addresses.sort();
    let lines: String = addresses.into_iter().map(|(address, count)| format!("{address:x} {count}\n")).collect();
    fs::write(path, lines).with_context(|| format!("writing {}", path.display()))
}
