//! Third step of the tutorial: a closure that has to wait half way, with `launch`.
//!
//! A closure given to `apply` may not wait: its trustee would stand still. `launch` runs the closure in a fiber at the
//! trustee; when it waits, the trustee serves others. So that nobody sees the property half done meanwhile, it lies in
//! a `Latch`, which one fiber has at a time.
//!
//! ```sh
//! cargo run -p gossamer-examples --bin launch
//! ```

use std::collections::HashMap;
use std::time::Duration;

use trust::{Latch, Threadpool, Trust};

/// Somewhere far away, where every look costs time.
#[derive(Default)]
struct Store {
    looks: u32,
}

impl Store {
    fn square(&mut self, number: u64) -> u64 {
        self.looks += 1;
        number * number
    }
}

type Cache = HashMap<u64, u64>;

/// The square of a number, from the cache; a missing one is fetched from the store.
fn square(cache: &Trust<Latch<Cache>>, store: &Trust<Store>, number: u64) -> u64 {
    let store = store.clone(); // a closure may capture a trust
    cache.launch(move |cache| {
        if let Some(square) = cache.get(&number) {
            return *square;
        }
        trust::sleep(Duration::from_millis(5)); // the way to the store: this fiber sleeps, no thread does
        let square = store.apply(move |store| store.square(number)); // waits for another trustee
        cache.insert(number, square);
        square
    })
}

fn main() {
    let pool = Threadpool::new(2);
    let store = pool.entrust(Store::default());
    let cache = pool.entrust(Latch::new(Cache::new()));

    // Ten fibers want the same three squares, all at once.
    let fibers: Vec<_> = (0..10)
        .map(|_| {
            let (cache, store) = (cache.clone(), store.clone());
            pool.spawn(move || [3, 4, 5].map(|number| square(&cache, &store, number)))
        })
        .collect();
    for fiber in fibers {
        assert_eq!(fiber.join().expect("nothing panics in it"), [9, 16, 25]);
    }

    // The latch saw to it that each was fetched once, although fetching took a while.
    let looks = store.apply(|store| store.looks);
    println!("ten fibers have their squares, and the store was asked {looks} times");
    assert_eq!(looks, 3);
}
