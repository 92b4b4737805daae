//! Fibers wait on sockets: many on one worker, on several, under back-pressure, with timeouts and broken connections.

#![allow(unsafe_code)] // a waker of its own

mod common;

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{join_and_serve, serve_until};
use trust::net::{TcpListener, TcpStream, UdpSocket};
use trust::{Error, JoinHandle, Threadpool, local_trustee};

const LOOPBACK: &str = "127.0.0.1:0";

fn pool(workers: usize) -> Threadpool {
    Threadpool::builder().workers(workers).pin(false).build()
}

/// A connection's both ends.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// An address that refuses connections: it is bound, so that no other process listens there, and has no listener.
fn address_without_listener() -> (OwnedFd, SocketAddr) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    let held = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&held, &LOOPBACK.parse::<SocketAddr>().unwrap()).unwrap();
    let address = getsockname(&held).unwrap().try_into().unwrap();
    (held, address)
}

/// Echoes all data until the other side has closed.
fn echo(mut connection: TcpStream) {
    let mut buffer = [0; 512];
    loop {
        match connection.read(&mut buffer).unwrap() {
            0 => return,
            bytes => connection.write_all(&buffer[..bytes]).unwrap(),
        }
    }
}

/// A server that gives each connection a fiber, on the worker that has accepted it.
fn serve(pool: &Threadpool) -> (Arc<TcpListener>, SocketAddr, JoinHandle<usize>) {
    let listener = Arc::new(TcpListener::bind(LOOPBACK).unwrap());
    let address = listener.local_addr().unwrap();
    let accepting = Arc::clone(&listener);
    let server = pool.spawn_on(0, move || {
        let connections = accepting.incoming().map(|connection| trust::spawn(|| echo(connection.unwrap())));
        let connections: Vec<_> = connections.collect();
        let count = connections.len();
        connections.into_iter().for_each(|connection| connection.join().unwrap());
        count
    });
    (listener, address, server)
}

fn ask(mut connection: &TcpStream, number: u64) {
    let question = number.to_le_bytes();
    connection.write_all(&question).unwrap();
    let mut answer = [0; 8];
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(answer, question);
}

/// Lets the process have this many files, as far as the system allows; returns their number.
fn raise_files_to(files: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(u64::MAX).min(files.max(limit.current.unwrap_or(u64::MAX)));
    setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum: limit.maximum }).unwrap();
    allowed
}

/// Clients beyond the number that waits to be accepted wait seconds for a next try, longer each time.
#[test]
fn a_thousand_connections_wait_to_be_accepted() {
    let _watch = watchdog!();
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
    let connections = 1_000.min(allowed);
    raise_files_to(2 * connections as u64 + 500);
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..connections).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    for _ in &clients {
        listener.accept().unwrap();
    }
}

#[test]
fn one_worker_serves_two_thousand_connections() {
    let _watch = watchdog!();
    serve_two_thousand_connections();
}

