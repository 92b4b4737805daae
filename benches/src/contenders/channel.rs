//! `crossbeam_channel`: a server thread owns counters, clients send an index and get the value back.
//!
//! Requests go through one bounded channel a server, replies through one bounded channel a client.
//! A client has at most `window` requests in flight and its reply channel holds that many, so a
//! server never waits for a client and no circle of waiting threads can form.

use super::counter::increment;
use super::threads::together;
use crate::prelude::*;
use crossbeam_channel::{Receiver, Sender, bounded};

struct Request {
    client: usize,
    object: u32,
}

/// Each client keeps so many requests in flight.
pub fn channel(name: &'static str, window: usize) -> Contender {
    Contender::new(name, Kind::Other, 2, move |workload| {
        let clients = workload.clients();
        let budget = Budget::new(workload, clients, 1, thread::sleep);
        let (request_senders, request_receivers): (Vec<_>, Vec<_>) =
            (0..workload.dedicated).map(|_| bounded::<Request>(window * clients)).unzip();
        let (reply_senders, reply_receivers): (Vec<_>, Vec<_>) = (0..clients).map(|_| bounded::<u64>(window)).unzip();
        // Each client owns clones of the request senders; a server ends when all of them are dropped.
        let senders_of_clients: Vec<_> =
            (0..clients).map(|_| std::sync::Mutex::new(Some(request_senders.clone()))).collect();
        drop(request_senders);

        let roles = together(workload.threads, workload.pin, |thread, start| {
            if thread < clients {
                let servers = senders_of_clients[thread].lock().ok().and_then(|mut senders| senders.take());
                let servers = servers.expect("each client takes its senders once");
                start.wait();
                (Some(client(workload, thread, window, &budget, &servers, &reply_receivers[thread])), Tally::default())
            } else {
                start.wait();
                (None, serve(workload, &request_receivers[thread - clients], &reply_senders))
            }
        });

        Ok(fold_roles(roles))
    })
}

fn client(
    workload: &Workload,
    thread: usize,
    window: usize,
    budget: &Budget,
    servers: &[Sender<Request>],
    replies: &Receiver<u64>,
) -> ClientRun {
    let (begun, mut ops, mut fetched, mut in_flight) = (Instant::now(), 0, 0u64, 0);
    let reply = || replies.recv().expect("a server outlives its clients");
    for claim in budget.claims(thread) {
        ops += claim.end - claim.start;
        for &object in workload.picks.slice(thread, &claim) {
            if in_flight == window {
                fetched = fetched.wrapping_add(reply());
                in_flight -= 1;
            }
            let server = &servers[object as usize % servers.len()];
            server.send(Request { client: thread, object }).expect("a server outlives its clients");
            in_flight += 1;
        }
    }
    for _ in 0..in_flight {
        fetched = fetched.wrapping_add(reply());
    }
    ClientRun { start: begun, end: Instant::now(), ops, fetched }
}

/// Serves until every client has dropped its senders; objects of other servers stay at zero here.
fn serve(workload: &Workload, requests: &Receiver<Request>, replies: &[Sender<u64>]) -> Tally {
    let mut counters = vec![0u64; workload.objects.div_ceil(workload.dedicated)];
    for Request { client, object } in requests {
        let counter = &mut counters[object as usize / workload.dedicated];
        let before = if workload.pause { increment::<true>(counter) } else { increment::<false>(counter) };
        // A client that panicked drops its receiver; the run reports its panic.
        let _ = replies[client].send(before);
    }
    counters.into_iter().collect()
}
