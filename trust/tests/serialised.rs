//! Arguments and results that travel serialised: each is written once, at any length and in every form of call, and an
//! error while one is written or read reaches the caller and leaves the property as it is.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trust::{Error, Held, Latch, Threadpool, Trust};

/// Bytes that serialise once: nothing is left for a second time.
struct Once(Cell<Option<Vec<u8>>>);

impl Once {
    fn new(len: usize) -> Once {
        Once(Cell::new(Some((0..len).map(|n| n as u8).collect())))
    }

    /// Number of bytes, checked against those that were made.
    fn len(self) -> usize {
        let bytes = self.0.take().expect("it was given");
        assert!((0..bytes.len()).all(|n| bytes[n] == n as u8));
        bytes.len()
    }
}

impl Serialize for Once {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.take().unwrap_or_default().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Once(Cell::new(Some(Vec::deserialize(deserializer)?))))
    }
}

/// Lengths around each limit at which a message travels in another way.
fn lengths() -> impl Iterator<Item = usize> {
    let near = |limit: usize| limit - 4..limit + 4;
    [0, 1, 100, 1000, 70_000].into_iter().chain([23, 63, 191].into_iter().flat_map(near))
}

/// Polls until it is ready.
fn outcome_of<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return outcome;
        }
        trust::yield_now();
    }
}

#[test]
fn an_argument_is_written_once_in_every_form_of_call() {
    let _watch = watchdog!();
    let pool = Threadpool::new(1);
    let (plain, latch) = (pool.entrust(0), pool.entrust(Latch::new(0)));
    for len in lengths() {
        let made = || Once::new(len);
        assert_eq!(plain.apply_with(|_, once: Once| once.len(), made()), len);
        assert_eq!(plain.call().with(made()).apply(|_, once: Once| once.len()).wait(), Ok(len));
        assert_eq!(latch.call().with(made()).launch(|_, once: Once| once.len()).wait().unwrap(), len);
        assert_eq!(latch.call().with(made()).launch_held(|_, once: Once| once.len()).wait(), Ok(len));
        let told = std::rc::Rc::new(Cell::new((0, 0)));
        let (one, two) = (std::rc::Rc::clone(&told), std::rc::Rc::clone(&told));
        plain.call().with(made()).apply(|_, once: Once| once.len()).then(move |result| {
            let n = result.unwrap();
            one.set((n, one.get().1))
        });
        latch.call().with(made()).launch(|_, once: Once| once.len()).then(move |result| {
            let n = result.unwrap();
            two.set((two.get().0, n))
        });
        trust::wait_all();
        assert_eq!(told.get(), (len, len));
        assert_eq!(trust::apply_each_with([(&plain, made())], |_, once: Once| once.len()), [len]);
        assert_eq!(outcome_of(plain.call().with(made()).apply(|_, once: Once| once.len()).into_future()), Ok(len));
        assert_eq!(outcome_of(latch.call().with(made()).launch(|_, once: Once| once.len()).into_future()), Ok(len));
        let (promise, pending) = trust::promise();
        pool.spawn(move || promise.keep_with(Once::new(len))).join().unwrap();
        assert_eq!(pending.wait().map(Once::len), Ok(len));
    }
}

#[test]
fn a_result_is_written_once_in_every_form_of_call() {
    let _watch = watchdog!();
    let pool = Threadpool::new(1);
    let (plain, latch) = (pool.entrust(0), pool.entrust(Latch::new(0)));
    for len in lengths() {
        assert_eq!(plain.apply_with(|_, len| Once::new(len), len).len(), len);
        assert_eq!(latch.call().with(len).launch(|_, len| Once::new(len)).wait().unwrap().len(), len);
        assert_eq!(latch.call().with(len).launch_held(|_, len| Once::new(len)).wait().unwrap().len(), len);
    }
}

/// A trust in front of bytes that are written once: it is counted once too.
#[test]
fn trusts_in_long_arguments_travel_with_them() {
    let _watch = watchdog!();
    let pool = Threadpool::new(1);
    let plain = pool.entrust(0);
    let drops = common::Drops::default();
    for len in lengths() {
        let counted = pool.entrust(drops.value(len));
        let read = |_: &mut i32, (trust, once): (Trust<common::Counted<usize>>, Once)| (trust, once.len());
        let (back, there) = plain.apply_with(read, (counted.clone(), Once::new(len)));
        assert_eq!(there, len);
        drop((back, counted));
    }
    drop(pool);
    assert_eq!(drops.count(), lengths().count());
}

