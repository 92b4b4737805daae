//! The sending side of a channel, at its callers.

use std::fmt;
use std::sync::mpsc::{SendError, TrySendError};

use serde::{Deserialize, Serialize};
use trust::{Trust, link};

use super::carry::{Carry, Sent, Serialised};
use super::loss::{self, LostError, SendOrLostError, Verdict, Waited, at_home};
use super::queue::SendEnd;
use crate::losses::record;

/// Sending side of a [`channel`](super::channel). Clone it for each fiber that sends; the channel is closed when the
/// last clone has been dropped.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Sender<T: 'static, C: Carry<T> = Serialised>(pub(super) Trust<SendEnd<T, C>>);

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

impl<T: 'static, C: Carry<T>> Clone for Sender<T, C> {
    fn clone(&self) -> Self {
        Sender(self.0.clone())
    }
}

impl<T: 'static, C: Carry<T>> fmt::Debug for Sender<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender<{}>(at {:?})", std::any::type_name::<T>(), self.0.trustee().id())
    }
}
