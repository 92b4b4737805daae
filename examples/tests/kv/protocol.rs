//! Clients send in pieces of any size, and not always by the protocol.

use gossamer_examples::kv::request::{Line, Request, first_line, parse};
use proptest::prelude::*;

use super::servers::Server;

const SESSION: &str = "set a 1 0 5\r\nhello\r\nget a b\r\nset b 0 0 0 noreply\r\n\r\ngets b a\r\nappend a 0 0 \
                       2\r\n\r\n\r\nincr a 1\r\nnonsense\r\nset n 0 0 2\r\n41\r\nincr n 1\r\ndecr n 50\r\nget n \
                       a\r\ndelete n\r\ntouch a 0\r\ndelete a\r\ndelete b\r\nget a\r\n";

#[test]
fn requests_may_come_in_pieces() {
    let server = Server::kv("--threads 2", 1);
    let whole = server.say(SESSION.as_bytes());
    assert!(whole.ends_with(b"DELETED\r\nEND\r\n"), "{}", String::from_utf8_lossy(&whole));
    let without_unique = |replies: Vec<u8>| {
        let text = String::from_utf8(replies).unwrap();
        text.lines()
            .map(|line| if line.starts_with("VALUE") { &line[..11] } else { line })
            .collect::<Vec<_>>()
            .join("\n")
    };
    let whole = without_unique(whole);
    for split in 1..SESSION.len() {
        let mut client = server.connect(0);
        let (first, second) = SESSION.as_bytes().split_at(split);
        client.send(first);
        assert_eq!(without_unique(client.say(second)), whole, "split at {split}");
    }
    let mut client = server.connect(0);
    let (last, most) = SESSION.as_bytes().split_last().unwrap();
    for byte in most {
        client.send(&[*byte]);
    }
    assert_eq!(without_unique(client.say(&[*last])), whole, "byte by byte");
}

#[test]
fn a_line_is_whole_or_waited_for_or_unusable() {
    let whole = |bytes| match first_line(bytes) {
        Line::Whole(line, taken) => (line, taken),
        other => panic!("{other:?}"),
    };
    assert_eq!(whole(b"get a\r\nget b\r\n"), (&b"get a"[..], 7));
    assert_eq!(whole(b"get a\nget b\r\n"), (&b"get a"[..], 6));
    assert_eq!(whole(b"\r\n"), (&b"\r"[..], 2));
    for waited_for in [&b""[..], b"get a\r", &[b'x'; 2048], &[&b"get "[..], &[b'k'; 5000]].concat()] {
        assert!(matches!(first_line(waited_for), Line::Incomplete));
    }
    for unusable in
        [&[b'x'; 2049][..], &[&b"set "[..], &[b'k'; 5000]].concat(), &[&b"get "[..], &[b'k'; 2 << 20]].concat()]
    {
        assert!(matches!(first_line(unusable), Line::Unusable));
    }
    // Requests in the binary protocol, with any bytes.
    for binary in [&b"\x80"[..], b"\x80\0\0\x01k", b"\x80\x01\r\n", b"\x80\0\0\x0a\0\0\0\0\0\0\0\x0a"] {
        assert!(matches!(first_line(binary), Line::Unusable), "{binary:?}");
    }
    assert_eq!(whole(b"x\x80\n"), (&b"x\x80"[..], 3));
}

/// It would wait for ever otherwise.
#[test]
fn a_client_of_the_binary_protocol_hears_at_once() {
    let server = Server::kv("--threads 1", 1);
    let get = [&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 12], b"k"].concat();
    // With a key of ten bytes: its length is the byte of a line's end.
    let long = [&[0x80, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 10][..], &[0; 12], b"0123456789"].concat();
    for request in [get, long] {
        let mut client = server.connect(0);
        client.send(&request);
        assert_eq!(client.rest(), b"", "closed without an answer");
    }
}