/// The error to provoke.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Wrong {
    WriteFails,
    WritePanics,
    ReadFails,
    ReadPanics,
}

#[derive(Debug)]
struct Bad(Wrong);

impl Serialize for Bad {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Wrong::WriteFails => Err(S::Error::custom("it is not written")),
            Wrong::WritePanics => panic!("a panic while it is written"),
            _ => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Bad {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Wrong::deserialize(deserializer)? {
            Wrong::ReadPanics => panic!("a panic while it is read"),
            wrong => Err(D::Error::custom(format!("it is not read: {wrong:?}"))),
        }
    }
}

/// Result of a call: the kind of its error, or a panic at the caller.
fn came_of<R>(call: impl FnOnce() -> Result<R, Error>) -> String {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(_)) => "a value".to_owned(),
        Ok(Err(Error::Panicked { panic, .. })) => format!("panicked there: {panic}"),
        Ok(Err(Error::Codec { cause, .. })) => format!("codec: {cause}"),
        Ok(Err(other)) => format!("{other:?}"),
        Err(payload) => format!("panicked here: {}", common::text(&*payload)),
    }
}

#[test]
fn what_goes_wrong_with_a_value_is_told_alike_and_poisons_nothing() {
    let _watch = watchdog!();
    let pool = Threadpool::new(1);
    let (plain, latch) = (pool.entrust(0), pool.entrust(Latch::new(0)));
    for wrong in [Wrong::WriteFails, Wrong::WritePanics, Wrong::ReadFails, Wrong::ReadPanics] {
        let all = [
            came_of(|| plain.call().with(Bad(wrong)).apply(|_, _: Bad| ()).wait()),
            came_of(|| latch.call().with(Bad(wrong)).launch(|_, _: Bad| ()).wait()),
            came_of(|| latch.call().with(Bad(wrong)).launch_held(|_: &mut Held<'_, i32>, _: Bad| ()).wait()),
        ];
        assert!(all[0] == all[1] && all[0] == all[2] && all[0] != "a value", "argument, {wrong:?}: {all:?}");
        let all = [
            came_of(|| plain.call().with(wrong).apply(|_, wrong| Bad(wrong)).wait()),
            came_of(|| latch.call().with(wrong).launch(|_, wrong| Bad(wrong)).wait()),
            came_of(|| latch.call().with(wrong).launch_held(|_: &mut Held<'_, i32>, wrong| Bad(wrong)).wait()),
        ];
        assert!(all[0] == all[1] && all[0] == all[2] && all[0] != "a value", "result, {wrong:?}: {all:?}");
        assert_eq!(
            (plain.call().apply(|n| *n).wait(), latch.call().launch(|n| *n).wait()),
            (Ok(0), Ok(0)),
            "{wrong:?}"
        );
    }
    // The closure's own panic does.
    assert!(latch.call().with(()).launch(|_, ()| -> u8 { panic!("the closure's") }).wait().is_err());
    assert!(matches!(latch.call().launch(|n| *n).wait(), Err(Error::Poisoned { .. })));
}

/// A result whose destructor panics once it was written.
#[derive(Deserialize)]
struct DropPanics(bool);

impl Serialize for DropPanics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        false.serialize(serializer)
    }
}

impl Drop for DropPanics {
    fn drop(&mut self) {
        assert!(!self.0, "a panic while it is dropped");
    }
}

#[test]
fn a_result_whose_destructor_panics_poisons_nothing() {
    let _watch = watchdog!();
    let pool = Threadpool::new(1);
    let (plain, latch) = (pool.entrust(0), pool.entrust(Latch::new(0)));
    let applied = came_of(|| plain.call().with(()).apply(|_, ()| DropPanics(true)).wait());
    let launched = came_of(|| latch.call().with(()).launch(|_, ()| DropPanics(true)).wait());
    assert_eq!((&launched, &applied[..]), (&applied, "panicked there: a panic while it is dropped"));
    assert_eq!((plain.call().apply(|n| *n).wait(), latch.call().launch(|n| *n).wait()), (Ok(0), Ok(0)));
}
