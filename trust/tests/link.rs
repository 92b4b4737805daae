//! `trust::link` is not for programs, and safe code reaches it: every public item of it is called where nothing may
//! wait, and where anything may. Nothing else runs on a property whose closure is in the middle of its code, whichever
//! item that closure calls.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use trust::link::{self, Wait};
use trust::{Threadpool, Trust, TrusteeReference, local_trustee};

const SOURCE: &str = include_str!("../src/api/link.rs");

/// Items that are not called (types, traits, numbers), and those that only unsafe code can call.
const NOT_CALLED: [&str; 20] = [
    "AskedMove",
    "AnswerWait",
    "Counter",
    "Wait",
    "Memory",
    "Buffer",
    "REMOTE_MESSAGE_BYTES_MAX",
    "Waker",
    "Probe",
    "Carrier",
    "Operation",
    "LongClosure",
    "LossWatch",
    "Contested",
    "TraceEvent",
    "TraceKind",
    "Trace",
    "PAIR_BYTES",
    "call_scoped",
    "attach",
];

type Call = fn(TrusteeReference);

static MOVING: LazyLock<Threadpool> = LazyLock::new(|| Threadpool::builder().workers(1).trustees(1).build());

/// All others, each called with a trustee of a pool.
const CALLED: [(&str, Call); 35] = [
    ("ask_to_move", |_| ignore(link::ask_to_move(&MOVING, 0, 0))),
    ("moving", |_| ignore(link::moving())),
    ("begin", |there| WAIT.with_borrow_mut(|wait| *wait = Some(link::begin(there, || 5)))),
    ("wait", |_| ignore(WAIT.take().expect("it was begun")())),
    ("call", |there| ignore(link::call(there, || 5))),
    ("call_then", |there| link::call_then(there, || 5, ignore)),
    ("entrust_remote", |there| ignore(link::entrust_remote(there, || 5))),
    ("bind_here", |_| link::bind_here()),
    ("entrust_here", |_| ignore(link::entrust_here(5))),
    ("drops_old", |_| assert!(!link::drops_old())),
    ("is_ending", |_| ignore(link::is_ending())),
    ("post", |there| [there, local_trustee()].into_iter().for_each(|to| link::post(to, |_| (), &[1, 2, 3]))),
    ("without_waiting", |there| link::without_waiting(|| assert!(catch_unwind(|| link::call(there, || 5)).is_err()))),
    ("deadline_after", |_| ignore(link::deadline_after(Duration::MAX))),
    ("later", |_| ignore(link::later(Instant::now(), Duration::MAX))),
    ("lose", |_| link::lose(3)),
    ("lose_elsewhere", |_| link::lose_elsewhere(3)),
    ("promise_at", |there| link::promise_at(there.id()).0.keep(5)),
    ("watch_loss", |there| ignore(link::watch_loss(there.id(), || ()))),
    ("memory", |there| [there, local_trustee()].into_iter().for_each(|of| ignore(link::memory(of)))),
    ("probe", |there| [there, local_trustee()].into_iter().for_each(|of| ignore(link::probe(of)))),
    ("running_fiber", |there| [there, local_trustee()].into_iter().for_each(|of| ignore(link::running_fiber(of)))),
    ("fiber_id", |_| ignore(link::fiber_id())),
    ("thread_id", |there| ignore(link::thread_id(there))),
    ("unanswered", |_| ignore(link::unanswered(&trust::dump()))),
    ("thread_state", |there| ignore(link::thread_state(there))),
    ("trace", |there| ignore(link::trace(&[there, local_trustee()], Duration::from_millis(1)))),
    ("cpu_quota", |_| ignore(link::cpu_quota())),
    ("panic_text", |_| ignore(link::panic_text(&"text"))),
    ("worker_id", |_| ignore(TrusteeReference::from_id(link::worker_id(7, 9)))),
    ("long_closures", |_| ignore(link::long_closures())),
    ("set_linger", |_| link::set_linger(Duration::ZERO)),
    ("set_machine", |_| ignore(link::set_machine(3))),
    ("withdraw", |_| {
        let (promise, pending) = trust::promise::<i32>();
        assert!(link::withdraw(&mut VecDeque::from([promise]), pending.id()));
    }),
    ("wait_in_line", |_| {
        let (promise, pending) = trust::promise();
        promise.keep(5);
        ignore(link::wait_in_line(pending, Duration::ZERO, |_| false));
    }),
];

fn ignore<R>(_: R) {}

thread_local! {
    static WAIT: RefCell<Option<Wait<i32>>> = const { RefCell::new(None) };
    /// Dropped with the thread.
    static LAST: Cell<Option<Box<dyn Send>>> = const { Cell::new(None) };
}

