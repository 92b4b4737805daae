//! Tasks: each ends once, with its result, on whichever machines its steps have run.

use std::time::Duration;

use gossamer::Trust;
use gossamer_heap::{self as heap, Global, Step, Task, link};

use crate::suite::ground::{JoinOutcome, Witness, effort, ended, text};

struct Sum {
    part: Global<[u64]>,
    at: usize,
    sum: u64,
    _witness: Witness,
}

const NUMBERS: usize = 1000;

/// A task that sums in steps, each on the next machine.
fn summing(n: u64, ends: &Trust<u64>) -> Task<u64> {
    let part = heap::slice(NUMBERS, |i| n * i as u64);
    let sum = Sum { part, at: 0, sum: 0, _witness: Witness(ends.clone()) };
    Task::new(sum, |s| {
        let rack = gossamer::rack();
        link::go_after_step((rack.machine() + 1) % rack.machines().len() as u16);
        let end = s.at + NUMBERS / 10;
        s.sum += s.part.read()[s.at..end].iter().sum::<u64>();
        s.at = end;
        match end {
            NUMBERS => Step::Done(s.sum),
            500 => Step::Sleep(Duration::from_micros(300)),
            _ => Step::Next,
        }
    })
}

/// Tasks that go around the rack, with an owner, and sleep, have their results; their states end once.
pub fn heap_tasks_go_around() {
    let ends = gossamer::entrust(0u64);
    let count = effort(50);
    let tasks: Vec<_> = (0..count).map(|n| summing(n, &ends)).collect();
    let sum: u64 = tasks.into_iter().map(|task| task.join().or_its_panic()).sum();
    assert_eq!(sum, count * (count - 1) / 2 * (NUMBERS * (NUMBERS - 1) / 2) as u64);
    ended(&ends, count);
}

/// The panic of a step reaches `join`, once, from wherever the task has come; so does that of the state's destructor.
pub fn heap_tasks_that_panic_tell_it() {
    let ends = gossamer::entrust(0u64);
    let count = effort(20);
    let panics = |n: u64| {
        Task::<()>::new((n, 0u64, Witness(ends.clone())), |(n, at, _)| {
            let rack = gossamer::rack();
            link::go_after_step((rack.machine() + 1) % rack.machines().len() as u16);
            *at += 1;
            assert!(*at < *n % 7, "task {n} at its step {at}");
            Step::Next
        })
    };
    let tasks: Vec<_> = (0..count).map(|n| (n, panics(n))).collect();
    for (n, task) in tasks {
        let panic = task.join().expect_err("it panics");
        assert_eq!(text(&*panic), format!("task {n} at its step {}", (n % 7).max(1)));
    }
    ended(&ends, count);

    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("a destructor");
        }
    }
    let panic = Task::new(Panics, |_| Step::Done(7)).join().expect_err("it panics");
    assert_eq!(text(&*panic), "a destructor");
}

/// Tasks are listed until they end, once each, wherever they are.
pub fn heap_tasks_are_listed() {
    let may_end = gossamer::entrust(false);
    let begin = |_| {
        Task::new((may_end.clone(), false), |(may_end, has_gone)| {
            if !std::mem::replace(has_gone, true) {
                link::go_after_step(gossamer::rack().machines().len() as u16 - 1);
                return Step::Next;
            }
            if may_end.apply(|may_end| *may_end) { Step::Done(()) } else { Step::Sleep(Duration::from_millis(1)) }
        })
    };
    let tasks: Vec<_> = (0..effort(40)).map(begin).collect();
    let last = gossamer::rack().machines().len() as u16 - 1;
    crate::suite::ground::until(|| {
        let listed = heap::tasks();
        let of = |task: &Task<()>| listed.iter().filter(|one| one.id == task.id()).collect::<Vec<_>>();
        // Here at once, if there is no other machine.
        let moves = u32::from(last > 0);
        tasks.iter().all(|task| matches!(of(task)[..], [one] if one.machine == last && one.moves == moves))
    });
    may_end.apply(|may_end| *may_end = true);
    let ids: Vec<_> = tasks.iter().map(Task::id).collect();
    tasks.into_iter().for_each(|task| task.join().or_its_panic());
    assert!(heap::tasks().iter().all(|one| !ids.contains(&one.id)), "they have ended");
}

/// A task that is not joined runs on.
pub fn heap_tasks_run_on_unjoined() {
    let ends = gossamer::entrust(0u64);
    (0..effort(20)).for_each(|n| drop(summing(n, &ends)));
    ended(&ends, effort(20));
}
