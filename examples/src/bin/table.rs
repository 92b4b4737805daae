//! Second step of the tutorial: a hash table with strings for keys, split over all workers.
//!
//! ```sh
//! cargo run -p gossamer-examples --bin table
//! ```

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use trust::{Threadpool, Trust};

/// Each worker has a part of the table. The parts are ordinary `HashMap`s, each used by one thread alone.
#[derive(Clone)]
struct Ages {
    parts: Vec<Trust<HashMap<String, u32>>>,
}

impl Ages {
    fn new(pool: &Threadpool) -> Ages {
        Ages { parts: pool.trustees().iter().map(|trustee| trustee.entrust(HashMap::new())).collect() }
    }

    fn part(&self, name: &str) -> &Trust<HashMap<String, u32>> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        &self.parts[(hasher.finish() % self.parts.len() as u64) as usize]
    }

    /// Waits for the answer.
    fn get(&self, name: &str) -> Option<u32> {
        // A closure may not capture a `String`: that is a pointer, and the closure may go to a place where pointers
        // mean nothing. The compiler refuses it and names the way out: `apply_with` sends the value along, serialised.
        self.part(name).apply_with(|part, name| part.get(&name).copied(), name.to_owned())
    }

    /// Does not wait: `then` gets the previous age, a little later, on this thread.
    fn insert_then(&self, name: &str, age: u32, then: impl FnOnce(Option<u32>) + 'static) {
        let insert = |part: &mut HashMap<String, u32>, (name, age)| part.insert(name, age);
        self.part(name).call().with((name.to_owned(), age)).apply(insert).then(move |result| then(result.unwrap()));
    }
}

fn main() {
    let pool = Threadpool::new(2);
    let ages = Ages::new(&pool);

    // Callbacks stay on this thread, so they may share things without locks, such as an `Rc<Cell<_>>`.
    let replaced = Rc::new(Cell::new(0));
    for (name, age) in [("Ada", 36), ("Grace", 85), ("Barbara", 84), ("Ada", 37)] {
        let replaced = Rc::clone(&replaced);
        ages.insert_then(name, age, move |previous| replaced.set(replaced.get() + u32::from(previous.is_some())));
    }

    // One thread's requests to one trustee are done in the order they were made: this sees Ada's second age, and the
    // callbacks of all that went to her part before have been called.
    println!("Ada is {:?}, Alan {:?}", ages.get("Ada"), ages.get("Alan"));
    assert_eq!((ages.get("Ada"), ages.get("Alan")), (Some(37), None));
    println!("{} age was replaced", replaced.get());
    assert_eq!(replaced.get(), 1);

    // Fibers on any worker use the same table.
    let others = ages.clone();
    let sum = pool.spawn(move || ["Ada", "Grace", "Barbara"].iter().filter_map(|name| others.get(name)).sum::<u32>());
    let sum = sum.join().expect("nothing panics in it");
    println!("together they are {sum}");
    assert_eq!(sum, 37 + 85 + 84);
}
