//! The behaviours in programs that outlive a machine, `lossy_shm3::apply_then_keeps_order`: machine 2 of three is
//! killed at a random moment of the behaviour. The others end within the time that it takes without a loss, 5 s, and
//! the lease: well, or with a text that names the loss. Each living worker still serves then.
//!
//! `SUITE_LOSSES` is the number of behaviours, of all those on both racks, or `all`; `SUITE_SEED` chooses which, and
//! the moments. `test-suite --lose 2 MICROSECONDS NAME` under the launcher, with `--survives 1`, is one such run.
//!
//! Left out: `gossamer_tests::suite::losses::REFUSED`, and the transport `verbs`, which refuse such programs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use gossamer_tests::suite::{ALL, Behaviour, losses};
use libtest_mimic::{Failed, Trial};
use limits::Clock;
use processes::{ChildProcess, Ended};

use crate::program::Deployment;
use crate::sample;

/// Behaviours that are tried if `SUITE_LOSSES` does not say how many.
const SAMPLE: usize = 30;

/// The machine that is killed: the last one, on which behaviours have most.
const VICTIM: u16 = 2;

/// Most time until the end, beside that without a loss: 5 s, and the lease (`timeouts.silence_ms` by default).
const LIMIT: Duration = Duration::from_secs(5 + 3);
/// Longest time between two readings of the clock.
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// Later than any behaviour ends.
const NEVER: Duration = Duration::from_secs(1 << 20);

