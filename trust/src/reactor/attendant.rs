//! One thread of the process that watches the pollers of sleeping workers which sleep on something else: the workers of a
//! rack program, which sleep where other machines can wake them.
//!
//! A worker arms its place after it has announced its sleep; the attendant disarms it before it wakes the worker, both
//! under the lock. So either the worker finds its place disarmed and arms it anew (and the kernel tells at once what is
//! there already), or the attendant finds the worker's announcement and wakes it. While a worker is awake the attendant
//! is woken for it at most once.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::registry::Shared;

struct Attendant {
    registry: Registry,
    attended: Mutex<Vec<Option<Attended>>>,
}

struct Attended {
    worker: Arc<Shared>,
    poller: RawFd,
    armed: bool,
}

static ATTENDANT: OnceLock<Attendant> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

/// The place of one worker with the attendant, for as long as its poller is open.
pub(super) struct Place(usize);

fn attendant() -> io::Result<&'static Attendant> {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(attendant) = ATTENDANT.get() {
        return Ok(attendant);
    }
    let mut poll = mio::Poll::new()?;
    let registry = poll.registry().try_clone()?;
    std::thread::Builder::new().name("trust-attendant".to_owned()).spawn(move || {
        let mut events = mio::Events::with_capacity(64);
        loop {
            if let Err(error) = poll.poll(&mut events, None)
                && error.kind() != io::ErrorKind::Interrupted
            {
                panic!("the poller of the attendant of sockets failed: {error}");
            }
            if let Some(attendant) = ATTENDANT.get() {
                events.iter().for_each(|event| attendant.wake(event.token()));
            }
        }
    })?;
    Ok(ATTENDANT.get_or_init(|| Attendant { registry, attended: Mutex::default() }))
}

impl Attendant {
    fn attended(&self) -> MutexGuard<'_, Vec<Option<Attended>>> {
        self.attended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, token: Token) {
        let worker = {
            let mut attended = self.attended();
            let Some(Some(attended)) = attended.get_mut(token.0) else { return };
            self.disarm(attended);
            Arc::clone(&attended.worker)
        };
        // The event, which the kernel has made visible, is the work.
        let _ = worker.parker.publish(|| ());
    }

    fn disarm(&self, attended: &mut Attended) {
        if std::mem::take(&mut attended.armed) {
            // It was registered and is open, so there is nothing that could go wrong.
            let _ = self.registry.deregister(&mut SourceFd(&attended.poller));
        }
    }
}

impl Place {
    pub(super) fn new(worker: Arc<Shared>, poller: RawFd) -> io::Result<Self> {
        let mut all = attendant()?.attended();
        let place = all.iter().position(Option::is_none).unwrap_or_else(|| {
            all.push(None);
            all.len() - 1
        });
        all[place] = Some(Attended { worker, poller, armed: false });
        Ok(Place(place))
    }

    /// Has the worker woken when there is an event in its poller, or is already.
    pub(super) fn arm(&self) -> io::Result<()> {
        let attendant = attendant()?;
        let mut all = attendant.attended();
        if let Some(attended) = &mut all[self.0]
            && !attended.armed
        {
            attendant.registry.register(&mut SourceFd(&attended.poller), Token(self.0), Interest::READABLE)?;
            attended.armed = true;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(attendant) = ATTENDANT.get()
            && let Some(mut attended) = attendant.attended()[self.0].take()
        {
            attendant.disarm(&mut attended);
        }
    }
}
