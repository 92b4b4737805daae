//! The store on two arrays against a map: values of all lengths, buckets that overflow, blocks that are used again, and
//! a full store.

use std::collections::HashMap;
use std::sync::mpsc;

use gossamer_examples::array_kv::store::{Client, Full, Store};
use graph::random::Random;

/// Runs `test` in a fiber of two workers; its panic is the test's.
fn on_two_workers(test: fn()) {
    let (tell, told) = mpsc::channel();
    gossamer::main(move || tell.send(std::panic::catch_unwind(test)).unwrap(), 2);
    told.recv().unwrap().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn key(number: u64) -> Vec<u8> {
    format!("{:0>1$}", number, number as usize % 20).into_bytes()
}

fn is_as(model: &HashMap<u64, Vec<u8>>, client: &Client) {
    for number in 0..100 {
        assert_eq!(client.get(&key(number)).as_ref(), model.get(&number), "{number}");
    }
}

fn a_map_says_the_same() {
    // Two buckets, of which one overflows, and a few times the room that the values need.
    let store = Store::new(20, 100 * 128).unwrap();
    let (mut random, mut model) = (Random::new(1, 1), HashMap::new());
    let client = store.client();
    is_as(&model, &client);
    for step in 0..4000 {
        let (number, words) = (random.next_u64() % 30, random.next_u64());
        let bytes = if words.is_multiple_of(10) { words / 10 % 700 } else { words / 10 % 50 };
        let value: Vec<u8> = (0..bytes).map(|_| random.next_u64() as u8).collect();
        client.put(&key(number), &value).unwrap();
        assert_eq!(client.get(&key(number)), Some(value.clone()));
        model.insert(number, value);
        if step % 500 == 0 {
            is_as(&model, &client);
        }
    }
    is_as(&model, &client);
    // Another place sees the same.
    let last = gossamer::rack().places().last().unwrap();
    let there = gossamer::spawn_on(last, move || {
        let client = store.client();
        (0..100).filter(|&number| client.get(&key(number)).is_some()).count()
    });
    assert_eq!(there.join().unwrap(), model.len());
}

fn a_full_store_keeps_what_it_has() {
    // Two buckets and one for overflow: 30 to 45 entries.
    let store = Store::new(20, 64 << 10).unwrap();
    let client = store.client();
    let refused = (0..100).find(|&number| client.put(&key(number), b"one").is_err()).unwrap();
    assert!((30..=45).contains(&refused), "{refused}");
    assert_eq!(client.put(&key(refused), b"one"), Err(Full::Buckets));
    assert_eq!((client.get(&key(refused)), client.get(&key(0))), (None, Some(b"one".to_vec())));
    client.put(&key(0), b"two").unwrap();
    assert_eq!(client.get(&key(0)), Some(b"two".to_vec()));

    // Two slabs of 512 words at each place, each of four blocks.
    let store = Store::new(100, 4 * 512).unwrap();
    let client = store.client();
    let long = vec![7; 120 * 8];
    let refused = (0..100).find(|&number| client.put(&key(number), &long).is_err()).unwrap();
    assert_eq!(refused, 16);
    assert!(matches!(client.put(&key(0), &long), Err(Full::Blocks(_))), "a put needs a second block for a while");
    assert_eq!(client.get(&key(0)), Some(long));
    assert!(matches!(client.put(&key(0), &[0; 4096]), Err(Full::Blocks(_))), "longer than a slab");
}

fn blocks_are_used_again() {
    let store = Store::new(100, 4 * 512).unwrap();
    // Each place puts to its own key, and to one that the other puts to as well: blocks go back to where they are of.
    let put = |place: gossamer::Place| {
        let store = store.clone();
        gossamer::spawn_on(place, move || {
            let client = store.client();
            let own = u64::from(place.worker) + 1;
            for step in 0..500u64 {
                client.put(&key(own), &step.to_le_bytes()).unwrap();
                client.put(&key(0), &[own as u8; 50]).unwrap();
                let both = client.get(&key(0)).unwrap();
                assert!(both == [1; 50] || both == [2; 50], "{both:?}");
            }
        })
    };
    for fiber in gossamer::rack().places().map(put).collect::<Vec<_>>() {
        fiber.join().unwrap();
    }
    let last = Some(499u64.to_le_bytes().to_vec());
    assert_eq!([1, 2].map(|own| store.client().get(&key(own))), [last.clone(), last]);
}

/// A process runs one program.
#[test]
fn a_store_is_a_map_that_may_be_full() {
    on_two_workers(|| {
        a_map_says_the_same();
        a_full_store_keeps_what_it_has();
        blocks_are_used_again();
    });
}
