//! One thread of the process that watches the pollers of sleeping workers which sleep on something else: the workers of
//! a rack program, which sleep where other machines can wake them.
//!
//! A worker arms its place after it has announced its sleep; the poll thread disarms it before it wakes the worker,
//! both under the lock. So either the worker finds its place disarmed and arms it anew (and the kernel reports pending
//! events at once), or the poll thread finds the worker's announcement and wakes it. While a worker is awake the poll
//! thread is woken for it at most once.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::registry::Shared;
use crate::unwind::or_give_up;

struct PollThread {
    registry: Registry,
    watched: Mutex<Vec<Option<Watched>>>,
}

struct Watched {
    worker: Arc<Shared>,
    poller: RawFd,
    armed: bool,
}

static POLL_THREAD: OnceLock<PollThread> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

/// The place of one worker with the poll thread, for as long as its poller is open.
pub(super) struct Place(usize);

fn poll_thread() -> io::Result<&'static PollThread> {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(poll_thread) = POLL_THREAD.get() {
        return Ok(poll_thread);
    }
    let mut poll = mio::Poll::new()?;
    let registry = poll.registry().try_clone()?;
    // Workers that sleep would never learn that this thread has gone.
    let run = move || or_give_up("the thread that watches the sockets of sleeping workers", || watch(&mut poll));
    std::thread::Builder::new().name("trust-poll".to_owned()).spawn(run)?;
    Ok(POLL_THREAD.get_or_init(|| PollThread { registry, watched: Mutex::default() }))
}

/// Body of the thread.
fn watch(poll: &mut mio::Poll) {
    let mut events = mio::Events::with_capacity(64);
    loop {
        if let Err(error) = poll.poll(&mut events, None)
            && error.kind() != io::ErrorKind::Interrupted
        {
            panic!("its poller failed: {error}");
        }
        #[cfg(test)]
        assert!(!tests::IS_PLANTED.load(std::sync::atomic::Ordering::Relaxed), "planted");
        if let Some(poll_thread) = POLL_THREAD.get() {
            events.iter().for_each(|event| poll_thread.wake(event.token()));
        }
    }
}

impl PollThread {
    fn watched(&self) -> MutexGuard<'_, Vec<Option<Watched>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, token: Token) {
        let worker = {
            let mut watched = self.watched();
            let Some(Some(watched)) = watched.get_mut(token.0) else { return };
            self.disarm(watched);
            Arc::clone(&watched.worker)
        };
        // The published work is the event, which the kernel has made visible.
        let _ = worker.parker.publish(|| ());
    }

    fn disarm(&self, watched: &mut Watched) {
        if std::mem::take(&mut watched.armed) {
            // It was registered and is open, so this cannot fail.
            let _ = self.registry.deregister(&mut SourceFd(&watched.poller));
        }
    }
}

impl Place {
    pub(super) fn new(worker: Arc<Shared>, poller: RawFd) -> io::Result<Self> {
        let mut all = poll_thread()?.watched();
        let place = all.iter().position(Option::is_none).unwrap_or_else(|| {
            all.push(None);
            all.len() - 1
        });
        all[place] = Some(Watched { worker, poller, armed: false });
        Ok(Place(place))
    }

    /// Has the worker woken when there is an event in its poller, at once if there is one already.
    pub(super) fn arm(&self) -> io::Result<()> {
        let poll_thread = poll_thread()?;
        let mut all = poll_thread.watched();
        if let Some(watched) = &mut all[self.0]
            && !watched.armed
        {
            poll_thread.registry.register(&mut SourceFd(&watched.poller), Token(self.0), Interest::READABLE)?;
            watched.armed = true;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(poll_thread) = POLL_THREAD.get()
            && let Some(mut watched) = poll_thread.watched()[self.0].take()
        {
            poll_thread.disarm(&mut watched);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::fiber::stack::child::in_child;
    use crate::park::Waker;

    /// Makes the poll thread panic at its next event.
    pub(super) static IS_PLANTED: AtomicBool = AtomicBool::new(false);

    /// Sleeps out of reach of the poller for sockets, as the workers of a rack program do.
    #[derive(Default)]
    struct Elsewhere {
        is_woken: Mutex<bool>,
        woken: Condvar,
    }

    // SAFETY: neither function calls the library.
    #[allow(unsafe_code)]
    unsafe impl Waker for Elsewhere {
        fn park(&self, _: Option<Duration>, is_idle: &mut dyn FnMut() -> bool) {
            let mut is_woken = self.is_woken.lock().unwrap();
            if !*is_woken && is_idle() {
                is_woken = self.woken.wait_while(is_woken, |is_woken| !*is_woken).unwrap();
            }
            *is_woken = false;
        }

        fn wake(&self) {
            *self.is_woken.lock().unwrap() = true;
            self.woken.notify_one();
        }
    }

    /// Waits for a socket on a worker that sleeps elsewhere. The byte comes while it sleeps.
    fn wait_for_a_byte() {
        let pool = crate::Threadpool::builder().workers(1).pin(false).spin(Duration::ZERO).build();
        pool.spawn(|| crate::link::attach(None, Some(Box::<Elsewhere>::default()))).join().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = crate::net::TcpStream::from_std(listener.accept().unwrap().0).unwrap();
        let (ready, at_last) = std::sync::mpsc::channel();
        let waits = pool.spawn(move || {
            let mut bytes = [0];
            (&server).read_exact(&mut bytes).unwrap();
            ready.send(()).unwrap();
            (&server).read_exact(&mut bytes)
        });
        client.write_all(&[1]).unwrap();
        at_last.recv().unwrap();
        let is_armed = || POLL_THREAD.get().is_some_and(|it| it.watched().iter().flatten().any(|place| place.armed));
        limits::wait_until("the worker sleeps", is_armed);
        IS_PLANTED.store(true, Ordering::Relaxed);
        client.write_all(&[2]).unwrap();
        let start = Instant::now();
        while !waits.is_finished() && start.elapsed() < limits::HANG {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_panic_of_the_thread_ends_the_process_and_is_named() {
        const SELF: &str = concat!(module_path!(), "::a_panic_of_the_thread_ends_the_process_and_is_named");
        let output = in_child(SELF, wait_for_a_byte);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(libc::SIGABRT), "{said}");
        let expected =
            "the thread that watches the sockets of sleeping workers has panicked: planted; the process ends";
        assert!(said.contains(expected), "{said}");
    }
}
