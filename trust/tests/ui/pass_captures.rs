//! Everything that may be captured and returned.
use trust::{Latch, Shared, Threadpool, Trust};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Plain {
    a: u8,
    b: [f64; 3],
    c: Option<(char, bool)>,
}

#[derive(Clone, Copy)]
struct Nothing;

enum Choice {
    One(u32),
    Two { x: i128 },
}

fn double(v: u64) -> u64 {
    v * 2
}

pub fn main() {
    let pool = Threadpool::new(2);
    let counter: Trust<u64> = pool.entrust(1);
    let (integer, array, nothing) = (3u64, [1u8; 100], Nothing);
    let plain = Plain { a: 1, b: [0.5; 3], c: Some(('x', true)) };
    let result = counter.apply(move |c| {
        let Nothing = nothing;
        *c += integer + u64::from(array[99]) + u64::from(plain.a);
        (plain, *c)
    });
    assert_eq!(result, (plain, 6));

    // A function by its name is no pointer: its type says which it is.
    let f = double;
    assert_eq!(counter.apply(move |c| f(*c)), 12);
    fn call<F: Fn(u64) -> u64 + Copy + trust::NoRef + Send + 'static>(counter: &Trust<u64>, f: F) -> u64 {
        counter.apply(move |c| f(*c))
    }
    assert_eq!(call(&counter, double), 12);
    assert_eq!(call(&counter, |c| c + 1), 7);

    // Other trusts, in and out.
    let list: Trust<Vec<String>> = pool.entrust(Vec::new());
    let other = list.clone();
    let back: Trust<Vec<String>> = counter.apply(move |_| other);
    back.apply(|list| list.push("word".to_owned()));
    let latch: Trust<Latch<u8>> = pool.entrust(Latch::new(1));
    counter.apply(move |_| drop(latch));

    // What is constant and large is shared.
    let words = Shared::new(vec![String::from("to"), String::from("be")]);
    assert_eq!(counter.apply(move |_| words.len()), 2);

    let choices = [Choice::One(1), Choice::Two { x: 2 }];
    let sum = counter.apply(move |_| {
        choices
            .iter()
            .map(|c| match c {
                Choice::One(n) => i128::from(*n),
                Choice::Two { x } => *x,
            })
            .sum::<i128>()
    });
    assert_eq!(sum, 3);
    let unit: () = counter.apply(|_| ());
    let result: Result<u8, std::num::NonZeroU8> = counter.apply(|_| Ok(1));
    assert_eq!((unit, result), ((), Ok(1)));
}
