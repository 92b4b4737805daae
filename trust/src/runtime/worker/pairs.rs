//! The pairs of a worker with the trustees of its process, as their client: the table of them, and those with
//! outstanding requests.
//!
//! Invariant: no reference into the table is held while the table changes, nor while code of users runs, which may
//! connect to a new trustee of the same index. A caller that needs an entry meanwhile clones its `Rc`.

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr;
use std::rc::Rc;

use crate::ids::TrusteeId;
use crate::local::client::Outgoing;

pub(crate) struct Pairs {
    /// Pairs by index of the trustee.
    table: UnsafeCell<Vec<Option<Rc<Outgoing>>>>,
    /// The one entry of the table and its trustee, if there is one alone: see [`find`](Self::find).
    only: Cell<(TrusteeId, *const Outgoing)>,
    /// Pairs with outstanding requests.
    active: RefCell<Vec<Rc<Outgoing>>>,
}

impl Default for Pairs {
    fn default() -> Self {
        let only = Cell::new((TrusteeId::NOBODY, ptr::null()));
        Pairs { table: UnsafeCell::default(), only, active: RefCell::default() }
    }
}

impl Pairs {
    /// Finds the pair with this trustee.
    ///
    /// A client of one trustee finds it by a comparison, which the processor predicts: so it makes the next requests
    /// while a trust is still on its way from memory, where an address made from the trust's id would have to wait.
    /// With several trustees the comparison would often be predicted wrong.
    #[inline(always)]
    pub(crate) fn find(&self, trustee: TrusteeId) -> Option<&Outgoing> {
        let (only, outgoing) = self.only.get();
        if only == trustee {
            // SAFETY: null, or the entry of the table, as in `entry`; every change of the table changes this.
            return unsafe { outgoing.as_ref() };
        }
        self.entry(trustee).map(|outgoing| &**outgoing)
    }

    /// Same as `find`, to be kept across a wait.
    pub(crate) fn shared(&self, trustee: TrusteeId) -> Option<Rc<Outgoing>> {
        self.entry(trustee).map(Rc::clone)
    }

    #[inline(always)]
    fn entry(&self, trustee: TrusteeId) -> Option<&Rc<Outgoing>> {
        // SAFETY: only the thread that has the worker, and only for this look-up; entries are boxed.
        let entry = unsafe { &*self.table.get() }.get(trustee.index())?.as_ref();
        entry.filter(|outgoing| outgoing.trustee == trustee)
    }

    /// Puts a pair into the table. Returns the pair it replaces: that of a trustee of the same index which has ended.
    pub(super) fn insert(&self, outgoing: Outgoing) -> Option<Rc<Outgoing>> {
        self.put(Rc::new(outgoing))
    }

    /// Puts a pair back that was taken out.
    pub(crate) fn put_back(&self, outgoing: Rc<Outgoing>) {
        let other = self.put(outgoing);
        debug_assert!(other.is_none(), "no other has its place, as its trustee is there");
    }

    /// Takes a pair out of the table, of a trustee with nothing outstanding: it is not found until it is put back.
    pub(crate) fn take(&self, trustee: TrusteeId) -> Option<Rc<Outgoing>> {
        self.entry(trustee)?;
        // SAFETY: as in `put`.
        let table = unsafe { &mut *self.table.get() };
        let taken = table[trustee.index()].take();
        self.note_only(table);
        taken
    }

    /// Has this trustee answers to give?
    pub(crate) fn has_outstanding(&self, trustee: TrusteeId) -> bool {
        self.entry(trustee).is_some_and(|outgoing| outgoing.listed.get() || outgoing.is_outstanding())
    }

    fn put(&self, outgoing: Rc<Outgoing>) -> Option<Rc<Outgoing>> {
        let index = outgoing.trustee.index();
        // SAFETY: only the thread that has the worker; the invariant.
        let table = unsafe { &mut *self.table.get() };
        if table.len() <= index {
            table.resize_with(index + 1, || None);
        }
        let old = table[index].replace(outgoing);
        self.note_only(table);
        old
    }

    fn note_only(&self, table: &[Option<Rc<Outgoing>>]) {
        let mut pairs = table.iter().flatten();
        self.only.set(match (pairs.next(), pairs.next()) {
            (Some(outgoing), None) => (outgoing.trustee, Rc::as_ptr(outgoing)),
            _ => (TrusteeId::NOBODY, ptr::null()),
        });
    }

    /// Takes all pairs, at the end. None is found any more.
    pub(super) fn take_all(&self) -> impl Iterator<Item = Rc<Outgoing>> + use<> {
        self.only.set((TrusteeId::NOBODY, ptr::null()));
        // SAFETY: as in `insert`.
        unsafe { std::mem::take(&mut *self.table.get()) }.into_iter().flatten()
    }

    /// Lists the pair of this trustee, which is about to have an outstanding request.
    #[inline(always)]
    pub(super) fn list(&self, trustee: TrusteeId) {
        if let Some(outgoing) = self.entry(trustee)
            && !outgoing.listed.replace(true)
        {
            self.active.borrow_mut().push(Rc::clone(outgoing));
        }
    }

