//! The receiving side of a channel, at its callers.

use std::fmt;
use std::sync::mpsc::{RecvError, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trust::{Trust, link};

use super::carry::{Answer, Carry, Serialised};
use super::loss::{self, LostError, RecvOrLostError, Verdict, Waited, at_home};
use super::queue::ReceiveEnd;
use crate::losses::record;

/// Receiving side of a [`channel`](super::channel). Each value is received once, by the first of its clones to ask.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Receiver<T: 'static, C: Carry<T> = Serialised>(pub(super) Trust<ReceiveEnd<T, C>>);

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

    /// Accepts the losses of machines that this machine knows of, as [`Sender::go_on`](super::Sender::go_on) does.
    ///
    /// Example: at [`recv_or_lost`](Self::recv_or_lost).
    pub fn go_on(&self) {
        loss::go_on(&self.0, |end, known| end.0.borrow_mut().accepted.go_on(known));
    }

    /// Promises that the ends of this channel stay on these machines, as [`Sender::among`](super::Sender::among) does.
    ///
    /// Example: at [`Sender::among`](super::Sender::among).
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

impl<T: 'static, C: Carry<T>> Clone for Receiver<T, C> {
    fn clone(&self) -> Self {
        Receiver(self.0.clone())
    }
}

impl<T: 'static, C: Carry<T>> fmt::Debug for Receiver<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver<{}>(at {:?})", std::any::type_name::<T>(), self.0.trustee().id())
    }
}
