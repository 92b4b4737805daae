//! A worker with peers on several machines, which these tests play: the peers that a trustee awaits before it drops a
//! property.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use super::{NONE, Probe, frame};
use crate::api::link::{Buffer, Carrier, Operation, attach, lose};
use crate::ids::{TrusteeId, worker_id};
use crate::request::OperationOf;
use crate::runtime::worker;
use crate::yield_now;

/// Machine and index of each peer, by its place.
type Peers = &'static [(u16, u16)];
/// Two machines, of two workers and of one.
const TWO: Peers = &[(7, 0), (7, 1), (8, 0)];

/// State of one peer: unanswered questions to it, its answers, and the batches that it sends.
#[derive(Default)]
struct Peer {
    asked: u32,
    answers: VecDeque<Vec<u8>>,
    requests: VecDeque<(Vec<u8>, u32)>,
}

struct Played {
    ids: Vec<TrusteeId>,
    service: TrusteeId,
    services: Vec<TrusteeId>,
    peers: Rc<RefCell<Vec<Peer>>>,
}

// SAFETY: the answers are those of the closures of each test; only probes of no property are asked for.
unsafe impl Carrier for Played {
    fn peers(&self) -> &[TrusteeId] {
        &self.ids
    }
    fn service(&self) -> TrusteeId {
        self.service
    }
    fn services(&self) -> &[TrusteeId] {
        &self.services
    }
    fn room_bytes(&self) -> usize {
        400
    }
    fn position(&self, operation: &'static Operation) -> u64 {
        operation.position() as u64
    }
    fn operation_at(&self, position: u64) -> Option<&'static Operation> {
        (position == NONE).then_some(OperationOf::<Probe<NONE>>::INLINE)
    }
    fn can_send(&mut self, _: usize) -> bool {
        true
    }
    fn send(&mut self, place: usize, _: &mut Buffer, requests: u32) {
        assert_eq!(requests, 1, "a question is sent at once");
        self.peers.borrow_mut()[place].asked += 1;
    }
    fn receive_answer(&mut self, place: usize, into: &mut Buffer) -> Option<u32> {
        let bytes = self.peers.borrow_mut()[place].answers.pop_front()?;
        into.set_len(bytes.len());
        into.bytes_mut().copy_from_slice(&bytes);
        Some(0)
    }
    fn find_requests(&self, from: usize) -> Option<usize> {
        (from..self.ids.len()).find(|&place| !self.peers.borrow()[place].requests.is_empty())
    }
    fn receive_requests(&mut self, place: usize, into: &mut Buffer) -> Option<u32> {
        let (bytes, requests) = self.peers.borrow_mut()[place].requests.pop_front()?;
        into.set_len(bytes.len());
        into.bytes_mut().copy_from_slice(&bytes);
        Some(requests)
    }
    fn answer(&mut self, _: usize, _: &mut Buffer, _: u32) {}
    fn turn(&mut self) {}
    fn flush(&mut self) {}
    fn has_work(&self) -> bool {
        self.peers.borrow().iter().any(|peer| !peer.answers.is_empty())
    }
    fn lose(&mut self, machine: u16) {
        let mut peers = self.peers.borrow_mut();
        let lost = self.ids.iter().zip(&mut *peers).filter(|(id, _)| id.machine() == machine);
        lost.for_each(|(_, peer)| *peer = Peer::default());
    }
    fn end(&self, _: usize, what: &str) -> ! {
        panic!("{what}")
    }
}

/// The machines, as the tests play them.
struct Machines {
    ids: Peers,
    peers: Rc<RefCell<Vec<Peer>>>,
}

impl Machines {
    /// Returns those of these machines, each in a place of its own, that have been asked for their numbers.
    fn asked(&self) -> Vec<u16> {
        let peers = self.peers.borrow();
        let mut machines: Vec<_> =
            self.ids.iter().zip(&*peers).filter(|(_, peer)| peer.asked > 0).map(|((machine, _), _)| *machine).collect();
        machines.dedup();
        machines
    }

    /// Returns the number of questions without an answer.
    fn questions(&self) -> u32 {
        self.peers.borrow().iter().map(|peer| peer.asked).sum()
    }

    /// Answers all questions to this machine with the number of requests of each of its workers.
    fn tell(&self, machine: u16, numbers: &[(u64, u64)]) {
        let words: Vec<u64> = numbers.iter().flat_map(|&(worker, made)| [worker, made]).collect();
        let bytes: Vec<u8> = std::iter::once(words.len() as u64 * 8).chain(words).flat_map(u64::to_ne_bytes).collect();
        let mut told = 0;
        for (_, peer) in self.ids.iter().zip(&mut *self.peers.borrow_mut()).filter(|(peer, _)| peer.0 == machine) {
            told += peer.asked;
            (0..std::mem::take(&mut peer.asked)).for_each(|_| peer.answers.push_back(bytes.clone()));
        }
        assert!(told > 0, "machine {machine} was not asked");
        yield_now();
    }

    /// Has this many requests come from a peer, and serves them.
    fn serve(&self, place: usize, requests: usize) {
        let batch = (frame::<NONE>(&vec![0; requests]), requests as u32);
        self.peers.borrow_mut()[place].requests.push_back(batch);
        yield_now();
        assert!(self.peers.borrow()[place].requests.is_empty());
    }
}

