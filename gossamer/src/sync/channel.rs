//! Channels: the callers' side. The trustee's side is in `queue.rs`, the transport of values in `carry.rs`.

use std::fmt;
use std::rc::Rc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trust::{Error, NoRef, Pending, Trust, link, promise};

use super::carry::{Answer, Carry, Plain, Sent, Serialised};
use super::queue::{Queue, ReceiveEnd, SendEnd};
use crate::rack::{Place, program};

/// Makes an unbounded channel, at the next worker of this machine in turn.
///
/// ```
/// use gossamer::sync::channel;
/// gossamer::main(
///     || {
///         let (sender, receiver) = channel::<String>();
///         for place in gossamer::rack().places() {
///             let sender = sender.clone();
///             gossamer::spawn_on(place, move || sender.send(format!("hello from {place}")).unwrap());
///         }
///         drop(sender); // the last one to go closes the channel
///         assert_eq!(receiver.into_iter().count(), 2);
///     },
///     2,
/// );
/// ```
///
/// # Panics
/// Outside [`gossamer::main`](crate::main); in delegated closures and callbacks, where nothing may wait.
///
/// Cost: three requests to make it; then as listed in [`sync`](super).
#[track_caller]
pub fn channel<T: Serialize + DeserializeOwned + 'static>() -> (Sender<T>, Receiver<T>) {
    Channel::new().open()
}

/// Makes a channel as [`channel`] does, for at most `capacity` values that are not received yet; further senders wait.
/// With 0 a sender waits for a receiver to take the value.
///
/// ```
/// use gossamer::sync::{TrySendError, bounded};
/// gossamer::main(
///     || {
///         let (sender, receiver) = bounded(1);
///         sender.send(1).unwrap();
///         assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
///         assert_eq!(receiver.recv(), Ok(1));
///     },
///     2,
/// );
/// ```
pub fn bounded<T: Serialize + DeserializeOwned + 'static>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    Channel::new().capacity(capacity).open()
}

/// Settings of a channel to be made: its place, its capacity, the transport of its values.
///
/// It is best placed where values are received: receiving them then sends nothing.
///
/// ```
/// use gossamer::sync::Channel;
/// gossamer::main(
///     || {
///         // Trusts and promises travel as they are.
///         let (sender, receiver) = Channel::new().at(gossamer::here()).capacity(8).open_plain();
///         sender.send(gossamer::entrust(5)).unwrap();
///         assert_eq!(receiver.recv().unwrap().apply(|n| *n), 5);
///     },
///     2,
/// );
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "`open` makes the channel"]
pub struct Channel {
    place: Option<Place>,
    capacity: Option<usize>,
}

impl Channel {
    /// Starts with an unbounded channel, at the next worker of this machine in turn.
    ///
    /// Example: at [`Channel`].
    pub fn new() -> Channel {
        Channel::default()
    }

    /// Places the channel here.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (sender, receiver) = gossamer::sync::Channel::new().at(gossamer::here()).open();
    ///         sender.send("here".to_owned()).unwrap();
    ///         assert_eq!(receiver.recv().as_deref(), Ok("here"));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn at(mut self, place: Place) -> Channel {
        self.place = Some(place);
        self
    }

    /// Bounds the channel to so many values.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (sender, receiver) = gossamer::sync::Channel::new().capacity(2).open();
    ///         assert!([1, 2].iter().all(|number| sender.try_send(*number).is_ok()));
    ///         assert!(sender.try_send(3).is_err());
    ///         assert_eq!(receiver.recv(), Ok(1));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn capacity(mut self, values: usize) -> Channel {
        self.capacity = Some(values);
        self
    }

    /// Makes the channel, for values that travel serialised.
    ///
    /// # Panics
    /// Same as [`channel`]; if there is no such place.
    ///
    /// Example: at [`at`](Self::at).
    #[track_caller]
    pub fn open<T: Serialize + DeserializeOwned + 'static>(self) -> (Sender<T>, Receiver<T>) {
        self.make()
    }

    /// Makes the channel, for values that travel as raw memory.
    ///
    /// # Panics
    /// Same as [`open`](Self::open).
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (sender, receiver) = gossamer::sync::Channel::new().open_plain();
    ///         sender.send([0u64; 64]).unwrap(); // no serde
    ///         assert_eq!(receiver.recv(), Ok([0; 64]));
    ///     },
    ///     2,
    /// );
    /// ```
    #[track_caller]
    pub fn open_plain<T: NoRef + Send + 'static>(self) -> (Sender<T, Plain>, Receiver<T, Plain>) {
        self.make()
    }

    #[track_caller]
    fn make<T: 'static, C: Carry<T>>(self) -> (Sender<T, C>, Receiver<T, C>) {
        let trustee = match self.place {
            Some(place) => place.trustee(),
            None => program().next_entrust(),
        };
        let capacity = self.capacity.unwrap_or(usize::MAX);
        let receiver = link::entrust_remote(trustee, move || ReceiveEnd(Queue::<T, C>::shared(capacity)));
        let receiver = receiver.unwrap_or_else(|error| panic!("no channel was made at {:?}: {error}", trustee.id()));
        let sender = receiver.apply(|receiver| link::entrust_here(SendEnd(Rc::clone(&receiver.0))));
        (Sender(sender), Receiver(receiver))
    }
}

