//! Stories of programs: events of their machines, and the messages about them.

use std::os::unix::process::ExitStatusExt;

use super::*;

mod losses;

struct Story {
    supervisor: Supervisor,
    now: Instant,
}

/// Three machines at work.
fn story() -> Story {
    let mut supervisor = Supervisor::new(3, Policy::default());
    let now = Instant::now();
    for machine in 0..3 {
        supervisor.introduce(machine, 100 + u32::from(machine), None);
        supervisor
            .on_event(Event::Said { machine, message: Message::Ready { pid: 1, slots_bytes: 0, survives: 0 } }, now);
    }
    Story { supervisor, now }
}

impl Story {
    fn says(&mut self, machine: u16, message: Message) {
        self.supervisor.on_event(Event::Said { machine, message }, self.now);
    }

    fn exits(&mut self, machine: u16, raw: i32) {
        self.supervisor.on_event(Event::Exited { machine, status: ExitStatus::from_raw(raw) }, self.now);
    }

    fn later(&mut self, by: Duration) {
        self.now += by;
        self.supervisor.on_time(self.now);
    }

    fn lost(&mut self, machine: u16, peer: u16) {
        self.says(machine, Message::Lost { machine: peer, reason: "connection reset".into() });
    }

    #[track_caller]
    fn ends(self, status: u8, words: &str) {
        assert!(self.supervisor.is_over());
        let outcome = self.supervisor.outcome();
        let message = outcome.message().unwrap_or_default();
        assert!(outcome.status() == status && message.contains(words), "{outcome:?}: {message}");
    }
}

#[test]
fn a_death_explains_the_loss_that_was_told_before_it() {
    let mut story = story();
    story.lost(1, 2);
    story.lost(0, 2);
    assert_eq!(story.supervisor.orders(), []);
    story.exits(1, 70 << 8); // it did not wait
    story.exits(2, 9);
    assert!(matches!(&story.supervisor.orders()[..], [Order::End(reason)] if reason.contains("machine 2 (pid 102)")));
    story.exits(0, 0);
    story.ends(137, "machine 2 (pid 102) was killed by signal 9");
}

#[test]
fn the_cause_that_a_host_knows_is_told() {
    let mut one = story();
    one.supervisor.explain(2, "out of memory".into());
    one.supervisor.explain(9, "there is no such machine".into());
    one.exits(2, 9);
    one.exits(1, 0);
    one.exits(0, 0);
    one.ends(137, "machine 2 (pid 102) was killed by signal 9 (SIGKILL), out of memory; the program was ended");
    // A program that never calls `gossamer::main`.
    let mut supervisor = Supervisor::new(1, Policy::default());
    supervisor.introduce(0, 100, None);
    supervisor.explain(0, "out of memory".into());
    let mut any = Story { supervisor, now: Instant::now() };
    any.exits(0, 137 << 8);
    any.ends(137, "machine 0 (pid 100) exited with status 137, out of memory");
}

#[test]
fn a_loss_that_nothing_explains_is_the_cause() {
    let mut story = story();
    story.supervisor.introduce(2, 102, Some("gamma".into()));
    story.lost(1, 2);
    story.lost(2, 1);
    let wait = story.supervisor.deadline().unwrap() - story.now;
    assert_eq!(wait, Bounds::default().after_loss);
    story.later(wait);
    assert!(matches!(&story.supervisor.orders()[..], [Order::End(_)]));
    (0..3).for_each(|machine| story.exits(machine, 0));
    story.ends(70, "machine 1 (pid 101) lost machine 2 on gamma: connection reset");
}

#[test]
fn who_stands_still_is_the_cause_of_being_lost() {
    let mut story = story();
    story.lost(0, 2);
    story.supervisor.on_event(Event::Stood { machine: 2, signal: 19 }, story.now);
    assert!(matches!(&story.supervisor.orders()[..], [Order::End(_)]));
    (0..2).for_each(|machine| story.exits(machine, 0));
    story.exits(2, 9);
    story.ends(70, "machine 2 (pid 102) stands still, stopped by signal 19 (SIGSTOP);");
}

