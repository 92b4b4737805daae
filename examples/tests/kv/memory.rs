//! What is forgotten, and when: expiry, the memory limit, and a table that behaves as a plain map does.

use std::collections::HashMap;
use std::time::Instant;

use gossamer_examples::kv::clock::now;
use gossamer_examples::kv::shard::Shard;
use gossamer_examples::kv::table::{Answer, Command, Op};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::servers::{PATIENCE, Server};

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
                kept.push((shard.keep(cell), model[&key].clone()));
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

#[test]
fn what_was_not_used_for_longest_goes() {
    let mut shard = Shard::new(1 << 20, 1);
    let key = |number: u32| format!("{number:08}").into_bytes();
    let value = [b'v'; 1000];
    let limit = 900; // of such items there is room for that many
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
    let counts: HashMap<_, _> = shard.counts().into_iter().collect();
    assert!(counts["bytes"] <= 1 << 20 && counts["evictions"] > 1000, "{counts:?}");
    shard.limit_memory(100_000);
    let counts: HashMap<_, _> = shard.counts().into_iter().collect();
    assert!(counts["bytes"] <= 100_000 && counts["curr_items"] > 50, "{counts:?}");
    let last = 3 * limit - 1;
    assert!(shard.get(last, &key(last), None).is_some(), "the newest stays");
}

#[test]
fn an_item_for_which_there_is_no_room_takes_none() {
    let mut shard = Shard::new(10_000, 1);
    assert_eq!(shard.change(1, &set(b"small", b"1")), Answer::Stored);
    assert_eq!(shard.change(2, &set(b"k", b"1")), Answer::Stored);
    assert_eq!(shard.change(2, &set(b"k", &[0; 10_000])), Answer::NoMemory);
    assert!(shard.get(1, b"small", None).is_some());
    assert!(shard.get(2, b"k", None).is_none(), "not the old value");
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
            assert!(begun.elapsed() < PATIENCE, "{key} does not expire");
            let _rest = [client.line(), client.line()];
        }
    }
    assert_eq!(client.ask("get later"), "VALUE later 0 1");
    let _rest = [client.line(), client.line()];
    assert_eq!(server.stat("expired"), 3);
    assert_eq!(client.ask("flush_all 1"), "OK");
    while client.ask("get later") != "END" {
        assert!(begun.elapsed() < PATIENCE, "flush_all 1 does not come");
        let _rest = [client.line(), client.line()];
    }
    assert_eq!(server.stat("curr_items"), 0);
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
