//! How `social` runs: the services, the requests, the twin, the report.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use gossamer::{Place, Trust};
use indicatif::HumanCount;
use serde_json::json;

use super::options::Options;
use super::services::Services;
use super::twin;
use super::world::{Answer, ROUND};
use crate::heaps::options::machine_args;
use crate::heaps::report::{Report, Twin, many};
use crate::heaps::spread::joined;
use crate::heaps::twin::note_cores;
use crate::machines;
use crate::program::Program;
use crate::progress::{self, Count, Meter};

/// Runs `social` with the arguments of this process.
pub fn main() -> ExitCode {
    run_with(Options::parse()) // exits with status 2 and the usage where they are wrong
}

/// Runs it with these options, which are those among the arguments of this process.
pub fn run_with(options: Options) -> ExitCode {
    note_cores();
    let (program, rack) = (Program("social"), options.common.rack.clone());
    program.end(machines::run(program, &rack, machine_args(), move || run(&options)))
}

/// Runs on a fiber of the first machine; prints the report, and returns whether all is right.
fn run(options: &Options) -> anyhow::Result<bool> {
    let (world, requests) = (options.world(), options.requests);
    let services = Services::new(world);
    let meter = Meter::new(progress::bar(requests, progress::NUMBERS, options.common.rack.progress_on.as_deref()));
    let (answer, time) = serve(&services, requests, u64::from(options.connections), &meter.count())?;
    meter.finish()?;
    let compare = || {
        let (twins, time) = twin::run(world, requests, gossamer::rack().workers());
        Twin::compared(&answer, &twins, time, |own, twins| format!("{own:?}, the twin's {twins:?}"))
    };
    let report = Report {
        text: format!(
            "12 services, {}, {}; {} made, {} read\n",
            many(world.users as usize, "user", "users"),
            many(usize::from(options.connections), "connection at each worker", "connections at each worker"),
            many(answer.posted as usize, "post", "posts"),
            HumanCount(answer.read),
        ),
        found: [
            ("posted".to_owned(), answer.posted.into()),
            ("read".to_owned(), answer.read.into()),
            ("checksum".to_owned(), json!(format!("{:016x}", answer.checksum))),
        ]
        .into_iter()
        .collect(),
        unit: "requests",
        count: requests,
        time,
        wrong: None,
        twin: options.common.verify.then(compare),
    };
    report.print(options.common.json)
}

/// All requests, round by round, by so many connections at each worker.
fn serve(
    services: &Services,
    requests: u64,
    connections: u64,
    told: &Trust<Count>,
) -> anyhow::Result<(Answer, Duration)> {
    let places: Vec<Place> = gossamer::rack().places().collect();
    let all = places.len() as u64 * connections;
    let (start, mut answer) = (Instant::now(), Answer::default());
    for round in (0..requests).step_by(ROUND as usize) {
        let end = requests.min(round + ROUND);
        let connection = |number: u64| {
            let (services, told) = (services.clone(), told.clone());
            gossamer::spawn_on(places[(number % places.len() as u64) as usize], move || {
                let mut answer = Answer::default();
                for request in (round + number..end).step_by(all as usize) {
                    answer = answer.and(services.front(request, round));
                    told.apply_then(|count| count.add(1), |()| ());
                }
                answer
            })
        };
        let fibers = (0..all.min(end - round)).map(connection).collect();
        answer = joined(fibers)?.into_iter().fold(answer, Answer::and);
    }
    Ok((answer, start.elapsed()))
}
