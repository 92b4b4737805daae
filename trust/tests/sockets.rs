//! Kernel events of sockets, and their gaps: reads and writes that end early although more can go, and descriptors that
//! share a socket.

mod common;

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use trust::Threadpool;
use trust::net::{TcpListener, TcpStream, UdpSocket};

const LOOPBACK: &str = "127.0.0.1:0";

/// A connection to a socket of the standard library's, begun or accepted by the fiber's side.
fn connected(accepts: bool) -> (TcpStream, std::net::TcpStream) {
    if accepts {
        let listener = TcpListener::bind(LOOPBACK).unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, peer)
    } else {
        let listener = std::net::TcpListener::bind(LOOPBACK).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    }
}

/// Reads this many lines, into two buffers at a time if `vectored`.
fn read_lines(mut stream: &TcpStream, vectored: bool, times: usize) -> Vec<u8> {
    let mut lines = Vec::new();
    while lines.iter().filter(|byte| **byte == b'\n').count() < times {
        let (mut one, mut two) = ([0; 50], [0; 50]);
        let n = if vectored {
            stream.read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]).unwrap()
        } else {
            stream.read(&mut one).unwrap()
        };
        assert!((1..50).contains(&n), "{n}");
        eprintln!("read {:?}", std::str::from_utf8(&one[..n]));
        lines.extend_from_slice(&one[..n]);
    }
    lines
}

#[test]
fn urgent_data_does_not_end_what_a_fiber_reads() {
    let _watch = watchdog!();
    for (accepts, vectored, times) in [(false, false, 1), (true, false, 3), (false, true, 1), (true, true, 2)] {
        let (stream, mut peer) = connected(accepts);
        let reader = trust::spawn(move || read_lines(&stream, vectored, times));
        trust::yield_now();
        // The worker looks at its sockets when all of it is there.
        for _ in 0..times {
            peer.write_all(b"abc").unwrap();
            send(&peer, b"!", SendFlags::OOB).unwrap();
            peer.write_all(b"def\n").unwrap();
        }
        let lines = String::from_utf8(reader.join().unwrap()).unwrap();
        // All but the last urgent byte may come among the others.
        assert_eq!(lines.replace('!', ""), "abcdef\n".repeat(times));
    }
}

#[test]
fn vectored_calls_of_more_buffers_than_the_system_takes_at_once_go_on() {
    const BYTES: usize = 5000;
    let _watch = watchdog!();
    let (stream, mut peer) = connected(true);
    let reader = trust::spawn(move || {
        let mut stream = stream;
        let mut bytes = vec![0; BYTES];
        let mut done = 0;
        while done < BYTES {
            let mut buffers: Vec<_> = bytes[done..].chunks_mut(1).map(IoSliceMut::new).collect();
            done += stream.read_vectored(&mut buffers).unwrap();
        }
        // The worker knows the socket by now, for the first read has waited.
        let mut written = 0;
        while written < BYTES {
            let buffers: Vec<_> = bytes[written..].chunks(1).map(IoSlice::new).collect();
            written += stream.write_vectored(&buffers).unwrap();
        }
        stream
    });
    trust::yield_now();
    let sent: Vec<u8> = (0..BYTES).map(|n| n as u8).collect();
    peer.write_all(&sent).unwrap();
    let stream = reader.join().unwrap();
    let mut received = vec![0; BYTES];
    peer.read_exact(&mut received).unwrap();
    assert_eq!(received, sent);
    drop(stream);
}

/// Asks over a clone of a connection, waiting for the answer.
fn ask(connection: &std::net::TcpStream, number: u8) {
    let mut stream = TcpStream::from_std(connection.try_clone().unwrap()).unwrap();
    stream.write_all(&[number]).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [number]);
}

/// A connection whose peer answers each byte when a fiber waits for it.
fn echoing() -> std::net::TcpStream {
    let listener = std::net::TcpListener::bind(LOOPBACK).unwrap();
    let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    std::thread::spawn(move || {
        let mut byte = [0];
        while peer.read(&mut byte).unwrap_or(0) > 0 {
            // So that the asking fiber waits, mostly.
            std::thread::sleep(Duration::from_millis(5));
            peer.write_all(&byte).unwrap();
        }
    });
    connection
}

#[test]
fn clones_of_a_connection_are_used_one_after_the_other() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(2).pin(false).build();
    let kept = Arc::new(echoing());
    for number in 0..10 {
        // On the thread's own stack, in a fiber, and on other workers, each again and again.
        ask(&kept, number);
        let (here, there) = (Arc::clone(&kept), Arc::clone(&kept));
        trust::spawn(move || ask(&here, number)).join().unwrap();
        pool.spawn_on(usize::from(number % 2), move || ask(&there, number)).join().unwrap();
    }
}

#[test]
fn a_clone_that_another_thread_drops_is_forgotten_too() {
    let _watch = watchdog!();
    let pool = Threadpool::builder().workers(1).pin(false).build();
    let kept = Arc::new(echoing());
    for number in 0..10 {
        let stream = Arc::new(TcpStream::from_std(kept.try_clone().unwrap()).unwrap());
        let there = Arc::clone(&stream);
        let asks = pool.spawn_on(0, move || {
            let mut stream = &*there;
            stream.write_all(&[number]).unwrap();
            stream.read_exact(&mut [0]).unwrap();
        });
        asks.join().unwrap();
        // Not by the worker that has waited for it.
        std::thread::spawn(move || drop(stream)).join().unwrap();
    }
}

#[test]
fn clones_of_a_datagram_socket_are_used_one_after_the_other() {
    let _watch = watchdog!();
    let kept = std::net::UdpSocket::bind(LOOPBACK).unwrap();
    let address = kept.local_addr().unwrap();
    for number in 0..10u8 {
        let socket = UdpSocket::from_std(kept.try_clone().unwrap()).unwrap();
        let receiver = trust::spawn(move || {
            let mut datagram = [0];
            socket.recv_from(&mut datagram).unwrap();
            datagram
        });
        trust::yield_now();
        UdpSocket::bind(LOOPBACK).unwrap().send_to(&[number], address).unwrap();
        assert_eq!(receiver.join().unwrap(), [number]);
    }
}
