//! The stand-ins of the loom models of counting and reclamation; the models are in `scenarios.rs`. How to run them:
//! `slot/model.rs`.
//!
//! The real [`PropertyTable`], [`Header`] and slots run here. The worker is replaced by [`Owner`], a trustee that
//! takes a bounded number of turns while its clients run and drains the rest when they are done; the clients by
//! [`Member`], whose requests are single digits, packed into the number that a batch is. Trusts move from thread to
//! thread with `spawn`.
//!
//! Checked: a property is dropped once; and then no trust of it is alive, and no request to it is unserved. [`Tally`]
//! knows this, from outside the model: its atomics are not loom's. Every touch of the property is an access that loom
//! checks. Where the +1 of a trust was lost with its machine: the value is dropped once, though a trust may be alive,
//! and no later request touches it.

mod scenarios;

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use loom::sync::Mutex;
use loom::thread::JoinHandle;

use super::{Client, PropertySlab, PropertyTable, Trustee};
use crate::ids::TrusteeId;
use crate::property::{self, Header, Property};
use crate::remote::PeerClient;
use crate::request::{ClientSide, Pair, TrusteeSide};
use crate::slot::REQUESTS_MAX;
use crate::slot::model::{read_number, write_number};
use crate::sync::{AtomicBool, Ordering, UnsafeCell};

/// Request of a client to the trustee, about the one property of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Digit {
    Clone = 1,
    Drop = 2,
    Apply = 3,
    /// A closure that has captured a trust, and drops it where it runs.
    Bring = 4,
    /// The property is new.
    Adopt = 5,
    /// About another property, which the models do not describe further.
    Other = 6,
}

impl Digit {
    const ALL: [Digit; 6] = [Digit::Clone, Digit::Drop, Digit::Apply, Digit::Bring, Digit::Adopt, Digit::Other];
}

/// The truth about a property.
#[derive(Default)]
struct Tally {
    alive: AtomicI32,
    unserved: AtomicI32,
    reclaimed: AtomicI32,
    /// The counts of this many trusts were lost.
    lost: AtomicI32,
}

/// The value of the property.
struct Witness {
    tally: Arc<Tally>,
    watch: UnsafeCell<()>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.watch.with_mut(|_| ());
        let tally = &self.tally;
        if tally.lost.load(SeqCst) == 0 {
            assert_eq!(tally.alive.load(SeqCst), 0, "reclaimed while a trust is alive");
            assert_eq!(tally.unserved.load(SeqCst), 0, "reclaimed while a request is unserved");
        }
        assert_eq!(tally.reclaimed.fetch_add(1, SeqCst), 0, "reclaimed twice");
    }
}

/// A trust, counted in the truth. [`Member::let_go`] and the like note its drop.
struct Held {
    property: *mut Header,
    tally: Arc<Tally>,
}

// SAFETY: only the trustee follows the pointer, or loom reports the race.
unsafe impl Send for Held {}

impl Held {
    /// Entrusts a property.
    fn first() -> Held {
        let tally = Arc::new(Tally::default());
        let value = Witness { tally: Arc::clone(&tally), watch: UnsafeCell::new(()) };
        Held { property: Property::allocate(&Arc::default(), value), tally }.alive()
    }
    fn alive(self) -> Held {
        self.tally.alive.fetch_add(1, SeqCst);
        self
    }
    fn again(&self) -> Held {
        Held { property: self.property, tally: Arc::clone(&self.tally) }.alive()
    }
    /// A machine clones the trust, sends the clone on, and is lost with the +1.
    fn uncounted(&self) -> Held {
        self.tally.lost.fetch_add(1, SeqCst);
        self.again()
    }
    fn dead(self) {
        self.tally.alive.fetch_sub(1, SeqCst);
    }
}

/// Messages to the trustee other than by a slot: `registry/mod.rs` in small.
#[derive(Default)]
struct Inbox {
    messages: Mutex<Vec<Message>>,
    has_messages: AtomicBool,
}

enum Message {
    Client(Arc<Pair>),
    /// Counts of this many trusts, added up.
    Count(i32, usize),
}

impl Inbox {
    fn send(&self, message: Message) {
        let mut messages = self.messages.lock().unwrap();
        match (messages.last_mut(), message) {
            (Some(Message::Count(sum, counts)), Message::Count(delta, more)) => {
                (*sum, *counts) = (*sum + delta, *counts + more)
            }
            (_, message) => messages.push(message),
        }
        self.has_messages.store(true, Ordering::Release);
    }
    fn take(&self) -> Vec<Message> {
        if !self.has_messages.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut messages = self.messages.lock().unwrap();
        self.has_messages.store(false, Ordering::Relaxed);
        std::mem::take(&mut *messages)
    }
    /// A thread without slots, or without a free one, clones a trust,
    fn clone_of(&self, trust: &Held) -> Held {
        let clone = trust.again();
        clone.tally.unserved.fetch_add(1, SeqCst);
        self.send(Message::Count(1, 1));
        clone
    }
    /// and drops one.
    fn let_go(&self, trust: Held) {
        trust.tally.unserved.fetch_add(1, SeqCst);
        trust.dead();
        self.send(Message::Count(-1, 1));
    }
}

