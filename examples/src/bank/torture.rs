//! Starts the bank, kills it (`SIGKILL`) in the middle of its work, opens its pool and checks it; again and again.
//! Of several machines one is killed, and the others have to end by themselves.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use graph::random::Random;
use rustix::process::{Pid, Signal, kill_process};
use trust::Threadpool;

use super::{CLIENTS, Handle, MONEY, Options, open};

/// Kills it so many times. The folder has to be new.
pub(super) fn run(options: &Options, kills: u32) -> anyhow::Result<()> {
    let mut random = Random::new(options.seed, 0);
    let (mut longest, mut slowest_end) = (Duration::ZERO, Duration::ZERO);
    let (mut largest, mut told_in_all, mut last) = (0, 0, [0; CLIENTS]);
    // Kills in a row before anything was acknowledged. On a machine that has much else to do each of those gives it
    // longer.
    let mut too_early = 0;
    for kill in 1..=kills {
        let life = Duration::from_millis(50 + random.next_u64() % 451) * (1 + too_early);
        let Died { told, acknowledged, ended_after } = live_and_die(options, life, random.next_u64() as usize)?;
        too_early = if acknowledged == 0 { too_early + 1 } else { 0 };
        (told_in_all, slowest_end) = (told_in_all + acknowledged, slowest_end.max(ended_after));
        let began = Instant::now();
        let pool = Threadpool::new(1);
        let opened = open(pool.trustees()[0], &options.folder, options.accounts);
        let bank = opened.with_context(|| format!("after kill {kill}"))?;
        longest = longest.max(began.elapsed());
        largest = largest.max(bank.stats()?.log_bytes);
        last = check(&bank, &told).with_context(|| format!("after kill {kill}, --seed {}", options.seed))?;
        bank.close()?;
    }
    ensure!(told_in_all > 0, "no transfer was acknowledged before any of {kills} kills");
    if options.machines > 1 {
        println!(
            "all {} machines had ended {:.0} ms after the kill of one at most",
            options.machines,
            slowest_end.as_secs_f64() * 1e3
        );
    }
    println!(
        "{kills} kills: {} transfers kept, {told_in_all} acknowledged, none of these lost, no half transfer; opened in \
         {:.0} ms at most, the log had {largest} bytes at most",
        last.iter().sum::<u64>(),
        longest.as_secs_f64() * 1e3,
    );
    Ok(())
}

/// Acknowledgements that a child got before it was killed.
struct Died {
    /// Greatest acknowledged number of each client.
    told: [u64; CLIENTS],
    acknowledged: u64,
    /// Time from the kill to the end of all machines.
    ended_after: Duration,
}

/// Starts it, and kills it after so long; of several machines this one, after so long from when all have begun.
fn live_and_die(options: &Options, life: Duration, victim: usize) -> anyhow::Result<Died> {
    let program = std::env::current_exe().context("where is this program?")?;
    let mut child = Command::new(program)
        .arg(&options.folder)
        .args(["--tell", "--seconds", "60", "--accounts", &options.accounts.to_string()])
        .args(["--outstanding", &options.outstanding.to_string(), "--machines", &options.machines.to_string()])
        .stdout(Stdio::piped())
        // The other machines say that one has died, each time.
        .stderr(if options.machines > 1 { Stdio::null() } else { Stdio::inherit() })
        .spawn()
        .context("cannot start it again")?;
    let output = child.stdout.take().context("its output is a pipe")?;
    let (tells, processes) = channel();
    let reader = thread::spawn(move || read(BufReader::new(output), &tells));
    let victims = if options.machines > 1 { begun(options.machines, &processes) } else { Ok(vec![child.id()]) };
    thread::sleep(life);
    let killed = victims.and_then(|victims| kill(&mut child, victims[victim % victims.len()]));
    if killed.is_err() {
        // After any error: it is not left behind.
        let _ = child.kill();
    }
    let began = Instant::now();
    child.wait()?;
    let ended_after = began.elapsed();
    let (told, acknowledged) = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    killed?;
    Ok(Died { told, acknowledged, ended_after })
}

/// The processes of so many machines, once all have told theirs.
fn begun(machines: u16, processes: &Receiver<u32>) -> anyhow::Result<Vec<u32>> {
    let next = |_| processes.recv_timeout(Duration::from_secs(300)).context("a machine did not begin");
    (0..machines).map(next).collect()
}

fn kill(child: &mut Child, process: u32) -> anyhow::Result<()> {
    if let Some(status) = child.try_wait()? {
        anyhow::bail!("it ended by itself: {status}");
    }
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).context("the number of a process")?;
    Ok(kill_process(process, Signal::KILL)?)
}

fn read(lines: impl BufRead, processes: &Sender<u32>) -> anyhow::Result<([u64; CLIENTS], u64)> {
    let (mut told, mut count) = ([0; CLIENTS], 0);
    for line in lines.lines() {
        let line = line?;
        if let Some(process) = line.strip_prefix("process ").and_then(|number| number.parse().ok()) {
            // Nobody wants to know where one machine is all.
            let _ = processes.send(process);
            continue;
        }
        // The last line may be half of one.
        let Some((client, number)) = line.split_once(' ').map(|(a, b)| (a.parse::<usize>(), b.parse::<u64>())) else {
            continue;
        };
        if let (Ok(client @ 0..CLIENTS), Ok(number)) = (client, number) {
            told[client] = number.max(told[client]);
            count += 1;
        }
    }
    Ok((told, count))
}

/// Each acknowledged transfer is there, and no money came or went.
fn check(bank: &Handle, told: &[u64; CLIENTS]) -> anyhow::Result<[u64; CLIENTS]> {
    let (accounts, done) = bank.apply_with(|bank, _, ()| (bank.accounts.to_vec(), bank.done.to_vec()), ());
    let done: [u64; CLIENTS] = done.try_into().map_err(|_| anyhow::anyhow!("clients"))?;
    for (client, (done, told)) in done.iter().zip(told).enumerate() {
        ensure!(done >= told, "transfer {told} of client {client} was acknowledged, and the bank has only {done}");
    }
    let sum: u64 = accounts.iter().sum();
    ensure!(sum == accounts.len() as u64 * MONEY, "the sum is {sum}: half a transfer");
    let total = done.iter().sum::<u64>();
    ensure!(total == 0 || accounts.iter().any(|&account| account != MONEY), "transfers without an effect");
    Ok(done)
}
