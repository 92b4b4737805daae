//! The programs that `operations` starts, as one process or as machines of any starter.

use crate::machines::outcome;
use crate::prelude::*;

/// Requests between two looks at the clock; as many as a batch of `benches/watching` has.
const BATCH: u64 = 64;

/// The task.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// Print how many machines there are, and end.
    FirstLine,
    /// Print the own process and wait for the end.
    Wait,
    /// One worker sends requests to the other for so long; prints requests a second.
    Rate,
    /// The same for so many requests, for counting by callgrind.
    Requests,
}

/// Options of `operations-run`.
#[derive(Clone, Debug, Args)]
pub struct OperationsRun {
    role: Role,
    /// Milliseconds of `rate`, requests of `requests`.
    #[arg(default_value_t = 1000)]
    amount: u64,
}

pub fn command(options: OperationsRun) -> Result<()> {
    let (role, amount) = (options.role, options.amount);
    let run = move || match role {
        Role::FirstLine => {
            println!("{} machines", gossamer::rack().machines().len());
            Ok(())
        }
        Role::Wait => {
            wait();
            Ok(())
        }
        Role::Rate => rate(Duration::from_millis(amount), u64::MAX),
        Role::Requests => rate(Duration::MAX, amount),
    };
    outcome(run, |run| gossamer::main(run, 2))
}

/// Says which processes there are; the last machine's comes first.
fn wait() {
    let machines = gossamer::rack().machines();
    let processes: Vec<String> = machines.iter().rev().map(|machine| machine.process.to_string()).collect();
    println!("{}", processes.join(" "));
    gossamer::sleep(Duration::from_secs(60));
}

/// Until the time is over or so many were sent.
fn rate(time: Duration, most: u64) -> Result<()> {
    let other = gossamer::rack().places().last().ok_or_else(|| anyhow!("there is no worker"))?;
    let counter = gossamer::entrust_on(other, 0u64);
    let (answered, began, mut sent) = (Rc::new(Cell::new(0u64)), Instant::now(), 0);
    while sent < most && began.elapsed() < time {
        for _ in 0..BATCH {
            let answered = Rc::clone(&answered);
            counter.apply_then(|count| *count += 1, move |()| answered.set(answered.get() + 1));
        }
        sent += BATCH;
        counter.apply(|_| ());
    }
    let took = began.elapsed();
    let counted = counter.apply(|count| *count);
    anyhow::ensure!(
        counted == sent && answered.get() == sent,
        "{sent} sent, {counted} counted, {} answered",
        answered.get()
    );
    println!("{}", sent as f64 / took.as_secs_f64());
    Ok(())
}
