//! The replies of one connection, in the order of its requests, for answers that come in any order.
//!
//! Each answer that is awaited has a place. The answer at the head of the line is written to the output at once; one
//! that comes earlier is written to the side, and moved over when its turn comes. A value that is too large to come
//! with its answer stops the line until the connection's fiber has fetched it: so a connection has one such value in
//! memory, however many it has asked for.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::rc::Rc;

use trust::{Promise, promise};

use super::answer::{Answer, Answered, Carried, Large};
use super::meta::Echo;

/// Form of the reply that a request wants, beside the answer itself.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A line.
    Line,
    /// The item with its key, or nothing if there is none.
    Item,
    /// The same with its unique number.
    ItemWithUnique,
}

/// A place in the line.
enum Place<L> {
    /// The answer has not come. Where its key lies, and how long that is.
    Awaited(Form, u32, u8),
    /// The reply lies to the side.
    Written(Range<usize>),
    /// The reply up to the value lies to the side; the value is to be fetched.
    ToFetch(Range<usize>, L),
    /// The value is on its way: later replies stay behind it.
    Fetching,
}

struct Line<L> {
    output: Vec<u8>,
    /// Replies that wait for earlier ones.
    side: Vec<u8>,
    /// The keys of items that are awaited.
    keys: Vec<u8>,
    places: VecDeque<Place<L>>,
    /// Number of the place at the head.
    head: u32,
    waiting: Option<Promise<()>>,
}

/// See the file's documentation.
pub struct Replies<L: Large>(RefCell<Line<L>>);

/// Memory of each kind that a connection keeps.
const KEPT_BYTES: usize = 16 << 10;
/// Places that a connection keeps.
const KEPT_PLACES: usize = 512;

/// Obligation to answer one request. If it is dropped the client is notified that there is no answer.
pub struct Awaited<L: Large> {
    replies: Option<Rc<Replies<L>>>,
    place: u32,
}

impl<L: Large> Awaited<L> {
    /// No obligation: nobody wants to hear of the outcome.
    pub fn nobody() -> Self {
        Awaited { replies: None, place: 0 }
    }

    /// Writes the reply.
    #[inline]
    pub fn answer(mut self, answer: Answer<'_, L>) {
        if let Some(replies) = self.replies.take() {
            replies.answer(self.place, Some(answer));
        }
    }
}

impl<L: Large> Awaited<L> {
    /// Writes the reply to a meta command.
    pub fn answer_meta(mut self, echo: &Echo<Box<[u8]>>, answered: Answered<L>) {
        let Some(replies) = self.replies.take() else { return };
        let Answered { status, seen, value } = answered;
        let (here, large) = match value {
            Some(Carried::Large(value)) => (None, Some(value)),
            Some(Carried::Here(value)) => (Some(value), None),
            None => (None, None),
        };
        let write = |to: &mut Vec<u8>, _: Form, _: &[u8]| {
            let has_value = echo.write(to, status, &seen);
            if let Some(value) = here.filter(|_| has_value) {
                to.extend_from_slice(&value);
                to.extend_from_slice(b"\r\n");
            }
        };
        replies.settle(self.place, large, write);
    }
}

impl<L: Large> Drop for Awaited<L> {
    fn drop(&mut self) {
        if let Some(replies) = self.replies.take() {
            replies.answer(self.place, None);
        }
    }
}

impl<L: Large> Replies<L> {
    /// Makes an empty line of replies.
    pub fn new() -> Rc<Self> {
        let (output, side, keys, places) = (Vec::new(), Vec::new(), Vec::new(), VecDeque::new());
        Rc::new(Replies(RefCell::new(Line { output, side, keys, places, head: 0, waiting: None })))
    }

    /// Returns the requests with a place, and the bytes still to be sent.
    pub fn under_way(&self) -> (usize, usize) {
        let line = self.0.borrow();
        (line.places.len(), line.output.len() + line.side.len())
    }

    /// A place at the end of the line for an answer, with the key of the item if it is to be written.
    #[inline]
    pub fn expect(self: &Rc<Self>, form: Form, key: &[u8]) -> Awaited<L> {
        let line = &mut *self.0.borrow_mut();
        let place = line.head.wrapping_add(line.places.len() as u32);
        line.places.push_back(Place::Awaited(form, line.keys.len() as u32, key.len() as u8));
        line.keys.extend_from_slice(key);
        Awaited { replies: Some(Rc::clone(self)), place }
    }

    /// A reply that is known already, at the end of the line.
    pub fn say(&self, parts: &[&[u8]]) {
        let line = &mut *self.0.borrow_mut();
        if line.places.is_empty() {
            return parts.iter().for_each(|part| line.output.extend_from_slice(part));
        }
        let start = line.side.len();
        parts.iter().for_each(|part| line.side.extend_from_slice(part));
        line.places.push_back(Place::Written(start..line.side.len()));
    }

    #[inline]
    fn answer(&self, place: u32, answer: Option<Answer<'_, L>>) {
        match answer {
            Some(Answer::Large { flags, unique, value }) => {
                let bytes = value.bytes();
                self.settle(place, Some(value), |to, form, key| write_head(to, form, key, flags, unique, bytes));
            }
            answer => self.settle(place, None, |to, form, key| write(to, form, key, answer.as_ref())),
        }
    }

