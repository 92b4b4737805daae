//! Which request a worker runs, where other threads can see it.
//!
//! The worker stores it before each request and clears it after each batch: one store a request. Another thread that
//! wants to know whether a request takes long leaves a mark on it ([`Running::look`]), and the store of the next one
//! takes the mark away: so one request that runs for ten seconds is told from a thousand of a kind. What a thread asks
//! of its own trustee is not among them: a store would be a tenth of it.

use std::sync::atomic::{AtomicPtr, Ordering};

/// What is stored is aligned to more than this.
const MARK: usize = 1;

/// The request that runs, by something that stays where it is and has an alignment of 2 or more; null for none.
#[derive(Default)]
pub(crate) struct Running(AtomicPtr<()>);

/// What another thread sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// None, or one that came in between.
    Nothing,
    /// It was not there when somebody looked before.
    New(*const ()),
    /// It was.
    Still(*const ()),
}

impl Running {
    /// Worker: this one begins.
    #[inline(always)]
    pub(crate) fn begin(&self, what: *const ()) {
        self.0.store(what.cast_mut(), Ordering::Relaxed);
    }

    /// Worker: none runs.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.begin(std::ptr::null());
    }

    /// Another thread, the same one each time: what runs, and does it since that thread looked last?
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
        // Where it fails the worker has gone on. Where another request of the kind has begun meanwhile it marks that
        // one.
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
        // Another of the same kind is another one.
        running.begin(one);
        assert_eq!([running.look(), running.look()], [Look::New(one), Look::Still(one)]);
        running.begin(two);
        assert_eq!([running.look(), running.look()], [Look::New(two), Look::Still(two)]);
        running.end();
        assert_eq!([running.look(), running.look()], [Look::Nothing; 2]);
    }

    /// Each request has a number, which the worker tells before it begins. What is still there has not been followed by
    /// another one.
    #[test]
    fn a_worker_that_goes_on_loses_its_mark() {
        use std::sync::atomic::AtomicU64;
        const LAST: u64 = if cfg!(miri) { 200 } else { 100_000 };
        static BEGUN: AtomicU64 = AtomicU64::new(0);
        static RUNNING: Running = Running(AtomicPtr::new(std::ptr::null_mut()));
        static WHAT: u64 = 7;
        let worker = std::thread::spawn(|| {
            for number in 1..=LAST {
                BEGUN.store(number, Ordering::Release);
                RUNNING.begin(std::ptr::from_ref(&WHAT).cast());
                // Some are longer.
                (0..number % 64).for_each(|_| std::hint::spin_loop());
            }
            RUNNING.end();
        });
        let mut still = 0;
        while !worker.is_finished() {
            let first = RUNNING.look();
            let marked = BEGUN.load(Ordering::Acquire);
            (0..marked % 16).for_each(|_| std::hint::spin_loop());
            let later = BEGUN.load(Ordering::Acquire);
            if let (Look::New(_), Look::Still(_)) = (first, RUNNING.look()) {
                // The next one may be about to begin.
                assert!(later <= marked + 1, "{later} {marked}");
                still += 1;
            }
        }
        worker.join().unwrap();
        assert_eq!(RUNNING.look(), Look::Nothing);
        println!("seen twice: {still} times");
    }
}
