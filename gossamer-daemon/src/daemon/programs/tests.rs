//! Programs that run, come and wait for room.

use super::*;
use crate::wire::Receiver;

#[test]
fn programs_that_are_coming_are_counted() {
    let programs = Programs::default();
    let refused = |id, most| programs.reserve(ProgramId(id), most).err().unwrap_or_default();
    let first = programs.reserve(ProgramId(1), 2).unwrap();
    assert!(refused(1, 2).contains("00000001 runs here already"));
    let second = programs.reserve(ProgramId(2), 2).unwrap();
    assert!(refused(3, 2).contains("2 programs run here or are coming"));
    drop(first);
    assert_eq!(refused(3, 2), "");
    second.enter(program());
    assert!(refused(2, 9).contains("already") && refused(3, 1).contains("1 programs"));
    assert!(programs.coming().reserved.is_empty());
}

fn session(channel: UnixStream) -> Session {
    let channel = Channel::new(channel).unwrap();
    Session { part: rustix::process::getpid(), channel, silence: Duration::ZERO }
}

fn program() -> Program {
    let (channel, _) = UnixStream::pair().unwrap();
    let (path, owner, machines) = (String::new(), String::new(), BTreeMap::new());
    let since = Instant::now();
    Program { path, owner, since, session: session(channel), cgroup: None, machines, ended_by: None, is_ending: false }
}

#[test]
fn who_waits_gets_room_in_turn() {
    let programs = Programs::default();
    let (told, heard) = std::sync::mpsc::channel();
    let end = Instant::now() + Duration::from_secs(20); // on failure it does not wait for ever
    let hear = |wanted: &dyn Fn(&(u32, u32)) -> bool| {
        let next = || heard.recv_timeout(end.saturating_duration_since(Instant::now())).unwrap();
        std::iter::repeat_with(next).find(wanted).unwrap()
    };
    let (first, second) = (programs.reserve(ProgramId(1), 2).unwrap(), programs.reserve(ProgramId(2), 2).unwrap());
    std::thread::scope(|scope| {
        let wait = |number: u32, stays: bool| {
            let (programs, told) = (&programs, told.clone());
            let waiting = scope.spawn(move || {
                let tell = |before| {
                    told.send((number, before)).unwrap();
                    stays && Instant::now() < end
                };
                programs.reserve_in_turn(ProgramId(number), 2, 3, false, tell).map(|reserved| {
                    told.send((number, 99)).unwrap();
                    std::mem::forget(reserved) // it keeps its room
                })
            });
            // One after the other: each has its place before the next comes.
            (waiting, hear(&|(who, _)| *who == number).1)
        };
        let ((third, before_third), (fourth, before_fourth)) = (wait(3, true), wait(4, true));
        assert_eq!((before_third, before_fourth), (0, 1));
        let (left, before_left) = wait(5, false);
        assert_eq!(before_left, 2);
        assert!(left.join().unwrap().unwrap_err().contains("left the queue"));
        let (fifth, before_fifth) = wait(6, true);
        assert_eq!(before_fifth, 2, "who has left is not counted");
        let too_many = programs.reserve_in_turn(ProgramId(7), 2, 3, false, |_| true).err().unwrap();
        assert!(too_many.contains("3 programs wait here already"), "{too_many}");
        assert!(programs.reserve(ProgramId(3), 9).err().unwrap().contains("already"), "it waits");

        let admitted = || hear(&|(_, before)| *before == 99).0;
        drop(first);
        assert_eq!(admitted(), 3);
        assert!(programs.reserve(ProgramId(8), 2).is_err());
        drop(second);
        assert_eq!(admitted(), 4);
        // With more room than the queue needs the others need not wait; without it they do not overtake.
        assert!(programs.reserve(ProgramId(9), 3).is_err(), "the one place is the next one's");
        drop(programs.reserve(ProgramId(9), 4).unwrap());
        programs.coming().reserved.remove(&ProgramId(3));
        programs.freed.notify_all();
        assert_eq!(admitted(), 6);
        for waiting in [third, fourth, fifth] {
            assert!(waiting.join().unwrap().is_ok());
        }
    });
}