    /// The answer in this place has come: the text, and then a value that is to be fetched.
    #[inline]
    fn settle(&self, place: u32, large: Option<L>, write: impl FnOnce(&mut Vec<u8>, Form, &[u8])) {
        let line = &mut *self.0.borrow_mut();
        let index = place.wrapping_sub(line.head) as usize;
        let Some(Place::Awaited(form, key, key_bytes)) = line.places.get(index) else { return };
        let (form, key) = (*form, &line.keys[*key as usize..][..usize::from(*key_bytes)]);
        if index == 0 && large.is_none() {
            write(&mut line.output, form, key);
            line.pop();
            line.advance();
        } else {
            let start = line.side.len();
            write(&mut line.side, form, key);
            let written = start..line.side.len();
            line.places[index] = match large {
                Some(value) => Place::ToFetch(written, value),
                None => Place::Written(written),
            };
        }
        if line.waiting.is_some()
            && line.is_at_rest()
            && let Some(waiting) = line.waiting.take()
        {
            waiting.keep(());
        }
    }

    /// Returns when all answers have come, or a value is [to be fetched](Self::to_fetch). Waits.
    pub fn wait(&self) {
        let pending = {
            let line = &mut *self.0.borrow_mut();
            if line.is_at_rest() {
                return;
            }
            let (kept, pending) = promise();
            line.waiting = Some(kept);
            pending
        };
        let _ = pending.wait(); // the answer that brings the line to rest keeps it, and each is answered
    }

    /// The value at the head of the line, if there is one to be fetched. Earlier replies are in the output.
    pub fn to_fetch(&self) -> Option<L> {
        let line = &mut *self.0.borrow_mut();
        let first = line.places.front_mut().filter(|place| matches!(place, Place::ToFetch(..)))?;
        let Place::ToFetch(written, value) = mem::replace(first, Place::Fetching) else { return None };
        line.output.extend_from_slice(&line.side[written]);
        Some(value)
    }

    /// The value that has been fetched: the line goes on.
    pub fn fetched(&self, value: &[u8]) {
        let line = &mut *self.0.borrow_mut();
        line.output.extend_from_slice(value);
        line.output.extend_from_slice(b"\r\n");
        line.pop();
        line.advance();
    }

    /// Takes the output to send. To be given back with [`sent`](Self::sent).
    pub fn output(&self) -> Vec<u8> {
        mem::take(&mut self.0.borrow_mut().output)
    }

    /// Gives back the memory of the sent output.
    pub fn sent(&self, mut output: Vec<u8>) {
        output.clear();
        output.shrink_to(KEPT_BYTES);
        let line = &mut *self.0.borrow_mut();
        output.append(&mut line.output);
        line.output = output;
        line.places.shrink_to(KEPT_PLACES);
    }
}

impl<L: Large> Replies<L> {
    /// Gives all memory back that is not in use.
    pub fn shrink(&self) {
        let line = &mut *self.0.borrow_mut();
        line.places.shrink_to_fit();
        [&mut line.output, &mut line.side, &mut line.keys].into_iter().for_each(Vec::shrink_to_fit);
    }
}

impl<L> Line<L> {
    fn pop(&mut self) -> Option<Place<L>> {
        self.head = self.head.wrapping_add(1);
        self.places.pop_front()
    }

    /// Moves finished replies to the output, up to the next answer that is awaited.
    fn advance(&mut self) {
        while let Some(Place::Written(written)) = self.places.front() {
            self.output.extend_from_slice(&self.side[written.clone()]);
            self.pop();
        }
        if self.places.is_empty() {
            for memory in [&mut self.side, &mut self.keys] {
                memory.clear();
                memory.shrink_to(KEPT_BYTES);
            }
        }
    }

    /// Is there nothing that its fiber has to wait for?
    fn is_at_rest(&self) -> bool {
        matches!(self.places.front(), None | Some(Place::ToFetch(..)))
    }
}

/// Writes a reply; of a value that is to be fetched, its head.
fn write<L>(to: &mut Vec<u8>, form: Form, key: &[u8], answer: Option<&Answer<'_, L>>)
where
    L: Large,
{
    let Some(answer) = answer else {
        return to.extend_from_slice(b"SERVER_ERROR the part of the table that has this key is gone\r\n");
    };
    let line: &[u8] = match answer {
        Answer::Value { flags, unique, value } => {
            write_head(to, form, key, *flags, *unique, value.len());
            to.extend_from_slice(value);
            b"\r\n"
        }
        Answer::Large { flags, unique, value } => return write_head(to, form, key, *flags, *unique, value.bytes()),
        Answer::NotFound if matches!(form, Form::Line) => b"NOT_FOUND\r\n",
        Answer::NotFound => b"", // the line `END` tells
        Answer::Stored => b"STORED\r\n",
        Answer::NotStored => b"NOT_STORED\r\n",
        Answer::Exists => b"EXISTS\r\n",
        Answer::Deleted => b"DELETED\r\n",
        Answer::Touched => b"TOUCHED\r\n",
        Answer::Number(number) => {
            to.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes());
            b"\r\n"
        }
        Answer::NotANumber => b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        Answer::NoMemory if matches!(form, Form::Line) => b"SERVER_ERROR out of memory storing object\r\n",
        Answer::NoMemory => b"SERVER_ERROR out of memory writing get response\r\n",
    };
    to.extend_from_slice(line);
}

/// `VALUE <key> <flags> <bytes> [<unique>]`
fn write_head(to: &mut Vec<u8>, form: Form, key: &[u8], flags: u32, unique: u64, bytes: usize) {
    to.extend_from_slice(b"VALUE ");
    to.extend_from_slice(key);
    let mut number = |number: u64| {
        to.push(b' ');
        to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    };
    number(u64::from(flags));
    number(bytes as u64);
    if matches!(form, Form::ItemWithUnique) {
        number(unique);
    }
    to.extend_from_slice(b"\r\n");
}
