//! Forgotten items: expiry, the memory limit, and a table that behaves as a plain map does.

use std::collections::HashMap;
use std::time::Instant;

use gossamer_examples::kv::clock::now;
use gossamer_examples::kv::shard::Shard;
use gossamer_examples::kv::table::{Answer, Command, Op};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::servers::{Server, TIME_LIMIT, memory};

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    Command { value, ..Command::on(Op::Set, key) }
}

fn hash(key: &[u8]) -> u32 {
    // Few, so that keys collide.
    key.iter().fold(0, |sum: u32, byte| sum + u32::from(*byte)) % 5
}

fn value(shard: &mut Shard, key: &[u8]) -> Option<Vec<u8>> {
    let cell = shard.get(hash(key), key, None)?;
    Some(shard.item(cell).value.to_vec())
}

#[test]
fn a_shard_is_a_map() {
    let mut random = StdRng::seed_from_u64(7);
    let (mut shard, mut model) = (Shard::new(1 << 30, 1), HashMap::<Vec<u8>, Vec<u8>>::new());
    let mut kept: Vec<(u64, Vec<u8>)> = Vec::new();
    for step in 0..30_000_u32 {
        let key = format!("key{}", random.random_range(0..60)).into_bytes();
        let long = vec![b'l'; random.random_range(0..100)];
        let there = model.contains_key(&key);
        match random.random_range(0..8) {
            0 | 1 => {
                assert_eq!(shard.change(hash(&key), &set(&key, &long)), Answer::Stored);
                model.insert(key, long);
            }
            2 => {
                let answer = shard.change(hash(&key), &Command { value: &long, ..Command::on(Op::Add, &key) });
                assert_eq!(answer, if there { Answer::NotStored } else { Answer::Stored });
                model.entry(key).or_insert(long);
            }
            3 => {
                let answer = shard.change(hash(&key), &Command { value: b"+", ..Command::on(Op::Append, &key) });
                assert_eq!(answer, if there { Answer::Stored } else { Answer::NotStored });
                model.entry(key).and_modify(|value| value.push(b'+'));
            }
            4 => {
                let answer = shard.change(hash(&key), &Command::on(Op::Delete, &key));
                assert_eq!(answer, if there { Answer::Deleted } else { Answer::NotFound });
                model.remove(&key);
            }
            5 if there => {
                let cell = shard.get(hash(&key), &key, None).unwrap();
                kept.push((shard.keep(cell).unwrap(), model[&key].clone()));
            }
            6 if step % 1000 == 0 => {
                shard.flush(0);
                model.clear();
            }
            _ => assert_eq!(value(&mut shard, &key).as_ref(), model.get(&key)),
        }
    }
    for (ticket, value) in kept {
        assert_eq!(shard.take(ticket), value, "as it was when it was kept");
        assert_eq!(shard.take(ticket), b"", "once");
    }
    let counts: HashMap<_, _> = shard.counts().into_iter().collect();
    assert_eq!(counts["curr_items"], model.len() as u64);
    assert_eq!(counts["evictions"] + counts["expired"], 0);
}

fn count(shard: &mut Shard, name: &str) -> u64 {
    shard.counts().into_iter().find(|(known, _)| known == name).unwrap().1
}

#[test]
fn what_was_not_used_for_longest_goes() {
    let mut shard = Shard::new(4 << 20, 1);
    let key = |number: u32| format!("{number:08}").into_bytes();
    let value = [b'v'; 1000];
    let limit = 3600; // of such items there is room for that many
    for number in 0..limit {
        shard.change(number, &set(&key(number), &value));
    }
    // Every tenth is used again and again, while twice as many come.
    for number in limit..3 * limit {
        let used = number * 10 % limit;
        assert!(shard.get(used, &key(used), None).is_some(), "{used} is in use, and gone by {number}");
        shard.change(number, &set(&key(number), &value));
    }
    assert!((0..limit).filter(|number| number % 10 != 0).all(|number| shard.get(number, &key(number), None).is_none()));
    assert!(count(&mut shard, "bytes") <= 4 << 20 && count(&mut shard, "evictions") > 4000);
    shard.limit_memory(2 << 20);
    assert!(count(&mut shard, "bytes") <= 2 << 20 && count(&mut shard, "curr_items") > 1700);
    let last = 3 * limit - 1;
    assert!(shard.get(last, &key(last), None).is_some(), "the newest stays");
}

