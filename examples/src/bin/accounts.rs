//! Several objects at once: transfers between accounts that are entrusted to different workers.
//!
//! ```sh
//! cargo run -p gossamer-examples --bin accounts
//! ```

use trust::{Latch, Threadpool, together};

const ACCOUNTS: usize = 16;
const OPENING: i64 = 1000;
const FIBERS: usize = 64;
const TRANSFERS: usize = 500;

fn main() {
    let pool = Threadpool::new(2);

    // Each account is a property of its own, with one of the workers. Values that several closures want at once lie in a
    // `Latch`: who has one has it alone.
    let accounts: Vec<_> = (0..ACCOUNTS).map(|_| pool.entrust(Latch::new(OPENING))).collect();

    let fibers: Vec<_> = (0..FIBERS)
        .map(|fiber| {
            let accounts = accounts.clone();
            pool.spawn(move || {
                let mut refused = 0;
                for step in 0..TRANSFERS {
                    let (from, to) = ((fiber + step) % ACCOUNTS, (fiber + step * 7 + 1) % ACCOUNTS);
                    if from == to {
                        continue; // an account twice would be an error
                    }
                    // Both values come together and go back together; nobody sees one changed without the other. The
                    // order of the names does not matter: transfers in both directions do not block each other for ever.
                    let amount = 1 + step as i64 % 300;
                    let is_done = together((&accounts[from], &accounts[to]), move |(from, to)| {
                        let is_enough = *from >= amount;
                        if is_enough {
                            *from -= amount;
                            *to += amount;
                        }
                        is_enough
                    });
                    refused += usize::from(!is_done);
                }
                refused
            })
        })
        .collect();
    let refused: usize = fibers.into_iter().map(|fiber| fiber.join().expect("nothing panics in it")).sum();

    // All of them at once: a sum that is true at one moment, whatever else goes on.
    let sum = together(&accounts[..], |balances| balances.iter().map(|balance| **balance).sum::<i64>());
    println!("{ACCOUNTS} accounts hold {sum}; {refused} transfers were refused for lack of money");
    assert_eq!(sum, OPENING * ACCOUNTS as i64);
}
