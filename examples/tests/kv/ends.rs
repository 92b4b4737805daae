//! How it ends, and its messages when it cannot begin.

use std::net::TcpListener;
use std::process::Command;

use rustix::process::Signal;

use super::servers::Server;

#[test]
fn it_ends_in_order_when_it_is_told_to() {
    for (machines, signal) in [(1, Signal::INT), (1, Signal::TERM), (2, Signal::TERM)] {
        let mut server = Server::kv("--threads 2", machines);
        let mut idle = server.connect(0);
        assert_eq!(idle.ask("set a 0 0 1\r\n1"), "STORED");
        let mut busy = server.connect(machines - 1);
        busy.send(&b"get a\r\n".repeat(10_000));
        assert_eq!(busy.line(), "VALUE a 0 1");
        server.signal(signal);
        let replies = busy.rest();
        assert!(replies.ends_with(b"END\r\n"), "no half replies: {}", String::from_utf8_lossy(&replies));
        assert_eq!(idle.rest(), b"");
        assert_eq!(server.wait().code(), Some(0), "{machines} machines, {signal:?}");
    }
}

#[test]
fn clients_that_do_not_read_do_not_hold_it_up() {
    let mut server = Server::kv("--threads 2", 1);
    let mut client = server.connect(0);
    assert_eq!(client.ask(&format!("set a 0 0 100000\r\n{}", "v".repeat(100_000))), "STORED");
    client.send(&b"get a\r\n".repeat(1000));
    assert_eq!(client.line(), "VALUE a 0 100000");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

fn refused(arguments: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kv")).args(arguments.split_whitespace()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn it_says_why_it_cannot_begin() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = refused(&format!("--port {port} --threads 1"));
    assert!(said.contains(&port.to_string()) && said.contains("another --port"), "{said}");
    let said = refused(&format!("--port {port} --threads 2 --local 2"));
    assert!(said.contains("another --port"), "{said}");
    let said = refused("--listen 192.0.2.1 --threads 1");
    assert!(said.contains("192.0.2.1") && said.contains("--listen"), "{said}");
    let said = refused("--port 0 --threads 2 --dedicated 2");
    assert!(said.contains("--dedicated 2") && said.contains("--threads"), "{said}");
    let said = refused("--port 0 --threads 2 --local 4");
    assert!(said.starts_with("kv: --threads 2 is not enough for 4 processes"), "{said}");
    let said = refused("--port 0 --threads 1 --durable /proc/kv");
    assert!(said.contains("/proc/kv: cannot open the folder"), "{said}");
}
