//! All-to-all exchange of values: fibers anywhere send each value to a place, which they name or a key chooses, and a
//! fiber there receives what came from all of them: the shuffle of a group-by, a join, a sort.
//!
//! Here: batches and their places. Not here: the transport and the end, which are those of bounded channels
//! ([`sync`](crate::sync)), one at each place.
//!
//! Invariant: a batch is the encoded values of one outbox, whole, in the order in which they were sent; so values of
//! one outbox reach an inbox in that order.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::iter::FusedIterator;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::codec;
use crate::rack::{Place, rack};
use crate::sync::{Channel, Receiver, Sender};

/// Bytes at which a batch is sent, where places are few.
const BATCH_BYTES_MAX: usize = 64 << 10;
/// The same where they are many.
const BATCH_BYTES_MIN: usize = 4 << 10;
/// Bytes of all batches of an outbox, which bound those of each.
const OUTBOX_BYTES: usize = 16 << 20;
/// Most values of a batch, which matters where they have no bytes.
const BATCH_VALUES: u32 = 1 << 16;
/// Batches that an inbox holds before its senders wait.
const INBOX_BATCHES: usize = 8;

/// Encoded values, and their number.
type Batch = (u32, ByteBuf);

/// Makes an exchange: its sending side, and an inbox at each place of the rack, in the order of
/// [`Rack::places`](crate::Rack::places).
///
/// Values are sent by an [`Outbox`], of which each sending fiber makes its own, and received by iterating over an
/// [`Inbox`], at best in a fiber at its [`place`](Inbox::place). An inbox ends when all clones of the [`Exchange`] and
/// all outboxes have been dropped, so drop the one that you have before you wait for receivers.
///
/// ```
/// use std::collections::HashMap;
/// gossamer::main(
///     || {
///         let places = || gossamer::rack().places();
///         let (exchange, inboxes) = gossamer::exchange::<(String, u32)>();
///         let senders: Vec<_> = places()
///             .map(|place| {
///                 let send = |exchange: gossamer::Exchange<(String, u32)>| {
///                     let mut outbox = exchange.outbox();
///                     for word in ["to", "be", "or", "not", "to", "be"] {
///                         outbox.send_by(word, &(word.to_owned(), 1)).unwrap(); // the word chooses the place
///                     }
///                 };
///                 gossamer::spawn_with(place, send, exchange.clone())
///             })
///             .collect();
///         drop(exchange);
///         let count = |inbox: gossamer::Inbox<(String, u32)>| {
///             let mut counts = HashMap::new();
///             inbox.into_iter().for_each(|(word, times)| *counts.entry(word).or_insert(0) += times);
///             counts
///         };
///         let receivers = inboxes.into_iter().map(|inbox| gossamer::spawn_with(inbox.place(), count, inbox));
///         let counts = gossamer::join_all(receivers.collect::<Vec<_>>());
///         senders.into_iter().for_each(|sender| sender.join().unwrap());
///         // Each word is at one place.
///         let total: HashMap<_, _> = counts.into_iter().flat_map(|counts| counts.unwrap()).collect();
///         assert_eq!((total.len(), total["be"], total["or"]), (4, 4, 2));
///     },
///     2,
/// );
/// ```
///
/// Memory is bounded: an outbox holds at most 64 KiB for each place and 16 MiB in all (4 KiB for each, where there are
/// more than 4,096 places), and an inbox 8 such batches and one of each outbox that waits for room in it.
///
/// # Panics
/// Outside [`gossamer::main`](crate::main); in delegated closures and callbacks, where nothing may wait.
pub fn exchange<T: Serialize + DeserializeOwned + 'static>() -> (Exchange<T>, Vec<Inbox<T>>) {
    let channel = |place| (place, Channel::new().at(place).capacity(INBOX_BATCHES).open());
    let ends = rack().places().map(channel).map(|(place, (sender, batches))| {
        let inbox = Inbox { place, batches, values: PhantomData };
        (sender, inbox)
    });
    let (senders, inboxes) = ends.unzip();
    (Exchange { senders, values: PhantomData }, inboxes)
}

/// Sending side of an [`exchange`]. Clone it for each sending fiber; it travels as an argument
/// ([`spawn_with`](crate::spawn_with)).
///
/// Example: at [`exchange`].
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Exchange<T: 'static> {
    /// In the order of the places.
    senders: Vec<Sender<Batch>>,
    values: PhantomData<fn(T)>,
}

impl<T: Serialize + 'static> Exchange<T> {
    /// Makes an outbox, for one fiber.
    ///
    /// Example: at [`exchange`].
    pub fn outbox(&self) -> Outbox<T> {
        let lane = |(place, sender): (Place, &Sender<Batch>)| Lane {
            place,
            sender: sender.clone(),
            count: 0,
            bytes: Vec::new(),
        };
        let lanes: Vec<_> = rack().places().zip(&self.senders).map(lane).collect();
        let batch_bytes = (OUTBOX_BYTES / lanes.len()).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX);
        Outbox { lanes, batch_bytes, values: PhantomData }
    }
}

impl<T: 'static> Clone for Exchange<T> {
    fn clone(&self) -> Self {
        Exchange { senders: self.senders.clone(), values: PhantomData }
    }
}

impl<T: 'static> fmt::Debug for Exchange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchange<{}>(between {} places)", std::any::type_name::<T>(), self.senders.len())
    }
}

/// Values of one fiber on their way into an [`exchange`], in batches. Dropping it sends the rest.
///
/// Values of one outbox reach an inbox in the order in which they were sent. Example: at [`exchange`].
pub struct Outbox<T: 'static> {
    lanes: Vec<Lane>,
    batch_bytes: usize,
    values: PhantomData<fn(T)>,
}

