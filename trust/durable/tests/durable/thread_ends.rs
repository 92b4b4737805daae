//! Calls in destructors of thread-locals, before and after the thread's trustee has ended.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use trust::Threadpool;
use trust_durable::{Durable, PCell, Prc};

type Counter = Durable<Prc<'static, PCell<'static, u64>>>;

/// Call on the pool, made by a destructor of a thread-local.
type Form = fn(&Counter);

fn open(trustee: trust::TrusteeReference, folder: &Path) -> Counter {
    Durable::<Prc<PCell<u64>>>::open(trustee, folder, |tx| Prc::new(PCell::new(0), tx)).unwrap()
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

macro_rules! add {
    () => {
        |counter, tx| counter.set(counter.get() + 1, tx)
    };
    (ok) => {
        |counter, tx| {
            counter.set(counter.get() + 1, tx);
            Ok::<(), u8>(())
        }
    };
    (with) => {
        |counter, tx, by: u64| counter.set(counter.get() + by, tx)
    };
    (ok with) => {
        |counter, tx, by: u64| {
            counter.set(counter.get() + by, tx);
            Ok::<(), u8>(())
        }
    };
}

/// Calls that add 1.
const ADDING: [(&str, Form); 14] = [
    ("apply", |it| it.apply(add!())),
    ("call, apply", |it| it.call().apply(add!()).wait().unwrap()),
    ("attempt", |it| it.attempt(add!(ok)).unwrap()),
    ("call, attempt", |it| it.call().attempt(add!(ok)).wait().unwrap().unwrap()),
    ("apply_then", |it| it.apply_then(add!(), |()| ())),
    ("call, apply, then", |it| it.call().apply(add!()).then(|_| ())),
    ("attempt_then", |it| it.attempt_then(add!(ok), |_| ())),
    ("call, attempt, then", |it| it.call().attempt(add!(ok)).then(|_| ())),
    ("apply_with", |it| it.apply_with(add!(with), 1)),
    ("call, with, attempt", |it| it.call().with(1).attempt(add!(ok with)).wait().unwrap().unwrap()),
    ("call, with, apply, then", |it| it.call().with(1).apply(add!(with)).then(|_| ())),
    ("call, with, attempt, then", |it| it.call().with(1).attempt(add!(ok with)).then(|_| ())),
    ("apply_async", |it| block_on(it.apply_async(add!()))),
    ("call, attempt_async", |it| block_on(it.call().attempt(add!(ok)).into_future()).unwrap().unwrap()),
];

/// Calls that leave the value as it is.
const OTHERS: [(&str, Form); 5] = [
    ("peek", |it| _ = it.peek(|counter| counter.get())),
    ("sync", |it| it.sync().unwrap()),
    ("stats", |it| _ = it.stats().unwrap()),
    ("snapshot", |it| it.snapshot(tempfile::tempdir().unwrap().path()).unwrap()),
    ("clone", |it| drop(it.clone())),
];

/// Result of a destructor's call: the text of its panic, if it panicked.
type Came = Arc<Mutex<Option<Result<(), String>>>>;

struct Last {
    counter: Counter,
    form: Form,
    came: Came,
}

impl Drop for Last {
    fn drop(&mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.form)(&self.counter)));
        let outcome = outcome.map_err(|panic| {
            *panic
                .downcast::<String>()
                .unwrap_or_else(|panic| Box::new((*panic.downcast::<&str>().expect("text")).to_owned()))
        });
        *self.came.lock().unwrap() = Some(outcome);
    }
}

thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });

/// Things that the thread has used before it registers its thread-local, which is then dropped first.
#[derive(Clone, Copy, PartialEq)]
enum After {
    Nothing,
    ItsTrustee,
    ACall,
}

/// Runs a thread that uses the pool, with a thread-local that uses it at the thread's end.
fn run(counter: Counter, form: Form, after: After) -> Result<(), String> {
    let came = Came::default();
    let last = Last { counter, form, came: Arc::clone(&came) };
    let thread = thread::spawn(move || {
        match after {
            After::Nothing => {}
            After::ItsTrustee => _ = trust::local_trustee(),
            After::ACall => last.counter.apply(|_, _| ()),
        }
        LAST.with(|_| ());
        last.counter.apply(|_, _| ());
        LAST.set(Some(last));
    });
    thread.join().unwrap();
    let outcome = came.lock().unwrap().take();
    outcome.expect("the destructor has run")
}

