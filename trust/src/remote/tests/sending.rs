//! The batches sent to a peer, and their times: more than callers of `Trust` can distinguish.

use std::cell::{Cell, RefCell};
use std::process::Command;
use std::rc::Rc;

use super::super::Peers;
use super::super::frame::Cursor;
use super::{Local, SENDS_MAX, play, post};
use crate::config::{REMOTE_KEPT_BYTES_MAX, REMOTE_SERVED_A_TURN, REMOTE_WAITING_MAX};
use crate::property::Header;
use crate::request::{Fault, Ignore, Operation, Request, Serving, Target};
use crate::runtime::worker;
use crate::runtime::worker::Worker;
use crate::{Error, Shared, Trust, spawn, yield_now};

/// Does something with the worker and its peers.
pub(super) fn with<R>(f: impl FnOnce(&Worker, &Peers) -> R) -> R {
    worker::with(|worker| f(worker, worker.remote.peers.get().expect("it is attached")))
}

/// A request whose packed forms are all of one length, or differ.
struct Packed<const VARIES: bool>;

impl<const VARIES: bool> Request for Packed<VARIES> {
    const PACKED_BYTES: Option<usize> = if VARIES { None } else { Some(3) };
    const TARGET: Target = Target::Nothing;
    unsafe fn run(self, _: *mut Header, _: &mut Serving) {
        unreachable!("the peer runs nothing")
    }
}

fn submit<const VARIES: bool>(there: &Trust<u64>, bytes: &[u8]) {
    let (property, id) = there.parts();
    with(|worker, _| {
        let pack = |packed: &mut Vec<u8>| {
            packed.extend_from_slice(bytes);
            Ok(())
        };
        let sent = worker.remote.submit_packed::<Packed<VARIES>, _>(worker, id, property, pack, Ignore, false);
        assert!(sent.is_ok());
    });
}

#[test]
fn packed_requests_lie_one_behind_the_other() {
    play(|peer, there| {
        let texts: [(bool, &[u8]); 6] =
            [(true, b"first"), (true, b""), (false, b"abc"), (false, b"def"), (true, &[9; 90]), (false, b"ghi")];
        for (varies, text) in texts {
            if varies { submit::<true>(there, text) } else { submit::<false>(there, text) }
        }
        yield_now();
        assert_eq!(peer.borrow().sent, [6]);
        let frame = peer.borrow().frames[0].clone();
        // SAFETY: the positions are those that the carrier has given.
        let resolve = |position| unsafe { Operation::at(position as usize) };
        let mut cursor = Cursor::new();
        for (varies, text) in texts {
            let item = cursor.next(&frame, resolve);
            let item = item.unwrap_or_else(|malformed| panic!("{malformed:?}")).expect("there is another");
            assert_eq!(
                (item.operation.packed_bytes().is_none(), &frame[item.start..item.start + item.len]),
                (varies, text)
            );
            assert_eq!(item.property, there.parts().0.addr() as u64);
        }
        assert!(matches!(cursor.next(&frame, resolve), Ok(None)));
    });
}

#[test]
fn what_cannot_be_packed_is_not_sent() {
    play(|peer, there| {
        let (property, id) = there.parts();
        with(|worker, _| {
            let fails = |_: &mut Vec<u8>| Err(Fault::Codec("not this".into()));
            let sent = worker.remote.submit_packed::<Packed<true>, _>(worker, id, property, fails, Ignore, false);
            assert!(matches!(sent, Err((Ignore, Fault::Codec(text))) if text == "not this"));
        });
        yield_now();
        assert!(peer.borrow().sent.is_empty());
    });
}

