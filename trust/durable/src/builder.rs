//! Opening a pool, with options.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trust::link::promise_at;
use trust::{NoRef, TrusteeReference, local_trustee};

use crate::error::{Error, Result};
use crate::files::recover::Check;
use crate::handle::Durable;
use crate::layout::Layout;
use crate::memory::alloc::ALIGN;
use crate::memory::{LIMIT_MAX, ROOT_BYTES_MAX};
use crate::persist::Persist;
use crate::property::Service;
use crate::service::core::{self, Core};
use crate::service::disk_thread::{self, Request, Started};
use crate::tx::Tx;
use crate::walk::Walk;

/// Options for opening a pool, made by [`Durable::builder`].
pub struct Builder<T> {
    within: Option<Duration>,
    limit: Option<usize>,
    may_create: bool,
    root: PhantomData<fn(T)>,
}

impl<T: Persist + 'static> Builder<T> {
    /// Evaluated at compile time for each type of a root.
    const ROOT_FITS: () = {
        assert!(size_of::<T>() <= ROOT_BYTES_MAX, "a root takes 512 bytes at most: put what is large behind a `PBox`");
        assert!(align_of::<T>() <= ALIGN, "persistent values are aligned to 16 bytes at most");
    };

    pub(crate) fn new() -> Self {
        const { Self::ROOT_FITS }
        Builder { within: None, limit: None, may_create: true, root: PhantomData }
    }

    /// Returns results at once, as long as the oldest change that is not durable is younger than `time`. A crash then
    /// loses only whole commit groups at the end, of no more than this time. When the disk lags further behind, results
    /// wait for it again.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    /// Sets the most bytes of memory that the pool may take; that much address space is reserved. The default is half
    /// of the machine's memory, of the control groups' limit, or of the process' own limit (`ulimit -v`, `ulimit -d`),
    /// whichever is least. On disk the pool takes up to two images and two logs.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// Sets whether a folder without a pool gets one, and is made with those above it where it is missing; true by
    /// default. With `false` a mistyped path is [`Error::NoPool`].
    ///
    /// ```
    /// # let workers = trust::Threadpool::new(1);
    /// use trust_durable::{Durable, Error};
    ///
    /// let folder = std::env::temp_dir().join("no-such-pool");
    /// let opened = Durable::<u64>::builder().create(false).open(workers.trustees()[0], &folder, |_| 0);
    /// assert!(matches!(opened, Err(Error::NoPool { .. })) && !folder.exists());
    /// ```
    pub fn create(mut self, may_create: bool) -> Self {
        self.may_create = may_create;
        self
    }

    /// Opens the pool: see [`Durable::open`].
    ///
    /// # Errors
    /// Those of [`Durable::open`]; [`Error::NoPool`] after [`create(false)`](Self::create).
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    #[track_caller]
    pub fn open<I>(
        self,
        trustee: impl Borrow<TrusteeReference>,
        folder: impl AsRef<Path>,
        init: I,
    ) -> Result<Durable<T>>
    where
        I: for<'p> FnOnce(&Tx<'p>) -> T::At<'p> + NoRef + Send + 'static,
    {
        let within = self.within;
        let (started, number, trustee) = self.start(*trustee.borrow(), folder.as_ref(), None)?;
        let is_new = started.is_new;
        if is_new {
            started.memory.set_seed(core::random());
        }
        let trust = trustee.entrust(Service::<T>::new(Core::new(started, number, within)));
        let durable = Durable::of(trust.clone(), number);
        if is_new {
            let made = trust.call().apply(move |service| service.init(init)).wait().map_err(|_| Error::Gone)?;
            made.into_result::<T>(number, None)?;
            durable.created()?;
        }
        Ok(durable)
    }

    /// Opens the pool of a folder, and changes its type where that is `Old`: see [`Durable::migrate`].
    ///
    /// # Errors
    /// Those of [`Durable::migrate`].
    ///
    /// # Panics
    /// In delegated context and in callbacks, where nothing may wait.
    #[track_caller]
    pub fn migrate<Old: Persist + 'static>(
        self,
        trustee: impl Borrow<TrusteeReference>,
        folder: impl AsRef<Path>,
        change: impl for<'p> FnOnce(Old::At<'p>, &Tx<'p>) -> T::At<'p> + NoRef + Send + 'static,
    ) -> Result<Durable<T>> {
        const { Builder::<Old>::ROOT_FITS }
        let within = self.within;
        let old: (Layout, Check) = (Layout::of::<Old::At<'static>>(), |memory| Walk::all::<Old::At<'static>>(memory));
        let (started, number, trustee) = self.start(*trustee.borrow(), folder.as_ref(), Some(old))?;
        let is_old = started.is_old;
        let trust = trustee.entrust(Service::<T>::new(Core::new(started, number, within)));
        let durable = Durable::of(trust.clone(), number);
        if is_old {
            let asked = trust.call().apply(move |service| service.change_type::<Old>(change));
            let made = asked.wait().map_err(|_| Error::Gone)?;
            made.into_result::<T>(number, None)?;
            durable.created()?;
        }
        Ok(durable)
    }

    /// Opens the files, and starts their disk thread. Returns the pool's number too.
    #[track_caller]
    fn start(
        self,
        trustee: TrusteeReference,
        folder: &Path,
        old: Option<(Layout, Check)>,
    ) -> Result<(Started, u64, TrusteeReference)> {
        if trustee.id().machine() != local_trustee().id().machine() {
            return Err(Error::OtherMachine);
        }
        let number = core::random();
        let slot = Arc::default();
        let (keeps, opened) = promise_at::<bool>(trustee.id());
        let request = Request {
            folder: folder.to_path_buf(),
            layout: Layout::of::<T::At<'static>>(),
            limit: self.limit.unwrap_or_else(half_of_memory).clamp(1, LIMIT_MAX),
            check: |memory| Walk::all::<T::At<'static>>(memory),
            old,
            may_create: self.may_create,
            pause: self.within.map(|within| within / 2),
            trustee,
            number,
        };
        disk_thread::start(request, Arc::clone(&slot), keeps)?;
        opened.wait().map_err(|_| Error::Gone)?;
        let started = Mutex::lock(&slot).unwrap_or_else(PoisonError::into_inner).take();
        Ok((started.unwrap_or(Err(Error::Gone))?, number, trustee))
    }
}

impl<T> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Builder { within, limit, may_create, .. } = self;
        f.debug_struct("Builder").field("within", within).field("limit", limit).field("create", may_create).finish()
    }
}

/// Returns half of the machine's memory that this process may use.
fn half_of_memory() -> usize {
    usize::try_from(trust::memory::limit().unwrap_or(2 << 30) / 2).unwrap_or(usize::MAX)
}
