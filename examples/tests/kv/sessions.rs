//! Sessions over every command, with good and bad input: `kv` on one machine and on two, and memcached, give the same
//! replies.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::servers::{Client, Server};

/// Each is a connection of its own; they build on each other.
fn script() -> Vec<Vec<u8>> {
    let long = |count: usize| "k".repeat(count);
    let mut script: Vec<Vec<u8>> = SCRIPT.lines().map(|line| line.replace("|", "\r\n").into_bytes()).collect();
    let lines = [
        format!("get {}|", long(250)),
        format!("get {}|", long(251)),
        format!("get a {}|", long(251)),
        format!("get a {} a|", long(251)),
        format!("gat 10 {}|", long(251)),
        format!("set {0} 0 0 1|x|get {0}|", long(250)),
        format!("set {0} 0 0 100|{1}|get {0} {0}|", long(120), "v".repeat(100)),
        format!("set {} 0 0 1|x|", long(251)),
        format!("delete {}|", long(251)),
        format!("touch {} 0|", long(251)),
        format!("incr {} 1|", long(251)),
        format!("get {}|", (0..100).map(|key| format!("k{key} ")).collect::<String>()),
        "x".repeat(2000) + "|",
        "x".repeat(3000),
        format!("get {}|", "k ".repeat(5000)),
    ];
    script.extend(lines.map(|line| line.replace('|', "\r\n").into_bytes()));
    let value = |bytes: usize| "v".repeat(bytes);
    let large = [
        format!("set b 0 0 1000000|{}|get b|", value(1_000_000)),
        format!("append b 0 0 100000|{}|", value(100_000)),
        "get b|get a|gets b|delete b|get b b b|".to_owned(),
        format!("set b 0 0 1|x|set b 0 0 1048577|{}|get b|", value(1_048_577)),
        format!("set b 0 0 1|x|add b 0 0 2000000|{}|get b|", value(2_000_000)),
        format!("set b 0 0 2000000 noreply|{}|get b|", value(2_000_000)),
        format!("set b 3 0 300|{0}|append b 0 0 300|{0}|prepend b 0 0 30|{1}|get b|", value(300), "w".repeat(30)),
    ];
    script.extend(large.map(|line| line.replace('|', "\r\n").into_bytes()));
    script
}

/// `|` stands for the end of a line.
const SCRIPT: &str = "\
get|
get a|
set a 5 0 3|abc|get a|get a a b a|gets a b|
set a 0 0 3 noreply|xyz|get a|
set a 0 0|
set a 0 0 3 noreply x|
set a x 0 3|abc|
set a 0 x 3|abc|
set a 0 0 x|abc|
set a 0 0 -1|abc|
set a -1 0 3|abc|
set a 4294967295 0 3|abc|get a|
set a 4294967296 0 3|abc|get a|
set a 0 2147483648 3|abc|
set a 0 0 3|abcd|get a|
set a 0 0 3|ab|get a||
set a 0 0 3|abcde|versio|
set a 0 0 0||get a|
set a 0 0 5|ab|c|get a|
set a +1 +0 +1|x|get a|
set a 0x10 0 1|x|
set a 07 0 01|x|get a|
set a 0 0 1 |x|get a|
set a 1 2 3 4 5 6 7 8 9 10 11|
add a 0 0 1|x|add bb 0 0 1|y|get a bb|
replace zz 0 0 1|x|replace a 0 0 1|r|get a|
append zz 0 0 1|x|append a 7 0 1|q|prepend a 0 0 1|p|prepend zz 0 0 1|p|get a|
cas a 0 0 1 999999|x|cas zz 0 0 1 1|x|
cas a 0 0 1|x|
cas a 0 0 1 x|x|
cas a 0 0 1 1 noreply|x|get a|
set n 0 0 2|10|decr n 1|get n|incr n 95|get n|incr n 18446744073709551615|decr n 1000|get n|
incr n x|incr n -1|incr zz 1|decr zz 1|incr n|incr n 1 2|incr n 1 2 3|
incr n 1 noreply|get n|
set n 0 0 2|10|decr n 1 noreply|get n|
set s 0 0 3|abc|incr s 1|decr s 1|
set s 0 0 0||incr s 1|
set s 0 0 5|12 ab|incr s 1|get s|
set s 0 0 3| 12|incr s 1|get s|
set s 0 0 21|100000000000000000000|incr s 1|
set s 0 0 25|0000000000000000000000012|incr s 1|get s|
incr n 18446744073709551616|incr n 1x|
delete a|delete a|
set a 0 0 1|x|delete a 0|
set a 0 0 1|x|delete a 5|
delete a noreply|get a|
delete a 0 noreply|
delete a b c d|
delete a 0 x|
delete a 5 noreply|
delete|
touch a 10|
set a 0 0 1|x|touch a 10|touch a x|touch a|touch a 0 noreply|get a|touch a -1|get a|
set a 9 0 1|x|gat 10 a b|gats|gat 10|gat x a|gat 0 a a|
set a 0 -1 1|x|get a|
set a 0 2592001 1|x|get a|
set a 0 4000000000 1|x|get a|
set a 0 2147483647 1|x|get a|
set noreply 0 0 1|x|get noreply|incr noreply 1|delete noreply|
delete noreply noreply|get noreply|
set a 0 0 noreply|
set x 0 0 1 norepl|y|
verbosity|
verbosity x|
verbosity 0 noreply|
verbosity 0 2|
verbosity 0 2 3|
verbosity noreply|
verbosity 0|
stats reset|
stats foo|
cache_memlimit|
cache_memlimit x|
cache_memlimit 1|
cache_memlimit 2000000000|
cache_memlimit 64|
cache_memlimit 64 noreply|
 |
