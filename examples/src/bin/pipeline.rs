//! Fourth step of the tutorial: a pipeline over all workers of a rack, with channels and a barrier.
//!
//! ```sh
//! cargo run -p gossamer-examples --bin pipeline
//! ```
//!
//! This runs it in one process. As three, which exchange the items of the channels:
//!
//! ```sh
//! cargo build -p gossamer-daemon -p gossamer-examples
//! target/debug/gossamer-launch run --local 3 target/debug/pipeline
//! ```

use gossamer::sync::{Barrier, bounded, channel};

const LAST: u64 = 1000;

/// `12` to `2·2·3`.
fn factors(mut number: u64) -> String {
    let mut found = Vec::new();
    let mut factor = 2;
    while factor * factor <= number {
        if number.is_multiple_of(factor) {
            number /= factor;
            found.push(factor.to_string());
        } else {
            factor += 1;
        }
    }
    found.push(number.to_string());
    found.join("·")
}

fn gsm_main() {
    // Numbers go in at one end. At most 32 wait at a time: a sender that is faster than the receivers waits.
    let (feed, numbers) = bounded::<u64>(32);
    // The results come out at the other end; strings travel serialised, by themselves.
    let (tell, found) = channel::<(u64, String)>();
    // Nobody begins before everyone is there: a fiber at each place, and this one.
    let everyone = Barrier::new(gossamer::rack().workers() + 1);

    let workers: Vec<_> = gossamer::rack()
        .places()
        .map(|place| {
            // The ends of a channel may go anywhere, as trusts do (they are nothing else).
            let (numbers, tell, everyone) = (numbers.clone(), tell.clone(), everyone.clone());
            gossamer::spawn_on(place, move || {
                everyone.wait();
                let mut count = 0u64;
                // Each number goes to one of them. The loop ends when the channel is empty and its last sender gone.
                for number in numbers {
                    tell.send((number, factors(number))).expect("the results are received to the end");
                    count += 1;
                }
                count
            })
        })
        .collect();
    // They have their own; with these the channels would never end.
    drop((numbers, tell));

    gossamer::spawn(move || {
        for number in 2..=LAST {
            feed.send(number).expect("the workers receive to the end");
        }
    }); // here `feed` goes, and with it the workers' loops
    everyone.wait();

    // They come as they are found, in no order.
    let mut found: Vec<(u64, String)> = found.into_iter().collect();
    found.sort();
    let count = |factors: &str| factors.split('·').count();
    let primes = found.iter().filter(|(_, factors)| count(factors) == 1).count();
    let (most, factors) = found.iter().rev().max_by_key(|(_, factors)| count(factors)).expect("there are numbers");
    println!("up to {LAST} there are {primes} primes, and {most} = {factors} has the most factors");
    assert_eq!((primes, *most), (168, 512));

    let counts = workers.into_iter().map(|worker| worker.join().expect("nothing panics in it"));
    assert_eq!(counts.sum::<u64>(), LAST - 1, "each number went to one of them");
}

fn main() {
    gossamer::main(gsm_main, 4); // four workers in all, however many machines there are
}
