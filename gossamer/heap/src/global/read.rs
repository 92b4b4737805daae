//! Reading an object: in place, or in this machine's copy of it (DRust, algorithm 2).

#![allow(unsafe_code)]

use super::{Global, check_may_wait};
use crate::copies::{self, Fault, Pin};
use crate::error::Lost;
use crate::guard::Ref;
use crate::object::Object;
use crate::portable::Portable;
use crate::{bases, here};

impl<T: ?Sized + Object + Portable> Global<T> {
    /// Reads the object: in place where it is mapped, else in this machine's copy of it, which is fetched by one read
    /// if there is none. Nothing moves, and nobody is notified.
    ///
    /// # Panics
    /// Where the object has to be fetched, and nothing may wait (delegated closures, callbacks, destructors), or the
    /// caller is no fiber of the program; if there is no room for a copy; if the owner was lent for writing, and
    /// forgotten ([`Scope::lend_mut`](crate::Scope::lend_mut)); if the object is [lost](Self::lost), also if there is a
    /// copy.
    ///
    /// Example: at the [type](Self). Source: DRust, algorithm 2.
    #[inline]
    pub fn read(&self) -> Ref<'_, T> {
        let (address, pin) = match bases::mapped(self.name.at) {
            Some(address) => (address, None),
            None => self.read_far(),
        };
        // SAFETY: it is lent, so where it is mapped it stays and is not written; a copy is of the object, whole, and
        // does not change.
        unsafe { Ref::new(T::at(address, self.meta), pin) }
    }

    /// Returns the address of the object or of a copy. An address and no guard, since these two are returned in
    /// registers.
    #[cold]
    #[inline(never)]
    fn read_far(&self) -> (*mut u8, Option<Pin>) {
        match self.find() {
            Some(object) => (object.cast(), None),
            None => {
                let pin = self.fetched("read");
                (pin.address(), Some(pin))
            }
        }
    }

    fn of_copy(&self, pin: Pin) -> Ref<'_, T> {
        let object = T::at(pin.address(), self.meta);
        // SAFETY: the copy is of the object, whole, and does not change.
        unsafe { Ref::new(object, Some(pin)) }
    }

    /// This machine's copy, fetched if need be.
    pub(super) fn fetched(&self, call: &str) -> Pin {
        self.fetched_or_lost(call).unwrap_or_else(|lost| panic!("{lost} ({:?})", self.name.at))
    }

    /// Same as `fetched`. Nothing of a lost machine is read, its copies neither: all answer alike then.
    fn fetched_or_lost(&self, call: &str) -> Result<Pin, Lost> {
        self.check()?;
        if let Some(pin) = copies::find(self.name) {
            return Ok(pin);
        }
        check_may_wait(call);
        match copies::get(self.name, T::layout(self.meta)) {
            Ok(pin) => Ok(pin),
            Err(Fault::Lost(lost)) => Err(lost),
            Err(fault) => panic!("no copy of an object of {} ({:?}): {fault}", self.place(), self.name.at),
        }
    }

    /// Same as [`read`](Self::read); an object that is lost with its machine is an error.
    ///
    /// ```
    /// use gossamer_heap::{Global, Lost};
    /// gossamer::main(
    ///     || {
    ///         let number = Global::new(7u64);
    ///         match number.read_or_lost() {
    ///             Ok(number) => assert_eq!(*number, 7),
    ///             Err(Lost { machine, .. }) => println!("it went with machine {machine}"),
    ///         }
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Errors
    /// [`Lost`].
    ///
    /// # Panics
    /// Same as [`read`](Self::read), but for that.
    pub fn read_or_lost(&self) -> Result<Ref<'_, T>, Lost> {
        match self.mapped().or_else(|| self.find()) {
            // SAFETY: as in `read`.
            Some(object) => Ok(unsafe { Ref::new(object, None) }),
            None => self.fetched_or_lost("read_or_lost").map(|pin| self.of_copy(pin)),
        }
    }

    /// Reads the object if that takes no waiting: where it is mapped, or this machine has a copy. Nothing of an object
    /// that is [lost](Self::lost). Legal everywhere.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(
    ///     || {
    ///         let number = Global::new(7u64);
    ///         assert_eq!(number.try_read().as_deref(), Some(&7)); // it lies here
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn try_read(&self) -> Option<Ref<'_, T>> {
        match self.mapped().or_else(|| self.find()) {
            // SAFETY: as in `read`.
            Some(object) => Some(unsafe { Ref::new(object, None) }),
            None if self.check().is_err() => None,
            None => copies::find(self.name).map(|pin| self.of_copy(pin)),
        }
    }

    /// Begins to fetch a copy for this machine, if there is none and the object is not mapped, so that a later `read`
    /// need not wait. Does not wait; a read that fails is reported by that read.
    ///
    /// ```
    /// use gossamer_heap::Global;
    /// gossamer::main(
    ///     || {
    ///         let number = Global::new(7u64);
    ///         number.prefetch(); // it lies here: nothing to do
    ///         assert_eq!(*number.read(), 7);
    ///     },
    ///     1,
    /// );
    /// ```
    ///
    /// # Panics
    /// On a thread that is no worker of the program.
    pub fn prefetch(&self) {
        let (name, layout) = (self.name, T::layout(self.meta));
        let is_here = self.mapped().or_else(|| self.find()).is_some();
        if is_here || self.check().is_err() || copies::find(name).is_some() {
            return;
        }
        assert!(here::is_worker(), "`Global::prefetch` outside of fibers of the program: there is nobody to fetch for");
        let fetch = move || drop(copies::get(name, layout));
        drop(trust::spawn(fetch));
    }
}