x|
xx|
GET a|
get  a  |
 get a|
ge a|
g|
xget|
bget a|
set|
mn|
shutdown|
quit|get a|
GET / HTTP/1.1|
set a 0 0 1|x|flush_all 100|get a|
flush_all|get a|
set a 0 0 1|x|get a|
flush_all 0|
flush_all noreply|
flush_all x|
flush_all 1 2 3|
flush_all x noreply|
flush_all 0 noreply|flush_all|
flush_all -1|
flush_all|get a|";

/// Replaces the unique numbers, which each server chooses as it likes.
fn without_uniques(replies: &[u8]) -> String {
    let text = String::from_utf8_lossy(replies).into_owned();
    let line = |line: &str| {
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        if words.len() == 5 && words[0] == "VALUE" {
            format!("{} UNIQUE", words[..4].join(" "))
        } else {
            line.to_owned()
        }
    };
    text.split_inclusive('\n').map(line).collect()
}

fn compare(kv: &Server, memcached: &Server, script: &[Vec<u8>]) {
    for (index, bytes) in script.iter().enumerate() {
        let kv = Client::to(kv.addresses[index % kv.addresses.len()]).say(bytes);
        let memcached = memcached.say(bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        assert_eq!(without_uniques(&kv), without_uniques(&memcached), "in answer to {shown:?}");
    }
}

#[test]
fn every_command_is_answered_as_by_memcached() {
    let Some(memcached) = Server::memcached() else { return };
    compare(&Server::kv("--threads 2", 1), &memcached, &script());
}

#[test]
fn every_command_is_answered_as_by_memcached_across_machines() {
    let Some(memcached) = Server::memcached() else { return };
    compare(&Server::kv("--threads 2", 2), &memcached, &script());
}

#[test]
fn dedicated_workers_answer_as_memcached_does() {
    let Some(memcached) = Server::memcached() else { return };
    compare(&Server::kv("--threads 3 --dedicated 2", 1), &memcached, &script());
}

/// A line of words that make sense, in an order that mostly does not.
fn random_request(random: &mut StdRng) -> Vec<u8> {
    const NAMES: [&str; 15] = [
        "get",
        "gets",
        "set",
        "add",
        "replace",
        "append",
        "prepend",
        "cas",
        "incr",
        "touch",
        "delete",
        "gat",
        "gats",
        "verbosity",
        "nonsense",
    ];
    const WORDS: [&str; 13] =
        ["a", "b", "c", "0", "1", "2", "3", "-1", "x", "18446744073709551615", "noreply", "7", "40"];
    const TIMES: [&str; 7] = ["0", "0", "0", "-1", "1000", "x", "noreply"];
    let name = NAMES[random.random_range(0..NAMES.len())];
    let mut line = name.to_owned();
    // Mostly as many words as the command has.
    let usual = match name {
        "set" | "add" | "replace" | "append" | "prepend" => 4,
        "cas" => 5,
        "incr" | "touch" | "gat" => 2,
        _ => 1,
    };
    let count = if random.random_bool(0.8) { usual } else { random.random_range(0..7) };
    for place in 0..count {
        // Times that are over or far away, and no unique number that one of the servers may have given.
        let words = match (name, place) {
            ("gat" | "gats", 0) | ("touch", 1) => &TIMES[..],
            (_, 2) if usual >= 4 => &TIMES[..],
            // None by which a number gets shorter: memcached fills it up with spaces, but not while a reply has the
            // item.
            ("incr", 1) => &["1", "7", "x", "-1", "noreply"],
            ("cas", 4) => &["0", "x", "999999999"],
            (_, 0) => &WORDS[..3],
            _ => &WORDS[..],
        };
        line += " ";
        line += words[random.random_range(0..words.len())];
    }
    line += if random.random_bool(0.9) { "\r\n" } else { "\n" };
    if usual >= 4 {
        let bytes = random.random_range(0..4);
        line += &"7".repeat(bytes);
        line += "\r\n";
    }
    line.into_bytes()
}

#[test]
fn random_requests_are_answered_as_by_memcached() {
    let Some(memcached) = Server::memcached() else { return };
    let seed = std::env::var("GOSSAMER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("GOSSAMER_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    // Lines at the end complete an unfinished block of data: with half a request memcached drops replies that wait to
    // be sent.
    let end = b"x\r\n".repeat(40);
    let mut session = || {
        let requests = random.random_range(1..40);
        let mut session: Vec<u8> = (0..requests).flat_map(|_| random_request(&mut random)).collect();
        session.extend_from_slice(&end);
        session
    };
    let sessions: Vec<Vec<u8>> = (0..300).map(|_| session()).collect();
    compare(&Server::kv("--threads 2", 2), &memcached, &sessions);
}

#[test]
fn large_and_small_values_come_in_the_order_of_the_keys() {
    let server = Server::kv("--threads 4", 1);
    let mut random = StdRng::seed_from_u64(11);
    let value = |key: usize| (key as u8 as char).to_string().repeat([3, 40, 300, 5000, 70_000][key % 5]);
    let keys: Vec<usize> = (usize::from(b'a')..=usize::from(b'z')).collect();
    let mut writer = server.connect(0);
    for key in &keys {
        let value = value(*key);
        assert_eq!(writer.ask(&format!("set k{key} 0 0 {}\r\n{value}", value.len())), "STORED");
    }
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect(0)).collect();
    for round in 0..400 {
        // Short values make the room for values that come with their answer small again.
        let asked: Vec<usize> = (0..random.random_range(1..20)).map(|_| keys[random.random_range(0..26)]).collect();
        let line: String = asked.iter().map(|key| format!(" k{key}")).collect();
        let client = &mut clients[round % 4];
        client.send(format!("get{line}\r\n").as_bytes());
        for key in asked {
            let value = value(key);
            assert_eq!(client.line(), format!("VALUE k{key} 0 {}", value.len()), "in round {round}: get{line}");
            assert!(client.line() == value, "k{key} in round {round}: get{line}");
        }
        assert_eq!(client.line(), "END", "in round {round}: get{line}");
    }
}

#[test]
fn a_value_is_stored_only_if_it_is_the_one_that_was_seen() {
    let servers = [Some(Server::kv("--threads 2", 2)), Server::memcached()];
    for server in servers.iter().flatten() {
        let mut client = server.connect(0);
        assert_eq!(client.ask("set k 0 0 1\r\n1"), "STORED");
        let head = client.ask("gets k");
        let unique = head.strip_prefix("VALUE k 0 1 ").unwrap().to_owned();
        assert_eq!([client.line(), client.line()], ["1", "END"]);
        assert_eq!(client.ask("touch k 100"), "TOUCHED"); // changes nothing of the value
        let mut other = server.connect(server.addresses.len() - 1);
        assert_eq!(other.ask(&format!("cas k 5 0 1 {unique}\r\n2")), "STORED");
        assert_eq!(client.ask(&format!("cas k 0 0 1 {unique}\r\n3")), "EXISTS");
        assert_eq!(client.ask("get k"), "VALUE k 5 1");
        assert_eq!([client.line(), client.line()], ["2", "END"]);
    }
}
