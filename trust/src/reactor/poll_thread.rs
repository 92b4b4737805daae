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
    std::thread::Builder::new().name("trust-poll".to_owned()).spawn(move || {
        let mut events = mio::Events::with_capacity(64);
        loop {
            if let Err(error) = poll.poll(&mut events, None)
                && error.kind() != io::ErrorKind::Interrupted
            {
                panic!("the poller of the poll thread failed: {error}");
            }
            if let Some(poll_thread) = POLL_THREAD.get() {
                events.iter().for_each(|event| poll_thread.wake(event.token()));
            }
        }
    })?;
    Ok(POLL_THREAD.get_or_init(|| PollThread { registry, watched: Mutex::default() }))
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
