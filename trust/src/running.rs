//! Request that a worker runs, visible to other threads.
//!
//! The worker stores it before each request and clears it after each batch: one store a request. Another thread that
//! checks whether a request takes long leaves a mark on it ([`Running::look`]), and the store of the next request
//! removes the mark. So one request that runs for ten seconds differs from a thousand of the same kind. Calls of a
//! thread on its own trustee are not recorded: a store would be a tenth of their cost.

use std::sync::atomic::{AtomicPtr, Ordering};

/// Mark bit; stored addresses are aligned to more than this.
const MARK: usize = 1;

/// Request that runs, named by an address that stays constant and has an alignment of 2 or more; null for none.
#[derive(Default)]
pub(crate) struct Running(AtomicPtr<()>);

/// Observation of another thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// No request, or one that began in between.
    Nothing,
    /// The request was not there at the last look.
    New(*const ()),
    /// The request was there at the last look.
    Still(*const ()),
}

impl Running {
    /// Worker side: this request begins.
    #[inline(always)]
    pub(crate) fn begin(&self, what: *const ()) {
        self.0.store(what.cast_mut(), Ordering::Relaxed);
    }

    /// Worker side: no request runs.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.begin(std::ptr::null());
    }

    /// Called by another thread, the same one each time: returns the request that runs, and whether it has run since
    /// the last look.
    pub(crate) fn look(&self) -> Look {
        let seen = self.0.load(Ordering::Relaxed);
        if seen.is_null() {
            return Look::Nothing;
        }
        let what = seen.map_addr(|address| address & !MARK).cast_const();
        if seen.addr() & MARK != 0 {
            return Look::Still(what);
        }
        let marked = seen.map_addr(|address| address | MARK);
        // If it fails the worker has moved on. If another request of the same kind has begun meanwhile the mark is on
        // that one.
        let marks = self.0.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed);
        if marks.is_ok() { Look::New(what) } else { Look::Nothing }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_there_before_is_still_there() {
        let (one, two) = (1u64, 2u64);
        let [one, two] = [&one, &two].map(|number| std::ptr::from_ref(number).cast::<()>());
        let running = Running::default();
        assert_eq!(running.look(), Look::Nothing);
        running.begin(one);
        assert_eq!(
            [running.look(), running.look(), running.look()],
            [Look::New(one), Look::Still(one), Look::Still(one)]
        );
        // Another request of the same kind is a different one.
        running.begin(one);
        assert_eq!([running.look(), running.look()], [Look::New(one), Look::Still(one)]);
        running.begin(two);
        assert_eq!([running.look(), running.look()], [Look::New(two), Look::Still(two)]);
        running.end();
        assert_eq!([running.look(), running.look()], [Look::Nothing; 2]);
    }

    /// Each request has a number, which the worker stores before it begins. A request that is still there has not been
    /// followed by another one.
    #[test]
    fn a_worker_that_goes_on_loses_its_mark() {
        use std::sync::atomic::{AtomicU64, fence};
        const LAST: u64 = if cfg!(miri) { 200 } else { 100_000 };
        static BEGUN: AtomicU64 = AtomicU64::new(0);
        static RUNNING: Running = Running(AtomicPtr::new(std::ptr::null_mut()));
        static WHAT: u64 = 7;
        let worker = std::thread::spawn(|| {
            for number in 1..=LAST {
                // With the Acquire below: a number that is seen makes the request before it visible.
                BEGUN.store(number, Ordering::Release);
                // And a request that is seen makes its number visible: with the fence below.
                fence(Ordering::Release);
                RUNNING.begin(std::ptr::from_ref(&WHAT).cast());
                // Some are longer.
                (0..number % 64).for_each(|_| std::hint::spin_loop());
            }
            RUNNING.end();
        });
        let mut still = 0;
        while !worker.is_finished() {
            let first = RUNNING.look();
            fence(Ordering::Acquire);
            let marked = BEGUN.load(Ordering::Acquire);
            (0..marked % 16).for_each(|_| std::hint::spin_loop());
            let later = BEGUN.load(Ordering::Acquire);
            if let (Look::New(_), Look::Still(_)) = (first, RUNNING.look()) {
                // The next request may be about to begin.
                assert!(later <= marked + 1, "{later} {marked}");
                still += 1;
            }
        }
        worker.join().unwrap();
        assert_eq!(RUNNING.look(), Look::Nothing);
        println!("seen twice: {still} times");
    }
}
