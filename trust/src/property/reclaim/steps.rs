//! The steps of a reclamation one by one, on one thread: the trustee with a client that is ahead, has queued, has
//! marked, or has left. The interleavings are in `model.rs`.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::{Client, PropertySlab, PropertyTable, Trustee};
use crate::config::{SLOTS, SPREAD_FROM};
use crate::ids::TrusteeId;
use crate::local::client::Outgoing;
use crate::local::trustee::Incoming;
use crate::property::{self, Header, Property};
use crate::registry::{self, Message, PropertyRef};
use crate::remote::PeerClient;
use crate::request::{ClientSide, Pair};
use crate::request::{Ignore, Request, Serving, Target};
use crate::runtime::worker;

/// A client whose numbers the tests set.
struct Played {
    side: ClientSide,
    pair: Arc<Pair>,
    served: Cell<u64>,
    batches: Cell<u64>,
    has_left: Cell<bool>,
}

impl Client for Played {
    type Operation = crate::request::Operation;
    fn pair(&self) -> &Pair {
        &self.pair
    }
    fn served(&self) -> u64 {
        self.served.get()
    }
    fn batches(&self) -> u64 {
        self.batches.get()
    }
    fn has_left(&self) -> bool {
        self.has_left.get()
    }
}

/// A trustee with clients on this machine alone. Counts that have come by the inbox are counted when it is read.
struct Owner {
    property_table: PropertyTable<Played, PeerClient>,
    clients: RefCell<Vec<Rc<Played>>>,
    inbox: RefCell<Vec<(*mut Header, i32)>>,
    /// Reclamations that have begun.
    begun: Cell<u32>,
    destroyed: RefCell<Vec<*mut Header>>,
    /// Properties whose values were dropped ahead of them.
    closed: RefCell<Vec<*mut Header>>,
}

impl Trustee<Played, PeerClient> for Owner {
    fn read_messages(&self) {
        self.begun.set(self.begun.get() + 1);
        for (property, delta) in self.inbox.take() {
            self.count(property, delta);
        }
    }
    fn clients(&self) -> Ref<'_, Vec<Rc<Played>>> {
        self.clients.borrow()
    }
    fn remote_client(&self, _: u16, _: u16) -> Option<Rc<PeerClient>> {
        None
    }
    fn services(&self) -> Vec<TrusteeId> {
        Vec::new()
    }
    fn ask(&self, _: u64) {
        unreachable!("there is no other machine");
    }
    fn destroy(&self, property: *mut Header) {
        self.destroyed.borrow_mut().push(property);
        // SAFETY: no test refers to it any more.
        unsafe { property::destroy(property) }
    }
    fn drop_value(&self, property: *mut Header) {
        self.closed.borrow_mut().push(property);
        // SAFETY: the table has closed it, and it is not in use.
        unsafe { property::drop_value(property) }
    }
}

impl Owner {
    fn new(clients: usize) -> Owner {
        let client = || {
            let pair = Pair::new();
            let side = ClientSide::new(Arc::clone(&pair));
            let (served, batches, has_left) = (Cell::new(0), Cell::new(0), Cell::new(false));
            Rc::new(Played { side, pair, served, batches, has_left })
        };
        Owner {
            property_table: PropertyTable::default(),
            clients: RefCell::new((0..clients).map(|_| client()).collect()),
            inbox: RefCell::default(),
            begun: Cell::new(0),
            destroyed: RefCell::default(),
            closed: RefCell::default(),
        }
    }
    /// A new property, of one trust.
    fn entrust(&self) -> *mut Header {
        let property = Property::allocate(&Arc::default(), 7u64);
        self.property_table.adopt(property);
        property
    }
    fn count(&self, property: *mut Header, delta: i32) {
        // SAFETY: the tests count trusts of properties that have not been destroyed.
        unsafe { self.property_table.count(property, delta) }
    }
    fn client(&self, at: usize) -> Rc<Played> {
        Rc::clone(&self.clients.borrow()[at])
    }
    /// Reclaims as far as possible. Returns which of the properties are gone, in the order of the argument.
    fn reclaim(&self, properties: &[*mut Header]) -> Vec<bool> {
        let any = self.property_table.reclaim(self);
        let gone = self.destroyed.take();
        assert_eq!(any, !gone.is_empty() || !self.closed.borrow().is_empty());
        assert!(gone.iter().all(|property| properties.contains(property)));
        properties.iter().map(|property| gone.contains(property)).collect()
    }
}

