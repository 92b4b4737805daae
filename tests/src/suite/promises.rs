//! Promises: values that are given later, from anywhere.

use gossamer::{Error, Promise, promise};

use super::ground::{JoinOutcome, places, remote, spots, until};

pub fn promises_are_kept_from_anywhere() {
    for place in places() {
        let (kept, number) = promise::<u64>();
        gossamer::spawn_on(place, move || kept.keep(7)).join().or_its_panic();
        assert_eq!(number.wait(), Ok(7));

        let (kept, text) = promise::<String>();
        let keeper = gossamer::entrust_with(place, move || Some(kept));
        keeper.apply(|keeper| keeper.take().unwrap().keep_with("so it goes ".repeat(1000)));
        assert_eq!(text.wait().unwrap().len(), 11_000);
        // In a thread that is no worker, on any machine.
        let (kept, number) = promise::<u64>();
        let fiber = gossamer::spawn_on(place, move || {
            let thread = std::thread::spawn(move || kept.keep(8));
            until(|| thread.is_finished());
        });
        assert_eq!(number.wait(), Ok(8));
        fiber.join().or_its_panic();
    }
}

pub fn promises_that_are_dropped_tell() {
    for place in spots() {
        let (broken, number) = promise::<u64>();
        let keeper = gossamer::entrust_with(place, move || broken);
        drop(keeper);
        let outcome = number.wait();
        assert!(matches!(outcome, Err(Error::Gone { .. })), "{outcome:?}");
    }
}

pub fn promises_of_many_wait_in_one_property() {
    let line = gossamer::entrust_with(remote(), Vec::<Promise<u64>>::new);
    let fibers: Vec<_> = places()
        .into_iter()
        .flat_map(|place| [place; 10])
        .map(|place| {
            let line = line.clone();
            gossamer::spawn_on(place, move || {
                let (kept, number) = promise();
                line.apply(move |line| line.push(kept));
                number.wait().unwrap()
            })
        })
        .collect();
    let count = fibers.len() as u64;
    until(|| line.apply(|line| line.len() as u64) == count);
    line.apply(|line| line.drain(..).zip(0..).for_each(|(promise, number)| promise.keep(number)));
    let mut numbers: Vec<u64> = fibers.into_iter().map(|fiber| fiber.join().or_its_panic()).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..count));
}
