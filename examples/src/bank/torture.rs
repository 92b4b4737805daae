//! Starts the bank, kills it (`SIGKILL`) in the middle of its work, opens what is left and checks it; again and again.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use trust::Threadpool;

use super::{CLIENTS, Handle, MONEY, Options, open};

/// Kills it so many times. The folder has to be new.
pub(super) fn run(options: &Options, kills: u32) -> anyhow::Result<()> {
    let mut random = options.seed | 1;
    let mut longest = Duration::ZERO;
    let (mut largest, mut told_in_all, mut last) = (0, 0, [0; CLIENTS]);
    for kill in 1..=kills {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let life = Duration::from_millis(50 + (random >> 33) % 451);
        let (told, acknowledged) = live_and_die(options, life)?;
        told_in_all += acknowledged;
        let began = Instant::now();
        let pool = Threadpool::new(1);
        let bank = open(&pool, options).with_context(|| format!("after kill {kill}"))?;
        longest = longest.max(began.elapsed());
        largest = largest.max(bank.stats()?.log_bytes);
        last = check(&bank, &told).with_context(|| format!("after kill {kill}, --seed {}", options.seed))?;
        bank.close()?;
    }
    println!(
        "{kills} kills: {} transfers kept, {told_in_all} acknowledged, none of these lost, no half transfer; opened in {:.0} ms at most, \
         the log had {largest} bytes at most",
        last.iter().sum::<u64>(),
        longest.as_secs_f64() * 1e3,
    );
    Ok(())
}

/// What the child acknowledged before it was killed: for each client the greatest number, and how many in all.
fn live_and_die(options: &Options, life: Duration) -> anyhow::Result<([u64; CLIENTS], u64)> {
    let program = std::env::current_exe().context("where is this program?")?;
    let mut child = Command::new(program)
        .arg(&options.folder)
        .args(["--tell", "--seconds", "60", "--accounts", &options.accounts.to_string()])
        .args(["--outstanding", &options.outstanding.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start it again")?;
    let output = child.stdout.take().context("its output is a pipe")?;
    let reader = thread::spawn(move || read(BufReader::new(output)));
    thread::sleep(life);
    let killed = kill(&mut child);
    let told = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    killed?;
    Ok(told)
}

fn kill(child: &mut Child) -> anyhow::Result<()> {
    if let Some(status) = child.try_wait()? {
        anyhow::bail!("it ended by itself: {status}");
    }
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn read(lines: impl BufRead) -> anyhow::Result<([u64; CLIENTS], u64)> {
    let (mut told, mut count) = ([0; CLIENTS], 0);
    for line in lines.lines() {
        // The last line may be half of one.
        let Some((client, number)) = line?.split_once(' ').map(|(a, b)| (a.parse::<usize>(), b.parse::<u64>())) else {
            continue;
        };
        if let (Ok(client), Ok(number)) = (client, number) {
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
        ensure!(done >= told, "client {client} was told of transfer {told}, and the bank knows {done}");
    }
    let sum: u64 = accounts.iter().sum();
    ensure!(sum == accounts.len() as u64 * MONEY, "the sum is {sum}: half a transfer");
    let total = done.iter().sum::<u64>();
    ensure!(total == 0 || accounts.iter().any(|&account| account != MONEY), "transfers without an effect");
    Ok(done)
}