#[test]
fn losses_count_when_nobody_is_left_to_explain_them() {
    let mut story = story();
    story.lost(1, 2);
    story.lost(2, 1);
    (1..3).for_each(|machine| story.exits(machine, 70 << 8));
    story.lost(0, 2);
    story.exits(0, 70 << 8);
    story.ends(70, "machine 1 (pid 101) lost machine 2");
}

#[test]
fn who_leaves_when_the_program_has_finished_is_not_missed() {
    let mut story = story();
    story.lost(1, 0); // machine 0's leaving was faster than its message
    story.says(0, Message::Finished { status: 3 });
    story.lost(2, 0);
    story.exits(0, 3 << 8);
    assert_eq!(story.supervisor.orders(), [Order::End("the program has finished".into())]);
    story.exits(1, 0);
    story.exits(2, 0);
    story.ends(3, "");
}

#[test]
fn who_stays_is_killed_and_given_up_in_the_end() {
    let mut story = story();
    story.supervisor.on_signal(Signal::INT, story.now);
    assert_eq!(story.supervisor.orders(), [Order::Signal(Signal::INT)]);
    story.later(Bounds::default().after_signal);
    assert_eq!(story.supervisor.orders(), [Order::Kill]);
    assert!(!story.supervisor.is_over());
    story.later(AFTER_KILL);
    story.ends(130, "SIGINT");
}

#[test]
fn output_that_cannot_be_written_ends_the_program_and_is_the_cause() {
    let failed = |error: i32| Unwritten {
        stream: super::super::outcome::Stream::Out,
        error: std::io::Error::from_raw_os_error(error),
    };
    let (no_space, broken_pipe) = (28, 32);
    let mut full = story();
    full.supervisor.on_unwritten(failed(no_space), full.now);
    assert!(matches!(&full.supervisor.orders()[..], [Order::End(reason)] if reason.contains("No space left")));
    full.exits(1, 101 << 8); // it saw a broken pipe
    full.later(Bounds::default().after_death);
    assert_eq!(full.supervisor.orders(), [Order::Kill]);
    [0, 2].into_iter().for_each(|machine| full.exits(machine, 9));
    let ended = full.supervisor.ended();
    assert_eq!(ended.status(), 70);
    assert!(matches!(&ended.messages()[..], [text] if text.contains("No space left")), "{ended:?}");

    let mut late = story();
    late.says(0, Message::Finished { status: 0 });
    late.supervisor.on_unwritten(failed(no_space), late.now);
    late.exits(1, 101 << 8);
    [0, 2].into_iter().for_each(|machine| late.exits(machine, 0));
    let ended = late.supervisor.ended();
    assert_eq!((ended.status(), ended.messages().len()), (70, 1), "{ended:?}");

    // The output's reader has gone: the machines decide themselves.
    for (exit, status, messages) in [(13, 141, 0), (101 << 8, 101, 1), (0, 141, 0)] {
        let mut closed = story();
        closed.supervisor.on_unwritten(failed(broken_pipe), closed.now);
        assert_eq!(closed.supervisor.orders(), []);
        if exit == 0 {
            closed.says(0, Message::Finished { status: 0 });
        }
        (0..3).for_each(|machine| closed.exits(machine, exit));
        let ended = closed.supervisor.ended();
        assert_eq!((ended.status(), ended.messages().len()), (status, messages), "{ended:?}");
    }
}

/// Three machines that have sent nothing.
fn strangers(policy: Policy) -> Story {
    let mut supervisor = Supervisor::new(3, policy);
    (0..3).for_each(|machine| supervisor.introduce(machine, 100 + u32::from(machine), None));
    Story { supervisor, now: Instant::now() }
}

