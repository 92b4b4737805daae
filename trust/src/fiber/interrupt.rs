//! Waits of fibers: each is noted with its kind, others see it, and may take the fiber out of it.
//!
//! Not here: how a fiber suspends and goes on (`mod.rs`), and the kinds of waits (`record.rs`).

#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::HashSet;

use super::record::{self, Awaited, Doing, Revoke, Seen, Wait, Whom};
use super::{Fiber, FiberRef, Scheduler};

impl Scheduler {
    /// Runs `f`, which waits for this; meanwhile others can see the wait.
    pub(crate) fn waiting<R>(&self, awaited: Awaited, f: impl FnOnce() -> R) -> R {
        // SAFETY: there is no way to take it out of the wait.
        unsafe { self.waiting_until_revoked(awaited, None, f) }
    }

    /// Same as [`waiting`](Self::waiting), and [`interrupt`](Self::interrupt) may take the fiber out of it.
    ///
    /// # Safety
    /// The function may be called with the pointer, on this thread, until `f` returns or unwinds; it returns true only
    /// if no other code will make the fiber ready then.
    pub(crate) unsafe fn waiting_until_revoked<R>(
        &self,
        awaited: Awaited,
        revoke: Option<(*const (), Revoke)>,
        f: impl FnOnce() -> R,
    ) -> R {
        /// Back in the code that waited, also where it unwinds.
        struct Over<'a>(&'a Cell<Option<Wait>>, Option<&'a Cell<Option<(*const (), Revoke)>>>);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.set(None);
                if let Some(revoke) = self.1 {
                    revoke.set(None);
                }
            }
        }
        let number = self.next_wait.replace(self.next_wait.get() + 1);
        let wait = Some(Wait { awaited, number, since_ms: record::now_ms() });
        // SAFETY: null, or the current fiber, which lives until its code, which this is, has ended.
        let fiber = unsafe { self.current.get().as_ref() };
        let over = Over(fiber.map_or(&self.root_wait, |fiber| &fiber.wait), fiber.map(|fiber| &fiber.revoke));
        over.0.set(wait);
        if let Some(place) = over.1 {
            place.set(revoke);
        }
        f()
    }

    /// Takes a fiber out of exactly this wait, if possible; it goes on and finds the verdict.
    pub(crate) fn interrupt(&self, id: u64, wait: u64, verdict: Box<str>) -> bool {
        let fiber = self.all.borrow().iter().copied().find(|&fiber| {
            // SAFETY: in the list, so it has not been recycled.
            let fiber = unsafe { &*fiber };
            fiber.info.id == id && fiber.wait.get().is_some_and(|noted| noted.number == wait)
        });
        let Some(fiber) = fiber else { return false };
        let is_out = self.take_out(fiber);
        if is_out {
            // SAFETY: as above.
            unsafe { (*fiber).verdict.set(Some(verdict)) };
        }
        is_out
    }

    /// Makes the fiber that runs for this handle unwind at its next wait, or out of the one that it is in, if possible.
    /// False if it may be taken out later, because a panic unwinds on this thread now.
    #[must_use]
    pub(crate) fn abort(&self, whom: Whom) -> bool {
        // SAFETY: in the list, so it has not been recycled.
        let fiber = self.all.borrow().iter().copied().find(|&fiber| unsafe { (*fiber).whom == whom });
        let Some(fiber) = fiber else { return true };
        // SAFETY: as above.
        unsafe { (*fiber).is_aborted.set(true) };
        self.abort_again(whom)
    }

    /// Same as `abort`, of a fiber that was aborted before: it may have unwound meanwhile, and gone on.
    #[must_use]
    pub(crate) fn abort_again(&self, whom: Whom) -> bool {
        // SAFETY: in the list, so they have not been recycled.
        let is_it = |&fiber: &*mut Fiber| unsafe { (*fiber).whom == whom && (*fiber).is_aborted.get() };
        let fiber = self.all.borrow().iter().copied().find(is_it);
        let Some(fiber) = fiber else { return true };
        // A panic that unwinds might be that of this fiber, whose destructor waits: a second one would end the process.
        let is_now = !std::thread::panicking();
        if is_now {
            self.take_out(fiber);
        }
        is_now
    }

    /// Takes a fiber of this scheduler out of its wait, if it is in one that allows for it.
    fn take_out(&self, fiber: *mut Fiber) -> bool {
        // SAFETY: the caller has it from the list.
        let revoke = unsafe { (*fiber).revoke.get() };
        let Some((of, revoke)) = revoke.filter(|_| fiber != self.current.get()) else { return false };
        // SAFETY: the fiber is in its wait, as promised there.
        let is_out = unsafe { revoke(of, FiberRef(fiber)) };
        if is_out {
            // No other code has its pointer [one-waker].
            self.ready(FiberRef(fiber));
        }
        is_out
    }

    /// Is the running fiber to leave its wait, because of a verdict or because it was aborted?
    pub(crate) fn is_interrupted(&self) -> bool {
        // SAFETY: null, or the current fiber, which lives.
        unsafe { self.current.get().as_ref() }.is_some_and(|fiber| {
            let verdict = fiber.verdict.take();
            let has_verdict = verdict.is_some();
            fiber.verdict.set(verdict);
            has_verdict || (fiber.is_aborted.get() && !std::thread::panicking())
        })
    }

    /// Is the running fiber to unwind now? True once for each abort.
    pub(crate) fn take_abort(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.current.get().as_ref() }
            .is_some_and(|fiber| fiber.is_aborted.get() && !std::thread::panicking() && fiber.is_aborted.replace(false))
    }

    /// Takes the reason why the running fiber was taken out of its wait.
    pub(crate) fn take_verdict(&self) -> Option<Box<str>> {
        // SAFETY: as above.
        unsafe { self.current.get().as_ref() }.and_then(|fiber| fiber.verdict.take())
    }

    /// Name of the running fiber for messages.
    pub(crate) fn name_of_current(&self) -> Option<String> {
        // SAFETY: null, or the current fiber, which lives.
        unsafe { self.current.get().as_ref() }.map(ToString::to_string)
    }

    /// Wait of the thread's own code, if that is noted.
    pub(crate) fn root_wait(&self) -> Option<Wait> {
        self.root_wait.get()
    }

    /// The fibers, with names or only those that can be part of a wait cycle.
    pub(crate) fn seen(&self, with_names: bool) -> Vec<Seen> {
        let ready: HashSet<*mut Fiber> = self.ready.iter().map(|fiber| fiber.0).collect();
        let all = self.all.borrow();
        let see = |&fiber: &*mut Fiber| {
            // SAFETY: in the list, so it has not been recycled.
            let record = unsafe { &*fiber };
            let wait = record.wait.get();
            let holds = record.holds.get().addr();
            if !with_names && holds == 0 && !wait.is_some_and(|wait| wait.awaited.is_of_circles()) {
                return None;
            }
            let doing = if fiber == self.current.get() {
                Doing::Runs
            } else if !record.has_begun.get() {
                Doing::New
            } else if ready.contains(&fiber) {
                Doing::Ready
            } else {
                Doing::Waits
            };
            let name = if with_names { record.to_string() } else { String::new() };
            Some(Seen { id: record.info.id, whom: record.whom, doing, wait, holds, name })
        };
        all.iter().filter_map(see).collect()
    }

    /// Returns, for messages, the names of the first few fibers in the middle of their code.
    pub(crate) fn names_of_begun(&self) -> String {
        const NAMES_MAX: usize = 4;
        let all = self.all.borrow();
        // SAFETY: in the list, so they have not been recycled.
        let begun = all.iter().map(|&fiber| unsafe { &*fiber }).filter(|fiber| fiber.has_begun.get());
        let mut names: Vec<String> = begun.take(NAMES_MAX).map(ToString::to_string).collect();
        if self.begun() > NAMES_MAX {
            names.push(format!("{} more", self.begun() - NAMES_MAX));
        }
        names.join(", ")
    }
}
