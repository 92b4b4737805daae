//! `select`: waits at several channels, for promised values and for a time, until the first is ready.

use std::time::{Duration, Instant};

use trust::link::without_waiting;
use trust::{Pending, promise};

use super::carry::{Answer, Carry};
use super::loss::{self, LostError};
use super::receiver::Receiver;
use crate::losses::record;

/// Source that [`select`] can wait for: a [`Receiver`], a [`Pending`].
///
/// Sealed: it cannot be implemented outside of this crate.
pub trait Source: sealed::Source {}

impl<S: sealed::Source> Source for S {}

mod sealed {
    use super::Watch;

    pub trait Source {
        #[expect(private_interfaces, reason = "nobody outside can name it, nor has to")]
        fn watch(&self) -> Watch<'_>;
    }
}

/// One source of a call of `select`.
enum Watch<'a> {
    /// There is a value, or never will be.
    Ready,
    /// The promise to wait for.
    Promise(&'a dyn trust::Source),
    /// A channel keeps this promise when there is a value.
    Channel(Pending<()>, Box<dyn Fn() + 'a>),
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Watch::Channel(_, stop) = self {
            stop();
        }
    }
}

impl<T: 'static> sealed::Source for Pending<T> {
    #[expect(private_interfaces, reason = "as in the trait")]
    fn watch(&self) -> Watch<'_> {
        if trust::select(&[self], Some(Duration::ZERO)).is_some() { Watch::Ready } else { Watch::Promise(self) }
    }
}

impl<T: 'static, C: Carry<T>> sealed::Source for Receiver<T, C> {
    #[expect(private_interfaces, reason = "as in the trait")]
    fn watch(&self) -> Watch<'_> {
        let pending = loop {
            let (promise, pending) = promise();
            let known = record::count();
            match self.0.apply(move |end| end.0.borrow_mut().watch(promise, known)) {
                Answer::Waits => break pending,
                Answer::Behind => loss::wait_for_home(),
                Answer::Lost(machine) => panic!("{}", LostError { machine }),
                Answer::Value(()) | Answer::Empty | Answer::Closed => return Watch::Ready,
            }
        };
        let id = pending.id();
        // This may run while a panic unwinds, an abort for one, which must not wait until there is room for the
        // request.
        let forget = move || self.0.apply_then(move |end| end.0.borrow_mut().forget_watcher(id), |()| {});
        let stop = move || without_waiting(forget);
        Watch::Channel(pending, Box::new(stop))
    }
}

/// Waits until one of these has a value, or the news that none will come, but no longer than `time`, if that is given.
/// Returns the index of the first such source in the list; `None` when the time is over.
///
/// Nothing is taken: ask the returned source, by [`Receiver::try_recv`] or [`Pending::try_take`]. If a channel has
/// other receivers, one of them may have been faster, and `try_recv` finds it empty: then call `select` again. So no
/// value is lost when a waiter gives up, and receivers that stand in line by [`Receiver::recv`] are served before.
///
/// The time is that of the wait: the ways to channels on other machines come on top. A [`Pending`] with its value taken
/// counts as ready: leave it out.
///
/// ```
/// use gossamer::sync::{channel, select};
/// use std::time::Duration;
///
/// gossamer::main(
///     || {
///         let ((numbers, some), (words, others)) = (channel::<u32>(), channel::<String>());
///         gossamer::spawn(move || words.send("done".to_owned()));
///         assert_eq!(select(&[&some, &others], None), Some(1));
///         assert_eq!(others.try_recv().as_deref(), Ok("done"));
///         assert_eq!(select(&[&some], Some(Duration::from_millis(1))), None);
///         drop(numbers); // closed: that is news, too
///         assert_eq!(select(&[&some], None), Some(0));
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// In delegated closures and callbacks, where nothing may wait; if the trustee of a channel is gone; where it would
/// wait for a channel after the loss of a machine ([`Receiver::recv_or_lost`]); for an empty list without a time, which
/// would wait for ever.
pub fn select(sources: &[&dyn Source], time: Option<Duration>) -> Option<usize> {
    // Without a deadline if the clock cannot express it.
    let end = time.and_then(|time| Instant::now().checked_add(time));
    let mut watches = Vec::with_capacity(sources.len());
    for (place, source) in sources.iter().enumerate() {
        let watch = source.watch();
        if matches!(watch, Watch::Ready) {
            return Some(place);
        }
        watches.push(watch);
    }
    let promises: Vec<&dyn trust::Source> = watches
        .iter()
        .map(|watch| match watch {
            Watch::Promise(promise) => *promise,
            Watch::Channel(pending, _) => pending as &dyn trust::Source,
            Watch::Ready => unreachable!("it is returned"),
        })
        .collect();
    trust::select(&promises, end.map(|end| end.saturating_duration_since(Instant::now())))
}