#[test]
fn machines_that_never_join_run_to_their_own_ends() {
    let mut well = strangers(Policy::default());
    (0..3).for_each(|machine| well.exits(machine, 0));
    assert_eq!(well.supervisor.orders(), []);
    well.ends(0, "");

    let mut first_counts = strangers(Policy::default());
    for (machine, raw) in [(2, 0), (1, 3 << 8), (0, 11)] {
        first_counts.exits(machine, raw);
    }
    assert_eq!(
        (first_counts.supervisor.orders(), first_counts.supervisor.deadline()),
        (vec![], None),
        "nobody was ended"
    );
    first_counts.ends(3, "machine 1 (pid 101) exited with status 3");

    let mut killed = strangers(Policy::default());
    [9, 0, 0].into_iter().zip(0..).for_each(|(raw, machine)| killed.exits(machine, raw));
    killed.ends(137, "machine 0 (pid 100) was killed by signal 9");
}

#[test]
fn signals_to_machines_that_never_join_are_theirs() {
    let mut handled = strangers(Policy::default());
    handled.supervisor.on_signal(Signal::INT, handled.now);
    handled.exits(0, 0);
    let left = handled.supervisor.deadline().unwrap() - handled.now;
    assert_eq!(left, Bounds::default().after_signal, "the others keep their time");
    (1..3).for_each(|machine| handled.exits(machine, 0));
    handled.ends(0, "");
    let mut ended = strangers(Policy::default());
    ended.supervisor.on_signal(Signal::INT, ended.now);
    (0..3).for_each(|machine| ended.exits(machine, if machine == 1 { 0 } else { 2 }));
    ended.ends(130, "was ended by signal 2");
}

#[test]
fn who_left_without_joining_is_missed_by_those_that_join() {
    // Before and after the others have joined, with success and with failure.
    for (raw, status) in [(0, 70), (4 << 8, 4), (11, 139)] {
        for joins_first in [false, true] {
            let mut story = strangers(Policy::default());
            let join = |story: &mut Story| story.supervisor.on_join(1, story.now);
            if joins_first {
                join(&mut story);
            }
            story.exits(2, raw);
            if !joins_first {
                assert_eq!(story.supervisor.orders(), []);
                join(&mut story);
            }
            assert!(matches!(&story.supervisor.orders()[..], [Order::End(_)]), "nobody hangs");
            story.later(Bounds::default().after_death);
            assert_eq!(story.supervisor.orders(), [Order::Kill]);
            (0..2).for_each(|machine| story.exits(machine, 9));
            story.ends(status, "machine 2 (pid 102) ");
        }
    }
}

#[test]
fn who_has_to_join_and_does_not_has_died() {
    let mut story = strangers(Policy { must_join: true, ..Policy::default() });
    story.exits(1, 0);
    assert!(matches!(&story.supervisor.orders()[..], [Order::End(reason)] if reason.contains("--must-join")));
    [0, 2].into_iter().for_each(|machine| story.exits(machine, 0));
    story.ends(70, "machine 1 (pid 101) exited with status 0 before it had reached gossamer::main");
}

#[test]
fn limits_beyond_the_clock_do_not_pass() {
    let never = Duration::MAX;
    let bounds = Bounds { after_death: never, after_loss: never, after_signal: never, after_finish: never };
    let mut story = story();
    story.supervisor = Supervisor::new(3, Policy { time_limit: Some(never), ..Policy::default() });
    story.supervisor.bounds = bounds;
    story.lost(0, 1);
    story.supervisor.on_signal(Signal::INT, story.now);
    story.exits(2, 9);
    story.later(Duration::from_secs(3600));
    assert!(!story.supervisor.orders().contains(&Order::Kill));
}

