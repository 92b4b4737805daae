//! The worker as trustee of its properties: its part in a reclamation (`property::reclaim`), and the requests by which
//! trusts are counted and properties are entrusted from elsewhere. Not here: questions to other machines (`census`).

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Ref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::Worker;
use crate::ids::{self, TrusteeId};
use crate::local::trustee::Incoming;
use crate::property::reclaim::{Client, RemoteClient, Trustee};
use crate::property::{self, Header};
use crate::registry::{self, Message, PropertyRef};
use crate::remote::{self, PeerClient};
use crate::request::{Host, Ignore, Notice, Operation, Pair, Request, Serving, Target};
use crate::unwind::{discard, quietly};

impl Client for Incoming {
    type Operation = Operation;
    fn pair(&self) -> &Pair {
        self.pair()
    }
    fn served(&self) -> u64 {
        self.served()
    }
    fn batches(&self) -> u64 {
        self.batches()
    }
    fn has_left(&self) -> bool {
        self.has_left()
    }
}

impl RemoteClient for PeerClient {
    fn served(&self) -> u64 {
        self.served()
    }
}

impl Trustee<Incoming, PeerClient> for Worker {
    fn read_messages(&self) {
        self.read_messages();
    }
    fn clients(&self) -> Ref<'_, Vec<Rc<Incoming>>> {
        self.incoming()
    }
    fn remote_client(&self, machine: u16, worker: u16) -> Option<Rc<PeerClient>> {
        self.remote.client(machine, worker)
    }
    fn services(&self) -> Vec<TrusteeId> {
        self.remote.services()
    }
    fn ask(&self, reclamation: u64) {
        self.ask_for_numbers(reclamation);
    }
    fn destroy(&self, property: *mut Header) {
        self.forget_poison(property);
        destroy(property);
    }
    fn drop_value(&self, property: *mut Header) {
        // SAFETY: the table has closed it, and found that it is not in use [drop-when-unused].
        if let Err(panic) = unsafe { self.drop_closed_value(property) } {
            self.delegated(|| discard(panic)); // its destructor may not wait either
        }
    }
}

impl Worker {
    /// A machine is lost that may have had trusts of the properties that this trustee has.
    pub(crate) fn mark_old(&self) {
        self.shared.counters.old_properties.add(self.property_table.mark_old(&self.shared.slab));
        self.marks.set_aftermath(true);
    }

    /// Drops the value of a closed property in delegated context. The panic hook has reported a panic of its `Drop`.
    ///
    /// # Safety
    /// Of this trustee, live, closed, not in use, its value not dropped; no closure runs.
    pub(crate) unsafe fn drop_closed_value(&self, property: *mut Header) -> Result<(), Box<dyn Any + Send>> {
        self.forget_poison(property);
        self.shared.counters.properties_closed.add(1);
        // SAFETY: live.
        let is_old = unsafe { (*property).is_old() };
        if is_old {
            self.shared.counters.old_properties.subtract(1);
        }
        let before = self.drops_old.replace(is_old);
        // SAFETY: the caller's promise.
        let drop = || unsafe { property::drop_value(property) };
        let outcome = self.delegated(|| catch_unwind(AssertUnwindSafe(drop)));
        self.drops_old.set(before);
        outcome
    }
}

/// Drops a property in delegated context; a panic of its `Drop` ends here (the panic hook has reported it).
pub(super) fn destroy(property: *mut Header) {
    super::with(|worker| {
        // SAFETY: the proof above, or the trustee's end.
        worker.delegated(|| quietly(|| unsafe { property::destroy(property) }));
    });
}

/// +1 or -1 on its way to the trustee.
pub(crate) struct Count(pub(crate) i32);

impl Request for Count {
    const TARGET: Target = Target::AnyProperty;
    const IS_FLAT: bool = true;
    const RUNS_AT_ONCE: bool = true;
    const HAS_NOTICE: bool = true;

    fn into_notice(self, property: *mut Header) -> Result<Notice, Self> {
        Ok(Notice::Count(property, self.0))
    }

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        // SAFETY: [property-live].
        super::with(|worker| unsafe { worker.count(property, self.0) });
        serving.out.put(());
    }
}

/// A property that another thread has entrusted to this trustee.
pub(crate) struct Adopt;

impl Request for Adopt {
    const TARGET: Target = Target::AnyProperty;
    const HAS_NOTICE: bool = true;

    fn into_notice(self, property: *mut Header) -> Result<Notice, Self> {
        Ok(Notice::Adopt(property))
    }

    unsafe fn run(self, property: *mut Header, serving: &mut Serving) {
        super::with(|worker| worker.adopt_from_elsewhere(property));
        serving.out.put(());
    }
}

/// Counts a trust of a property of any trustee, on any thread.
pub(crate) fn count(trustee: TrusteeId, property: *mut Header, delta: i32) {
    let counted = super::existing(|worker| {
        if worker.home.get() == trustee {
            // SAFETY: a trust of this trustee keeps it live up to here.
            unsafe { worker.count(property, delta) };
            worker.settle();
        } else if trustee.machine() == worker.id.machine() || worker.remote.is_attached() {
            worker.submit(trustee, property, Count(delta), Ignore, false);
        } else {
            remote::forward(trustee, property, delta);
        }
    });
    // The thread has no worker yet, or in destructors of thread-locals none any more: the inbox takes it, if the
    // trustee is still there. So foreign threads (an async program's) may clone and drop trusts without becoming
    // trustees.
    if counted.is_some() {
        return;
    }
    if trustee.machine() != ids::machine() {
        remote::forward(trustee, property, delta);
    } else {
        registry::with(trustee, |trustee| drop(trustee.send(Message::Count(PropertyRef(property), delta))));
    }
}

/// Service thread: submits the counts noted by threads without links.
pub(crate) fn forward_counts(worker: &Worker) {
    for (trustee, property, delta) in remote::take_forwarded() {
        worker.submit(trustee, property, Count(delta), Ignore, false);
    }
}
