//! What a worker knows of other machines: its links, its sources, the requests that wait and their responses.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::OnceLock;

use crate::fiber::FiberQueue;
use crate::link::{Answer, Bell, Link, Outbox, RemoteFault, Source};
use crate::property::Header;
use crate::registry::TrusteeId;
use crate::request::{Fault, Request, Response, Resuming};
use crate::slot::Reader;
use crate::trustee;
use crate::unwind::quietly;
use crate::worker::Worker;

/// A worker with links, for threads that have none.
static FORWARDER: OnceLock<TrusteeId> = OnceLock::new();

/// The worker to which threads without links hand what must reach another machine.
pub(crate) fn forwarder() -> Option<TrusteeId> {
    FORWARDER.get().copied()
}

/// All that a worker knows of other machines.
#[derive(Default)]
pub(crate) struct Far {
    attached: Cell<bool>,
    links: RefCell<HashMap<TrusteeId, Rc<FarTrustee>>>,
    sources: RefCell<Vec<Rc<FarClient>>>,
}

/// The client's half.
struct FarTrustee {
    link: RefCell<Box<dyn Link>>,
    outbox: RefCell<Outbox>,
    /// What to do with each response, in order; of the requests in the outbox too.
    thens: RefCell<VecDeque<Then>>,
    /// Requests of each batch in flight.
    in_flight: RefCell<VecDeque<usize>>,
    submitted: Cell<u64>,
    waiters: FiberQueue,
}

type Then = Box<dyn FnOnce(&mut Resuming, Option<Fault>)>;

impl FarTrustee {
    fn new(link: Box<dyn Link>) -> Self {
        FarTrustee {
            link: RefCell::new(link),
            outbox: RefCell::default(),
            thens: RefCell::default(),
            in_flight: RefCell::default(),
            submitted: Cell::new(0),
            waiters: FiberQueue::new(),
        }
    }

    fn is_outstanding(&self) -> bool {
        !self.thens.borrow().is_empty()
    }

    fn flush(&self, worker: &Worker) {
        let mut outbox = self.outbox.borrow_mut();
        if outbox.is_empty() {
            return;
        }
        let sent = self.link.borrow_mut().send(&outbox);
        if sent > 0 {
            outbox.forget(sent);
            self.in_flight.borrow_mut().push_back(sent);
            worker.shared.counters.requests_sent.add(sent as u64);
            worker.shared.counters.requests_sent_far.add(sent as u64);
            worker.shared.counters.batches_sent.add(1);
        }
    }

    fn collect(&self) -> bool {
        let mut any = false;
        loop {
            let answer = self.link.borrow_mut().receive();
            let Some(answer) = answer else { return any };
            any = true;
            let Some(count) = self.in_flight.borrow_mut().pop_front() else {
                return any;
            };
            let mut resuming = Resuming { responses: Reader::packed(answer.bytes), next: std::ptr::null_mut() };
            let mut faults = answer.faults.into_iter().peekable();
            for index in 0..count {
                let fault = faults.next_if(|(failed, _)| *failed as usize == index);
                let fault = fault.map(|(_, fault)| fault.into_fault());
                let then = self.thens.borrow_mut().pop_front();
                // A callback that panics has said so.
                quietly(|| then.map(|then| then(&mut resuming, fault)));
            }
        }
    }
}

/// The trustee's half.
pub(crate) struct FarClient {
    source: RefCell<Box<dyn Source>>,
    client: TrusteeId,
    served: Cell<u64>,
}

impl FarClient {
    fn new(source: Box<dyn Source>) -> Self {
        FarClient { client: source.client(), source: RefCell::new(source), served: Cell::new(0) }
    }

    pub(crate) fn client(&self) -> TrusteeId {
        self.client
    }
    /// Requests served for this client since the start.
    pub(crate) fn served(&self) -> u64 {
        self.served.get()
    }

    fn serve(&self, worker: &Worker) -> bool {
        let requests = self.source.borrow_mut().receive();
        let Some(requests) = requests else {
            return false;
        };
        worker.mark_busy();
        let (bytes, faults) = trustee::serve_packed(worker, &requests, self.client);
        let faults = faults.into_iter().map(|(index, fault)| (index, RemoteFault::new(fault))).collect();
        self.served.set(self.served.get() + requests.items.len() as u64);
        self.source.borrow_mut().answer(Answer { bytes, faults });
        worker.shared.counters.requests_served.add(requests.items.len() as u64);
        worker.shared.counters.batches_served.add(1);
        true
    }
}

