//! First step of the tutorial: a number in the care of a worker, and fibers that count with it.
//!
//! ```sh
//! cargo run -p gossamer-examples --bin counter
//! ```

use trust::Threadpool;

const FIBERS: u64 = 4;
const STEPS: u64 = 1000;

fn main() {
    // Two workers: threads that run fibers, and serve the objects entrusted to them.
    let pool = Threadpool::new(2);

    // The number goes into the care of one of them, its trustee. We keep a handle, the trust. There is no lock, and no
    // other way to the number than through the trust.
    let counter = pool.entrust(0u64);

    // Fibers are cheap threads on the workers. Each gets a clone of the trust, all for the same number.
    let fibers: Vec<_> = (0..FIBERS)
        .map(|_| {
            let counter = counter.clone();
            pool.spawn(move || {
                for _ in 0..STEPS {
                    // The closure is sent to the trustee and runs there, alone with the number. `apply` waits for its
                    // result; this fiber does, while its worker goes on with others.
                    counter.apply(|c| *c += 1);
                }
            })
        })
        .collect();
    for fiber in fibers {
        fiber.join().expect("nothing panics in it");
    }
    let counted = counter.apply(|c| *c);
    println!("{FIBERS} fibers have counted to {counted}");
    assert_eq!(counted, FIBERS * STEPS);

    // A caller that does not need the result now need not wait. `apply_then` goes on at once, and calls back with the
    // result on this thread; a later request is served later, so the last `apply` sees all of it.
    let step = 2; // a closure may capture plain values like this one
    for _ in 0..STEPS {
        counter.apply_then(move |c| *c += step, |()| ());
    }
    let counted = counter.apply(|c| *c);
    println!("and, without waiting, on to {counted}");
    assert_eq!(counted, (FIBERS + step) * STEPS);
} // dropping the pool waits for all that is still under way