/// Memory to pack in is used again, unless it is much.
#[test]
fn memory_to_pack_in_is_kept_unless_it_is_much() {
    play(|peer, there| {
        let kept = || {
            with(|_, peers| {
                let scratch = peers.scratch.take();
                let bytes = scratch.capacity();
                peers.scratch.set(scratch);
                bytes
            })
        };
        submit::<true>(there, &[1; 1000]);
        assert!(kept() >= 1000);
        submit::<true>(there, &vec![1; REMOTE_KEPT_BYTES_MAX + 1]);
        assert_eq!(kept(), 0);
        while with(|worker, _| worker.remote.is_outstanding()) {
            peer.borrow_mut().answer();
            yield_now();
        }
    });
}

#[test]
fn a_refusal_says_why_and_what_to_do() {
    fn why(error: Result<u64, Error>) -> String {
        error.expect_err("it cannot be sent").to_string()
    }
    play(|_, _| {
        let nobody = Trust::<u64>::of(std::ptr::without_provenance_mut(4096), crate::ids::worker_id(7, 1));
        let why = why(nobody.call().apply(|v| *v).wait());
        assert!(why.contains("is not a worker of this rack program"), "{why}");
    });
    let detached = std::thread::spawn(|| {
        let there = Trust::<u64>::of(std::ptr::without_provenance_mut(4096), crate::ids::worker_id(7, 0));
        let why = why(there.call().apply(|v| *v).wait());
        std::mem::forget(there);
        why
    });
    let why = detached.join().unwrap();
    assert!(why.contains("only the workers of a rack program can reach") && why.contains("gossamer::spawn"), "{why}");
}

#[test]
fn a_worker_knows_what_is_outstanding_and_what_has_come() {
    play(|peer, there| {
        let (outstanding, has_work) =
            (|| with(|worker, _| worker.remote.is_outstanding()), || with(|worker, _| worker.remote.has_work()));
        let collect = || with(|worker, _| worker.remote.collect(worker));
        assert!(!outstanding() && !has_work() && !collect());
        post(there, || {});
        assert!(outstanding() && !has_work());
        with(|worker, _| worker.remote.flush(worker));
        assert!(outstanding() && !collect() && peer.borrow().sent == [1]);
        peer.borrow_mut().answer();
        assert!(outstanding() && has_work());
        assert!(collect() && !outstanding() && !has_work() && !collect());
    });
}

#[test]
fn a_turn_serves_each_peer_once() {
    play(|peer, _| {
        let batches = REMOTE_SERVED_A_TURN + 1;
        for _ in 0..batches {
            peer.borrow_mut().requests.push_back((super::frame::<{ super::NONE }>(&[1]), 1));
        }
        let serve = || with(|worker, _| (worker.remote.serve(worker), peer.borrow_mut().served.drain(..).count()));
        assert_eq!([serve(), serve(), serve()], [(true, REMOTE_SERVED_A_TURN), (true, 1), (false, 0)]);
        super::PROBED.take();
    });
}

#[test]
fn nothing_is_sent_that_is_not_there_or_that_the_carrier_does_not_take() {
    play(|peer, there| {
        let flush = || with(|worker, peers| peers.trustees[0].flush(worker, peers));
        flush();
        assert!(peer.borrow().sent.is_empty());
        post(there, || {});
        peer.borrow_mut().takes_nothing = true;
        flush();
        assert!(peer.borrow().sent.is_empty());
        peer.borrow_mut().takes_nothing = false;
        flush();
        assert_eq!(peer.borrow().sent, [1]);
    });
}

/// Makes requests without waiting until full batches are queued. Returns their number.
fn fill(there: &Trust<u64>) -> usize {
    (1..)
        .find(|_| {
            post(there, || {});
            with(|_, peers| peers.trustees[0].waiting().0 >= REMOTE_WAITING_MAX)
        })
        .expect("there is an end")
}

#[test]
fn a_line_is_long_when_so_many_batches_wait() {
    play(|peer, there| {
        let state = || with(|_, peers| peers.trustees[0].waiting());
        assert_eq!(state(), (0, false));
        fill(there);
        assert_eq!(state(), (REMOTE_WAITING_MAX, true));
        assert_eq!(peer.borrow().sent.len(), SENDS_MAX);
        peer.borrow_mut().answer();
        yield_now();
        assert_eq!(state(), (REMOTE_WAITING_MAX - 1, false));
    });
}

