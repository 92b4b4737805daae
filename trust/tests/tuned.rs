//! Pools that decide by trials which worker runs which trustee.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use limits::wait_until;
use trust::{Threadpool, Trust};

/// Fibers and plain threads ask while the pool tries what it likes: each request is answered once.
#[test]
fn a_tuned_pool_answers_as_any_other() {
    watchdog!();
    const CLIENTS: usize = 6;
    let pool = Threadpool::builder().workers(2).trustees(5).tuned().pin(false).build();
    let values: Vec<Trust<u64>> = (0..5).map(|_| pool.entrust(0)).collect();
    let end = Instant::now() + Duration::from_secs(2);
    let ask = |values: Vec<Trust<u64>>| {
        move || {
            let mut made = 0u64;
            while Instant::now() < end {
                for value in &values {
                    value.apply_then(|value| *value += 1, |()| ());
                }
                made += values.len() as u64;
                let before = values[0].apply(|value| *value);
                assert!(values[0].apply(|value| *value) >= before);
            }
            trust::wait_all();
            made
        }
    };
    let fibers: Vec<_> = (0..CLIENTS).map(|_| pool.spawn(ask(values.clone()))).collect();
    let threads: Vec<_> = (0..2).map(|_| thread::spawn(ask(values.clone()))).collect();
    let made: u64 = fibers.into_iter().map(|fiber| fiber.join().expect("it does not panic")).sum();
    let made = made + threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum::<u64>();
    assert_eq!(values.iter().map(|value| value.apply(|value| *value)).sum::<u64>(), made);
    println!("{made} requests: {}", pool.tuning());
}

/// One worker runs the two trustees that have all requests, the other one nothing.
#[test]
fn busy_trustees_of_one_worker_are_parted() {
    watchdog!();
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let pool = Threadpool::builder().workers(2).trustees(4).tuned().pin(false).spin(Duration::ZERO).build();
    let busy = [0, 2].map(|trustee| pool.trustees()[trustee].entrust(()));
    let worker_of = |trustee: usize| pool.tuning().trustees[trustee].worker;
    assert_eq!((worker_of(0), worker_of(2)), (0, 0));
    let clients = busy.map(|busy| {
        thread::spawn(move || {
            while !IS_OVER.load(Ordering::Relaxed) {
                busy.apply(|()| {
                    let end = Instant::now() + Duration::from_micros(200);
                    while Instant::now() < end {
                        std::hint::spin_loop();
                    }
                });
            }
        })
    });
    wait_until("they are apart", || worker_of(0) != worker_of(2));
    IS_OVER.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("it does not panic"));
    let tuning = pool.tuning();
    assert!(tuning.moves > 0 && tuning.trials > 0, "{tuning}");
    assert!(tuning.to_string().contains("4 trustees on workers 0-1, "), "{tuning}");
}

#[test]
fn one_worker_has_nothing_to_decide() {
    let pool = Threadpool::builder().workers(1).tuned().build();
    let value = pool.entrust(1);
    let here = pool.spawn(trust::local_trustee).join().expect("it does not panic");
    assert_eq!(value.trustee(), here, "its own trustee, which its fibers reach without a request");
    assert_eq!(pool.tuning().to_string(), "no trustee moves");
}

#[test]
fn a_pool_of_many_workers_has_sixteen_trustees() {
    let pool = Threadpool::builder().workers(18).tuned().build();
    assert_eq!(pool.trustees().len(), 16);
    assert_eq!(pool.tuning().to_string(), "16 trustees on workers 0-15, 0 moves");
}