/// The names that `link.rs` makes public.
fn names() -> Vec<String> {
    let code: String =
        SOURCE.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut names = Vec::new();
    for item in code.split("\npub ").skip(1) {
        let item =
            item.split([';', '(', ':', '<']).next().map(|first| if item.starts_with("use ") { item } else { first });
        let item = item.unwrap_or_default();
        if let Some(used) = item.strip_prefix("use ") {
            let used = used.split(';').next().unwrap_or_default();
            let list = used.rsplit_once('{').map_or_else(|| used.rsplit("::").next().unwrap_or(used), |(_, list)| list);
            let last = |name: &str| name.rsplit(" as ").next().unwrap_or(name).trim().to_owned();
            names.extend(list.trim_end_matches('}').split(',').map(last).filter(|name| !name.is_empty()));
        } else {
            names.extend(item.split_whitespace().last().map(str::to_owned));
        }
    }
    names
}

#[test]
fn each_public_item_is_in_one_of_the_lists() {
    let names = names();
    assert!(names.len() > 25 && names.iter().any(|name| name == "begin"), "{names:?}");
    // `watch_rack` is once a process: see below.
    let listed = |name: &str| NOT_CALLED.contains(&name) || CALLED.iter().any(|(called, _)| *called == name);
    let missing: Vec<_> = names.iter().filter(|name| !listed(name) && *name != "watch_rack").collect();
    assert!(missing.is_empty(), "safe in every context, or unsafe? {missing:?}");
}

/// Adds one to a property again and again, from another thread.
struct Adder(thread::JoinHandle<()>, Arc<AtomicUsize>);

impl Adder {
    fn start(property: &Trust<usize>) -> Adder {
        let (property, stop) = (property.clone(), Arc::new(AtomicUsize::new(0)));
        let until = Arc::clone(&stop);
        let add = move || {
            while until.load(Ordering::SeqCst) == 0 {
                property.apply(|count| *count += 1);
            }
        };
        Adder(thread::spawn(add), stop)
    }

    fn end(self) {
        self.1.store(1, Ordering::SeqCst);
        common::join_and_serve(self.0);
    }
}

#[test]
fn trap_01_no_item_lets_another_closure_run_on_the_property_of_one_that_runs() {
    let _watch = watchdog!();
    let pool = Threadpool::new(1);
    let there = pool.trustees()[0];
    let property = local_trustee().entrust(0);
    for (index, (name, _)) in CALLED.into_iter().enumerate() {
        if name == "wait" {
            // The awaited event does not come for as long as the other thread takes to ask for its turn.
            WAIT.set(Some(link::begin(there, || {
                thread::sleep(Duration::from_millis(100));
                5
            })));
        }
        let adder = Adder::start(&property);
        let before = property.apply(|count| *count);
        common::serve_until(|| property.apply(|count| *count) > before + 10);
        let (before, after) = property.apply(move |count| {
            let before = *count;
            let _ = catch_unwind(AssertUnwindSafe(|| CALLED[index].1(there)));
            (before, *count)
        });
        assert_eq!(before, after, "a closure of another thread ran while one called `{name}`");
        adder.end();
    }
}

#[test]
fn each_item_returns_or_panics_in_callbacks_fibers_and_while_the_thread_ends() {
    let _watch = watchdog!();
    struct Calls(Call, TrusteeReference);
    impl Drop for Calls {
        fn drop(&mut self) {
            let _ = catch_unwind(AssertUnwindSafe(|| (self.0)(self.1)));
        }
    }
    let pool = Threadpool::new(1);
    let there = pool.trustees()[0];
    let property = pool.entrust(0);
    for (name, call) in CALLED.into_iter().filter(|(name, _)| !["wait", "set_machine"].contains(name)) {
        println!("{name}");
        call(there);
        trust::spawn(move || call(there)).join().unwrap();
        property.apply_then(|_| (), move |()| drop(catch_unwind(AssertUnwindSafe(|| call(there)))));
        trust::wait_all();
        // Before the thread's worker is there, and after it.
        for begins_first in [true, false] {
            let thread = thread::spawn(move || {
                if begins_first {
                    trust::yield_now();
                }
                LAST.set(Some(Box::new(Calls(call, there))));
                trust::yield_now();
            });
            common::join_and_serve(thread);
        }
    }
}

#[test]
fn a_waiter_leaves_its_line_or_takes_its_turn() {
    // By a keeper that is known: the tests beside this one call `lose_elsewhere`.
    let keeper = local_trustee().id();
    let (promise, pending) = link::promise_at::<i32>(keeper);
    let mut line = VecDeque::from([promise]);
    assert!(link::wait_in_line(pending, Duration::ZERO, |id| link::withdraw(&mut line, id)).is_none());
    assert!(line.is_empty());
    let (promise, pending) = link::promise_at(keeper);
    let mut line = VecDeque::from([promise]);
    let turn = link::wait_in_line(pending, Duration::ZERO, |id| {
        line.pop_front().unwrap().keep(5);
        link::withdraw(&mut line, id)
    });
    assert!(matches!(turn, Some(Ok(5))), "its turn came as it gave up: {turn:?}");
}