/// The thread's own code cannot stand in line. It waits for room, or for one answer where callbacks take all the room.
#[test]
fn the_thread_s_own_code_waits_for_room_or_for_an_answer() {
    for refills in [false, true] {
        play(move |peer, there| {
            let there = Rc::new(there.clone());
            fill(&there);
            let answered = Rc::new(Cell::new(false));
            let local = Local((Rc::clone(peer), Rc::clone(&there), Rc::clone(&answered)));
            let local = Shared::new(local);
            drop(spawn(move || {
                let (peer, there, answered) = &local.0;
                (0..5).for_each(|_| yield_now());
                if refills {
                    // As callbacks of the answer do: the room that it makes is gone at once.
                    let batch = peer.borrow().sent[0];
                    post(there, || {});
                    answered.set(true);
                    peer.borrow_mut().answer();
                    worker::with(|worker| worker.remote.collect(worker));
                    (0..2 * batch).for_each(|_| post(there, || {}));
                    assert!(with(|_, peers| peers.trustees[0].waiting().0 >= REMOTE_WAITING_MAX));
                } else {
                    answered.set(true);
                    peer.borrow_mut().answer();
                }
            }));
            there.apply_then(|v| *v += 1, |()| {});
            assert!(answered.get(), "there was no room before");
        });
    }
}

/// A resumed fiber resumes the next one, as long as there is room.
#[test]
fn one_answer_lets_as_many_go_on_as_there_is_room_for() {
    play(|peer, there| {
        fill(there);
        let passed = Rc::new(RefCell::new(Vec::new()));
        for fiber in 0..10 {
            let there = there.clone();
            let passed = Shared::new(Local(Rc::clone(&passed)));
            drop(spawn(move || {
                there.apply_then(|v| *v += 1, |()| {});
                passed.0.borrow_mut().push(fiber);
            }));
        }
        yield_now();
        assert!(passed.borrow().is_empty());
        peer.borrow_mut().answer();
        (0..15).for_each(|_| yield_now());
        assert!(passed.borrow().iter().copied().eq(0..10), "{:?}", passed.borrow());
    });
}

/// In a process of its own, for there the first worker that is attached takes the counts of all threads that have no
/// links.
#[test]
fn counts_of_threads_without_links_are_added_up_and_sent() {
    const CHILD: &str = "TRUST_FORWARD_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let child = Command::new(std::env::current_exe().expect("this program's own file"))
            .args(["--exact", "remote::tests::sending::counts_of_threads_without_links_are_added_up_and_sent"])
            .env(CHILD, "1")
            .output()
            .expect("it can be started");
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    play(|peer, there| {
        let clone = there.clone();
        yield_now();
        peer.borrow_mut().answer();
        yield_now();
        assert!(!with(|worker, _| worker.remote.is_outstanding()));
        peer.borrow_mut().frames.clear();
        let counting = std::thread::spawn(move || {
            (0..5).for_each(|_| std::mem::forget(clone.clone()));
            (0..2).for_each(|_| drop(clone.clone()));
            std::mem::forget(clone);
        });
        counting.join().unwrap();
        (0..1000).take_while(|_| peer.borrow().frames.is_empty()).for_each(|_| yield_now());
        let frame = peer.borrow().frames[0].clone();
        // SAFETY: the position is one that the carrier has given.
        let item = Cursor::new().next(&frame, |position| unsafe { Operation::at(position as usize) });
        let item = item.unwrap_or_else(|malformed| panic!("{malformed:?}")).expect("there is one");
        assert_eq!((item.property, &frame[item.start..]), (there.parts().0.addr() as u64, &5i32.to_ne_bytes()[..]));
    });
}