#[test]
fn an_item_for_which_there_is_no_room_takes_none() {
    let mut shard = Shard::new(2 << 20, 1);
    assert_eq!(shard.change(1, &set(b"small", b"1")), Answer::Stored);
    assert_eq!(shard.change(2, &set(b"k", b"1")), Answer::Stored);
    assert_eq!(shard.change(2, &set(b"k", &vec![0; 2 << 20])), Answer::NoMemory);
    assert!(shard.get(1, b"small", None).is_some());
    assert!(shard.get(2, b"k", None).is_none(), "not the old value");
}

#[test]
fn values_that_wait_to_be_fetched_count() {
    let (mut shard, limit) = (Shard::new(4 << 20, 1), 4 << 20);
    let value = |step: u32| vec![step as u8; 300_000];
    let mut kept = Vec::new();
    // One key with a value that is kept and then replaced, until the kept values take all memory.
    let refused = (0..100).find(|step| {
        assert!(count(&mut shard, "bytes") <= limit, "after {step}");
        let is_stored = shard.change(1, &set(b"k", &value(*step))) == Answer::Stored;
        if let Some(cell) = shard.get(1, b"k", None) {
            kept.push((*step, shard.keep(cell).expect("what is stored has its room")));
        }
        !is_stored
    });
    assert_eq!((refused, kept.len()), (Some(13), 13), "so many there is room for");
    assert_eq!(shard.change(2, &set(b"other", &value(0))), Answer::NoMemory);
    // Short values are copied to be kept.
    assert_eq!(shard.change(3, &set(b"short", b"of some twenty bytes")), Answer::Stored);
    let cell = shard.get(3, b"short", None).unwrap();
    let copies: Vec<u64> = (0..100_000).map_while(|_| shard.keep(cell)).collect();
    assert!((100..100_000).contains(&copies.len()), "{} copies", copies.len());
    assert!(count(&mut shard, "bytes") <= limit);
    shard.flush(0);
    for ticket in copies {
        shard.forget(ticket);
    }
    for (step, ticket) in kept {
        assert!(shard.take(ticket) == value(step));
    }
    assert_eq!(count(&mut shard, "bytes"), 0);
    assert_eq!(shard.change(2, &set(b"other", &value(0))), Answer::Stored);
    let cell = shard.get(2, b"other", None).unwrap();
    let tickets = [shard.keep(cell), shard.keep(cell)].map(Option::unwrap);
    let before = count(&mut shard, "bytes");
    shard.flush(0);
    assert!(count(&mut shard, "bytes") < before && count(&mut shard, "bytes") >= 300_000, "once, though kept twice");
    tickets.into_iter().for_each(|ticket| shard.forget(ticket));
    assert_eq!(count(&mut shard, "bytes"), 0);
}

#[test]
fn what_small_items_had_is_given_to_large_ones() {
    let limit = 16 << 20;
    let server = Server::kv("--threads 1 --memory 16", 1);
    let mut client = server.connect(0);
    let before = memory(server.pid());
    let mut fill = |first: u32, last: u32, value: &str| {
        for number in first..last {
            client.send(format!("set {number} 0 0 {} noreply\r\n{value}\r\n", value.len()).as_bytes());
        }
        assert_eq!(client.ask("verbosity 0"), "OK");
    };
    fill(0, 250_000, "small");
    assert!(server.stat("evictions") > 10_000, "it is full");
    let small = memory(server.pid()) - before;
    fill(250_000, 258_000, &"l".repeat(5000));
    let large = memory(server.pid()) - before;
    println!("{small} bytes with small items, {large} with large ones, of {limit}");
    assert!(large < limit + limit / 4, "{large} bytes with large items, {small} with small ones");
    assert!(server.stat("bytes") <= limit && server.stat("curr_items") > 3000);
}

