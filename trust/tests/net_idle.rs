//! A worker sleeps when all its fibers wait for sockets. One test: it measures the process.

mod common;

use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{cpu_time, serve_until};
use trust::Threadpool;
use trust::net::{TcpListener, TcpStream};

#[test]
fn a_worker_with_only_waiting_fibers_uses_no_cpu() {
    let _watch = watchdog!(120);
    const CONNECTIONS: usize = 100;
    const IDLE: Duration = Duration::from_millis(500);
    let pool = Threadpool::builder().workers(2).pin(false).build();
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    let accepting = Arc::clone(&listener);
    let server = pool.spawn_on(0, move || {
        for connection in accepting.incoming() {
            let mut connection = connection.unwrap();
            trust::spawn(move || {
                let mut byte = [0];
                while connection.read(&mut byte).unwrap() == 1 {
                    connection.write_all(&byte).unwrap();
                }
            });
        }
    });
    let connect = || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(&[1]).unwrap();
        connection.read_exact(&mut [0]).unwrap();
        connection
    };
    let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| connect()).collect();
    // A worker that has just worked may poll for a moment.
    serve_until(|| {
        let before = cpu_time();
        thread::sleep(Duration::from_millis(20));
        cpu_time() - before < Duration::from_millis(2)
    });
    let parks = || trust::stats(pool.trustees()[0]).unwrap().parks;
    let (before, parked) = (cpu_time(), parks());
    // Not for synchronisation: this is the time that is measured.
    thread::sleep(IDLE);
    let used = cpu_time() - before;
    assert!(used < IDLE / 20, "an idle server used {used:?} of {IDLE:?}");
    assert!(parks() <= parked + 1, "it was woken {} times for nothing", parks() - parked);
    for connection in &mut connections {
        connection.write_all(&[2]).unwrap();
        connection.read_exact(&mut [0]).unwrap();
    }
    assert!(parks() > parked, "it does not sleep in its poller");
    // Other threads reach it there as well.
    assert_eq!(pool.trustees()[0].entrust(5).apply(|v| *v), 5);
    drop(connections);
    listener.close().unwrap();
    server.join().unwrap();
    drop(listener);
    // Nor does it when it has no sockets any more and was woken since: the first wake finds it with the listener.
    let parked = parks();
    for _ in 0..3 {
        assert_eq!(pool.trustees()[0].entrust(5).apply(|v| *v), 5);
        serve_until(|| {
            let before = cpu_time();
            thread::sleep(Duration::from_millis(20));
            cpu_time() - before < Duration::from_millis(2)
        });
    }
    assert!(parks() < parked + 100, "it went to sleep {} times", parks() - parked);
}