impl Far {
    /// See [`crate::link::attach`].
    pub(crate) fn attach(
        &self,
        worker: &Worker,
        links: Vec<(TrusteeId, Box<dyn Link>)>,
        sources: Vec<Box<dyn Source>>,
        bell: Option<Box<dyn Bell>>,
    ) {
        let fresh = bell.is_none_or(|bell| worker.shared.parker.set_bell(bell));
        assert!(fresh && !self.is_attached(), "a worker is attached once");
        let links = links.into_iter().map(|(trustee, link)| (trustee, Rc::new(FarTrustee::new(link))));
        self.links.borrow_mut().extend(links);
        self.sources.borrow_mut().extend(sources.into_iter().map(|source| Rc::new(FarClient::new(source))));
        self.attached.set(true);
        worker.estate().know_all();
        let _ = FORWARDER.set(worker.id);
    }

    #[inline(always)]
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.get()
    }

    pub(crate) fn clients(&self) -> Vec<Rc<FarClient>> {
        self.sources.borrow().clone()
    }

    /// Requests this worker has made to a trustee of another machine, those not sent yet included.
    pub(crate) fn submitted(&self, trustee: TrusteeId) -> u64 {
        self.links.borrow().get(&trustee).map_or(0, |link| link.submitted.get())
    }

    pub(crate) fn is_outstanding(&self) -> bool {
        self.is_attached() && self.links.borrow().values().any(|link| link.is_outstanding())
    }

    /// Is there anything to collect or to serve?
    pub(crate) fn has_work(&self) -> bool {
        self.is_attached()
            && (self.links.borrow().values().any(|link| link.link.borrow().has_news())
                || self.sources.borrow().iter().any(|source| source.source.borrow().has_batch()))
    }

    /// Takes responses.
    pub(crate) fn collect(&self, worker: &Worker) -> bool {
        let mut any = false;
        let links: Vec<_> = self.links.borrow().values().filter(|link| link.is_outstanding()).cloned().collect();
        for link in links {
            if worker.call_back(|| link.collect()) {
                any = true;
                worker.mark_busy();
            }
            if !link.outbox.borrow().is_full() {
                while let Some(fiber) = link.waiters.pop() {
                    worker.scheduler.ready(fiber);
                }
            }
        }
        any
    }

    /// Serves requests.
    pub(crate) fn serve(&self, worker: &Worker) -> bool {
        let mut any = false;
        let mut place = 0;
        loop {
            let Some(source) = self.sources.borrow().get(place).map(Rc::clone) else {
                return any;
            };
            any |= source.serve(worker);
            place += 1;
        }
    }

    /// Sends what is pending.
    pub(crate) fn flush(&self, worker: &Worker) {
        for link in self.links.borrow().values() {
            link.flush(worker);
        }
    }

    /// Adds a request for a trustee of another machine, or says why it cannot be sent.
    pub(crate) fn submit<C: Request, R: Response + 'static>(
        &self,
        worker: &Worker,
        trustee: TrusteeId,
        property: *mut Header,
        request: C,
        response: R,
        may_wait: bool,
    ) -> Result<(), (R, Fault)> {
        let Some(link) = self.links.borrow().get(&trustee).map(Rc::clone) else {
            return Err((response, Fault::Refused(self.why_not(trustee))));
        };
        while may_wait && link.outbox.borrow().is_full() {
            match worker.fiber() {
                Some(fiber) => {
                    link.waiters.push(fiber);
                    worker.scheduler.suspend();
                }
                None => worker.wait_until(|| !link.outbox.borrow().is_full()),
            }
        }
        link.outbox.borrow_mut().push(property, request);
        link.thens.borrow_mut().push_back(then(response));
        link.submitted.set(link.submitted.get() + 1);
        Ok(())
    }

    fn why_not(&self, trustee: TrusteeId) -> String {
        if self.is_attached() {
            format!("{trustee:?} is not a worker of this rack program")
        } else {
            format!(
                "{trustee:?} is on another machine, which only the workers of a rack program can reach: \
                 do this in a fiber (`gossamer::spawn`) rather than in a thread of your own"
            )
        }
    }
}

fn then<R: Response + 'static>(response: R) -> Then {
    #[expect(unsafe_code, reason = "a continuation without its slot")]
    // SAFETY: continuations run in the order of the requests, which is that of the responses.
    Box::new(move |resuming: &mut Resuming, fault| unsafe { response.resume(resuming, fault) })
}