#[test]
fn what_nobody_can_ask_is_reclaimed_at_once() {
    let owner = Owner::new(2);
    assert_eq!((owner.reclaim(&[]), owner.property_table.has_unreferenced()), (vec![], false));
    let (one, two) = (owner.entrust(), owner.entrust());
    owner.count(one, 1);
    owner.count(one, -1);
    assert!(!owner.property_table.has_unreferenced());
    owner.count(one, -1);
    assert!(owner.property_table.has_unreferenced());
    assert_eq!(owner.reclaim(&[one, two]), [true, false]);
    assert!(!owner.property_table.has_unreferenced() && !owner.property_table.is_empty());
    owner.count(two, -1);
    assert_eq!(owner.reclaim(&[one, two]), [false, true]);
    assert!(owner.property_table.is_empty());
}

#[test]
fn a_reclamation_waits_until_what_was_published_is_served() {
    let owner = Owner::new(3);
    owner.client(0).side.note_published(5);
    owner.client(0).served.set(3);
    owner.client(1).side.note_published(2);
    owner.client(1).served.set(2);
    owner.client(2).side.note_published(1);
    let property = owner.entrust();
    owner.count(property, -1);
    assert_eq!(owner.reclaim(&[property]), [false]);
    // Later requests do not matter.
    owner.client(0).side.note_published(9);
    owner.client(1).side.note_published(9);
    owner.client(0).served.set(4);
    assert_eq!(owner.reclaim(&[property]), [false]);
    owner.client(0).served.set(5);
    assert_eq!(owner.reclaim(&[property]), [false], "one is behind");
    assert!(owner.property_table.has_unreferenced());
    // It will not be served any more.
    owner.client(2).has_left.set(true);
    assert_eq!(owner.reclaim(&[property]), [true]);
    assert!(!owner.property_table.has_unreferenced());
}

#[test]
fn a_property_whose_count_changed_meanwhile_lives_or_begins_anew() {
    let owner = Owner::new(1);
    let client = owner.client(0);
    let (alive, anew) = (owner.entrust(), owner.entrust());
    client.side.note_published(1);
    owner.count(alive, -1);
    owner.count(anew, -1);
    assert_eq!(owner.reclaim(&[alive, anew]), [false, false]);
    owner.count(alive, 1);
    owner.count(anew, 1);
    owner.count(anew, -1);
    // The second reclamation waits for this.
    client.side.note_published(2);
    client.served.set(1);
    assert_eq!(owner.reclaim(&[alive, anew]), [false, false]);
    client.served.set(2);
    assert_eq!(owner.reclaim(&[alive, anew]), [false, true]);
    assert!(!owner.property_table.has_unreferenced());
    owner.count(alive, -1);
    assert_eq!(owner.reclaim(&[alive, anew]), [true, false]);
}

/// One property in each state, when a machine is lost.
#[test]
fn a_loss_makes_the_properties_that_there_are_old_and_no_later_one() {
    let owner = Owner::new(1);
    let client = owner.client(0);
    let slab = Arc::default();
    let announced = Property::allocate(&slab, 7u64);
    slab.announce(announced);
    let (live, listed, begun, aside, below) =
        (owner.entrust(), owner.entrust(), owner.entrust(), owner.entrust(), owner.entrust());
    // SAFETY: a place of few requests.
    unsafe { client.side.mark(0, aside.addr()) };
    client.side.note_published(1);
    owner.count(begun, -1);
    owner.count(aside, -1);
    assert_eq!(owner.reclaim(&[begun, aside]), [false, false]);
    owner.count(listed, -1);
    // The +1 of one of two trusts is lost.
    owner.count(below, -2);
    assert_eq!(owner.property_table.mark_old(&slab), 6);
    assert_eq!(owner.property_table.mark_old(&slab), 0, "they are old already");
    let later = owner.entrust();
    owner.property_table.adopt(announced);
    // The trust that the lost machine sent on has been counted at last.
    owner.count(listed, 1);
    assert_eq!(owner.reclaim(&[begun, aside, below, listed]), [false; 4]);
    assert_eq!(owner.closed.take(), [], "a client has a request of before, and none has been served");
    client.served.set(1);
    client.batches.set(1);
    owner.reclaim(&[]);
    let mut closed = owner.closed.take();
    closed.sort_unstable();
    let mut expected = [begun, below, aside];
    expected.sort_unstable();
    assert_eq!(closed, expected, "in one round or two");
    for property in [live, listed, announced, later] {
        owner.count(property, -1);
    }
    assert_eq!(owner.reclaim(&[live, listed, announced, later]), [false, false, false, true]);
    assert_eq!(owner.closed.take().len(), 3);
    // Counts that come later change nothing.
    owner.count(begun, 1);
    owner.count(begun, -1);
    assert!(!owner.property_table.has_work());
    owner.property_table.close(|property| owner.destroy(property));
    assert_eq!(owner.destroyed.take().len(), 6);
}

