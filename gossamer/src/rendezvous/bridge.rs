//! Control bridge: the end of this machine's control channel on our side, where no launcher of ours holds it.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::LAST_MESSAGES_TIMEOUT;
use crate::control::Control;

/// End of this machine's control channel, until the end of the program.
pub(super) struct ControlBridge {
    control: Arc<Control>,
    is_done: Mutex<bool>,
    done: Condvar,
}

static BRIDGE: OnceLock<ControlBridge> = OnceLock::new();

impl ControlBridge {
    /// Stores this side's end of the control channel, for [`send_last_messages`].
    pub(super) fn begin(control: Arc<Control>) {
        let bridge = ControlBridge { control, is_done: Mutex::new(false), done: Condvar::new() };
        let _ = BRIDGE.set(bridge); // a process starts one program
    }

    /// All messages of this machine have been passed on, or the program is over.
    pub(super) fn finish() {
        if let Some(bridge) = BRIDGE.get() {
            *bridge.is_done.lock().unwrap_or_else(PoisonError::into_inner) = true;
            bridge.done.notify_all();
        }
    }

    fn wait(&self, most: Option<Duration>) {
        let done = self.is_done.lock().unwrap_or_else(PoisonError::into_inner);
        match most {
            Some(most) => drop(self.done.wait_timeout_while(done, most, |is_done| !*is_done)),
            None => drop(self.done.wait_while(done, |is_done| !*is_done)),
        }
    }
}

/// Waits until the last messages of this machine have been sent: its process is about to end, and their carrier with
/// it. Does not wait if our launcher holds the other end.
pub(crate) fn send_last_messages() {
    if let Some(bridge) = BRIDGE.get() {
        bridge.control.end_of_messages();
        bridge.wait(Some(LAST_MESSAGES_TIMEOUT));
    }
}

/// Waits until all others have left; on machine 0, which has reported that the program is over.
pub(crate) fn wait_for_the_others() {
    if let Some(bridge) = BRIDGE.get() {
        bridge.wait(None);
    }
}