/// In a process of its own: other tests would count.
#[test]
fn memory_of_a_connection_is_bounded() {
    let _watch = watchdog!();
    if common::is_child() {
        println!("bytes: {}", serve_two_thousand_connections());
        return;
    }
    let output = common::run_child("memory_of_a_connection_is_bounded");
    assert!(output.status.success(), "{}", common::stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let bytes = text.lines().find_map(|line| line.split_once("bytes: ")?.1.parse::<usize>().ok());
    assert!(
        bytes.is_some_and(|bytes| bytes < 64 << 10),
        "bytes of this process for each connection, both ends: {text}"
    );
}

/// Returns the bytes of memory of each connection, its both ends together.
fn serve_two_thousand_connections() -> usize {
    const CONNECTIONS: usize = 2_000;
    let files = raise_files_to(2 * CONNECTIONS as u64 + 500);
    assert!(
        files >= 2 * CONNECTIONS as u64 + 200,
        "raise `ulimit -Hn`: this test needs 4,200 files, and may have {files}"
    );
    let (servers, clients) = (pool(1), pool(1));
    let (listener, address, server) = serve(&servers);
    let before = common::resident_bytes();
    let connect = |number: usize| {
        clients.spawn(move || {
            let connection = TcpStream::connect(address).unwrap();
            ask(&connection, number as u64);
            connection
        })
    };
    let fibers: Vec<_> = (0..CONNECTIONS).map(connect).collect();
    let connections: Vec<_> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
    // All are there at once, each with a fiber that waits at the server; the clients' stacks are in the pool.
    let bytes = common::resident_bytes().saturating_sub(before) / CONNECTIONS;
    let ask_again = |(number, connection): (usize, TcpStream)| {
        clients.spawn(move || (0..5).for_each(|round| ask(&connection, (number * round) as u64)))
    };
    let fibers: Vec<_> = connections.into_iter().enumerate().map(ask_again).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    listener.close().unwrap();
    assert_eq!(server.join().unwrap(), CONNECTIONS);
    bytes
}

#[test]
fn connections_move_between_workers() {
    let _watch = watchdog!();
    let pool = Arc::new(pool(4));
    let listener = Arc::new(TcpListener::bind(LOOPBACK).unwrap());
    let address = listener.local_addr().unwrap();
    let accepting = Arc::clone(&listener);
    let served = Arc::new(AtomicUsize::new(0));
    // Accepted on one worker, greeted there, and served on whichever is next.
    let (trustees, count) = (pool.trustees().to_vec(), Arc::clone(&served));
    let server = pool.spawn_on(0, move || {
        for (number, connection) in accepting.incoming().enumerate() {
            let connection = connection.unwrap();
            ask(&connection, 7);
            let count = Arc::clone(&count);
            trust::spawn_on(&trustees[number % 4], move || {
                echo(connection);
                count.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    let client = move |number: usize| {
        move || {
            let mut connection = TcpStream::connect(address).unwrap();
            let mut greeting = [0; 8];
            connection.read_exact(&mut greeting).unwrap();
            connection.write_all(&greeting).unwrap();
            (0..20).for_each(|round| ask(&connection, (number + round) as u64));
        }
    };
    let fibers: Vec<_> = (0..100).map(|number| pool.spawn(client(number))).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    serve_until(|| served.load(Ordering::SeqCst) == 100);
    listener.close().unwrap();
    server.join().unwrap();
}

#[test]
fn one_fiber_reads_while_another_writes() {
    let _watch = watchdog!();
    const BYTES: usize = 2 << 20;
    let pool = pool(2);
    let (one, other) = connected();
    let echoing = pool.spawn_on(0, move || echo(other));
    let one = Arc::new(one);
    // Once on one worker, once on two.
    for reader_on in [1, 0] {
        let (reading, writing) = (Arc::clone(&one), Arc::clone(&one));
        let writer = pool.spawn_on(1, move || {
            let bytes: Vec<u8> = (0..BYTES).map(|place| (place % 251) as u8).collect();
            (&*writing).write_all(&bytes).unwrap();
        });
        let reader = pool.spawn_on(reader_on, move || {
            let mut bytes = vec![0; BYTES];
            (&*reading).read_exact(&mut bytes).unwrap();
            assert!(bytes.iter().enumerate().all(|(place, &byte)| byte == (place % 251) as u8));
        });
        writer.join().unwrap();
        reader.join().unwrap();
    }
    one.shutdown(Shutdown::Write).unwrap();
    echoing.join().unwrap();
}

#[test]
fn a_writer_waits_for_a_reader_and_others_run() {
    let _watch = watchdog!();
    const BYTES: usize = 32 << 20;
    let pool = pool(1);
    let (writing, reading) = connected();
    let (blocked, ticks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let told = Arc::clone(&blocked);
    let writer = pool.spawn(move || {
        let bytes = vec![7; BYTES];
        let mut sent = 0;
        writing.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        // There is no reader: the data sent is bounded by the system's buffers.
        let error = loop {
            match (&writing).write(&bytes[sent..]) {
                Ok(bytes) => sent += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(sent < BYTES, "the system has buffered it all: this shows nothing");
        writing.set_write_timeout(None).unwrap();
        told.store(true, Ordering::SeqCst);
        (&writing).write_all(&bytes[sent..]).unwrap();
    });
    let (blocked, ticked) = (Arc::clone(&blocked), Arc::clone(&ticks));
    let ticker = pool.spawn(move || {
        while !blocked.load(Ordering::SeqCst) {
            ticked.fetch_add(1, Ordering::SeqCst);
            trust::yield_now();
        }
        let mut bytes = Vec::new();
        (&reading).read_to_end(&mut bytes).unwrap();
        bytes.len() == BYTES && bytes.iter().all(|&byte| byte == 7)
    });
    writer.join().unwrap();
    assert!(ticker.join().unwrap());
    assert!(ticks.load(Ordering::SeqCst) > 1, "no other fiber ran while the writer waited");
}

#[test]
fn a_fiber_whose_calls_never_wait_lets_others_run() {
    let _watch = watchdog!();
    let done = Rc::new(Cell::new(false));
    let socket = UdpSocket::bind(LOOPBACK).unwrap();
    let to = socket.local_addr().unwrap();
    let stop = Rc::clone(&done);
    let sender = trust::spawn(move || {
        while !stop.get() {
            socket.send_to(b"again", to).unwrap();
        }
    });
    let other = trust::spawn(move || done.set(true));
    sender.join().unwrap();
    other.join().unwrap();
}

#[test]
fn calls_time_out_and_work_again() {
    let _watch = watchdog!();
    const TIMEOUT: Duration = Duration::from_millis(20);
    let pool = pool(1);
    let (one, other) = connected();
    one.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!((one.read_timeout(), one.write_timeout()), (Some(TIMEOUT), None));
    assert_eq!(one.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
    let fiber = pool.spawn(move || {
        let mut byte = [0];
        for _ in 0..3 {
            let start = Instant::now();
            let error = (&one).read(&mut byte).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(error.to_string().contains("`read`") && error.to_string().contains("20ms"), "{error}");
            assert!(start.elapsed() >= TIMEOUT);
        }
        one.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
        (&other).write_all(&[5]).unwrap();
        (&one).read_exact(&mut byte).unwrap();
        // The cancelled wait leaves nothing behind: other timers fire.
        trust::sleep(TIMEOUT);
        byte[0]
    });
    assert_eq!(fiber.join().unwrap(), 5);
    // On a thread's own stack as well.
    let socket = UdpSocket::bind(LOOPBACK).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(socket.recv_from(&mut [0; 8]).unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_broken_connection_is_told_to_who_waits() {
    let _watch = watchdog!();
    let pool = pool(2);
    for wait_first in [true, false] {
        let (one, other) = connected();
        let waits = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&waits);
        let reader = pool.spawn_on(0, move || {
            told.store(true, Ordering::SeqCst);
            (&one).read(&mut [0; 8]).map_err(|error| error.kind())
        });
        if wait_first {
            serve_until(|| waits.load(Ordering::SeqCst));
        }
        // Closing with this option resets the connection.
        rustix::net::sockopt::set_socket_linger(other.as_fd(), Some(Duration::ZERO)).unwrap();
        drop(other);
        assert_eq!(reader.join().unwrap(), Err(ErrorKind::ConnectionReset));
    }
    let (_held, refused) = address_without_listener();
    let connect = move || TcpStream::connect(refused).map(|_| ()).map_err(|error| error.kind());
    assert_eq!(pool.spawn(connect).join().unwrap(), Err(ErrorKind::ConnectionRefused));
    let soon = limits::HANG;
    let connect = move || TcpStream::connect_timeout(&refused, soon).map(|_| ()).map_err(|error| error.kind());
    assert_eq!(pool.spawn(connect).join().unwrap(), Err(ErrorKind::ConnectionRefused));
}

#[test]
fn waits_are_ended_from_elsewhere() {
    let _watch = watchdog!();
    let pool = pool(2);
    let (one, _other) = connected();
    let one = Arc::new(one);
    let waiting = Arc::clone(&one);
    let reader = pool.spawn_on(0, move || (&*waiting).read(&mut [0; 8]).unwrap());
    let ending = Arc::clone(&one);
    pool.spawn_on(1, move || ending.shutdown(Shutdown::Both).unwrap()).join().unwrap();
    assert_eq!(reader.join().unwrap(), 0);
    let listener = Arc::new(TcpListener::bind(LOOPBACK).unwrap());
    let waiting: Vec<_> = (0..4)
        .map(|fiber| {
            let listener = Arc::clone(&listener);
            pool.spawn_on(fiber % 2, move || listener.accept().map(|_| ()).map_err(|error| error.kind()))
        })
        .collect();
    listener.close().unwrap();
    for fiber in waiting {
        assert_eq!(fiber.join().unwrap(), Err(ErrorKind::NotConnected));
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(listener.incoming().count(), 0);
}

#[test]
fn trap_01_calls_that_may_wait_panic_in_delegated_closures() {
    let _watch = watchdog!();
    let (one, _other) = connected();
    let property = local_trustee().entrust(one);
    match property.call().apply(|connection| connection.read(&mut [0; 8]).is_ok()).wait() {
        Err(Error::Panicked { panic, .. }) => assert!(panic.contains("`read`") && panic.contains("waits"), "{panic}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn udp_datagrams_arrive_whole() {
    let _watch = watchdog!();
    let pool = pool(2);
    let server = UdpSocket::bind(LOOPBACK).unwrap();
    let address = server.local_addr().unwrap();
    let server = pool.spawn_on(0, move || {
        let mut datagram = [0; 1500];
        loop {
            let (bytes, from) = server.recv_from(&mut datagram).unwrap();
            if bytes == 0 {
                return;
            }
            server.send_to(&datagram[..bytes], from).unwrap();
        }
    });
    let clients: Vec<_> = (1..20usize)
        .map(|client| {
            pool.spawn(move || {
                let socket = UdpSocket::bind(LOOPBACK).unwrap();
                socket.connect(address).unwrap();
                assert_eq!(socket.peer_addr().unwrap(), address);
                let mut datagram = [0; 1500];
                for round in 1..20 {
                    let sent = vec![client as u8; client * round];
                    assert_eq!(socket.send(&sent).unwrap(), sent.len());
                    assert_eq!(socket.peek_from(&mut datagram).unwrap(), (sent.len(), address));
                    let bytes = socket.recv(&mut datagram).unwrap();
                    assert_eq!(&datagram[..bytes], sent);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    UdpSocket::bind(LOOPBACK).unwrap().send_to(&[], address).unwrap();
    server.join().unwrap();
}

#[test]
fn a_plain_thread_that_waits_serves_its_trustee() {
    let _watch = watchdog!();
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        let counter = local_trustee().entrust(0);
        let listener = TcpListener::bind(LOOPBACK).unwrap();
        send.send((counter.clone(), listener.local_addr().unwrap())).unwrap();
        let (connection, _) = listener.accept().unwrap();
        ask(&connection, 3);
        counter.apply(|c| *c)
    });
    let (counter, address) = receive.recv().unwrap();
    assert_eq!(
        counter.apply(|c| {
            *c += 1;
            *c
        }),
        1,
        "served while it waits for a connection"
    );
    let connection = TcpStream::connect(address).unwrap();
    assert_eq!(
        counter.apply(|c| {
            *c += 1;
            *c
        }),
        2,
        "served while it waits for bytes"
    );
    echo_once(&connection);
    drop(counter);
    assert_eq!(join_and_serve(thread), 2);
}

fn echo_once(mut connection: &TcpStream) {
    let mut bytes = [0; 8];
    connection.read_exact(&mut bytes).unwrap();
    connection.write_all(&bytes).unwrap();
}

/// Sleeps as the workers of a rack program do: out of reach of the poller for sockets.
#[derive(Default)]
struct Elsewhere {
    woken: Mutex<bool>,
    wake: Condvar,
    sleeps: Arc<AtomicUsize>,
}

// SAFETY: neither function calls the library.
unsafe impl trust::link::Waker for Elsewhere {
    fn park(&self, limit: Option<Duration>, is_idle: &mut dyn FnMut() -> bool) {
        let woken = self.woken.lock().unwrap();
        if !*woken && is_idle() {
            self.sleeps.fetch_add(1, Ordering::SeqCst);
            let limit = limit.unwrap_or(Duration::from_secs(3600));
            *self.wake.wait_timeout_while(woken, limit, |woken| !*woken).unwrap().0 = false;
        } else {
            drop(woken);
            *self.woken.lock().unwrap() = false;
        }
    }
    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.wake.notify_one();
    }
}

#[test]
fn workers_that_sleep_elsewhere_are_woken_for_their_sockets() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(2).pin(false).spin(Duration::ZERO).build();
    let sleeps = Arc::new(AtomicUsize::new(0));
    for worker in 0..2 {
        let waker = Elsewhere { sleeps: Arc::clone(&sleeps), ..Elsewhere::default() };
        pool.spawn_on(worker, move || trust::link::attach(None, Some(Box::new(waker)))).join().unwrap();
    }
    let (listener, address, server) = serve(&pool);
    let client = pool.spawn_on(1, move || {
        let connection = TcpStream::connect(address).unwrap();
        // One at a time, so that both find nothing to do in between.
        (0..1_000).for_each(|number| ask(&connection, number));
    });
    client.join().unwrap();
    let mut connection = std::net::TcpStream::connect(address).unwrap();
    for _ in 0..50 {
        // After any end of the last sleep, the next one is ended by this.
        let slept = sleeps.load(Ordering::SeqCst);
        connection.write_all(&[1]).unwrap();
        connection.read_exact(&mut [0]).unwrap();
        serve_until(|| sleeps.load(Ordering::SeqCst) > slept);
    }
    drop(connection);
    listener.close().unwrap();
    assert_eq!(server.join().unwrap(), 2);
}

#[test]
fn without_files_accept_says_so_and_goes_on_later() {
    let _watch = watchdog!();
    if !common::is_child() {
        let output = common::run_child("without_files_accept_says_so_and_goes_on_later");
        return assert!(output.status.success(), "{}", common::stderr(&output));
    }
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    // The worker has its poller from here on.
    let client = TcpStream::connect(address).unwrap();
    let server = listener.accept().unwrap().0;
    let waiting = TcpStream::connect(address).unwrap();
    let mut files = Vec::new();
    let limit = common::descriptors() as u64 + 5;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..getrlimit(Resource::Nofile) }).unwrap();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        files.push(file);
    }
    let error = listener.accept().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(24), "{error}");
    assert!(error.to_string().contains("Too many open files"), "{error}");
    drop(files);
    let accepted = listener.accept().unwrap().0;
    accepted.shutdown(Shutdown::Both).unwrap();
    assert_eq!((&waiting).read(&mut [0; 8]).unwrap(), 0);
    let echoing = trust::spawn(move || echo(server));
    ask(&client, 9);
    drop(client);
    echoing.join().unwrap();
}

/// A fiber that waits for a socket has begun: its thread cannot end without it.
#[test]
fn trap_06_a_thread_ends_with_fibers_that_wait_for_sockets() {
    let _watch = watchdog!();
    if common::is_child() {
        let (one, _other) = connected();
        let thread = thread::spawn(move || {
            drop(trust::spawn(move || (&one).read(&mut [0; 8]).unwrap()));
            trust::yield_now();
        });
        let _ = thread.join();
        return;
    }
    let output = common::run_child("trap_06_a_thread_ends_with_fibers_that_wait_for_sockets");
    let said = common::stderr(&output);
    assert!(output.status.code().is_none() && said.contains("fibers in the middle of their code"), "{said}");
}
