//! Plain threads as clients: of trustees in a pool as wide as the machine, or of servers behind `std::sync::mpsc`. Each
//! asks all objects in turn and waits for each answer.

use crate::contenders::Mode;
use crate::contenders::counter::increment;
use crate::contenders::pool::{Stage, client_run};
use crate::prelude::*;
use crate::watch::{Latencies, Timer, Watch};
use std::sync::{Barrier, mpsc};

/// `apply` by plain threads beside a pool of so many workers.
pub fn beside_pool(workers: usize) -> Contender {
    Contender::new("apply", Kind::Trust, 1, move |workload| {
        let stage = Stage::new(&Workload { threads: workers, ..workload.clone() }, Mode::Shared);
        let trusts = stage.trusts();
        let budget = Budget::new(workload, workload.threads, 1, trust::sleep);
        let results = together(workload.threads, false, |client, start| {
            // A thread's first request sets it up.
            trusts.iter().for_each(|trust| {
                trust.apply(|counter| *counter);
            });
            start.wait();
            ask_in_turn(client, trusts.len(), &budget, |object| trusts[object].apply(increment::<false>))
        });
        let (clients, latencies): (Vec<_>, Vec<_>) = results.into_iter().unzip();
        Ok(Run { latencies: Latencies::sum(latencies), ..stage.fold(&clients) })
    })
}

struct Request {
    client: usize,
    object: usize,
}

/// Requests and replies by `std::sync::mpsc`, to so many threads that each own a part of the objects: a channel a
/// server, and one a client for its replies.
pub fn beside_servers(servers: usize) -> Contender {
    Contender::new("std-mpsc", Kind::Other, 1, move |workload| {
        let (clients, objects) = (workload.threads, workload.objects);
        let budget = Budget::new(workload, clients, 1, thread::sleep);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..servers).map(|_| mpsc::channel::<Request>()).unzip();
        let (reply_senders, replies): (Vec<_>, Vec<_>) = (0..clients).map(|_| mpsc::channel::<u64>()).unzip();
        let start = Barrier::new(clients);
        let (results, counters): (Vec<_>, Vec<_>) = thread::scope(|scope| {
            let servers: Vec<_> = receivers
                .into_iter()
                .map(|requests| {
                    let replies = reply_senders.clone();
                    scope.spawn(move || serve(objects, &requests, &replies))
                })
                .collect();
            let clients: Vec<_> = replies
                .into_iter()
                .enumerate()
                .map(|(client, replies)| {
                    let (senders, start, budget) = (senders.clone(), &start, &budget);
                    scope.spawn(move || {
                        start.wait();
                        ask_in_turn(client, objects, budget, |object| {
                            let request = Request { client, object };
                            senders[object % senders.len()].send(request).expect("a server outlives its clients");
                            replies.recv().expect("a server outlives its clients")
                        })
                    })
                })
                .collect();
            drop(senders);
            let results = clients.into_iter().map(joined).collect();
            (results, servers.into_iter().map(joined).collect())
        });
        let (clients, latencies): (Vec<_>, Vec<_>) = results.into_iter().unzip();
        let counters = counters.into_iter().flatten().collect::<Tally>();
        Ok(Run { latencies: Latencies::sum(latencies), ..fold(&clients, counters) })
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Serves until every client has dropped its senders; objects of other servers stay at zero here.
fn serve(objects: usize, requests: &mpsc::Receiver<Request>, replies: &[mpsc::Sender<u64>]) -> Vec<u64> {
    let mut counters = vec![0; objects];
    for Request { client, object } in requests {
        // A client that panicked drops its receiver; the run reports its panic.
        let _ = replies[client].send(increment::<false>(&mut counters[object]));
    }
    counters
}

/// One client: each of the objects in turn, from one of its own on.
fn ask_in_turn(
    client: usize,
    objects: usize,
    budget: &Budget,
    mut ask: impl FnMut(usize) -> u64,
) -> (ClientRun, Option<Latencies>) {
    let mut watch = Timer::apart();
    let (begun, mut ops, mut fetched, mut object) = (Instant::now(), 0, 0u64, client % objects);
    for claim in budget.claims(client) {
        for _ in claim {
            let timed = watch.begin();
            fetched = fetched.wrapping_add(ask(object));
            watch.end(object as u32, timed);
            ops += 1;
            object = if object + 1 == objects { 0 } else { object + 1 };
        }
    }
    (client_run(begun, ops, fetched), watch.latencies())
}