#[test]
fn destructors_of_thread_locals_call_while_the_threads_trustee_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(pool.trustees()[0], folder.path());
    let mut expected = 0;
    for after in [After::ItsTrustee, After::ACall] {
        for (name, form) in ADDING.into_iter().chain(OTHERS) {
            assert_eq!(run(counter.clone(), form, after), Ok(()), "{name}");
            expected += u64::from(ADDING.iter().any(|adding| adding.0 == name));
            assert_eq!(counter.peek(|counter| counter.get()), expected, "{name}");
        }
    }
    assert_eq!(run(counter.clone(), |it| it.clone().close().unwrap(), After::ItsTrustee), Ok(()));
    assert_eq!(open(pool.trustees()[0], folder.path()).peek(|counter| counter.get()), expected);
}

#[test]
fn destructors_of_thread_locals_that_call_later_panic_and_the_process_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(pool.trustees()[0], folder.path());
    for (name, form) in ADDING.into_iter().chain(OTHERS) {
        let outcome = run(counter.clone(), form, After::Nothing);
        if name.ends_with("_async") || name == "clone" {
            assert_eq!(outcome, Ok(()), "{name} needs no trustee of its thread");
        } else {
            assert!(outcome.is_err_and(|text| text.contains("this thread is ending")), "{name}");
        }
    }
    assert_eq!(counter.apply(|counter, _| counter.get()), 2, "those of the futures");
}

#[test]
fn destructors_of_thread_locals_call_the_pool_of_their_own_thread() {
    for after in [After::Nothing, After::ItsTrustee, After::ACall] {
        for (name, form) in ADDING.into_iter().chain(OTHERS) {
            // No other thread serves this thread's trustee while its own code waits for a future.
            if name.ends_with("_async") {
                continue;
            }
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().to_path_buf();
            let came = Came::default();
            let tell = Arc::clone(&came);
            let thread = thread::spawn(move || {
                if after == After::ItsTrustee {
                    trust::local_trustee();
                }
                if after != After::ACall {
                    LAST.with(|_| ());
                }
                let counter = open(trust::local_trustee(), &path);
                counter.apply(|_, _| ());
                LAST.set(Some(Last { counter, form, came: tell }));
            });
            thread.join().unwrap();
            let outcome = came.lock().unwrap().take().expect("the destructor has run");
            assert_eq!(outcome.is_ok(), after != After::Nothing || name == "clone", "{name}: {outcome:?}");
            let adds = after != After::Nothing && ADDING.iter().any(|adding| adding.0 == name);
            let pool = Threadpool::new(1);
            let left = open(pool.trustees()[0], folder.path()).peek(|counter| counter.get());
            assert_eq!(left, u64::from(adds), "{name}: what was done is on disk");
        }
    }
}

#[test]
fn a_thread_may_end_its_trustee_and_call_again() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(pool.trustees()[0], folder.path());
    let caller = counter.clone();
    let thread = thread::spawn(move || {
        for round in 1..=3 {
            for _ in 0..3 {
                caller.apply_then(add!(), |()| ());
            }
            assert_eq!(caller.apply(|counter, _| counter.get()), 3 * round);
            trust::finish();
        }
    });
    thread.join().unwrap();
    assert_eq!(counter.apply(|counter, _| counter.get()), 9);
}

/// The captures of callbacks that are never called are dropped with their thread, and may call the pool.
struct Captured(Counter, Arc<Mutex<u64>>);

impl Drop for Captured {
    fn drop(&mut self) {
        *self.1.lock().unwrap() += 1;
        self.0.apply_then(add!(), |()| ());
        panic!("a destructor that panics");
    }
}

#[test]
fn captures_of_callbacks_go_with_their_thread() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let counter = open(pool.trustees()[0], folder.path());
    let dropped = Arc::new(Mutex::new(0));
    let (caller, count) = (counter.clone(), Arc::clone(&dropped));
    let thread = thread::spawn(move || {
        for _ in 0..20 {
            let captured = Captured(caller.clone(), Arc::clone(&count));
            caller.apply_then(add!(), move |()| std::mem::forget(captured));
        }
    });
    thread.join().unwrap();
    let dropped = *dropped.lock().unwrap();
    assert!(dropped <= 20);
    counter.sync().unwrap();
    assert!(counter.peek(|counter| counter.get()) >= 20);
}