/// libmemcached reads the version first, and takes none that begins with 0.
#[test]
fn tools_of_libmemcached_work() {
    use std::process::{Command, Stdio};
    if !Command::new("memcping").arg("--help").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return println!("SKIPPED: memcping and its like are not installed (libmemcached-tools)");
    }
    let server = Server::kv("--threads 2", 1);
    assert_eq!(server.say(b"set one 0 0 1\r\n1\r\nset two 0 100 5\r\nvalue\r\n"), b"STORED\r\nSTORED\r\n");
    let tool = |name: &str, argument: Option<&str>| {
        let servers = format!("--servers={}", server.addresses[0]);
        let output = Command::new(name).arg(servers).args(argument).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    tool("memcping", None);
    assert!(tool("memcstat", None).contains("curr_items: 2"));
    let dumped = tool("memcdump", None);
    let mut dumped: Vec<&str> = dumped.lines().collect();
    dumped.sort_unstable();
    assert_eq!(dumped, ["one", "two"]);
    assert_eq!(tool("memccat", Some("two")).trim(), "value");
    tool("memcexist", Some("one"));
    tool("memcflush", None);
    assert_eq!(server.say(b"get one two\r\n"), b"END\r\n");
}

/// The system asks a client's host that says nothing whether it is there.
#[test]
fn sockets_of_clients_are_kept_alive() {
    let server = Server::kv("--threads 2", 1);
    let mut client = server.connect(0);
    assert_eq!(client.ask("get k"), "END");
    let port = format!(":{:04X}", server.addresses[0].port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // The server's end, established; the timer is the sixth field: 02 for keep-alive.
    let is_servers = |fields: &Vec<&str>| fields[1].ends_with(&port) && fields[3] == "01";
    let ends: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let timers: Vec<&str> = ends.iter().filter(|fields| is_servers(fields)).map(|fields| &fields[5][..2]).collect();
    assert_eq!(timers, ["02"]);
}

/// As clients sum them up, by their names in memcached.
#[test]
fn traffic_is_counted() {
    let server = Server::kv("--threads 2", 1);
    let read = |name| server.stat(name);
    assert_eq!(read("bytes_read"), "stats\r\n".len() as u64);
    assert!(read("connection_structures") >= 1 && read("bytes_written") > 500);
    server.say(&[&b"set a 0 0 50000\r\n"[..], &[b'x'; 50000], b"\r\nget a\r\n"].concat());
    let (came, went) = (read("bytes_read"), read("bytes_written"));
    assert!((50_000..52_000).contains(&came) && (50_000..60_000).contains(&went), "{came} {went}");
    server.say(b"stats reset\r\n");
    assert!(read("bytes_read") < 100 && read("bytes_written") < 3000);
}

/// The one thing in which `kv` follows memcached's older versions, and libmemcached's tests, not memcached 1.6.
#[test]
fn version_and_quit_stand_alone() {
    let server = Server::kv("--threads 1", 1);
    let script = "version foo\r\nquit foo bar\r\nversion noreply\r\nquit noreply\r\nversion  x\r\nversion \r\n quit \
                  \r\nversion\r\n";
    let said = String::from_utf8(server.say(script.as_bytes())).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..5], ["ERROR"; 5], "{said}");
    // Spaces are no words; and `quit` has ended the connection.
    assert!(lines.len() == 6 && lines[5].starts_with("VERSION "), "{said}");
}

proptest! {
    #[test]
    fn no_line_is_too_strange(line in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&line);
        let _ = first_line(&line);
    }

    #[test]
    fn strange_words_behind_a_name_are_refused_or_understood(
        name in "(get|gets|gat|set|cas|append|incr|touch|delete|flush_all|verbosity|cache_memlimit|stats)",
        words in prop::collection::vec("[ -~]{0,12}", 0..7),
    ) {
        let line = format!("{name} {}", words.join(" "));
        if let Request::Store { command, value_bytes, .. } = parse(line.as_bytes()) {
            prop_assert!(command.key.len() <= 250 && value_bytes < 1 << 31);
        }
    }
}