/// A client.
struct Member {
    side: ClientSide,
    published: Cell<u64>,
    unsent: Cell<u64>,
    queue: RefCell<Vec<(*mut Header, Digit)>>,
}

// SAFETY: moved to the client's thread before it is used there.
unsafe impl Send for Member {}

impl Member {
    fn new(pair: Arc<Pair>) -> Member {
        let (published, unsent) = (Cell::new(0), Cell::new(0));
        Member { side: ClientSide::new(pair), published, unsent, queue: RefCell::default() }
    }

    /// Requests of the open batch.
    fn written(&self) -> u32 {
        self.unsent.get().checked_ilog10().map_or(0, |digits| digits + 1)
    }
    fn place(&self, property: *mut Header, digit: Digit) {
        // SAFETY: the models' batches are short enough.
        unsafe { self.side.mark(self.written(), property.addr()) };
        self.unsent.set(self.unsent.get() * 10 + digit as u64);
        assert!(self.written() as usize <= REQUESTS_MAX);
    }
    fn request(&self, trust: &Held, digit: Digit) {
        trust.tally.unserved.fetch_add(1, SeqCst);
        self.place(trust.property, digit);
    }
    /// Makes a request for which there is no slot: `Outgoing::enqueue` in small. A run of requests for one property is
    /// noted once.
    fn enqueue(&self, trust: &Held, digit: Digit) {
        trust.tally.unserved.fetch_add(1, SeqCst);
        let mut queue = self.queue.borrow_mut();
        let is_noted = queue.last().is_some_and(|(last, _)| *last == trust.property);
        queue.push((trust.property, digit));
        if !is_noted {
            self.side.note_queued(trust.property.addr());
        }
    }
    /// Moves queued requests on, as one chunk: there is a slot now.
    fn drain(&self) {
        let queue = self.queue.take();
        queue.iter().for_each(|(property, digit)| self.place(*property, *digit));
        queue.chunk_by(|(one, _), (other, _)| one == other).for_each(|_| self.side.note_drained());
    }
    /// Sends the requests made; each client of a model does so at most as often as it has slots.
    fn flush(&self) {
        let (_, body) = self.side.filling().expect("a free slot");
        self.published.set(self.published.get() + u64::from(self.written()));
        self.side.note_published(self.published.get());
        write_number(body, self.unsent.replace(0));
        self.side.publish();
    }

    fn entrust(&self) -> Held {
        let trust = Held::first();
        self.request(&trust, Digit::Adopt);
        trust
    }
    fn clone_of(&self, trust: &Held) -> Held {
        let clone = trust.again();
        self.request(trust, Digit::Clone);
        clone
    }
    fn apply(&self, trust: &Held) {
        self.request(trust, Digit::Apply);
    }
    fn let_go(&self, trust: Held) {
        self.request(&trust, Digit::Drop);
        trust.dead();
    }
    /// Moves the trust into a delegated closure.
    fn bring(&self, trust: Held) {
        self.request(&trust, Digit::Bring);
    }
    fn apply_to_another(&self) {
        self.place(std::ptr::null_mut(), Digit::Other);
    }
    /// Goes away if all its requests have been answered.
    fn try_leave(&self) {
        while self.side.response().is_some() {
            self.side.release();
        }
        if self.side.in_flight() == 0 && self.unsent.get() == 0 {
            self.side.leave();
        }
    }
}

/// The trustee's half of a pair: `trustee.rs` in small.
struct Local {
    side: TrusteeSide,
    served: Cell<u64>,
    batches: Cell<u64>,
}

impl Client for Local {
    type Operation = crate::request::Operation;

    fn pair(&self) -> &Pair {
        self.side.pair()
    }
    fn served(&self) -> u64 {
        self.served.get()
    }
    fn batches(&self) -> u64 {
        self.batches.get()
    }
    fn has_left(&self) -> bool {
        self.side.pair().left() && self.side.request().is_none()
    }
}

/// Variant of the trustee, right or wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Reclamation,
    /// A count of 0 is enough: a plain counter, and the thesis' set of ids.
    NoWait,
    /// Reclamation, but step (1) leaves the inbox for later.
    InboxUnread,
}

/// The trustee: `worker/mod.rs` in small.
struct Owner {
    rule: Rule,
    property_table: PropertyTable<Local, PeerClient>,
    clients: RefCell<Vec<Rc<Local>>>,
    nobody: RefCell<Vec<Rc<Local>>>,
    inbox: Arc<Inbox>,
    property: *mut Header,
    tally: Arc<Tally>,
    /// A machine was lost since the property was made.
    is_old: bool,
}

