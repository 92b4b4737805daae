//! A thread that goes before all others for a while: what kills thousands that fork has to get the processor while they
//! want it too. Root may do that; for others it is not there.

/// While it lives, this thread goes first.
pub(super) struct Urgent {
    /// What to go back to.
    policy: Option<libc::c_int>,
}

impl Urgent {
    /// For a short while: it is to sleep as soon as there is nothing to do.
    pub(super) fn start() -> Urgent {
        // SAFETY: the call takes and gives a number; 0 is this thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        let is_ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
        Urgent { policy: (is_ordinary && set(libc::SCHED_FIFO, 1)).then_some(policy) }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Some(policy) = self.policy {
            set(policy, 0); // what it was: nobody refuses that
        }
    }
}

/// Whether this thread is scheduled so from here on.
fn set(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the call reads `parameters`, which outlives it; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, policy, &parameters) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_back_to_what_it_was() {
        // SAFETY: as in `start`.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let urgent = Urgent::start();
        assert_eq!(policy(), if urgent.policy.is_some() { libc::SCHED_FIFO } else { before });
        drop(urgent);
        assert_eq!(policy(), before);
    }
}
