//! Fifth step of the tutorial: an array over all workers of a rack, into which all of them count.
//!
//! ```sh
//! cargo run -p gossamer-examples --bin histogram
//! ```
//!
//! This runs it in one process. As four, which exchange nothing but their counts:
//!
//! ```sh
//! cargo build -p gossamer-daemon -p gossamer-examples
//! target/debug/gossamer-launch run --local 4 target/debug/histogram
//! ```

use gossamer_array::{Add, Array, Max};
use graph::random::Random;

const THROWS: u64 = 40_000;
const DICE: u64 = 10;
const SUMS: usize = 6 * DICE as usize + 1;

/// The sum of ten dice; each throw has a number, and falls the same wherever it is thrown.
fn throw(number: u64) -> usize {
    let mut random = Random::new(2025, number);
    let faces = (0..DICE).map(|_| 1 + random.next_u64() % 6);
    faces.sum::<u64>() as usize
}

fn gsm_main() {
    // 1. A number for each sum, all 0 at first. Each place, a worker of some machine, owns a part of the array; any
    //    holder of the handle uses all of it.
    let counts = Array::new(SUMS, 0u64).expect("some hundred bytes");

    // 2. A fiber at each place throws its share of the dice. The closure travels to the other machines; a handle may go
    //    along.
    let (table, places) = (counts.clone(), gossamer::rack().workers() as u64);
    let thrown = counts.on_owners(move |_own| {
        let first = gossamer::rack().places().position(|place| place == gossamer::here()).expect("it is here") as u64;
        let mut thrown = 0;
        for number in (first..THROWS).step_by(places as usize) {
            // 3. No message to the owner: each place counts for itself, and its counts are merged at home when the
            //    array is read. That is right for all operations that can be done in any order: `Add`, `Min`, `Max`, ..
            table.apply(throw(number), Add, 1);
            thrown += 1;
        }
        thrown
    });
    // 4. The results of the fibers come back in the order of the places. All fibers have ended, and later reads see all
    //    of their work.
    assert_eq!(thrown.iter().sum::<u64>(), THROWS);

    // 5. All elements combined into one, each place its own.
    let most = counts.reduce(0..SUMS, Max);
    assert_eq!(counts.reduce(0..SUMS, Add), THROWS, "each throw counts once");

    // 6. Reading works like slices: a view of some elements that stays as it is while one has it.
    for view in counts.views(0..SUMS) {
        for (sum, count) in view.indexed().filter(|(_, count)| *count * 100 > most) {
            println!("{sum:2} {count:5} {}", "#".repeat((count * 60 / most) as usize));
        }
    }

    // 7. One element, from wherever it lies; and the answer checked on one thread.
    let expected = |sum| (0..THROWS).filter(|number| throw(*number) == sum).count() as u64;
    assert_eq!((counts.get(35), counts.get(DICE as usize - 1)), (expected(35), 0));
    println!("{THROWS} throws of {DICE} dice, {} of them make 35", counts.get(35));
}

fn main() {
    gossamer::main(gsm_main, 4); // four workers in all, however many machines there are
}
