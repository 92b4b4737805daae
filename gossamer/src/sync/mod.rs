//! Synchronisation of fibers of all machines: channels, barriers, condition variables. Each is a property at some place
//! and trusts of it, and nothing else: requests go to it, and a waiter leaves a [`Promise`](crate::Promise) there,
//! which a later request keeps. So nothing is polled, no wake-up is lost, and waiters are served in the order in which
//! they came.
//!
//! The handles are trusts: clone them, capture them in closures, keep them in properties, send them to other machines,
//! also inside of serialised arguments.
//!
//! | | requests | of which the caller waits for |
//! |---|---|---|
//! | [`Sender::send`], [`Receiver::recv`] that need not wait | 1 and its answer | the answer |
//! | those that wait | and 1 more, to the waiting worker | both |
//! | [`Sender::post`] | 1 | nothing |
//! | [`select`] from n channels | n and their answers, then 1 by the sender; n to stop | all but the last n |
//! | a round of a [`Barrier`] for n | n and their answers, n - 1 to the waiters | all |
//! | [`Condvar::wait`] | 1 and its answer, then 1 by the notifier | both |
//! | [`Condvar::notify_one`], [`Condvar::notify_all`] | 1 | nothing |
//!
//! If caller and property share a worker a request is a function call. A waiter uses no processor time.
//!
//! Where a program outlives machines ([`Builder::survives`](crate::Builder::survives)) a loss ends all waits here, and
//! later ones until `go_on`, for who was waited for may have been there: `recv_or_lost`, `send_or_lost`, `try_wait`,
//! `try_wait_while` return it, all others panic. `among` names the machines that have handles; losses of others are no
//! matter then.
//!
//! Source: thesis 3 (reading and writing channels, waiting for and notifying condition variables on any machine).

mod barrier;
mod carry;
mod channel;
mod condvar;
mod loss;
mod queue;
mod receiver;
mod select;
mod sender;

pub use barrier::{Barrier, BarrierWaitResult};
pub use carry::{Carry, Plain, Serialised};
pub use channel::{Channel, bounded, channel};
pub use condvar::Condvar;
pub use loss::{LostError, RecvOrLostError, SendOrLostError};
pub use receiver::{IntoIter, Iter, Receiver};
pub use select::{Source, select};
pub use sender::Sender;
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