/// Batch for one place.
struct Lane {
    place: Place,
    sender: Sender<Batch>,
    count: u32,
    bytes: Vec<u8>,
}

impl Lane {
    fn take(&mut self) -> Batch {
        (std::mem::take(&mut self.count), ByteBuf::from(std::mem::take(&mut self.bytes)))
    }
}

impl<T: Serialize + 'static> Outbox<T> {
    /// Sends a value to a place. Waits while the inbox there is full, at every batch; other fibers run meanwhile.
    ///
    /// # Errors
    /// If the inbox has been dropped. The values of its batch are lost.
    ///
    /// # Panics
    /// If there is no such place, or the value cannot be serialised (a trust inside of it cannot: send trusts by
    /// channels); in delegated closures and callbacks, where nothing may wait.
    ///
    /// ```
    /// gossamer::main(
    ///     || {
    ///         let (exchange, mut inboxes) = gossamer::exchange::<u32>();
    ///         let last = gossamer::rack().places().last().unwrap();
    ///         let mut outbox = exchange.outbox();
    ///         (0..100).for_each(|number| outbox.send(last, &number).unwrap());
    ///         drop((exchange, outbox)); // the rest is sent, and the inboxes end
    ///         let inbox = inboxes.pop().unwrap();
    ///         assert_eq!(inbox.place(), last);
    ///         assert!(inbox.into_iter().eq(0..100));
    ///     },
    ///     2,
    /// );
    /// ```
    pub fn send(&mut self, place: Place, value: &T) -> Result<(), InboxGone> {
        // Places are in order.
        let lane = self.lanes.binary_search_by_key(&place, |lane| lane.place);
        self.push(lane.unwrap_or_else(|_| panic!("there is no place {place}: {}", rack())), value)
    }

    /// Sends a value to the place to which the key belongs: each key to one place, the same for all outboxes of all
    /// exchanges of a program.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    ///
    /// # Panics
    /// Same as [`send`](Self::send).
    ///
    /// Example: at [`exchange`].
    pub fn send_by<K: Hash + ?Sized>(&mut self, key: &K, value: &T) -> Result<(), InboxGone> {
        // The same hash on every machine: this hasher has no secret of the process.
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.push((hasher.finish() % self.lanes.len() as u64) as usize, value)
    }

    fn push(&mut self, lane: usize, value: &T) -> Result<(), InboxGone> {
        let lane = &mut self.lanes[lane];
        codec::encode_onto(&mut lane.bytes, value)
            .unwrap_or_else(|error| panic!("a value of an exchange does not serialise: {error}"));
        lane.count += 1;
        if lane.bytes.len() < self.batch_bytes && lane.count < BATCH_VALUES {
            return Ok(());
        }
        let batch = lane.take();
        lane.sender.send(batch).map_err(|_| InboxGone { place: lane.place })
    }
}

impl<T: 'static> Drop for Outbox<T> {
    fn drop(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.count > 0) {
            let batch = lane.take();
            lane.sender.post(batch);
        }
    }
}

impl<T: 'static> fmt::Debug for Outbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unsent: u64 = self.lanes.iter().map(|lane| u64::from(lane.count)).sum();
        write!(f, "Outbox<{}>({unsent} values in its batches)", std::any::type_name::<T>())
    }
}

/// Receiving side of an [`exchange`] at one place. It travels as an argument, like the [`Exchange`].
///
/// Iterating over it waits for values, and ends when all senders are gone and all values received. Example: at
/// [`exchange`].
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Inbox<T: 'static> {
    place: Place,
    batches: Receiver<Batch>,
    values: PhantomData<fn() -> T>,
}

impl<T: 'static> Inbox<T> {
    /// Returns the place to which its values are sent, where receiving them costs least.
    ///
    /// Example: at [`Outbox::send`].
    pub fn place(&self) -> Place {
        self.place
    }
}

impl<T: 'static> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox<{}>(of {})", std::any::type_name::<T>(), self.place)
    }
}

impl<T: DeserializeOwned + 'static> IntoIterator for Inbox<T> {
    type Item = T;
    type IntoIter = Received<T>;
    fn into_iter(self) -> Received<T> {
        Received { batches: self.batches, left: 0, bytes: Vec::new(), at: 0, values: PhantomData }
    }
}

/// Iterator over the values of an [`Inbox`].
///
/// # Panics
/// Its `next` panics in delegated closures and callbacks, where nothing may wait, and if a value cannot be read back
/// (its `Deserialize` reads something else than its `Serialize` wrote).
pub struct Received<T> {
    batches: Receiver<Batch>,
    /// Values that are left of the batch.
    left: u32,
    bytes: Vec<u8>,
    /// First byte of the next one.
    at: usize,
    values: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Iterator for Received<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        while self.left == 0 {
            let (count, bytes) = self.batches.recv().ok()?;
            (self.left, self.bytes, self.at) = (count, bytes.into_vec(), 0);
        }
        let (value, bytes) = codec::decode_first(&self.bytes[self.at..])
            .unwrap_or_else(|error| panic!("a value of an exchange cannot be read back: {error}"));
        self.left -= 1;
        self.at += bytes;
        Some(value)
    }
}

/// The end stays the end: no sender comes back.
impl<T: DeserializeOwned> FusedIterator for Received<T> {}

impl<T> fmt::Debug for Received<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Received<{}>({} values in its batch)", std::any::type_name::<T>(), self.left)
    }
}

/// The inbox of a place was dropped before its exchange was over: its fiber has ended, or panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the inbox of {place} is gone: the fiber that received from it has ended before its senders")]
#[non_exhaustive]
pub struct InboxGone {
    /// Its place.
    pub place: Place,
}