#[test]
fn the_time_limit_ends_whatever_runs() {
    let limited = || strangers(Policy { time_limit: Some(Duration::from_secs(60)), ..Policy::default() });
    // As a signal does: first asked, then killed. The machines' statuses do not count.
    for (exits, orders) in [(Some(0), vec![]), (Some(15), vec![]), (None, vec![Order::Kill])] {
        let mut story = limited();
        story.later(Duration::from_secs(59));
        assert_eq!(story.supervisor.orders(), []);
        story.later(Duration::from_secs(2));
        assert_eq!(story.supervisor.orders(), [Order::Signal(Signal::TERM)]);
        (0..3).for_each(|machine| exits.into_iter().for_each(|exit| story.exits(machine, exit)));
        story.later(Bounds::default().after_signal);
        assert_eq!(story.supervisor.orders().into_iter().take(orders.len()).collect::<Vec<_>>(), orders);
        if exits.is_none() {
            (0..3).for_each(|machine| story.exits(machine, 9)); // it was killed
        }
        story.ends(124, "its time limit of 60s is over");
    }
    // A program that has ended, or is ending for another reason, has its own end.
    let mut interrupted = limited();
    interrupted.supervisor.on_signal(Signal::INT, interrupted.now);
    interrupted.later(Duration::from_secs(61));
    (0..3).for_each(|machine| interrupted.exits(machine, 9));
    interrupted.ends(130, "SIGINT");
    let mut over = limited();
    (0..3).for_each(|machine| over.exits(machine, 0));
    over.later(Duration::from_secs(61)); // its output is still being written
    over.ends(0, "");
    let mut died = limited();
    died.supervisor.on_join(0, died.now);
    died.exits(1, 9);
    died.later(Duration::from_secs(61));
    [0, 2].into_iter().for_each(|machine| died.exits(machine, 9));
    died.ends(137, "machine 1 ");
}

#[test]
fn a_host_is_named_where_there_is_one() {
    let mut story = story();
    story.supervisor.introduce(2, 7, Some("beta".into()));
    story.says(2, Message::Failed { reason: "no memory".into() });
    (0..3).for_each(|machine| story.exits(machine, 70 << 8));
    story.ends(70, "machine 2 (pid 7 on beta) failed: no memory");
}

#[test]
fn who_goes_without_leaving_has_died_and_who_was_told_to_end_may_go() {
    let mut lost = story();
    lost.supervisor.on_closed(2, lost.now);
    assert!(matches!(&lost.supervisor.orders()[..], [Order::End(why)] if why.contains("machine 2 (pid 102) has gone")));
    lost.supervisor.on_leave(1, lost.now);
    lost.supervisor.on_leave(0, lost.now);
    assert!(lost.supervisor.is_over());
    let ended = lost.supervisor.ended();
    assert!(matches!(&ended.outcome, Outcome::Died(Death { machine: 2, cause: Cause::Closed, .. })), "{ended:?}");
    assert_eq!(ended.status(), 70);

    let mut done = story();
    done.says(0, Message::Finished { status: 3 });
    done.supervisor.on_leave(1, done.now);
    done.supervisor.on_leave(0, done.now);
    assert!(!done.supervisor.is_over());
    done.supervisor.on_closed(2, done.now); // told to end, and gone
    assert!(done.supervisor.is_over());
    assert_eq!(done.supervisor.ended().status(), 3);
}

#[test]
fn silence_is_a_death_and_a_last_word_is_its_cause() {
    let mut silent = story();
    silent.supervisor.on_silence(1, Duration::from_secs(3), silent.now);
    let [Order::End(why)] = &silent.supervisor.orders()[..] else { panic!("not ended") };
    assert!(why.ends_with("machine 1 (pid 101) cannot be reached: nothing was heard of it for 3s"), "{why}");
    silent.supervisor.on_time(silent.now + Duration::from_millis(250));
    assert_eq!(silent.supervisor.orders(), [Order::Kill]);

    let mut failed = story();
    failed.says(1, Message::Failed { reason: "no memory".into() });
    failed.supervisor.on_closed(1, failed.now);
    assert!(failed.supervisor.ended().messages()[0].contains("machine 1 (pid 101) failed: no memory"));
}
