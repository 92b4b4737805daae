//! Stories of programs that outlive machines.

use super::super::super::agreement::FENCE;
use super::*;

/// Four machines at work, of which so many may be lost.
fn story(survives: u16) -> Story {
    let policy = Policy { silence: Duration::from_secs(5), ..Policy::default() };
    let mut supervisor = Supervisor::new(4, policy);
    let now = Instant::now();
    for machine in 0..4 {
        supervisor.introduce(machine, 100 + u32::from(machine), None);
        supervisor.on_event(Event::Said { machine, message: ready(survives) }, now);
    }
    assert_eq!(supervisor.orders(), []);
    Story { supervisor, now }
}

fn ready(survives: u16) -> Message {
    Message::Ready { pid: 1, slots_bytes: 0, survives }
}

/// Splits orders into the losses that are reported, the machines that are killed, and those that are told something
/// else than the cause of a loss.
fn parts(orders: Vec<Order>) -> (Vec<String>, Vec<u16>, Vec<(u16, Message)>) {
    let (mut losses, mut killed, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for order in orders {
        match order {
            Order::Report { text, .. } => losses.push(text),
            Order::KillOne(machine) => killed.push(machine),
            Order::Tell { message: Message::Lost { .. }, .. } => {}
            Order::Tell { machine, message } => told.push((machine, message)),
            other => panic!("{other:?} ends the program"),
        }
    }
    (losses, killed, told)
}

fn to(machines: &[u16], message: &Message) -> Vec<(u16, Message)> {
    machines.iter().map(|machine| (*machine, message.clone())).collect()
}

#[test]
fn the_others_go_on_without_a_machine_that_was_killed() {
    let mut story = story(1);
    story.exits(2, 9);
    let orders = story.supervisor.orders();
    let reason = "machine 2 (pid 102) was killed by signal 9 (SIGKILL)".to_owned();
    for machine in [0, 1, 3] {
        let message = Message::Lost { machine: 2, reason: reason.clone() };
        assert!(orders.contains(&Order::Tell { machine, message }), "{machine}: {orders:?}");
    }
    let (losses, killed, told) = parts(orders);
    assert_eq!(losses, [format!("{reason}; the others go on without machine 2")]);
    assert_eq!((killed, told), (vec![], to(&[0, 1, 3], &Message::Fence { epoch: 1, dead: vec![2] })));
    [0, 1].into_iter().for_each(|machine| story.says(machine, Message::Fenced { epoch: 1 }));
    assert_eq!(story.supervisor.orders(), []);
    story.says(3, Message::Fenced { epoch: 1 });
    assert_eq!(parts(story.supervisor.orders()).2, to(&[0, 1, 3], &Message::Settled { epoch: 1 }));
    story.later(Duration::from_secs(60));
    story.says(0, Message::Finished { status: 3 });
    assert_eq!(story.supervisor.orders(), [Order::End("the program has finished".into())]);
    [0, 1, 3].into_iter().for_each(|machine| story.exits(machine, if machine == 0 { 3 << 8 } else { 0 }));
    story.ends(3, "");
}

#[test]
fn a_machine_that_stands_still_is_killed_and_settled_when_it_has_ended() {
    let mut story = story(1);
    story.supervisor.on_event(Event::Stood { machine: 2, signal: 19 }, story.now);
    let (losses, killed, _) = parts(story.supervisor.orders());
    assert!(losses[0].contains("stands still") && killed == [2], "{losses:?}");
    [0, 1, 3].into_iter().for_each(|machine| story.says(machine, Message::Fenced { epoch: 1 }));
    story.says(2, Message::Lost { machine: 0, reason: "reset".into() });
    assert_eq!(story.supervisor.orders(), [], "it may store still, and what it says does not count");
    story.exits(2, 9);
    assert_eq!(parts(story.supervisor.orders()).2, to(&[0, 1, 3], &Message::Settled { epoch: 1 }));
}

#[test]
fn reports_of_broken_pairs_wait_for_a_better_cause() {
    let mut explained = story(1);
    explained.lost(1, 3);
    explained.exits(3, 9);
    assert!(parts(explained.supervisor.orders()).0[0].contains("machine 3 (pid 103) was killed"));
    explained.later(Duration::from_secs(1));
    assert_eq!(parts(explained.supervisor.orders()).0, Vec::<String>::new(), "the report is explained");

    let mut unexplained = story(1);
    unexplained.lost(3, 1);
    unexplained.lost(0, 1);
    let wait = unexplained.supervisor.deadline().unwrap() - unexplained.now;
    unexplained.later(wait);
    let (losses, killed, _) = parts(unexplained.supervisor.orders());
    let loss = "machine 3 (pid 103) lost machine 1: connection reset; the others go on without machine 1";
    assert_eq!((losses, killed), (vec![loss.to_owned()], vec![1]));
}

#[test]
fn one_loss_too_many_ends_the_program_and_so_does_machine_0() {
    let mut story_of_two = story(1);
    story_of_two.exits(2, 9);
    let _ = story_of_two.supervisor.orders();
    story_of_two.exits(3, 11);
    assert!(matches!(&story_of_two.supervisor.orders()[..], [Order::End(why)] if why.contains("machine 3 (pid 103)")));
    [0, 1].into_iter().for_each(|machine| story_of_two.exits(machine, 0));
    story_of_two.ends(139, "machine 3 (pid 103) was killed by signal 11 (SIGSEGV); the program was ended");

    let mut first = story(3);
    first.exits(0, 9);
    assert!(matches!(&first.supervisor.orders()[..], [Order::End(_)]));
    (1..4).for_each(|machine| first.exits(machine, 0));
    first.ends(137, "machine 0 (pid 100) was killed by signal 9");
}

#[test]
fn a_machine_that_does_not_shut_out_the_lost_is_lost_too() {
    let mut story = story(2);
    story.exits(2, 9);
    [0, 1].into_iter().for_each(|machine| story.says(machine, Message::Fenced { epoch: 1 }));
    let _ = story.supervisor.orders();
    story.later(FENCE);
    let (losses, killed, told) = parts(story.supervisor.orders());
    assert!(losses[0].contains("machine 3 (pid 103) cannot be reached: it did not shut out lost"), "{losses:?}");
    assert_eq!((killed, told), (vec![3], to(&[0, 1], &Message::Fence { epoch: 2, dead: vec![2, 3] })));
    [0, 1].into_iter().for_each(|machine| story.says(machine, Message::Fenced { epoch: 2 }));
    assert_eq!(story.supervisor.orders(), []);
    story.later(Duration::from_secs(6)); // it cannot be killed, and its lease is over
    assert_eq!(parts(story.supervisor.orders()).2, to(&[0, 1], &Message::Settled { epoch: 2 }));
    story.says(0, Message::Finished { status: 0 });
    [0, 1].into_iter().for_each(|machine| story.exits(machine, 0));
    story.ends(0, "");
}

#[test]
fn nonsense_is_a_loss_of_its_sender() {
    let mut story = story(1);
    story.says(1, Message::Fenced { epoch: 1 });
    let (losses, killed, _) = parts(story.supervisor.orders());
    assert!(losses[0].contains("did not keep to the control protocol: Fenced { epoch: 1 }"), "{losses:?}");
    assert_eq!(killed, [1]);
}

#[test]
fn losses_before_all_are_ready_and_under_the_end_are_deaths() {
    let policy = Policy { silence: Duration::from_secs(5), ..Policy::default() };
    let mut early = strangers(policy);
    (0..2).for_each(|machine| early.says(machine, ready(1)));
    early.exits(1, 9);
    assert!(matches!(&early.supervisor.orders()[..], [Order::End(_)]));

    let mut interrupted = story(1);
    interrupted.supervisor.on_signal(Signal::INT, interrupted.now);
    interrupted.exits(2, 9);
    assert!(matches!(&interrupted.supervisor.orders()[..], [Order::Signal(_), Order::End(_)]));
}

#[test]
fn a_beat_is_answered_before_all_are_ready_too() {
    let mut early = strangers(Policy { silence: Duration::from_secs(5), ..Policy::default() });
    early.says(1, ready(1));
    early.says(1, Message::Beat { number: 1 });
    assert_eq!(parts(early.supervisor.orders()).2, to(&[1], &Message::Answer { beat: 1, has_begun: false }));
    [0, 2].into_iter().for_each(|machine| early.says(machine, ready(1)));
    early.says(1, Message::Beat { number: 2 });
    assert_eq!(parts(early.supervisor.orders()).2, to(&[1], &Message::Answer { beat: 2, has_begun: true }));
    early.says(0, Message::Beat { number: 0 });
    assert_eq!(early.supervisor.orders().len(), 1, "machine 0 sends what no machine sends: the end");
}

#[test]
fn machines_that_disagree_on_the_number_are_refused() {
    let mut differ = strangers(Policy { silence: Duration::from_secs(5), ..Policy::default() });
    differ.says(0, ready(1));
    differ.says(2, ready(2));
    assert!(matches!(&differ.supervisor.orders()[..], [Order::End(why)] if why.contains("another number of machines")));
}

#[test]
fn a_machine_that_dies_when_the_program_has_finished_is_a_loss_too() {
    let finished = || {
        let mut story = story(1);
        story.says(0, Message::Finished { status: 3 });
        assert_eq!(story.supervisor.orders(), [Order::End("the program has finished".into())]);
        story.exits(2, 9);
        let losses = parts(story.supervisor.orders()).0;
        assert!(losses[0].contains("machine 2 (pid 102) was killed by signal 9"), "{losses:?}");
        story
    };
    let mut one = finished();
    [(0, 3 << 8), (1, 0), (3, 0)].into_iter().for_each(|(machine, status)| one.exits(machine, status));
    one.ends(3, "");

    let mut two = finished();
    two.exits(3, 9);
    [(0, 3 << 8), (1, 0)].into_iter().for_each(|(machine, status)| two.exits(machine, status));
    two.ends(137, "machine 3 (pid 103) was killed by signal 9 (SIGKILL); the program was ended");
}

/// Its host is cut off, so that it never hears that it should end.
#[test]
fn a_machine_that_does_not_hear_of_the_end_is_a_loss_too() {
    let mut story = story(1);
    story.says(0, Message::Finished { status: 0 });
    [0, 1, 3].into_iter().for_each(|machine| story.exits(machine, 0));
    let _ = story.supervisor.orders();
    let wait = story.supervisor.deadline().unwrap() - story.now;
    story.later(wait);
    assert_eq!(parts(story.supervisor.orders()).1, [2]);
    story.ends(0, "");
}
