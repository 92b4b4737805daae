//! Construction of arrays: the calls and their options. The work at each place: `make.rs`.

use std::marker::PhantomData;

use gossamer::Place;

use crate::array::{Array, on_worker};
use crate::element::Element;
use crate::settings::Settings;
use crate::shape::Split;
use crate::{Error, make, waits};

impl<T: Element> Array<T> {
    /// Makes an array of `n` elements with this value, split evenly over all places of the rack that are not lost.
    /// Waits until each of them has made its part.
    ///
    /// # Errors
    /// [`Error::Memory`] if a machine has too little memory for its part, [`Error::Elements`], [`Error::Arrays`];
    /// [`Error::Lost`] if a machine is lost meanwhile.
    ///
    /// # Panics
    /// Those of [`Builder::build`].
    ///
    /// Example: at the [type](Self).
    ///
    /// Source: DArray 3.2, fig. 3.
    #[track_caller]
    pub fn new(n: usize, value: T) -> Result<Self, Error> {
        Self::builder().build(n, value)
    }

    /// Returns a builder, for another split or other settings.
    ///
    /// Example: at [`Builder`].
    pub fn builder() -> Builder<T> {
        let () = T::FITS;
        Builder { split: Split::Even, settings: Settings::default(), value: PhantomData }
    }
}

/// Options of a new array, from [`Array::builder`].
///
/// ```
/// use gossamer_array::Array;
/// gossamer::main(|| {
///     let array = Array::<u64>::builder().cyclic().cache_bytes(1 << 20).prefetch(4).build(10_000, 0).unwrap();
///     assert_eq!(array.len(), 10_000);
/// }, 2);
/// ```
#[derive(Debug, Clone)]
pub struct Builder<T> {
    split: Split,
    settings: Settings,
    value: PhantomData<T>,
}

impl<T: Element> Builder<T> {
    /// Sets the first element of each machine's part, instead of an even split: one index for each machine, the first
    /// 0, each a multiple of the chunk. A machine's part is split evenly over its workers. A lost machine can have
    /// none: it starts where the next one does.
    ///
    /// Example: at [`Error`].
    #[must_use]
    pub fn starts(mut self, starts: &[usize]) -> Self {
        self.split = Split::Starts(starts.to_vec());
        self
    }

    /// Deals the chunks to the places in turn, instead of an even split.
    ///
    /// Example: at the [type](Self).
    #[must_use]
    pub fn cyclic(mut self) -> Self {
        self.split = Split::Cyclic;
        self
    }

    /// Sets the bytes that each place may use to cache chunks of other places; 64 MiB by default, four chunks at least.
    /// They are allocated with the array, but never more than all of the other places' chunks can fill. Chunks that are
    /// viewed or awaited stay cached even beyond the limit.
    ///
    /// Example: at the [type](Self).
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.settings.cache_bytes = bytes;
        self
    }

    /// Sets the free share of the cache below which a place evicts chunks, and the share at which it stops: 0.3 and 0.5
    /// by default.
    ///
    /// # Panics
    /// If they are not between 0 and 1, or the first is above the second.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     assert!(Array::<u8>::builder().watermarks(0.1, 0.2).build(100, 0).is_ok());
    /// }, 2);
    /// ```
    ///
    /// Source: DArray 4.2, fig. 7.
    #[must_use]
    #[track_caller]
    pub fn watermarks(mut self, low: f64, high: f64) -> Self {
        assert!(
            (0.0..=1.0).contains(&low) && (low..=1.0).contains(&high),
            "watermarks are shares of the cache between 0 and 1, the lower one first: {low}, {high}"
        );
        self.settings.watermarks = (low, high);
        self
    }

    /// Sets the number of chunks that sequential reads prefetch; 8 by default, 0 for none.
    ///
    /// Example: at the [type](Self).
    ///
    /// Source: DArray 4.2.
    #[must_use]
    pub fn prefetch(mut self, chunks: usize) -> Self {
        self.settings.prefetch = chunks.min(1024);
        self
    }

    /// Makes the array, with `value` in each element. Each place allocates and writes the memory of its part; the
    /// caller waits for all places.
    ///
    /// # Errors
    /// See the variants of [`Error`].
    ///
    /// # Panics
    /// Outside of `gossamer::main`; inside delegated closures and callbacks, where nothing may wait.
    ///
    /// Example: at the [type](Self).
    #[track_caller]
    pub fn build(self, n: usize, value: T) -> Result<Array<T>, Error> {
        let () = T::FITS;
        waits::may_wait("build");
        let (root, name, shift) = on_place(move || make::array(n, value, &self.split, self.settings))?;
        Ok(Array::of(root, n, name, shift))
    }
}

/// Runs `f` here if this thread is a place of the program, else on a worker of this machine.
#[track_caller]
pub(crate) fn on_place<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let here = trust::local_trustee();
    let is_place = |place: Place| place.machine == gossamer::rack().machine() && place.trustee() == here;
    if gossamer::rack().places().any(is_place) {
        return f();
    }
    on_worker(f)
}