#[test]
fn places_in_the_queue_outlast_an_upgrade() {
    let programs = Programs::default();
    programs.resume(Vec::new(), vec![ProgramId(5), ProgramId(6)]).unwrap();
    assert!(programs.reserve(ProgramId(7), 2).is_err(), "two are before it");
    let mut told = Vec::new();
    let left = programs.reserve_in_turn(ProgramId(6), 1, 9, true, |before| {
        told.push(before);
        false
    });
    assert!(left.is_err() && told == [1]);
    programs.resume(Vec::new(), vec![ProgramId(5), ProgramId(6)]).unwrap();
    let first = programs.reserve_in_turn(ProgramId(5), 1, 9, true, |_| false).unwrap();
    assert_eq!(programs.coming_count(), 2);
    assert!(programs.states().is_none(), "one is about to start");
    programs.leave_queue(ProgramId(6));
    drop(first);
    assert!(programs.states().is_some_and(|(running, queue)| running.is_empty() && queue.is_empty()));
}

/// A signal while input comes in: each message is whole. The input fills the socket, so that it is written in
/// pieces.
#[test]
fn messages_to_a_part_are_whole_whoever_writes_them() {
    const EACH: usize = 200;
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (programs, program) = (Programs::default(), Program { session: session(ours), ..program() });
    let (id, channel) = (ProgramId(1), Arc::clone(&program.session.channel));
    programs.reserve(id, 1).unwrap().enter(program);
    let input = ToPart::Input(vec![7; 300_000]);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..EACH).for_each(|_| assert!(channel.send(&input.to_bytes()))));
        scope.spawn(|| (0..EACH).for_each(|_| assert!(programs.tell(id, &ToPart::Signal(10)))));
        let heard: Vec<ToPart> = (0..2 * EACH).map(|_| theirs.receive_message().unwrap()).collect();
        assert_eq!(heard.iter().filter(|message| **message == input).count(), EACH);
        assert_eq!(heard.iter().filter(|message| **message == ToPart::Signal(10)).count(), EACH);
    });
    drop(theirs);
    assert!(
        !programs.tell(id, &ToPart::Signal(10)) && !programs.tell(ProgramId(2), &ToPart::Signal(10)),
        "gone, and never there"
    );
}

/// While one program turns from coming to running, another finds the room that is left.
#[test]
fn no_program_is_counted_twice() {
    for _ in 0..500 {
        let programs = Programs::default();
        let (first, program) = (programs.reserve(ProgramId(1), 2).unwrap(), program());
        let has_entered = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                first.enter(program);
                has_entered.store(true, std::sync::atomic::Ordering::Release); // the loop below reads it
            });
            while !has_entered.load(std::sync::atomic::Ordering::Acquire) {
                drop(programs.reserve(ProgramId(2), 2).unwrap());
            }
        });
    }
}

#[test]
fn a_program_that_is_ending_is_waited_for() {
    let programs = Programs::default();
    programs.reserve(ProgramId(1), 1).unwrap().enter(program());
    assert!(programs.reserve(ProgramId(2), 1).is_err(), "it runs");
    programs.set_ending(ProgramId(1));
    let start = Instant::now();
    assert!(programs.reserve(ProgramId(2), 1).is_err(), "it does not go");
    assert!(start.elapsed() >= ROOM_LIMIT);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| programs.reserve(ProgramId(2), 1).map(drop));
        programs.list().remove(&ProgramId(1)); // as `remove` does, without ending the children of this process
        drop(programs.coming());
        programs.freed.notify_all();
        assert_eq!(second.join().unwrap(), Ok(()));
    });
    // A coming program that is refused makes room too.
    programs.reserve(ProgramId(3), 2).unwrap().enter(program());
    programs.set_ending(ProgramId(3));
    let coming = programs.reserve(ProgramId(4), 2).unwrap();
    std::thread::scope(|scope| {
        let third = scope.spawn(|| programs.reserve(ProgramId(5), 2).map(drop));
        drop(coming);
        assert_eq!(third.join().unwrap(), Ok(()));
    });
}

#[test]
fn memory_of_this_process_is_known() {
    assert!(memory_of(std::process::id()).0 > 100_000);
    assert_eq!(memory_of(0), (0, 0));
}