/// Sending side of a [`channel`]. Clone it for each fiber that sends; the channel is closed when the last clone has
/// been dropped.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Sender<T: 'static, C: Carry<T> = Serialised>(Trust<SendEnd<T, C>>);

/// Receiving side of a [`channel`]. Each value is received once, by the first of its clones to ask.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Receiver<T: 'static, C: Carry<T> = Serialised>(pub(super) Trust<ReceiveEnd<T, C>>);

impl<T: 'static, C: Carry<T>> Sender<T, C> {
    /// Sends a value, and waits until it is in the channel: behind all values that this thread has sent before, and, in
    /// a full bounded channel, behind the senders that wait.
    ///
    /// # Errors
    /// The value, if all receivers are gone.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait. As [`Trust::apply_with`], if the value does not
    /// serialise or is too large.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (sender, receiver) = gossamer::sync::channel();
    ///         sender.send("one".to_owned()).unwrap();
    ///         assert_eq!(receiver.recv().as_deref(), Ok("one"));
    ///         drop(receiver);
    ///         assert!(sender.send("two".to_owned()).is_err()); // nobody is left to receive it
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let (promise, taken) = promise();
        match C::put(&self.0, value, move |end, value| end.0.borrow_mut().send(value, Some(promise))) {
            Sent::Waits => match finish(taken) {
                None => Ok(()),
                Some(value) => Err(SendError(value)),
            },
            Sent::Done => Ok(()),
            Sent::Full(value) | Sent::Refused(value) => Err(SendError(value)),
        }
    }

    /// Sends a value if there is room for it. Waits for the channel's answer, not for room.
    ///
    /// # Errors
    /// The value, if the channel is full or all receivers are gone.
    ///
    /// # Panics
    /// Same as [`send`](Self::send).
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::sync::{TrySendError, bounded};
    ///         let (sender, receiver) = bounded(1);
    ///         assert_eq!(sender.try_send(1), Ok(()));
    ///         assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    ///         drop(receiver);
    ///         assert_eq!(sender.try_send(3), Err(TrySendError::Disconnected(3)));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        match C::put(&self.0, value, |end, value| end.0.borrow_mut().try_send(value)) {
            Sent::Done | Sent::Waits => Ok(()),
            Sent::Full(value) => Err(TrySendError::Full(value)),
            Sent::Refused(value) => Err(TrySendError::Disconnected(value)),
        }
    }

    /// Sends a value and goes on at once; the values of this thread keep their order. Legal everywhere, also in
    /// delegated closures and callbacks. Many go out in one batch, so use it for many values.
    ///
    /// The sender does not learn the result: if all receivers are gone the value is dropped, and in a full bounded
    /// channel it waits in line behind the waiting senders, so that the channel then holds more than its capacity.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (sender, receiver) = gossamer::sync::channel();
    ///         (0..1000).for_each(|number| sender.post(number));
    ///         drop(sender);
    ///         assert_eq!(receiver.iter().sum::<i32>(), 499_500);
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn post(&self, value: T) {
        C::post(&self.0, value, |end, value| {
            let unsent = end.0.borrow_mut().send(value, None);
            // Dropped outside of the borrow.
            drop(unsent);
        });
    }
}

