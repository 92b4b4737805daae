//! The thread of each machine that starts the program's threads. They have its filter of system calls from the start:
//! to install one takes the system half a millisecond.
//!
//! It starts some in advance, which wait for their work: the worker then need not wait for another thread.

use std::ffi::CStr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libc::pthread_t;
use trust::Promise;

use crate::{affinity, ids, own_stack, trap};

/// Work of a thread, which returns whether the thread may do other work afterwards.
type Run = Box<dyn FnOnce() -> bool + Send>;

/// A thread that waits for work: it is new, or the host of a thread that has gone to another machine.
struct Thread {
    /// The C library's id of it.
    id: pthread_t,
    work: Sender<Run>,
}

/// Name of the thread, and of those that wait.
const NAME: &CStr = c"gossamer-starts";
/// Threads that wait for work.
const IN_ADVANCE: usize = 2;
/// Most threads that wait for other work.
const KEPT: usize = 16;

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

/// In a fiber of the worker: has a thread run this in whose own storage the program has nothing, and returns the C
/// library's id of it. `None`: the system refuses.
pub(crate) fn start(run: Run) -> Option<pthread_t> {
    let orders = ORDERS.get_or_init(begin).as_ref()?;
    let first = waiting().pop();
    if let Some(thread) = first {
        let is_started = thread.work.send(run).is_ok();
        if waiting().len() < IN_ADVANCE {
            let _ = orders.send(Order::More); // the thread never ends
        }
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
                started.keep(own_stack::spawn(Box::new(move || do_work(run, None))));
            }
            // If the system refuses, the next order finds none, and is told.
            while waiting().len() < IN_ADVANCE && start_in_advance() {}
        }
    };
    let started = std::thread::Builder::new().name(NAME.to_string_lossy().into_owned()).spawn(work);
    started.is_ok().then_some(orders)
}

/// Does work, and what comes afterwards.
fn do_work(first: Run, way: Option<(Sender<Run>, Receiver<Run>)>) {
    let (own, given) = way.unwrap_or_else(mpsc::channel);
    let mut next = Some(first);
    while let Some(run) = next.take() {
        let keeps_on = run() && {
            let mut waiting = waiting();
            let has_room = waiting.len() < KEPT;
            if has_room {
                // SAFETY: a name of fewer than 16 bytes.
                unsafe { libc::prctl(libc::PR_SET_NAME, NAME.as_ptr()) };
                waiting.push(Thread { id: ids::real_self(), work: own.clone() });
            }
            has_room
        };
        next = keeps_on.then(|| given.recv().ok()).flatten();
    }
}

fn start_in_advance() -> bool {
    let (work, given) = mpsc::channel::<Run>();
    let own = work.clone();
    let started = own_stack::spawn(Box::new(move || {
        if let Ok(run) = given.recv() {
            do_work(run, Some((own, given)));
        }
    }));
    let thread = started.map(|id| Thread { id, work });
    let is_started = thread.is_some();
    waiting().extend(thread);
    is_started
}
