//! Every call of a trust, on properties that may be on another machine.

use gossamer::{Error, Latch};

use crate::{counters, remote, text};

/// Calls, their order, their results, and captures larger than a slot.
pub fn calls() {
    let counters = counters();
    for (index, counter) in (0..).zip(&counters) {
        assert_eq!(
            counter.apply(move |c| {
                *c += index;
                *c
            }),
            index
        );
        assert_eq!(counter.trustee().id().machine(), gossamer::rack().places().nth(index as usize).unwrap().machine);
    }

    // In order, although more than a slot holds; the callbacks in order too.
    const ROUNDS: u64 = 5000;
    let log = gossamer::entrust_on(remote(), Vec::<u64>::new());
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    for round in 0..ROUNDS {
        let seen = std::rc::Rc::clone(&seen);
        log.apply_then(
            move |log| {
                log.push(round);
                log.len() as u64
            },
            move |len| seen.borrow_mut().push(len),
        );
    }
    assert_eq!(log.apply(|log| log.len() as u64), ROUNDS);
    assert!(log.apply(|log| log.iter().copied().eq(0..ROUNDS)));
    assert!(seen.borrow().iter().copied().eq(1..=ROUNDS));

    // Captures and results of every size around a slot's, as they lie in memory.
    fn echo<const N: usize>() {
        let there = gossamer::entrust_on(remote(), 0u64);
        let mut bytes = [0u8; N];
        bytes.iter_mut().zip(0u32..).for_each(|(byte, n)| *byte = n as u8);
        let back = there.apply(move |count| {
            *count += 1;
            bytes
        });
        assert!(back == bytes && there.apply(|count| *count) == 1, "{N} bytes");
    }
    echo::<0>();
    echo::<1>();
    echo::<7>();
    echo::<1024>();
    echo::<4030>();
    echo::<4039>();
    echo::<4040>();
    echo::<4047>();
    echo::<4048>();
    echo::<4080>();
    echo::<4081>();
    echo::<20_000>();

    // Six kinds of closures, more than the cache of a slot holds, in one batch.
    let sum = gossamer::entrust_on(remote(), 0u64);
    for _ in 0..50 {
        sum.apply_then(|s| *s += 1, |()| {});
        sum.apply_then(|s| *s += 20, |()| {});
        sum.apply_then(|s| *s += 300, |()| {});
        sum.apply_then(|s| *s += 4000, |()| {});
        sum.apply_then(|s| *s += 50000, |()| {});
        sum.apply_then(|s| *s += 600000, |()| {});
    }
    assert_eq!(sum.apply(|s| *s), 654_321 * 50);
}

/// Arguments and results of 1 MiB, and of all sizes around a slot's.
pub fn large() {
    let there = gossamer::entrust_on(remote(), Vec::<u8>::new());
    for size in [0usize, 1, 23, 24, 1000, 4000, 4026, 4027, 4028, 4029, 4030, 4031, 4032, 8100, 100_000, 1 << 20] {
        let text: Vec<u8> = (0..size).map(|n| (n * 7 + n / 251) as u8).collect();
        let back = there.apply_with(
            |bytes, text: Vec<u8>| {
                *bytes = text;
                let mut reversed = bytes.clone();
                reversed.reverse();
                reversed
            },
            text.clone(),
        );
        assert!(back.iter().rev().eq(&text), "{size} bytes");
        assert_eq!(there.apply(|bytes| bytes.len()), size);
    }
    // Small requests before and after a large one keep their order.
    let text = vec![1u8; 100_000];
    there.apply_then(|bytes| bytes.clear(), |()| {});
    there.call().with(text).apply(|bytes, text: Vec<u8>| bytes.extend(text)).then(|result| {
        result.unwrap();
    });
    there.apply_then(|bytes| bytes.push(9), |()| {});
    assert_eq!(there.apply(|bytes| (bytes.len(), bytes.last().copied())), (100_001, Some(9)));
}

/// Closures that wait at the trustee, for a trust of the machine they came from.
pub fn launch() {
    let balance = gossamer::entrust_on(remote(), 0u64);
    let account = gossamer::entrust_with(remote(), || Latch::new(100u64));
    let home = gossamer::entrust(0u64);
    for round in 1..=10u64 {
        let (home, balance) = (home.clone(), balance.clone());
        let left = account.launch(move |account| {
            *account -= round;
            home.apply(move |sum| *sum += round); // back to the caller's machine
            balance.apply(move |sum| *sum += round)   // beside the account
            ;
            *account
        });
        assert_eq!(left, 100 - (1..=round).sum::<u64>());
    }
    assert_eq!((home.apply(|sum| *sum), balance.apply(|sum| *sum)), (55, 55));
    let answer = account
        .call()
        .with(vec!["left".to_owned(), "is".to_owned()])
        .launch(|account, words: Vec<String>| format!("{} {account}", words.join(" ")))
        .wait()
        .unwrap();
    assert_eq!(answer, "left is 45");
}

/// A panic at the trustee reaches the caller, poisons the property and nothing else.
pub fn panics() {
    let there = gossamer::entrust_on(remote(), 1u64);
    let beside = gossamer::entrust_on(remote(), 1u64);
    match there.call().apply(|_| -> u64 { panic!("the {}th wheel", 5) }).wait() {
        Err(Error::Panicked { panic, .. }) => assert_eq!(panic, "the 5th wheel"),
        other => panic!("{other:?}"),
    }
    match there.call().apply(|value| *value).wait() {
        Err(Error::Poisoned { panic, .. }) => assert_eq!(panic, "the 5th wheel"),
        other => panic!("{other:?}"),
    }
    assert_eq!(beside.apply(|value| *value), 1);
    there.clear_poison();
    assert_eq!(there.apply(|value| *value), 1);

    // Among others in one batch: each gets its own outcome.
    let outcomes = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    for round in 0..300u32 {
        let outcomes = std::rc::Rc::clone(&outcomes);
        let each = gossamer::entrust_on(remote(), u64::from(round));
        each.call()
            .apply(move |value| {
                assert!(round % 3 != 0, "round {round}");
                *value
            })
            .then(move |outcome| outcomes.borrow_mut().push((round, outcome)));
    }
    gossamer::wait_all();
    assert_eq!(outcomes.borrow().len(), 300);
    for (round, outcome) in outcomes.borrow().iter() {
        match outcome {
            Ok(value) => assert!(round % 3 != 0 && *value == u64::from(*round)),
            Err(error) => assert!(round % 3 == 0 && error.to_string().contains(&format!("round {round}"))),
        }
    }

    // `apply` continues the panic in the caller, with the same text.
    let caller = gossamer::spawn(move || beside.apply(|_| -> u64 { panic!("over there") }));
    let panic = caller.join().unwrap_err();
    assert_eq!(text(&*panic), "over there");
}