impl<T: 'static, C: Carry<T>> Receiver<T, C> {
    /// Waits for a value; waiting receivers are served in the order in which they came.
    ///
    /// # Errors
    /// If all senders are gone and all values received.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait. As [`Trust::apply_with`], if the value cannot
    /// travel here; it is lost then.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (sender, receiver) = gossamer::sync::channel();
    ///         gossamer::spawn(move || sender.send(7));
    ///         assert_eq!(receiver.recv(), Ok(7));
    ///         assert!(receiver.recv().is_err()); // the sender has ended
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn recv(&self) -> Result<T, RecvError> {
        let (promise, value) = promise();
        match C::get(&self.0, move |end| end.0.borrow_mut().recv(promise)) {
            Answer::Value(value) => Ok(value),
            Answer::Waits => finish(value).ok_or(RecvError),
            Answer::Empty | Answer::Closed => Err(RecvError),
        }
    }

    /// Receives the first value, if there is one. Waits for the channel's answer, not for a value.
    ///
    /// # Errors
    /// If there is none; the error tells whether there may be one later.
    ///
    /// # Panics
    /// Same as [`recv`](Self::recv).
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::sync::{TryRecvError, channel};
    ///         let (sender, receiver) = channel();
    ///         assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    ///         sender.send(7).unwrap();
    ///         assert_eq!(receiver.try_recv(), Ok(7));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        match C::get(&self.0, |end| end.0.borrow_mut().try_recv()) {
            Answer::Value(value) => Ok(value),
            Answer::Waits | Answer::Empty => Err(TryRecvError::Empty),
            Answer::Closed => Err(TryRecvError::Disconnected),
        }
    }

    /// Waits for a value, but not longer than `time` and the way to the channel and back. No value is lost: one that
    /// was on its way when the time was over is received.
    ///
    /// # Errors
    /// If the time is over, or all senders are gone and all values received.
    ///
    /// # Panics
    /// Same as [`recv`](Self::recv).
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::sync::{RecvTimeoutError, channel};
    ///         use std::time::Duration;
    ///         let (_sender, receiver) = channel::<u32>();
    ///         assert_eq!(receiver.recv_timeout(Duration::from_millis(5)), Err(RecvTimeoutError::Timeout));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        let (promise, value) = promise();
        match C::get(&self.0, move |end| end.0.borrow_mut().recv(promise)) {
            Answer::Value(value) => return Ok(value),
            Answer::Waits => {}
            Answer::Empty | Answer::Closed => return Err(RecvTimeoutError::Disconnected),
        }
        let give_up = |id| self.0.apply(move |end| end.0.borrow_mut().withdraw(id));
        let outcome = link::wait_in_line(value, time, give_up).ok_or(RecvTimeoutError::Timeout)?;
        kept(outcome).ok_or(RecvTimeoutError::Disconnected)
    }

    /// Returns how many values wait to be received, without those of waiting senders. Waits for the channel's answer.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (sender, receiver) = gossamer::sync::channel();
    ///         assert!(receiver.is_empty());
    ///         sender.send(1).unwrap();
    ///         assert_eq!(receiver.len(), 1);
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn len(&self) -> usize {
        self.0.apply(|end| end.0.borrow().len())
    }

    /// Returns whether there is no value. As [`len`](Self::len).
    ///
    /// Example: at [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an iterator that receives until all senders are gone.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (sender, receiver) = gossamer::sync::channel();
    ///         gossamer::spawn(move || (0..3).for_each(|number| sender.send(number).unwrap()));
    ///         assert_eq!(receiver.iter().collect::<Vec<i32>>(), [0, 1, 2]);
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn iter(&self) -> Iter<'_, T, C> {
        Iter(self)
    }
}

/// Waits for the promised value.
fn finish<T: 'static>(pending: Pending<Option<T>>) -> Option<T> {
    kept(pending.wait())
}

fn kept<T>(outcome: Result<Option<T>, Error>) -> Option<T> {
    // The channel outlives its waiters; only the way here can fail.
    outcome.unwrap_or_else(|error| panic!("a value of a channel did not arrive: {error}"))
}

/// Iterator over the values of a channel. See [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T: 'static, C: Carry<T>>(&'a Receiver<T, C>);

/// Iterator over the values of a channel. See [`Receiver::iter`].
#[derive(Debug)]
pub struct IntoIter<T: 'static, C: Carry<T>>(Receiver<T, C>);

impl<T: 'static, C: Carry<T>> Iterator for Iter<'_, T, C> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T: 'static, C: Carry<T>> Iterator for IntoIter<T, C> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<'a, T: 'static, C: Carry<T>> IntoIterator for &'a Receiver<T, C> {
    type Item = T;
    type IntoIter = Iter<'a, T, C>;
    fn into_iter(self) -> Iter<'a, T, C> {
        self.iter()
    }
}

impl<T: 'static, C: Carry<T>> IntoIterator for Receiver<T, C> {
    type Item = T;
    type IntoIter = IntoIter<T, C>;
    fn into_iter(self) -> IntoIter<T, C> {
        IntoIter(self)
    }
}

impl<T: 'static, C: Carry<T>> Clone for Sender<T, C> {
    fn clone(&self) -> Self {
        Sender(self.0.clone())
    }
}

impl<T: 'static, C: Carry<T>> Clone for Receiver<T, C> {
    fn clone(&self) -> Self {
        Receiver(self.0.clone())
    }
}

impl<T: 'static, C: Carry<T>> fmt::Debug for Sender<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender<{}>(at {:?})", std::any::type_name::<T>(), self.0.trustee().id())
    }
}

impl<T: 'static, C: Carry<T>> fmt::Debug for Receiver<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver<{}>(at {:?})", std::any::type_name::<T>(), self.0.trustee().id())
    }
}