#[test]
fn a_shard_changes_its_cells_and_stays_a_map() {
    let mut random = StdRng::seed_from_u64(5);
    let (mut shard, mut model) = (Shard::new(2 << 20, 1), HashMap::<u32, usize>::new());
    let key = |number: u32| format!("{number:06}").into_bytes();
    for round in 0..12 {
        // Many short ones, then fewer long ones, again and again; each as often as there is room for, and more.
        let (stores, most) = if round % 2 == 0 { (60_000, 20) } else { (4000, 2000) };
        for _ in 0..stores {
            let (number, bytes) = (random.random_range(0..40_000), random.random_range(0..most));
            assert_eq!(shard.change(number, &set(&key(number), &vec![number as u8; bytes])), Answer::Stored);
            model.insert(number, bytes);
        }
        let mut there = 0;
        for (number, bytes) in &model {
            if let Some(cell) = shard.get(*number, &key(*number), None) {
                there += 1;
                assert_eq!(shard.item(cell).value, vec![*number as u8; *bytes], "{number} in round {round}");
            }
        }
        assert_eq!(count(&mut shard, "curr_items"), there, "in round {round}");
        assert!(count(&mut shard, "bytes") <= 2 << 20, "in round {round}");
    }
}

#[test]
fn the_largest_value_fits_however_little_memory_there_is() {
    let server = Server::kv("--threads 4 --memory 1", 1);
    let mut client = server.connect(0);
    let value = "v".repeat(1_048_000);
    for key in 0..20 {
        assert_eq!(client.ask(&format!("set key{key} 0 0 1048000\r\n{value}")), "STORED");
    }
    assert_eq!(client.ask("cache_memlimit 8"), "OK");
    assert_eq!(client.ask(&format!("set k 0 0 1048000\r\n{value}")), "STORED");
    assert_eq!(client.ask("get k"), "VALUE k 0 1048000");
}

#[test]
fn items_expire() {
    let server = Server::kv("--threads 2", 1);
    let mut client = server.connect(0);
    assert_eq!(client.ask("set soon 0 1 1\r\n1"), "STORED");
    assert_eq!(client.ask(&format!("set then 0 {} 1\r\n2", now() + 1)), "STORED");
    assert_eq!(client.ask("set later 0 100 1\r\n3"), "STORED");
    assert_eq!(client.ask("set touched 0 100 1\r\n4"), "STORED");
    assert_eq!(client.ask("touch touched 1"), "TOUCHED");
    let begun = Instant::now();
    for key in ["soon", "then", "touched"] {
        while client.ask(&format!("get {key}")) != "END" {
            assert!(begun.elapsed() < TIME_LIMIT, "{key} does not expire");
            let _rest = [client.line(), client.line()];
        }
    }
    assert_eq!(client.ask("get later"), "VALUE later 0 1");
    let _rest = [client.line(), client.line()];
    assert_eq!(server.stat("expired"), 3);
    assert_eq!(client.ask("flush_all 1"), "OK");
    while client.ask("get later") != "END" {
        assert!(begun.elapsed() < TIME_LIMIT, "flush_all 1 does not come");
        let _rest = [client.line(), client.line()];
    }
    assert_eq!(server.stat("curr_items"), 0);
}

/// As memcached has it: 1 MiB with key and head. The data of one that is refused are no commands.
#[test]
fn values_fit_up_to_the_limit_of_memcached() {
    let servers = [Some(Server::kv("--threads 1", 1)), Server::memcached()];
    for server in servers.iter().flatten() {
        let mut client = server.connect(0);
        for (key, flags, bytes) in [("k", 0, 1_048_516), ("k", 7, 1_048_512), (&*"k".repeat(250), 0, 1_048_267)] {
            let mut set = |bytes: usize| client.ask(&format!("set {key} {flags} 0 {bytes}\r\n{}", "\n".repeat(bytes)));
            assert_eq!(set(bytes), "STORED");
            assert_eq!(set(bytes + 1), "SERVER_ERROR object too large for cache");
            assert_eq!(set(1 << 20), "SERVER_ERROR object too large for cache");
            assert_eq!(client.ask(&format!("get {key}")), "END", "the old value is not what the client has");
            assert_eq!(client.ask("version").split(' ').next(), Some("VERSION"), "the data are swallowed");
        }
    }
}

