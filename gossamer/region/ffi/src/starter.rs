//! The thread of each machine that starts the program's threads. They have its filter of system calls from the start:
//! to install one takes the system half a millisecond.
//!
//! It starts some in advance, which wait for their work: the worker then need not wait for another thread.

use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libc::pthread_t;
use trust::Promise;

use crate::{affinity, own_stack, trap};

type Run = Box<dyn FnOnce() + Send>;

/// A thread that waits for work.
struct Thread {
    /// The C library's id of it.
    id: pthread_t,
    work: Sender<Run>,
}

/// Threads that wait for work.
const IN_ADVANCE: usize = 2;

static WAITING: Mutex<Vec<Thread>> = Mutex::new(vec![]);

fn waiting() -> MutexGuard<'static, Vec<Thread>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Order {
    /// A thread for this work now, and word of its id, if there is one.
    Now(Run, Promise<Option<pthread_t>>),
    /// Threads in advance.
    More,
}

/// Where this machine's takes its orders; none if the system has refused it.
static ORDERS: OnceLock<Option<Sender<Order>>> = OnceLock::new();

/// In a fiber of the worker: has a thread that has run nothing yet run this, and returns the C library's id of it.
/// `None`: the system refuses.
pub(crate) fn start(run: Run) -> Option<pthread_t> {
    let orders = ORDERS.get_or_init(begin).as_ref()?;
    let first = waiting().pop();
    if let Some(thread) = first {
        let is_started = thread.work.send(run).is_ok();
        let _ = orders.send(Order::More); // the thread never ends
        return is_started.then_some(thread.id);
    }
    let (started, pending) = trust::promise();
    orders.send(Order::Now(run, started)).ok()?;
    pending.wait().ok()?
}

fn begin() -> Option<Sender<Order>> {
    let (orders, all) = mpsc::channel();
    let work = move || {
        affinity::use_all_processors();
        trap::filter_this_thread();
        for order in all {
            if let Order::Now(run, started) = order {
                started.keep(own_stack::spawn(run));
            }
            // If the system refuses, the next order finds none, and is told.
            while waiting().len() < IN_ADVANCE && start_in_advance() {}
        }
    };
    let started = std::thread::Builder::new().name("gossamer-starts".to_owned()).spawn(work);
    started.is_ok().then_some(orders)
}

fn start_in_advance() -> bool {
    let (work, given) = mpsc::channel::<Run>();
    let started = own_stack::spawn(Box::new(move || {
        if let Ok(run) = given.recv() {
            run();
        }
    }));
    let thread = started.map(|id| Thread { id, work });
    let is_started = thread.is_some();
    waiting().extend(thread);
    is_started
}
