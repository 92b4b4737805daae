//! Loans of iceoryx2 handed over between two processes, for `gossamer-bench heap`: one writes the first and the last
//! word of a loan and sends it, the other checks them and answers by a loan of its own. Both poll. Prints the
//! nanoseconds of each time that something goes over.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use clap::Parser;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

/// Polls before the thread yields its core.
const LOOKS: u32 = 1000;

#[derive(Parser)]
struct Options {
    /// Bytes of a loan.
    #[arg(long, default_value_t = 65_536)]
    bytes: usize,
    /// How often something goes over.
    #[arg(long, default_value_t = 65_536)]
    turns: u64,
    /// The process that has started this one, to answer it.
    #[arg(long)]
    answers: Option<u32>,
}

/// The two directions as one process holds them.
struct Ports {
    send: Publisher<ipc::Service, [u64], ()>,
    receive: Subscriber<ipc::Service, [u64], ()>,
    words: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    set_log_level(LogLevel::Error);
    let options = Options::parse();
    let node = NodeBuilder::new().signal_handling_mode(SignalHandlingMode::Disabled).create::<ipc::Service>()?;
    let first = options.answers.unwrap_or_else(std::process::id);
    let ports = Ports::new(&node, first, options.answers.is_some(), options.bytes / 8)?;
    if options.answers.is_some() {
        println!("ready");
        for turn in (1..=options.turns).step_by(2) {
            ports.take(turn)?;
            ports.hand_over(turn + 1)?;
        }
        // Its loans live until they have been read: the process that started it closes its input then.
        std::io::stdin().read_line(&mut String::new())?;
        return Ok(());
    }
    let mut other = start(&options)?;
    let ran = lead(&ports, options.turns);
    drop(other.stdin.take());
    if ran.is_err() {
        other.kill()?;
    }
    let status = other.wait()?;
    println!("{}", ran?);
    if status.success() { Ok(()) } else { Err(format!("the other process ended with {status}").into()) }
}

fn start(options: &Options) -> Result<Child, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--bytes", &options.bytes.to_string(), "--turns", &options.turns.to_string()]);
    command.args(["--answers", &std::process::id().to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.trim() == "ready" { Ok(child) } else { Err("the other process does not begin".into()) }
}

fn lead(ports: &Ports, turns: u64) -> Result<f64, Box<dyn Error>> {
    let began = Instant::now();
    for turn in (1..=turns).step_by(2) {
        ports.hand_over(turn)?;
        ports.take(turn + 1)?;
    }
    Ok(began.elapsed().as_nanos() as f64 / turns as f64)
}

impl Ports {
    fn new(node: &Node<ipc::Service>, first: u32, answers: bool, words: usize) -> Result<Ports, Box<dyn Error>> {
        let service = |way: &str| -> Result<_, Box<dyn Error>> {
            let name = format!("gossamer-bench/{first}/{way}");
            Ok(node.service_builder(&name.as_str().try_into()?).publish_subscribe::<[u64]>().open_or_create()?)
        };
        let (there, back) = (service("there")?, service("back")?);
        let (out, back) = if answers { (back, there) } else { (there, back) };
        let send = out.publisher_builder().initial_max_slice_len(words).create()?;
        Ok(Ports { send, receive: back.subscriber_builder().create()?, words })
    }

    fn hand_over(&self, turn: u64) -> Result<(), Box<dyn Error>> {
        let mut loan = self.send.loan_slice_uninit(self.words)?;
        let words = loan.payload_mut();
        words[0].write(turn);
        words[self.words - 1].write(turn);
        // SAFETY: the other words are of shared memory that came from the system, initialised, and all numbers are
        // good.
        let loan = unsafe { loan.assume_init() };
        loan.send()?;
        Ok(())
    }

    fn take(&self, turn: u64) -> Result<(), Box<dyn Error>> {
        let mut looks = 0;
        let sample = loop {
            if let Some(sample) = self.receive.receive()? {
                break sample;
            }
            looks += 1;
            if looks % LOOKS == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        };
        if sample.first() == Some(&turn) && sample.last() == Some(&turn) && sample.len() == self.words {
            return Ok(());
        }
        Err(format!("turn {turn} has {:?} and {:?}", sample.first(), sample.last()).into())
    }
}