    /// Takes the pair off the list: it has no outstanding requests. It is mostly at this place among the active ones.
    pub(super) fn unlist(&self, outgoing: &Rc<Outgoing>, mostly: usize) {
        if outgoing.listed.replace(false) {
            let mut active = self.active.borrow_mut();
            let is_at = |place: &usize| active.get(*place).is_some_and(|active| Rc::ptr_eq(active, outgoing));
            if let Some(place) = Some(mostly).filter(is_at).or_else(|| (0..active.len()).find(is_at)) {
                active.swap_remove(place);
            }
        }
    }

    /// The active pair at this place.
    pub(super) fn active(&self, place: usize) -> Option<Rc<Outgoing>> {
        self.active.borrow().get(place).map(Rc::clone)
    }

    /// All active pairs.
    pub(crate) fn all_active(&self) -> Vec<Rc<Outgoing>> {
        self.active.borrow().clone()
    }

    /// Does this hold for any active pair?
    pub(super) fn any_active(&self, is_so: impl Fn(&Outgoing) -> bool) -> bool {
        self.active.borrow().iter().any(|outgoing| is_so(outgoing))
    }

    /// Sends pending requests.
    pub(super) fn flush(&self) {
        self.active.borrow().iter().for_each(|outgoing| outgoing.flush());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use crate::ids::TrusteeId;
    use crate::runtime::worker;
    use crate::{Error, Threadpool, Trust};

    fn only() -> TrusteeId {
        worker::with(|worker| worker.pairs.only.get().0)
    }

    fn entrusted() -> (Threadpool, Trust<u32>) {
        let pool = Threadpool::new(1);
        let trust = pool.trustees()[0].entrust(7);
        (pool, trust)
    }

    /// Runs the test in a new thread, which has sent no requests.
    fn in_new_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn the_only_pair_is_known_until_there_is_another() {
        in_new_thread(|| {
            assert_eq!(only(), TrusteeId::NOBODY);
            let (_one, first) = entrusted();
            assert_eq!((first.apply(|n| *n), only()), (7, first.trustee().id()));
            let (_two, second) = entrusted();
            assert_eq!((second.apply(|n| *n), only()), (7, TrusteeId::NOBODY));
            assert_eq!(first.apply(|n| *n), 7);
        });
    }

    /// Callbacks for a trustee that is gone come up when its index is used again, which may be noticed inside a
    /// closure. They touch properties.
    #[test]
    fn what_was_meant_for_a_trustee_before_does_not_come_back_inside_a_closure() {
        thread_local! {
            static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
            static TOLD: Cell<u32> = const { Cell::new(0) };
        }
        // Has an index of its own, and connects to the new trustees, which this thread is not to do before.
        let (give, given) = std::sync::mpsc::channel::<Threadpool>();
        let (send, sent) = std::sync::mpsc::channel();
        let helper = std::thread::spawn(move || {
            crate::local_trustee();
            for pool in given {
                drop(pool);
                send.send(entrusted()).expect("it is awaited");
            }
        });
        in_new_thread(move || {
            let own = crate::local_trustee().entrust(0_u32);
            let mut replaced = 0;
            for round in 1.. {
                let (pool, old) = entrusted();
                // The answer lies there, or there is none: this thread does not look.
                old.call().apply(|n| *n).then(|_| {
                    assert!(!IS_INSIDE.get());
                    TOLD.set(TOLD.get() + 1);
                });
                give.send(pool).expect("it is taken");
                let (_pool, new) = sent.recv().expect("it comes");
                let is_replaced = old.trustee().id().index() == new.trustee().id().index();
                let before = TOLD.get();
                own.apply(move |seen| {
                    IS_INSIDE.set(true);
                    new.apply_then(|n| *n, |_| ());
                    *seen += 1;
                    assert_eq!(TOLD.get(), before);
                    IS_INSIDE.set(false);
                });
                if is_replaced {
                    assert_eq!(TOLD.get(), before + 1, "as soon as the closure has returned");
                    replaced += 1;
                }
                crate::wait_all();
                assert_eq!(TOLD.get(), round);
                if replaced == 5 {
                    return;
                }
                assert!(round < 2000, "an index is used again");
            }
        });
        helper.join().expect("it does not panic");
    }

    #[test]
    fn a_trustee_that_takes_the_place_of_the_only_one_is_asked_itself() {
        in_new_thread(|| {
            let (pool, mut last) = entrusted();
            assert_eq!(last.apply(|n| *n), 7);
            drop(pool);
            let answers = Rc::new(Cell::new(0));
            let mut replaced = 0;
            // Other tests may take the place in between.
            let rounds = (1..=2000).take_while(|_| {
                let (pool, next) = entrusted();
                assert!(matches!(last.call().apply(|n| *n).wait(), Err(Error::Gone { .. })));
                assert_eq!(next.apply(|n| *n), 7);
                // The first is sent, the second waits in an open batch, which has room.
                for _ in 0..2 {
                    let answers = Rc::clone(&answers);
                    next.apply_then(|n| *n, move |n| answers.set(answers.get() + n));
                }
                assert!(matches!(last.call().apply(|n| *n).wait(), Err(Error::Gone { .. })));
                assert_eq!(next.apply(|n| *n), 7);
                replaced += usize::from(last.trustee().id().index() == next.trustee().id().index());
                drop(pool);
                last = next;
                replaced < 20
            });
            let rounds = rounds.count() as u32 + 1;
            assert_eq!((replaced, answers.get()), (20, rounds * 2 * 7));
        });
    }
}
