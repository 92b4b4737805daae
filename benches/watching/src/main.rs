//! `watching plain|console|chrome MILLIS`: two tasks of tokio, one sends batches of requests to the other, which counts
//! them. Prints requests a second. With `console` console-subscriber instruments the runtime, nobody connected; with
//! `chrome` each batch is a span of tracing-chrome, at both ends. `watching metrics WORKERS SERIES TIMES`:
//! prometheus-client encodes so many series for each worker. Prints the bytes and the microseconds of each time.

use std::time::{Duration, Instant};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::{counter::Counter, family::Family};
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot};
use tracing_subscriber::prelude::*;

/// Requests of a batch.
const BATCH: u64 = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok()).expect("a number, see above");
    match arguments.first().map(String::as_str) {
        Some("metrics") => metrics(number(1), number(2), number(3)),
        Some("plain") => rate(number(1)),
        Some("console") => {
            // Port 0: several may run. It records the messages that its aggregator would send.
            console_subscriber::ConsoleLayer::builder().server_addr(([127, 0, 0, 1], 0)).init();
            rate(number(1));
        }
        Some("chrome") => {
            let file = std::env::temp_dir().join(format!("watching-{}.json", std::process::id()));
            let (layer, guard) = tracing_chrome::ChromeLayerBuilder::new().file(&file).build();
            tracing_subscriber::registry().with(layer).init();
            rate(number(1));
            drop(guard);
            let length = std::fs::metadata(&file).expect("the trace was written").len();
            std::fs::remove_file(&file).expect("it is ours");
            assert!(length > 1000, "the trace holds {length} bytes");
        }
        other => panic!("what is {other:?}? plain, console, chrome, metrics"),
    }
}

fn rate(millis: u64) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (sent, took) = runtime.block_on(async move {
        let (send, mut requests) = mpsc::channel::<(Vec<u64>, oneshot::Sender<u64>)>(16);
        let actor = tokio::spawn(async move {
            let mut count = 0;
            while let Some((batch, answer)) = requests.recv().await {
                let _span = tracing::info_span!("served").entered();
                batch.iter().for_each(|one| count += one);
                answer.send(count).expect("the client waits");
            }
            count
        });
        let client = tokio::spawn(async move {
            let (start, mut sent) = (Instant::now(), 0);
            while start.elapsed() < Duration::from_millis(millis) {
                let (answer, answered) = oneshot::channel();
                {
                    let _span = tracing::info_span!("sent").entered();
                    sent += BATCH;
                }
                send.send((vec![1; BATCH as usize], answer)).await.expect("the actor lives");
                assert_eq!(answered.await.expect("it answers"), sent);
            }
            (sent, start.elapsed())
        });
        let (sent, took) = client.await.expect("the client ends");
        assert_eq!(actor.await.expect("the actor ends"), sent);
        (sent, took)
    });
    println!("{}", sent as f64 / took.as_secs_f64());
}

fn metrics(workers: u64, series: u64, times: u64) {
    let mut registry = Registry::default();
    for number in 0..series {
        let family = Family::<Vec<(String, String)>, Counter>::default();
        registry.register(format!("gossamer_worker_count_{number}"), "Requests that were served", family.clone());
        for worker in 0..workers {
            let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            let labels = vec![
                label("program", "wordcount"),
                label("machine", "0"),
                label("host", "alpha"),
                label("worker", &worker.to_string()),
            ];
            family.get_or_create(&labels).inc_by(worker * 1_000_003 + number);
        }
    }
    for _ in 0..times {
        let start = Instant::now();
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes all");
        let took = start.elapsed();
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count() as u64, workers * series);
        println!("{} {}", text.len(), took.as_nanos() as f64 / 1e3);
    }
}