/// Returns the behaviours that are tried on these racks.
pub fn trials(racks: Vec<Deployment>) -> Vec<Trial> {
    let seed = sample::seed();
    let all: Vec<(Deployment, &'static Behaviour)> = racks
        .into_iter()
        .flat_map(|rack| ALL.iter().map(move |behaviour| (rack, behaviour)))
        .filter(|(_, behaviour)| !losses::REFUSED.iter().any(|start| behaviour.name.starts_with(start)))
        .filter(|(_, behaviour)| !behaviour.is_left_out())
        .collect();
    let chosen = sample::of(all, seed, sample::size("SUITE_LOSSES", SAMPLE));
    let trial = |(rack, behaviour): (Deployment, &'static Behaviour)| {
        let name = format!("{}::{}", rack.name, behaviour.name);
        let mut hasher = DefaultHasher::new();
        (seed, &name).hash(&mut hasher);
        let part = fastrand::Rng::with_seed(hasher.finish()).f64();
        Trial::test(name, move || {
            ends_well_or_names_the_loss(rack, behaviour.name, part)
                .map_err(|why| format!("SUITE_SEED={seed} SUITE_LOSSES=all: {why}").into())
        })
    };
    chosen.into_iter().map(trial).collect()
}

/// Runs the behaviour without a loss, and with one after this part of its time.
fn ends_well_or_names_the_loss(rack: Deployment, name: &str, part: f64) -> Result<(), String> {
    let begun = Instant::now();
    let unharmed = run(rack, name, NEVER, None)?;
    let whole = begun.elapsed();
    let took = unharmed.stdout.lines().find_map(|line| line.split_once("suite: took ")?.1.parse().ok());
    let took = took.map(Duration::from_micros).filter(|_| unharmed.status.success());
    let took = took.ok_or_else(|| format!("it does not hold without a loss: {unharmed}"))?;
    let after = took.mul_f64(part);
    let ended = run(rack, name, after, Some(whole + LIMIT))?;
    judge(name, &ended).map_err(|why| {
        let Ended { status, stdout, stderr } = &ended;
        format!("killed {after:?} after its begin, of {took:?}: {why}; {status}\n{}\n{}", cut(stdout), cut(stderr))
    })
}

/// Returns the first and the last lines of an output.
fn cut(output: &str) -> String {
    const LINES: usize = 30;
    let lines: Vec<&str> = output.lines().collect();
    let left_out = lines.len().saturating_sub(2 * LINES);
    if left_out == 0 {
        return output.to_owned();
    }
    let [first, last] = [&lines[..LINES], &lines[lines.len() - LINES..]].map(|lines| lines.join("\n"));
    format!("{first}\n({left_out} lines)\n{last}")
}

/// Runs it; an error if that takes longer than this, in time of an idle machine.
fn run(rack: Deployment, name: &str, after: Duration, limit: Option<Duration>) -> Result<Ended, String> {
    let (machine, after) = (VICTIM.to_string(), after.as_micros().to_string());
    let mut command = rack.command();
    command.args(["--lose", &machine, &after, name]);
    let mut launcher = ChildProcess::start(command);
    let limit = limit.unwrap_or_else(Deployment::time_limit);
    let (mut clock, mut looked, mut was_late) = (Clock::start(), Instant::now(), false);
    while launcher.has_ended().is_none() {
        std::thread::sleep(Duration::from_millis(2));
        if looked.elapsed() >= clock.period().min(PERIOD_MAX) {
            // Twice: one reading may count a load that has just gone.
            let is_late = clock.shown() > limit;
            if std::mem::replace(&mut was_late, is_late) && is_late && launcher.has_ended().is_none() {
                let [stdout, stderr] = [&launcher.stdout, &launcher.stderr].map(|output| cut(&output.text()));
                return Err(format!("killed {after} us after its begin, it hangs:\n{stdout}\n{stderr}"));
            }
            looked = Instant::now();
        }
    }
    Ok(launcher.end())
}

/// Checks that the program ended as it may.
fn judge(name: &str, ended: &Ended) -> Result<(), String> {
    let line = |words: &str| ended.stdout.lines().find_map(|line| line.split_once(words).map(|(_, rest)| rest));
    if let Some(other) = accused(&ended.stdout).or(accused(&ended.stderr)) {
        return Err(format!("another machine is accused: {other}"));
    }
    let processes = line("suite: processes ").ok_or("it has not begun")?;
    let left: Vec<&str> = processes.split(' ').filter(|pid| !processes::is_gone(pid.parse().expect("an id"))).collect();
    if !left.is_empty() {
        return Err(format!("these processes are left: {left:?}"));
    }
    let failed = line(&format!("suite: failed {name}: "));
    let holds = ended.stdout.contains(&format!("suite: ok {name}\n"));
    match (ended.code(), failed) {
        (Some(0), None) if holds => Ok(()),
        (Some(101), Some(_)) if !ended.stderr.contains(&format!("without machine {VICTIM}")) => {
            Err("it has failed without a loss".to_owned())
        }
        (Some(101), Some(why)) if names_the_loss(why) => Ok(()),
        (Some(101), Some(_)) => Err("its panic does not name the loss".to_owned()),
        _ => Err("it has not ended as it may".to_owned()),
    }
}

/// Returns whether a text names the loss: in words, or by the name of an error.
fn names_the_loss(text: &str) -> bool {
    let machine = format!("machine {VICTIM}");
    let by_number = [
        format!("{machine} was lost"),
        format!("{machine} is lost"),
        format!("lost with {machine}"),
        format!("{machine}, which"),
        format!("Lost {{ machine: {VICTIM} }}"),
    ];
    // The last one: a closure has panicked, and the text was lost with its machine.
    let other =
        ["its machine was lost", "Gone { property:", "ConnectionAborted", "its text is on the trustee's machine"];
    let is_named = by_number.iter().map(String::as_str).chain(other).any(|words| text.contains(words));
    is_named && !text.contains("was_closed: true") // a trust was left: the property was closed too early
}

/// Returns the line by which a machine that lives counts as lost.
fn accused(output: &str) -> Option<&str> {
    let living = (0..VICTIM).map(|machine| format!("machine {machine}"));
    let accusations: Vec<String> = living
        .flat_map(|machine| [format!("{machine} was lost"), format!("{machine} is lost"), format!("without {machine}")])
        .collect();
    output.lines().find(|line| accusations.iter().any(|words| line.contains(words.as_str())))
}

/// Tries the judgement: texts that pass, and those that do not.
pub fn are_judged() -> Result<(), Failed> {
    const CLOSED: &str = "Gone { property: \"u64\", was_closed: true }";
    let named =
        ["machine 2 was lost before the answer", "a fiber of a scope was lost with machine 2", "Gone { property:"];
    let unnamed =
        ["assertion `left == right` failed: 3, 4", "machine 1 was lost before the answer", "machine 2 is slow", CLOSED];
    assert!(named.into_iter().all(names_the_loss) && !unnamed.into_iter().any(names_the_loss));
    let went_on = |machine| format!("machine {machine} was killed; the others go on without machine {machine}");
    assert!(accused(&went_on(2)).is_none() && accused(&went_on(1)).is_some());
    assert!(accused("machine 0 was lost before").is_some());
    Ok(())
}
