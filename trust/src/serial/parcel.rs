//! Trusts inside serialised values: in arguments and results of `apply_with` and its variants.
//!
//! The bytes of a value name a trust by a number. The trust itself travels beside the bytes, in a list that is open
//! only while a value is serialised or deserialised here. So no bytes, wherever they come from, become a trust: a
//! number can only pick, once, a trust that was put into this very message, as a trust of the same type.
//!
//! ```text
//! message:  bytes of the value | property u64, trustee u64, type u128 for each trust
//!           | number of trusts u8 or 255 and u32 before
//! ```
//!
//! A message without bytes and trusts is empty. It owns the trusts inside it: each is counted from when it was written
//! until it is read, or the message is dropped ([`Parcel`]).
//!
//! Invariant: nothing suspends while a list is open (the context ensures that), so lists are closed in the reverse
//! order of their opening and each belongs to one message.

#![allow(unsafe_code)]

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::ManuallyDrop;
use std::ptr;

use crate::ids::TrusteeId;
use crate::property::Header;
use crate::request::Fault;
use crate::runtime::worker::{self, Context};

const ENTRY_BYTES: usize = 32;
/// Marker: the number of trusts is stored before it, in four bytes.
const MANY: u8 = u8::MAX;

thread_local! {
    /// List of the message that is being written or read, or null.
    static OPEN: Cell<*const List> = const { Cell::new(ptr::null()) };
}

/// Trusts of a message; those taken out are `None`. Trusts are taken out only while a message is read: otherwise the
/// message would count more trusts than it lists, and bytes of its value would be read as a trust.
#[derive(Default)]
pub(crate) struct List {
    trusts: RefCell<Vec<Option<AnyTrust>>>,
    is_read: bool,
}

/// Counted trust of some type.
struct AnyTrust {
    property: *mut Header,
    trustee: TrusteeId,
    kind: [u64; 2],
}

impl Drop for AnyTrust {
    fn drop(&mut self) {
        crate::runtime::worker::reclaim::count(self.trustee, self.property, -1);
    }
}

/// Returns the number of a type: the same on all machines, which run the same program; different for different types.
fn kind_of<T: 'static>() -> [u64; 2] {
    let mut hasher = DefaultHasher::new();
    TypeId::of::<T>().hash(&mut hasher);
    let id = hasher.finish();
    std::any::type_name::<T>().hash(&mut hasher);
    [id, hasher.finish()]
}

/// Runs `f`, which writes or reads a value, with this list open.
pub(crate) fn with_list<R>(list: &List, f: impl FnOnce() -> R) -> R {
    struct Closing {
        list: *const List,
        context: Option<Context>,
    }
    impl Drop for Closing {
        fn drop(&mut self) {
            OPEN.set(self.list);
            if let Some(before) = self.context {
                worker::existing(|worker| worker.context.set(before));
            }
        }
    }
    let closing = Closing { list: OPEN.replace(list), context: worker::existing(|worker| worker.enter_serialising()) };
    let value = f();
    drop(closing);
    // Runs the requests made to this very trustee meanwhile.
    worker::existing(|worker| worker.settle());
    value
}

/// Returns the open list.
fn open<'a>() -> Option<&'a List> {
    // SAFETY: the list is borrowed by the `with_list` that put it here, which has not returned; only this thread uses
    // it.
    unsafe { OPEN.get().as_ref() }
}

impl List {
    pub(crate) fn is_empty(&self) -> bool {
        self.trusts.borrow().is_empty()
    }

    fn put(&self, trust: AnyTrust) -> Option<u32> {
        let mut list = self.trusts.borrow_mut();
        let number = u32::try_from(list.len()).ok()?;
        list.push(Some(trust));
        Some(number)
    }

    fn take(&self, number: u32, kind: [u64; 2]) -> Option<AnyTrust> {
        let mut list = self.trusts.borrow_mut();
        list.get_mut(number as usize).filter(|_| self.is_read)?.take_if(|trust| trust.kind == kind)
    }

    /// Ends a message with bytes from `start` on: from here on the message owns the trusts.
    pub(crate) fn seal(self, message: &mut Vec<u8>, start: usize) {
        let list = self.trusts.into_inner();
        if message.len() == start && list.is_empty() {
            return;
        }
        let count = list.len() as u32;
        for trust in list.into_iter().flatten().map(ManuallyDrop::new) {
            message.extend_from_slice(&(trust.property.expose_provenance() as u64).to_ne_bytes());
            message.extend_from_slice(&trust.trustee.to_bits().to_ne_bytes());
            trust.kind.iter().for_each(|word| message.extend_from_slice(&word.to_ne_bytes()));
        }
        match u8::try_from(count) {
            Ok(few) if few < MANY => message.push(few),
            _ => {
                message.extend_from_slice(&count.to_ne_bytes());
                message.push(MANY);
            }
        }
    }
}

