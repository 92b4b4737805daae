//! Calls within the process: any `Send` value goes to the trustee and comes back, is dropped once, and keeps its
//! address.

mod common;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::Drops;
use trust::{Error, Latch, Threadpool, Trust};

/// Generic over any `Send` value, as a library's type is.
struct Shelf<V: Send + 'static>(Trust<Vec<V>>);

impl<V: Send + 'static> Shelf<V> {
    fn push(&self, value: V) -> Result<usize, Error> {
        let push = move |values: &mut Vec<V>| {
            values.push(value);
            values.len()
        };
        self.0.call().in_process().apply(push).wait()
    }

    fn pop(&self) -> Result<Option<V>, Error> {
        self.0.call().in_process().apply(Vec::pop).wait()
    }
}

#[test]
fn values_of_every_size_move_there_and_back() {
    watchdog!();
    let pool = Threadpool::new(1);
    let drops = Drops::default();
    for trustee in [trust::local_trustee(), pool.trustees()[0]] {
        let before = drops.count();
        let shelf = Shelf(trustee.entrust(Vec::new()));
        let text = Arc::new("text".to_owned());
        let value = drops.value((Arc::clone(&text), [7u8; 3000]));
        assert_eq!(shelf.push(value), Ok(1));
        let back = shelf.pop().unwrap().unwrap();
        assert!(Arc::ptr_eq(&back.value.0, &text) && back.value.1 == [7; 3000]);
        assert_eq!(drops.count(), before, "it has moved, and nothing of it was dropped");
        drop(back);
        assert_eq!(drops.count(), before + 1);
        let closures: Shelf<Box<dyn FnOnce() -> usize + Send>> = Shelf(trustee.entrust(Vec::new()));
        closures.push(Box::new(move || text.len())).unwrap();
        assert_eq!(closures.pop().unwrap().map(|run| run()), Some(4));
    }
}

#[test]
fn each_value_is_dropped_once_whatever_happens_to_its_call() {
    watchdog!();
    let drops = Drops::default();
    let pool = Threadpool::new(1);
    let names = pool.entrust(Latch::new(Vec::<String>::new()));
    let fails = |drops: &Drops| {
        let value = drops.value("dropped".to_owned());
        move |_: &mut Vec<String>| -> String { panic!("{} in the closure", value.value) }
    };
    let outcome = names.call().in_process().launch(fails(&drops)).wait();
    assert!(matches!(outcome, Err(Error::Panicked { panic, .. }) if panic == "dropped in the closure"));
    let outcome = names.call().in_process().launch(fails(&drops)).wait();
    assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}");
    assert_eq!(drops.count(), 2);
    // A result that nobody takes.
    let numbers = pool.entrust(0);
    let returned = drops.value(vec![1u8]);
    assert!(numbers.call().in_process().apply(move |_| returned).wait().is_ok());
    let ignored = drops.value(vec![1u8]);
    numbers.call().in_process().apply(move |_| ignored).then(drop);
    trust::wait_all();
    let late = drops.value(vec![1u8]);
    let _ = numbers.call().in_process().apply(move |_| late).timeout(Duration::ZERO).wait();
    trust::wait_all();
    assert_eq!(drops.count(), 5);
    drop(pool);
    let unsent = drops.value(vec![1u8]);
    let gone = numbers.call().in_process().apply(move |_| unsent).wait();
    assert!(matches!(gone, Err(Error::Gone { .. })));
    assert_eq!(drops.count(), 6);
}

#[test]
fn a_thread_without_a_worker_awaits_such_a_call() {
    watchdog!();
    let pool = Threadpool::new(1);
    let names = pool.entrust(vec!["Ada".to_owned()]);
    let more = "Byron".to_owned();
    let call = names.call().in_process().apply(move |names| {
        names.push(more);
        names.clone()
    });
    let mut future = std::pin::pin!(call.into_future());
    let all = loop {
        if let Poll::Ready(all) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            break all;
        }
        std::thread::yield_now();
    };
    assert_eq!(all.unwrap(), ["Ada", "Byron"]);
}
