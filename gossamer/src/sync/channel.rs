//! Channels: how they are made. The callers' sides are in `sender.rs` and `receiver.rs`, the trustee's side is in
//! `queue.rs`, the transport of values in `carry.rs`.

use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::{NoRef, link};

use super::carry::{Carry, Plain};
use super::queue::{Queue, ReceiveEnd, SendEnd};
use super::receiver::Receiver;
use super::sender::Sender;
use crate::losses::record;
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
        let known = record::count();
        let receiver = link::entrust_remote(trustee, move || ReceiveEnd(Queue::<T, C>::shared(capacity, known)));
        let receiver = receiver.unwrap_or_else(|error| panic!("no channel was made at {:?}: {error}", trustee.id()));
        let sender = receiver.apply(|receiver| link::entrust_here(SendEnd(Rc::clone(&receiver.0))));
        (Sender(sender), Receiver(receiver))
    }
}
