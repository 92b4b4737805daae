//! Channels: the callers' side. The trustee's side is in `queue.rs`, the transport of values in `carry.rs`.

use std::fmt;
use std::rc::Rc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trust::{NoRef, Trust, link};

use super::carry::{Answer, Carry, Plain, Sent, Serialised};
use super::loss::{self, LostError, RecvOrLostError, SendOrLostError, Verdict, Waited, at_home};
use super::queue::{Queue, ReceiveEnd, SendEnd};
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
        match self.send_or_lost(value) {
            Ok(()) => Ok(()),
            Err(SendOrLostError::Disconnected(value)) => Err(SendError(value)),
            Err(SendOrLostError::Lost { machine, .. }) => {
                panic!("a value was not sent: machine {machine} was lost (`send_or_lost` returns this)")
            }
        }
    }

    /// Sends a value as [`send`](Self::send) does, where the program outlives losses
    /// ([`Builder::survives`](crate::Builder::survives)): a wait for room ends when a machine is lost, for the
    /// receivers may have been there. So does each later one until [`go_on`](Self::go_on).
    ///
    /// # Errors
    /// The value, if all receivers are gone, or by a loss.
    ///
    /// # Panics
    /// Same as [`send`](Self::send), but for losses.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::sync::{SendOrLostError, channel};
    ///         let (sender, receiver) = channel();
    ///         sender.send_or_lost(7).unwrap();
    ///         drop(receiver);
    ///         assert_eq!(sender.send_or_lost(8), Err(SendOrLostError::Disconnected(8)));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn send_or_lost(&self, mut value: T) -> Result<(), SendOrLostError<T>> {
        let is_lost = |LostError { machine }, value| SendOrLostError::Lost { machine, value };
        loop {
            let known = record::count();
            let (promise, taken) = link::promise_at(self.0.trustee().id());
            let sent = C::put(&self.0, value, move |end, value| end.0.borrow_mut().send(value, promise, known));
            match at_home(&self.0, sent).map_err(|lost| is_lost(lost, None))? {
                Sent::Done => return Ok(()),
                Sent::Full(value) | Sent::Refused(value) => return Err(SendOrLostError::Disconnected(value)),
                Sent::Lost(machine, value) => return Err(SendOrLostError::Lost { machine, value: Some(value) }),
                Sent::Behind(back) => value = back,
                Sent::Waits => {
                    let ask = |id, known| {
                        let asked = C::take_back(&self.0, move |end| end.0.borrow_mut().take_back(id, known));
                        // Where the home is lost, the promise tells it.
                        at_home(&self.0, asked).unwrap_or(Verdict::Behind)
                    };
                    return match loss::wait(taken, None, known, ask) {
                        Waited::Kept(kept) => match at_home(&self.0, kept) {
                            Ok(None) => Ok(()),
                            Ok(Some(value)) => Err(SendOrLostError::Disconnected(value)),
                            Err(lost) => Err(is_lost(lost, None)),
                        },
                        Waited::Lost((machine, value)) => Err(SendOrLostError::Lost { machine, value: Some(value) }),
                        Waited::TimedOut(_) => unreachable!("it waits without a limit"),
                    };
                }
            }
            loss::wait_for_home();
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
        let sent = C::put(&self.0, value, |end, value| end.0.borrow_mut().try_send(value));
        match sent.unwrap_or_else(|error| panic!("{error}")) {
            Sent::Done | Sent::Waits => Ok(()),
            Sent::Full(value) | Sent::Behind(value) | Sent::Lost(_, value) => Err(TrySendError::Full(value)),
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
            let unsent = end.0.borrow_mut().post(value);
            // Dropped outside of the borrow.
            drop(unsent);
        });
    }

    /// Accepts the losses of machines that this machine knows of: senders and receivers wait again, until the next one.
    /// A channel that a lost machine may have had ends of is not closed any more when the last living one is dropped.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait. If the machine of the channel itself is lost.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (sender, receiver) = gossamer::sync::bounded(1);
    ///         sender.go_on(); // nothing was lost
    ///         sender.send_or_lost(7).unwrap();
    ///         assert_eq!(receiver.recv(), Ok(7));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn go_on(&self) {
        loss::go_on(&self.0, |end, known| end.0.borrow_mut().accepted.go_on(known));
    }

    /// Promises that the ends of this channel stay on these machines: losses of others end no wait.
    ///
    /// # Panics
    /// In delegated closures and callbacks, where nothing may wait.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (sender, receiver) = gossamer::sync::channel();
    ///         sender.among(&[0]);
    ///         sender.send(7).unwrap();
    ///         assert_eq!(receiver.recv_or_lost(), Ok(7));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn among(&self, machines: &[u16]) {
        self.0.apply_with(|end, machines| end.0.borrow_mut().accepted.among(machines), machines.to_vec());
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
        self.receive(None).map_err(|unreceived| match unreceived {
            Unreceived::Disconnected | Unreceived::TimedOut => RecvError,
            Unreceived::Lost(lost) => panic!("{lost} (`recv_or_lost` returns this)"),
        })
    }

    /// Waits for a value as [`recv`](Self::recv) does, where the program outlives losses
    /// ([`Builder::survives`](crate::Builder::survives)): a wait ends when a machine is lost, for the last sender may
    /// have been there. So does each later one until [`go_on`](Self::go_on). Values that have come are received first.
    ///
    /// # Errors
    /// If all senders are gone and all values received, or by a loss.
    ///
    /// # Panics
    /// Same as [`recv`](Self::recv), but for losses.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         use gossamer::sync::{RecvOrLostError, channel};
    ///         let (sender, receiver) = channel();
    ///         gossamer::spawn(move || (0..3).for_each(|number| sender.send(number).unwrap()));
    ///         let mut sum = 0;
    ///         loop {
    ///             match receiver.recv_or_lost() {
    ///                 Ok(number) => sum += number,
    ///                 Err(RecvOrLostError::Lost(_)) => receiver.go_on(), // the other senders go on
    ///                 Err(_) => break,
    ///             }
    ///         }
    ///         assert_eq!(sum, 3);
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn recv_or_lost(&self) -> Result<T, RecvOrLostError> {
        self.receive(None).map_err(|unreceived| match unreceived {
            Unreceived::Disconnected | Unreceived::TimedOut => RecvOrLostError::Disconnected,
            Unreceived::Lost(lost) => RecvOrLostError::Lost(lost),
        })
    }

    fn receive(&self, time: Option<Duration>) -> Result<T, Unreceived> {
        loop {
            let known = record::count();
            let (promise, value) = link::promise_at(self.0.trustee().id());
            let answer = C::get(&self.0, move |end| end.0.borrow_mut().recv(promise, known));
            match at_home(&self.0, answer)? {
                Answer::Value(value) => return Ok(value),
                Answer::Empty | Answer::Closed => return Err(Unreceived::Disconnected),
                Answer::Lost(machine) => return Err(Unreceived::Lost(LostError { machine })),
                Answer::Behind => loss::wait_for_home(),
                Answer::Waits => {
                    let ask = |id, known| {
                        let asked = self.0.call().apply(move |end| end.0.borrow_mut().give_up(id, known)).wait();
                        // Where the home is lost, the promise tells it.
                        at_home(&self.0, asked).unwrap_or(Verdict::Behind)
                    };
                    let kept = match loss::wait(value, time, known, ask) {
                        Waited::Kept(kept) => kept,
                        Waited::Lost(machine) => return Err(Unreceived::Lost(LostError { machine })),
                        Waited::TimedOut(value) => {
                            let id = value.id();
                            if self.0.apply(move |end| end.0.borrow_mut().withdraw(id)) {
                                return Err(Unreceived::TimedOut);
                            }
                            value.wait()
                        }
                    };
                    return at_home(&self.0, kept)?.ok_or(Unreceived::Disconnected);
                }
            }
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
        let answer = C::get(&self.0, |end| end.0.borrow_mut().try_recv());
        match answer.unwrap_or_else(|error| panic!("{error}")) {
            Answer::Value(value) => Ok(value),
            Answer::Waits | Answer::Empty | Answer::Behind | Answer::Lost(_) => Err(TryRecvError::Empty),
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
        self.receive(Some(time)).map_err(|unreceived| match unreceived {
            Unreceived::Disconnected => RecvTimeoutError::Disconnected,
            Unreceived::TimedOut => RecvTimeoutError::Timeout,
            Unreceived::Lost(lost) => panic!("{lost} (`recv_or_lost` returns this)"),
        })
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

    /// Accepts the losses of machines that this machine knows of, as [`Sender::go_on`] does.
    ///
    /// Example: at [`recv_or_lost`](Self::recv_or_lost).
    pub fn go_on(&self) {
        loss::go_on(&self.0, |end, known| end.0.borrow_mut().accepted.go_on(known));
    }

    /// Promises that the ends of this channel stay on these machines, as [`Sender::among`] does.
    ///
    /// Example: at [`Sender::among`].
    pub fn among(&self, machines: &[u16]) {
        self.0.apply_with(|end, machines| end.0.borrow_mut().accepted.among(machines), machines.to_vec());
    }
}

enum Unreceived {
    Disconnected,
    TimedOut,
    Lost(LostError),
}

impl From<LostError> for Unreceived {
    fn from(lost: LostError) -> Unreceived {
        Unreceived::Lost(lost)
    }
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