/// Gives this worker such peers. `service`: another worker that asks in its place.
fn attach_to(ids: Peers, service: Option<TrusteeId>) -> Machines {
    let peers = Rc::new(RefCell::new(ids.iter().map(|_| Peer::default()).collect::<Vec<_>>()));
    let workers: Vec<_> = ids.iter().map(|&(machine, index)| worker_id(machine, index)).collect();
    let mut services = workers.clone();
    services.dedup_by_key(|service| service.machine());
    let service = service.unwrap_or_else(|| worker::with(|worker| worker.id));
    attach(Some(Box::new(Played { ids: workers, service, services, peers: Rc::clone(&peers) })), None);
    Machines { ids, peers }
}

/// Runs `test` on a worker with such peers. The second argument tells whether the property, whose only trust is gone,
/// is there.
fn play(ids: Peers, test: impl FnOnce(&Machines, &dyn Fn() -> bool) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let machines = attach_to(ids, None);
        let value = Arc::new(());
        drop(crate::local_trustee().entrust(Arc::clone(&value)));
        yield_now();
        test(&machines, &|| Arc::strong_count(&value) == 2);
        assert_eq!(Arc::strong_count(&value), 1);
        assert!(!worker::with(|worker| worker.remote.is_outstanding()));
    });
    thread.join().unwrap();
}

#[test]
fn a_drop_waits_for_what_each_worker_of_each_machine_has_asked() {
    play(TWO, |machines, is_there| {
        assert_eq!(machines.asked(), [7, 8]);
        // Worker 1 of machine 7 has asked once, worker 0 twice. The worker of machine 8 has never asked.
        machines.tell(7, &[(1, 1), (0, 2)]);
        machines.serve(0, 1);
        machines.serve(1, 1);
        assert!(is_there());
        machines.tell(8, &[]);
        assert!(is_there());
        machines.serve(2, 9);
        assert!(is_there(), "that is another machine");
        machines.serve(0, 1);
        assert!(!is_there());
    });
}

#[test]
fn a_drop_waits_for_the_numbers_of_each_machine() {
    play(TWO, |machines, is_there| {
        (0..TWO.len()).for_each(|place| machines.serve(place, 3));
        assert!(is_there());
        machines.tell(8, &[(0, 3)]);
        assert!(is_there());
        machines.tell(7, &[(0, 1), (1, 3)]);
        assert!(!is_there(), "all that they had asked had been served");
    });
}

#[test]
fn a_drop_waits_for_the_only_other_machine() {
    play(&[(9, 3)], |machines, is_there| {
        assert_eq!(machines.asked(), [9]);
        machines.tell(9, &[(0, 7), (3, 1)]);
        assert!(is_there());
        machines.serve(0, 1);
        assert!(!is_there(), "worker 0 of that machine has no link to this one");
    });
}

#[test]
fn some_machines_are_asked_at_a_time() {
    const SIX: Peers = &[(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)];
    play(SIX, |machines, is_there| {
        for left in (1..=SIX.len()).rev() {
            let asked = machines.asked();
            assert_eq!(asked.len(), left.min(4), "{asked:?}");
            assert!(is_there());
            machines.tell(asked[0], &[]);
        }
        assert!(!is_there());
    });
}

/// It is asked by a round that is under way; the trustee's next question goes to the others.
#[test]
fn a_machine_that_is_lost_meanwhile_holds_up_no_round() {
    play(TWO, |machines, is_there| {
        assert_eq!(machines.asked(), [7, 8]);
        lose(7);
        assert_eq!(machines.asked(), [8]);
        machines.tell(8, &[]);
        assert!(is_there(), "that was the answer to the question before the loss");
        limits::wait_until("the next question is asked", || {
            yield_now();
            machines.questions() == 1
        });
        machines.tell(8, &[(0, 1)]);
        assert!(is_there());
        machines.serve(2, 1);
        assert!(!is_there());
    });
}

#[test]
fn the_service_thread_asks_for_all_trustees_of_its_machine() {
    let (asks, asked) = mpsc::channel();
    play(&[(7, 0)], move |machines, is_there| {
        let service = worker::with(|worker| worker.id);
        let other = std::thread::spawn(move || {
            let machines = attach_to(&[(7, 0)], Some(service));
            let value = Arc::new(());
            drop(crate::local_trustee().entrust(Arc::clone(&value)));
            yield_now();
            asks.send(()).unwrap();
            limits::wait_until("its property is reclaimed", || {
                yield_now();
                Arc::strong_count(&value) == 1
            });
            assert_eq!(machines.asked(), [] as [u16; 0], "it asks nobody itself");
        });
        asked.recv().unwrap();
        yield_now();
        assert_eq!(machines.questions(), 1, "the other one waits for the next round");
        machines.tell(7, &[]);
        assert!(!is_there());
        limits::wait_until("the other one's question is asked", || {
            yield_now();
            machines.questions() == 1
        });
        assert!(!other.is_finished());
        machines.tell(7, &[]);
        other.join().unwrap();
    });
}
