//! Signals that end a machine, from the first moment of its start: by default they do nothing to the first process of a
//! container. One thread waits for them. Until the machine has joined the others a signal ends it; from then on it is a
//! signal to the program.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use rustix::process::Signal;

use super::error::status;
use super::starter::Starter;
use super::{LAST_MESSAGES_TIMEOUT, RendezvousError};
use crate::complain::complain;
use crate::fate;
use crate::supervise::signals::Signals;

/// Handling of the signals to this process.
pub(super) struct Interrupts {
    state: Arc<Mutex<State>>,
}

/// Handler of a signal; it may wait for the next.
type PassOn = Box<dyn FnMut(Signal, &Signals) + Send>;

#[derive(Default)]
struct State {
    /// Launcher, which is asked to end all processes.
    starter: Option<Arc<Starter>>,
    /// Handler that a signal is passed on to; with none it ends this process.
    pass_on: Option<PassOn>,
}

impl Interrupts {
    /// Makes signals end this process.
    pub(super) fn catch() -> Result<Interrupts, RendezvousError> {
        let signals = Signals::catch().map_err(RendezvousError::system("catch signals"))?;
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        let receive = move || {
            while let Ok(signal) = signals.wait() {
                let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                match &mut state.pass_on {
                    Some(pass_on) => pass_on(signal, &signals),
                    None => end(signal, state.starter.take()),
                }
            }
        };
        let thread = std::thread::Builder::new().name("gossamer-signals".to_owned()).stack_size(128 * 1024);
        thread
            .spawn(move || fate::or_end("the thread that takes signals", receive))
            .map_err(RendezvousError::system("start a thread"))?;
        Ok(Interrupts { state })
    }

    /// Reports a signal that ends the start to this launcher too.
    pub(super) fn report_to(&self, starter: Arc<Starter>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).starter = Some(starter);
    }

    /// Passes signals on from here on; they no longer end this process by themselves.
    pub(super) fn pass_on(&self, pass_on: impl FnMut(Signal, &Signals) + Send + 'static) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pass_on = Some(Box::new(pass_on));
    }

    /// This process is alone: from here on a signal has its default effect.
    pub(super) fn by_default(&self) {
        self.pass_on(|signal, _| {
            let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw()); // it does not return
            std::process::exit(status(signal).into())
        });
    }
}

fn end(signal: Signal, starter: Option<Arc<Starter>>) -> ! {
    let reason = RendezvousError::Interrupted(signal).to_string();
    complain(format_args!("{reason}"));
    let (tell, told) = mpsc::channel();
    let abort = move || {
        starter.inspect(|starter| starter.abort(status(signal), &reason));
        let _ = tell.send(()); // the receiver may have stopped waiting
    };
    // An unresponsive process manager does not delay this process.
    if std::thread::Builder::new().spawn(abort).is_ok() {
        let _ = told.recv_timeout(LAST_MESSAGES_TIMEOUT);
    }
    std::process::exit(status(signal).into())
}