impl Trustee<Local, PeerClient> for Owner {
    fn read_messages(&self) {
        if self.rule != Rule::InboxUnread {
            self.read_messages();
        }
    }
    fn clients(&self) -> Ref<'_, Vec<Rc<Local>>> {
        if self.rule == Rule::NoWait { self.nobody.borrow() } else { self.clients.borrow() }
    }
    fn remote_client(&self, _: u16, _: u16) -> Option<Rc<PeerClient>> {
        None
    }
    fn services(&self) -> Vec<TrusteeId> {
        Vec::new()
    }
    fn ask(&self, _: u64) {
        unreachable!("there are none");
    }
    fn destroy(&self, property: *mut Header) {
        // SAFETY: the models check that this is right.
        unsafe { property::destroy(property) }
    }
    fn drop_value(&self, property: *mut Header) {
        // SAFETY: as above.
        unsafe { property::drop_value(property) }
    }
}

impl Owner {
    /// The trustee of the property of this trust.
    fn new(rule: Rule, trust: &Held) -> Owner {
        Owner {
            rule,
            property_table: PropertyTable::default(),
            clients: RefCell::default(),
            nobody: RefCell::default(),
            inbox: Arc::default(),
            property: trust.property,
            tally: Arc::clone(&trust.tally),
            is_old: false,
        }
    }

    /// A machine is lost.
    fn lose(&mut self) {
        self.is_old = true;
        self.property_table.mark_old(&PropertySlab::default());
    }

    /// Makes a client that the trustee knows.
    fn member(&self) -> Member {
        let pair = Pair::new();
        self.accept(Arc::clone(&pair));
        Member::new(pair)
    }
    fn accept(&self, pair: Arc<Pair>) {
        let client = Local { side: TrusteeSide::new(pair), served: Cell::new(0), batches: Cell::new(0) };
        self.clients.borrow_mut().push(Rc::new(client));
    }

    /// The worker's own turn reads the inbox behind the requests; but it reclaims between turns too, and then has only
    /// step (1) to read it. So here.
    fn turn(&self) {
        self.read_messages();
        let clients = self.clients.borrow().clone();
        for client in clients {
            while let Some((requests, _)) = client.side.request() {
                let batch = read_number(requests).to_string();
                for digit in batch.bytes() {
                    self.serve(Digit::ALL[usize::from(digit - b'1')]);
                    client.served.set(client.served.get() + 1);
                }
                client.batches.set(client.batches.get() + 1);
                client.side.respond();
            }
        }
        self.clients.borrow_mut().retain(|client| !client.has_left());
        self.property_table.reclaim(self);
    }

    fn read_messages(&self) {
        for message in self.inbox.take() {
            match message {
                Message::Client(pair) => self.accept(pair),
                Message::Count(sum, counts) => {
                    (0..counts).for_each(|_| self.touch());
                    self.count(sum);
                }
            }
        }
    }

    fn serve(&self, digit: Digit) {
        if digit == Digit::Other {
            return;
        }
        self.touch();
        match digit {
            Digit::Clone => self.count(1),
            Digit::Drop => self.count(-1),
            Digit::Apply => {}
            Digit::Bring => {
                self.tally.alive.fetch_sub(1, SeqCst);
                self.count(-1);
            }
            Digit::Adopt => self.property_table.adopt(self.property),
            Digit::Other => {}
        }
    }

    /// A request for the property runs.
    fn touch(&self) {
        self.tally.unserved.fetch_sub(1, SeqCst);
        if self.tally.reclaimed.load(SeqCst) > 0 {
            assert!(self.is_old, "a request finds its property reclaimed");
            // SAFETY: old ones are not freed.
            assert!(unsafe { (*self.property).is_poisoned() }, "the request would not be refused");
            return;
        }
        // SAFETY: just seen.
        unsafe { Property::<Witness>::value(self.property) }.watch.with_mut(|_| ());
    }

    fn count(&self, delta: i32) {
        // SAFETY: live; this is its trustee's thread.
        unsafe { self.property_table.count(self.property, delta) };
    }

    /// The trustee's own thread clones and drops trusts.
    fn clone_of(&self, trust: &Held) -> Held {
        self.count(1);
        trust.again()
    }
    fn let_go(&self, trust: Held) {
        trust.dead();
        self.count(-1);
        self.property_table.reclaim(self);
    }

    /// Takes some turns while the clients run, and drains the rest.
    fn run(&self, turns: u32, first: JoinHandle<Next>) {
        for _ in 0..turns {
            self.turn();
        }
        let mut next = Some(first);
        while let Some(thread) = next {
            next = thread.join().unwrap().0;
        }
        // Everything left is visible. Each turn serves all of it, and may find a reclamation due.
        for _ in 0..3 {
            self.turn();
        }
        assert_eq!(self.tally.unserved.load(SeqCst), 0);
        assert_eq!(self.tally.alive.load(SeqCst), 0);
        if self.tally.lost.load(SeqCst) > 0 && !self.is_old {
            return; // the count has passed 0, or has not
        }
        assert_eq!(self.tally.reclaimed.load(SeqCst), 1, "never reclaimed");
        assert!(!self.property_table.has_work());
        if self.is_old {
            self.property_table.close(|property| self.destroy(property));
        }
        assert!(self.property_table.is_empty());
    }
}

/// The thread that a thread has started.
struct Next(Option<JoinHandle<Next>>);