/// Values that are announced, and come but for their last byte.
#[test]
fn values_under_way_take_little_more_than_the_items_may() {
    let server = Server::kv("--threads 2 --memory 32", 1);
    let mut witness = server.connect(0);
    assert_eq!(witness.ask(&format!("set own 0 0 1000000\r\n{}", "v".repeat(1_000_000))), "STORED");
    let before = memory(server.pid());
    let value = [&b"set k 0 0 1000000\r\n"[..], &[b'v'; 999_999]].concat();
    let mut clients: Vec<_> = (0..60).map(|_| server.connect(0)).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            let value = &value;
            scope.spawn(move || client.send(value));
        }
    });
    // Those that have no room are notified when the last byte has come, even in parts; the others are stored.
    assert_eq!(witness.ask("set small 0 0 1\r\n1"), "STORED");
    let grown = memory(server.pid()).saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes more for 60 MB that came in part");
    let mut said: Vec<String> = clients.iter_mut().map(|client| client.ask("v")).collect();
    said.sort_unstable();
    said.dedup();
    assert_eq!(said, ["SERVER_ERROR out of memory storing object", "STORED"]);
    drop(clients);
    let begun = Instant::now();
    while witness.ask(&format!("set own 0 0 1000000\r\n{}", "v".repeat(1_000_000))) != "STORED" {
        assert!(begun.elapsed() < TIME_LIMIT, "what the others had is not given back");
    }
}

/// After a large reply, and asked for again by clients that do not read.
#[test]
fn idle_and_slow_clients_take_little_memory() {
    let server = Server::kv("--threads 2 --memory 32", 1);
    let mut witness = server.connect(0);
    let keys: Vec<String> = (0..1000).map(|key| format!("key-{key:05}")).collect();
    for key in &keys {
        assert_eq!(witness.ask(&format!("set {key} 0 0 200\r\n{}", "v".repeat(200))), "STORED");
    }
    let get = format!("get {}", keys.join(" "));
    let mut clients: Vec<_> = (0..60).map(|_| server.connect(0)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask("get none"), "END"));
    let before = memory(server.pid());
    for client in &mut clients {
        let first = client.ask(&get);
        assert_eq!(first, "VALUE key-00000 0 200");
        while client.line() != "END" {}
    }
    let begun = Instant::now();
    let mut grown = u64::MAX;
    while grown > 3 << 20 {
        assert!(begun.elapsed() < TIME_LIMIT, "{grown} bytes more for 60 idle clients");
        grown = memory(server.pid()).saturating_sub(before);
        std::thread::yield_now();
    }
    // Each has asked for 230 KB; the system has as much as fits its buffers.
    clients.iter_mut().for_each(|client| client.send(format!("{get}\r\n").repeat(20).as_bytes()));
    assert_eq!(witness.ask("get key-00000"), "VALUE key-00000 0 200");
    let grown = memory(server.pid()).saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes more for 60 clients that do not read");
    for client in &mut clients[..3] {
        for _ in 0..20 {
            while client.line() != "END" {}
        }
    }
}

#[test]
fn memory_stays_within_its_limit() {
    let server = Server::kv("--threads 2 --memory 4", 1);
    let mut client = server.connect(0);
    for number in 0..20_000 {
        client.send(format!("set key{number} 0 0 500 noreply\r\n{}\r\n", "v".repeat(500)).as_bytes());
    }
    assert_eq!(client.ask("set last 0 0 1\r\n1"), "STORED");
    assert!(server.stat("bytes") <= server.stat("limit_maxbytes"));
    assert_eq!(server.stat("limit_maxbytes"), 4 << 20);
    assert_eq!(server.stat("evictions") + server.stat("curr_items"), 20_001);
    assert_eq!(client.ask("get last"), "VALUE last 0 1");
    let _rest = [client.line(), client.line()];
    assert_eq!(client.ask("get key0"), "END");
}