/// The value goes at once or when it is back, and once.
#[test]
fn the_value_of_a_closed_property_is_dropped_when_it_is_not_in_use() {
    let owner = Owner::new(0);
    let value = Rc::new(());
    let left = || Rc::strong_count(&value) - 1;
    let new = || {
        let property = Property::allocate(&Arc::default(), Rc::clone(&value));
        owner.property_table.adopt(property);
        property
    };
    let all = [new(), new(), new(), new()];
    // SAFETY: live.
    let [free, held, in_line, kept] = all.map(|property| unsafe { &*property });
    held.set_held(true);
    in_line.set_line(true);
    owner.property_table.mark_old(&PropertySlab::default());
    all[..3].iter().for_each(|&property| owner.count(property, -1));
    owner.property_table.reclaim(&owner);
    assert_eq!((owner.closed.take(), left()), (vec![all[0]], 3));
    assert!([free, held, in_line].iter().all(|closed| closed.is_closed() && closed.is_poisoned()));
    assert!(!kept.is_closed() && !kept.is_poisoned());
    held.set_poisoned(false);
    assert!(held.is_poisoned(), "its requests are refused for ever");
    assert!(owner.property_table.has_work() && !owner.property_table.reclaim(&owner));
    in_line.set_held(true);
    in_line.set_line(false);
    held.set_held(false);
    assert!(owner.property_table.reclaim(&owner));
    assert_eq!((owner.closed.take(), left()), (vec![all[1]], 2));
    in_line.set_held(false);
    assert!(owner.property_table.reclaim(&owner) && !owner.property_table.has_work());
    assert_eq!((owner.closed.take(), left()), (vec![all[2]], 1));
    owner.property_table.close(|property| owner.destroy(property));
    assert_eq!(left(), 0, "each is dropped once");
}

/// Closed by the program, in a process that has lost no machine.
#[test]
fn the_slot_of_a_closed_property_is_freed_by_its_count() {
    let owner = Owner::new(0);
    let value = Rc::new(());
    let [dropped, closing] = [(); 2].map(|()| Property::allocate(&Arc::default(), Rc::clone(&value)));
    for property in [dropped, closing] {
        owner.property_table.adopt(property);
        // SAFETY: live.
        unsafe { (*property).close() };
    }
    owner.drop_value(dropped);
    owner.property_table.note_closing(closing);
    // SAFETY: live.
    unsafe { (*closing).set_held(true) };
    assert_eq!(Rc::strong_count(&value), 2);
    owner.count(dropped, -1);
    owner.count(closing, -1);
    // Nobody can have it any more, whatever its mark says.
    assert_eq!(owner.reclaim(&[dropped, closing]), [true, true]);
    assert!(!owner.property_table.has_work() && owner.property_table.is_empty());
    assert_eq!(Rc::strong_count(&value), 1, "each is dropped once");
}

#[test]
fn a_reclamation_begins_with_what_has_come_by_the_inbox() {
    let owner = Owner::new(0);
    let property = owner.entrust();
    owner.count(property, -1);
    owner.inbox.borrow_mut().push((property, 1));
    assert_eq!(owner.reclaim(&[property]), [false]);
    assert!(!owner.property_table.has_unreferenced());
    owner.count(property, -1);
    assert_eq!(owner.reclaim(&[property]), [true]);
}

/// A mark in an open batch, or in one that is not served, sets its property aside, and no other.
#[test]
fn a_property_is_aside_until_the_batch_that_marks_it_is_served() {
    let owner = Owner::new(2);
    let (client, other) = (owner.client(0), owner.client(1));
    let properties: Vec<_> = (0..4).map(|_| owner.entrust()).collect();
    // SAFETY: a place of few requests.
    let mark = |client: &Played, place, property: *mut Header| unsafe { client.side.mark(place, property.addr()) };
    mark(&client, 0, properties[2]);
    mark(&client, 1, properties[0]);
    client.side.publish();
    mark(&client, 0, properties[2]);
    mark(&other, 0, properties[2]);
    properties.iter().for_each(|&property| owner.count(property, -1));
    assert_eq!(owner.reclaim(&properties), [false, true, false, true]);
    let begun = owner.begun.get();
    assert_eq!(owner.reclaim(&properties), [false; 4], "nothing has been served");
    assert_eq!(owner.begun.get(), begun, "nobody looks at marks that must be the same");
    assert!(owner.property_table.has_unreferenced());
    client.batches.set(1);
    assert_eq!(owner.reclaim(&properties), [true, false, false, false], "one is in the open batch");
    other.batches.set(1);
    assert_eq!(owner.reclaim(&properties), [false; 4], "of the first client");
    client.batches.set(2);
    assert_eq!(owner.reclaim(&properties), [false, false, true, false]);
    assert!(!owner.property_table.has_unreferenced());
}

