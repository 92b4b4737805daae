//! Calls for a whole array: each place processes its part, in a fiber of its own.

use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

use gossamer::{JoinHandle, NoRef};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::array::{Array, at_place};
use crate::element::Element;
use crate::held::is_loss;
use crate::operator::Operator;
use crate::shape::Owned;
use crate::stats::Stats;
use crate::waits;

impl<T: Element> Array<T> {
    /// Sets all elements. Fetches nothing.
    ///
    /// # Panics
    /// Those of [`get`](Self::get).
    ///
    /// ```
    /// use gossamer_array::{Add, Array};
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 0u32).unwrap();
    ///     array.fill(3);
    ///     assert_eq!(array.reduce(0..1000, Add), 3000);
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn fill(&self, value: T) {
        let array = self.clone();
        let fill_owned = move |owned: Owned| {
            for piece in owned.flat_map(|range| array.pieces(range)) {
                array.write_piece("fill", piece, |elements| elements.fill(value));
            }
        };
        at_place!(self, at_owners("fill", fill_owned));
    }

    /// Combines all elements of a range; returns the operator's identity if it is empty. Each place combines the
    /// elements that it owns.
    ///
    /// # Panics
    /// If the range is not within the array; those of [`get`](Self::get).
    ///
    /// Example: at the [type](Self).
    #[track_caller]
    pub fn reduce<O: Operator<T>>(&self, range: Range<usize>, op: O) -> T {
        let _ = op;
        self.check_range(&range);
        let (array, start, end) = (self.clone(), range.start, range.end);
        let reduce_owned = move |owned: Owned| {
            let mut all = O::IDENTITY;
            for owned in owned {
                for view in array.views(owned.start.max(start)..owned.end.min(end)) {
                    all = view.iter().fold(all, |all, element| O::combine(all, *element));
                }
            }
            all
        };
        at_place!(self, at_owners("reduce", reduce_owned)).into_iter().fold(O::IDENTITY, O::combine)
    }

    /// Runs `f` at each place in a fiber of its own, with the elements that the place owns, and waits for all. Returns
    /// the results in the order of places. Elements that `f` has set and combined are visible to the caller afterwards.
    ///
    /// # Panics
    /// With the panic of `f`, when all have ended; inside delegated closures and callbacks, where nothing may wait.
    ///
    /// Example: at the [type](Self).
    #[track_caller]
    pub fn on_owners<R, F>(&self, f: F) -> Vec<R>
    where
        F: Fn(Owned) -> R + Clone + NoRef + Send + 'static,
        R: NoRef + Send + 'static,
    {
        at_place!(self, at_owners("on_owners", f))
    }

    /// Runs `f` at each place as [`on_owners`](Self::on_owners) does, with a copy of an argument that travels
    /// serialised, as do the results: strings, vectors, maps and all other serde types, which a closure that travels
    /// cannot capture. At places of this machine they are moved.
    ///
    /// A fiber on another machine takes two requests and their answers, one more than with `on_owners`, and twice the
    /// memory of the argument.
    ///
    /// # Panics
    /// Those of [`on_owners`](Self::on_owners); if the argument or a result does not serialise, or has more than
    /// 64 MiB.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 0u64).unwrap();
    ///     let (own, weights) = (array.clone(), vec![2, 3, 5]);
    ///     let names: Vec<String> = array.on_owners_with(
    ///         move |owned, weights: Vec<u64>| {
    ///             owned.flatten().for_each(|i| own.set(i, weights[i % 3]));
    ///             gossamer::here().to_string()
    ///         },
    ///         weights,
    ///     );
    ///     assert_eq!((array.get(998), array.get(999)), (5, 2));
    ///     assert_eq!(names, ["m0w0", "m0w1"]);
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn on_owners_with<A, R, F>(&self, f: F, argument: A) -> Vec<R>
    where
        A: Serialize + DeserializeOwned + Clone + Send + 'static,
        F: Fn(Owned, A) -> R + Clone + NoRef + Send + 'static,
        R: Serialize + DeserializeOwned + Send + 'static,
    {
        at_place!(self, at_owners_with("on_owners_with", f, argument))
    }

    /// Requests the chunks of a range, to be read soon, as many as fit into the cache. Does not wait.
    ///
    /// # Panics
    /// If the range is not within the array; if the array is poisoned.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(10_000, 7u8).unwrap();
    ///     array.prefetch(5000..10_000);
    ///     assert_eq!(array.get(9_999), 7);
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn prefetch(&self, range: Range<usize>) {
        self.check_range(&range);
        if self.is_here() {
            self.part().fetch_all(range);
        }
    }

    /// Returns the counters of all places together. Asks each place.
    ///
    /// # Panics
    /// Inside delegated closures and callbacks, where nothing may wait.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(10_000, 7u64).unwrap();
    ///     array.get(9_999);                       // of the other worker
    ///     assert_eq!(array.stats().grants, 1);
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn stats(&self) -> Stats {
        let array = self.clone();
        let count = move |_| array.part().counters.get();
        at_place!(self, at_owners("stats", count)).into_iter().fold(Stats::default(), |all, stats| all + stats)
    }

    /// Runs `f` at each place with the elements that it owns; `call` is the name of the call for panics.
    #[track_caller]
    pub(crate) fn at_owners<R, F>(&self, call: &'static str, f: F) -> Vec<R>
    where
        F: Fn(Owned) -> R + Clone + NoRef + Send + 'static,
        R: NoRef + Send + 'static,
    {
        waits::may_wait(call);
        let part = self.part();
        let run_at = |(place, number)| {
            let (f, owned) = (f.clone(), part.shape.owned(number));
            gossamer::spawn_on(place, move || f(owned))
        };
        let fibers: Vec<_> = part.members.places().zip(0..).map(run_at).collect();
        drop(part);
        self.values(outcomes(fibers))
    }

    /// Runs `f` at each place as [`on_owners_with`](Self::on_owners_with) does; `call` is the name of the call for
    /// panics.
    #[track_caller]
    pub(crate) fn at_owners_with<A, R, F>(&self, call: &'static str, f: F, argument: A) -> Vec<R>
    where
        A: Serialize + DeserializeOwned + Clone + Send + 'static,
        F: Fn(Owned, A) -> R + Clone + NoRef + Send + 'static,
        R: Serialize + DeserializeOwned + Send + 'static,
    {
        self.values(self.try_at_owners_with(call, f, argument))
    }

    /// Same as [`at_owners_with`](Self::at_owners_with), but returns the panics.
    #[track_caller]
    pub(crate) fn try_at_owners_with<A, R, F>(&self, call: &'static str, f: F, argument: A) -> Vec<thread::Result<R>>
    where
        A: Serialize + DeserializeOwned + Clone + Send + 'static,
        F: Fn(Owned, A) -> R + Clone + NoRef + Send + 'static,
        R: Serialize + DeserializeOwned + Send + 'static,
    {
        waits::may_wait(call);
        let part = self.part();
        let run_at = |(place, number)| {
            let (f, owned) = (f.clone(), part.shape.owned(number));
            gossamer::spawn_with(place, move |argument| f(owned, argument), argument.clone())
        };
        let fibers: Vec<_> = part.members.places().zip(0..).map(run_at).collect();
        drop(part);
        outcomes(fibers)
    }

    /// Returns the results of fibers at the places of the array. A panic continues; for that of a fiber on a lost
    /// machine it is that of the array.
    #[track_caller]
    pub(crate) fn values<R>(&self, outcomes: Vec<thread::Result<R>>) -> Vec<R> {
        if outcomes.iter().any(|outcome| outcome.as_ref().is_err_and(|panic| is_loss(&**panic))) {
            self.wait_for_poison();
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    }
}

/// Returns the outcomes of fibers, when all have ended.
pub(crate) fn outcomes<R>(fibers: Vec<JoinHandle<R>>) -> Vec<thread::Result<R>> {
    fibers.into_iter().map(JoinHandle::join).collect()
}
