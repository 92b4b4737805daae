//! Real-time priority for a thread for a while: to kill thousands of forking processes it has to get the processor
//! while they want it too. Root may do that; for other users it has no effect.

/// Real-time priority of this thread while it lives.
pub(super) struct Urgent {
    /// Policy to restore.
    policy: Option<libc::c_int>,
}

impl Urgent {
    /// Raises the priority for a short while: the thread has to sleep as soon as there is nothing to do.
    pub(super) fn start() -> Urgent {
        // SAFETY: the call takes and returns a number; 0 is this thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        let is_ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
        Urgent { policy: (is_ordinary && set(libc::SCHED_FIFO, 1)).then_some(policy) }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Some(policy) = self.policy {
            set(policy, 0); // the old policy: nobody refuses that
        }
    }
}

/// Sets this thread's scheduling; whether that worked.
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