#[test]
fn a_property_is_aside_while_a_request_for_it_is_queued() {
    let owner = Owner::new(1);
    let client = owner.client(0);
    let (queued, other) = (owner.entrust(), owner.entrust());
    (0..SLOTS).for_each(|_| client.side.publish());
    client.side.note_queued(queued.addr());
    owner.count(queued, -1);
    owner.count(other, -1);
    assert_eq!(owner.reclaim(&[queued, other]), [false, true]);
    client.batches.set(1);
    assert_eq!(owner.reclaim(&[queued, other]), [false, false], "it is still queued");
    client.side.note_drained();
    client.batches.set(2);
    assert_eq!(owner.reclaim(&[queued, other]), [true, false]);
}

#[test]
fn a_client_that_left_holds_nothing_up() {
    let owner = Owner::new(1);
    let client = owner.client(0);
    let property = owner.entrust();
    // SAFETY: a place of few requests.
    unsafe { client.side.mark(0, property.addr()) };
    owner.count(property, -1);
    assert_eq!(owner.reclaim(&[property]), [false]);
    client.has_left.set(true);
    // Its mark does not matter once it is off the list.
    owner.clients.borrow_mut().clear();
    assert_eq!(owner.reclaim(&[property]), [true]);
}

#[test]
fn many_properties_are_spread_over_more_memory_than_a_cache() {
    let owner = Owner::new(0);
    let properties: Vec<_> = (0..SPREAD_FROM).map(|_| owner.entrust()).collect();
    assert!(owner.property_table.is_large());
    owner.count(properties[0], -1);
    assert!(owner.reclaim(&properties)[0] && !owner.property_table.is_large());
    properties[1..].iter().for_each(|&property| owner.count(property, -1));
    assert_eq!(owner.reclaim(&properties).into_iter().filter(|gone| *gone).count(), SPREAD_FROM - 1);
}

/// The numbers that a real client's half reports.
#[test]
fn a_pair_tells_what_was_served_and_who_has_left() {
    struct Nothing;
    impl Request for Nothing {
        const TARGET: Target = Target::Nothing;
        unsafe fn run(self, _: *mut Header, serving: &mut Serving) {
            serving.out.put(());
        }
    }
    let (peer, pair) = (registry::register().expect("ids are left"), Pair::new());
    let own = worker::with(|worker| Arc::clone(&worker.shared));
    let client = Outgoing::new(Arc::clone(&own), Arc::clone(&peer), Arc::clone(&pair));
    let incoming = Incoming::new(own, Arc::clone(&pair));
    let told = || (Client::served(&incoming), Client::batches(&incoming), Client::has_left(&incoming));
    assert!(std::ptr::eq(Client::pair(&incoming), &*pair));
    assert_eq!(told(), (0, 0, false));
    for round in 1..4 {
        for _ in 0..5 {
            let (mut request, mut response) = (Nothing, Ignore);
            let _ = client.make_room::<Nothing, Ignore>();
            // SAFETY: neither is used again, nor has a destructor.
            assert!(unsafe { client.try_push(std::ptr::null_mut(), &raw mut request, &raw mut response) });
        }
        client.send_open();
        assert!(worker::with(|worker| incoming.serve(worker)) && client.collect());
        assert_eq!(told(), (5 * round, round, false));
    }
    client.leave();
    assert_eq!(told(), (15, 3, true));
    registry::unregister(peer.id);
}

/// The worker's own inbox is read too.
#[test]
fn a_worker_begins_a_reclamation_with_its_inbox() {
    let value = Arc::new(());
    let trust = crate::local_trustee().entrust(Arc::clone(&value));
    let property = trust.parts().0;
    std::mem::forget(trust);
    let is_there = || Arc::strong_count(&value) == 2;
    worker::with(|worker| {
        // SAFETY: live: one trust is counted.
        unsafe { worker.property_table().count(property, -1) };
        let sent = worker.shared.send(Message::Count(PropertyRef(property), 1));
        assert!(sent.is_ok() && !worker.property_table().reclaim(worker) && is_there());
        // SAFETY: live: the message was counted.
        unsafe { worker.property_table().count(property, -1) };
        assert!(worker.property_table().reclaim(worker) && !is_there());
    });
}
