//! `--durable`: answered changes are there when kv is started again, however it ended.

use std::collections::HashMap;
use std::path::Path;

use rustix::process::Signal;

use super::servers::{Client, Server};

fn server(folder: &Path, more: &str, machines: usize) -> Server {
    Server::kv(&format!("--threads 2 --durable {} {more}", folder.display()), machines)
}

#[test]
fn commands_do_what_they_do_without_it_and_last() {
    for machines in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let mut server = server(folder.path(), "--memory 8", machines);
        let mut client = server.connect(machines - 1);
        let large = "v".repeat(300_000);
        for (request, reply) in [
            ("set a 7 0 1\r\n1", "STORED"),
            ("add a 0 0 1\r\n2", "NOT_STORED"),
            ("replace b 0 0 1\r\n2", "NOT_STORED"),
            ("append a 0 0 2\r\n23", "STORED"),
            ("prepend a 0 0 1\r\n0", "STORED"),
            ("incr a 1", "124"),
            ("decr a 200", "0"),
            ("incr b 1", "NOT_FOUND"),
            ("touch a 0", "TOUCHED"),
            ("set gone 0 -1 1\r\nx", "STORED"),
            ("set b 0 0 1\r\nx", "STORED"),
            ("delete b", "DELETED"),
            (&format!("set large 0 0 {}\r\n{large}", large.len()), "STORED"),
        ] {
            assert_eq!(client.ask(request), reply, "{}", &request[..request.len().min(40)]);
        }
        assert_eq!(client.ask("gats 0 a"), "VALUE a 7 4 5");
        client.send(b"quit\r\n");
        drop(client);
        assert_eq!(server.say(b"get a b gone\r\n"), b"VALUE a 7 4\r\n0   \r\nEND\r\n");
        let mut client = server.connect(0);
        let full = (0..40).any(|n| {
            client.ask(&format!("set full{n} 0 0 {}\r\n{large}", large.len()))
                == "SERVER_ERROR out of memory storing object"
        });
        assert!(full, "8 MiB are not enough for 12 MB");
        assert_eq!(client.ask("set a 1 0 2\r\nab"), "STORED");
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
        let server = self::server(folder.path(), "--memory 8", machines);
        assert_eq!(server.say(b"get a\r\n"), b"VALUE a 1 2\r\nab\r\nEND\r\n");
        assert_eq!(server.connect(0).ask("get large"), "VALUE large 0 300000");
        assert_eq!(server.say(b"flush_all\r\nget a large\r\n"), b"OK\r\nEND\r\n");
    }
}

/// Sends sets of a client's keys, many at a time, and returns the least that was stored of each key when the server
/// dies.
fn store(mut client: Client, name: u32, from: u64, rounds: u64) -> HashMap<String, u64> {
    let mut stored = HashMap::new();
    for round in from..from + rounds {
        let keys: Vec<String> = (0..32).map(|key| format!("{name}-{key}")).collect();
        let burst: String = keys.iter().map(|key| format!("set {key} 0 0 8\r\n{round:08}\r\n")).collect();
        client.send(burst.as_bytes());
        for key in keys {
            assert_eq!(client.line(), "STORED");
            stored.insert(key, round);
        }
    }
    stored
}

#[test]
fn what_was_stored_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut least: HashMap<String, u64> = HashMap::new();
    for kill in 0..6u64 {
        let mut server = server(folder.path(), "", 1);
        for (key, round) in &least {
            let mut client = server.connect(0);
            assert_eq!(client.ask(&format!("get {key}")), format!("VALUE {key} 0 8"));
            let found: u64 = client.line().parse().unwrap();
            // One more of each may have come to the disk unheard.
            assert!((*round..=round + 1).contains(&found), "{key}: {found}, and {round} was acknowledged");
        }
        let clients: Vec<_> = (0..3).map(|name| (name, server.connect(0))).collect();
        let storing: Vec<_> = clients
            .into_iter()
            .map(|(name, client)| std::thread::spawn(move || store(client, name, 1 + kill * 100, 5 + kill * 3)))
            .collect();
        for client in storing {
            least.extend(client.join().unwrap());
        }
        // In the middle of others, which are not answered.
        let mut client = server.connect(0);
        client.send(&b"set other 0 0 5\r\nvalue\r\n".repeat(50));
        assert_eq!(client.line(), "STORED");
        server.signal(Signal::KILL);
        server.wait();
        least.values_mut().for_each(|round| assert!(*round > kill * 100));
    }
}

#[test]
fn within_answers_at_once_and_an_orderly_end_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), "--within 60000", 1);
    let mut client = server.connect(0);
    for n in 0..500 {
        assert_eq!(client.ask(&format!("set key 0 0 3\r\n{n:03}")), "STORED");
    }
    assert!(server.stat("groups") < 50, "{} groups", server.stat("groups"));
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    let server = self::server(folder.path(), "", 1);
    assert_eq!(server.say(b"get key\r\n"), b"VALUE key 0 3\r\n499\r\nEND\r\n");
}