/// Splits a message into the bytes of its value and those of its trusts.
fn split(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let Some((&few, rest)) = message.split_last() else { return Some((&[], &[])) };
    let (count, rest) = match few {
        MANY => rest.split_last_chunk::<4>().map(|(rest, count)| (u32::from_ne_bytes(*count) as usize, rest))?,
        few => (usize::from(few), rest),
    };
    rest.split_at_checked(rest.len().checked_sub(count.checked_mul(ENTRY_BYTES)?)?)
}

/// Returns the trusts of these bytes.
///
/// # Safety
/// `List::seal` wrote them, in this process or another of the same program, and each trust is taken once.
unsafe fn trusts(entries: &[u8]) -> impl Iterator<Item = AnyTrust> {
    entries.as_chunks::<ENTRY_BYTES>().0.iter().map(|entry| {
        let word = |at: usize| entry[8 * at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        let property = ptr::with_exposed_provenance_mut(word(0) as usize);
        AnyTrust { property, trustee: TrusteeId::from_bits(word(1)), kind: [word(2), word(3)] }
    })
}

/// Reads the value of a message: passes its bytes to `read`, with its trusts. Trusts that are not read are dropped.
///
/// # Safety
/// `List::seal` ended the message, in this process or another of the same program, and it is read once.
pub(crate) unsafe fn read_message<R>(message: &[u8], read: impl FnOnce(&[u8]) -> Result<R, Fault>) -> Result<R, Fault> {
    let Some((value, entries)) = split(message) else {
        return Err(Fault::Codec("a message of the wrong length".to_owned()));
    };
    // SAFETY: the caller's promise.
    let trusts = unsafe { trusts(entries) }.map(Some).collect();
    let list = List { trusts: RefCell::new(trusts), is_read: true };
    with_list(&list, || read(value))
}

/// Serialised value that travels or waits, with the trusts inside it.
pub(crate) struct Parcel(Vec<u8>);

impl Parcel {
    /// # Safety
    /// As for [`read_message`]: from here on the parcel owns the message.
    pub(crate) unsafe fn from_message(message: Vec<u8>) -> Parcel {
        Parcel(message)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the message, with the trusts inside it, which the caller now owns.
    pub(crate) fn into_message(self) -> Vec<u8> {
        std::mem::take(&mut ManuallyDrop::new(self).0)
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if let Some((_, entries)) = split(&self.0) {
            // SAFETY: the message was not read, and will not be.
            unsafe { trusts(entries) }.for_each(drop);
        }
    }
}

/// Puts a trust of a `T`, which `counted` counts, into the open list. Returns its number there; `None` if no list is
/// open.
pub(crate) fn put<T: 'static>(counted: impl FnOnce() -> (*mut Header, TrusteeId)) -> Option<u32> {
    let list = open()?;
    let (property, trustee) = counted();
    list.put(AnyTrust { property, trustee, kind: kind_of::<T>() })
}

/// Takes a counted trust of a `T` out of the open list; from here on the caller owns it. `None` if the list has no such
/// trust of this number.
pub(crate) fn take<T: 'static>(number: u32) -> Option<(*mut Header, TrusteeId)> {
    let trust = ManuallyDrop::new(open()?.take(number, kind_of::<T>())?);
    Some((trust.property, trust.trustee))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_bytes_are_split_or_refused() {
        assert_eq!(split(&[]), Some((&[][..], &[][..])));
        assert_eq!(split(&[1, 2, 0]), Some((&[1, 2][..], &[][..])));
        assert_eq!(split(&[1, 2, 1]), None);
        let mut many = vec![7; 3 + ENTRY_BYTES * 300];
        many.extend_from_slice(&300u32.to_ne_bytes());
        many.push(MANY);
        assert_eq!(split(&many).unwrap().1.len(), 300 * ENTRY_BYTES);
        let mut random = fastrand::Rng::with_seed(5);
        for len in 0..40 {
            for _ in 0..if cfg!(miri) { 2 } else { 500 } {
                let mut message = vec![0; len];
                random.fill(&mut message);
                if let Some((value, entries)) = split(&message) {
                    assert!(value.len() + entries.len() <= len && entries.len().is_multiple_of(ENTRY_BYTES));
                }
            }
        }
    }

    #[test]
    fn types_are_told_apart() {
        assert_eq!(kind_of::<u32>(), kind_of::<u32>());
        assert_ne!(kind_of::<u32>(), kind_of::<i32>());
        assert_ne!(kind_of::<Vec<u8>>()[0], kind_of::<Vec<u16>>()[0]);
    }
}
