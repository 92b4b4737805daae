//! Tasks of the heap that move between machines.

use std::hint::black_box;
use std::time::{Duration, Instant};

use gossamer::{Error, Place, Trust, rack};
use gossamer_heap::{self as heap, Global, Step, Task, link};

use crate::heap_losses::{kill, until};

/// Steps of a task, of about a millisecond each.
const STEPS: u64 = 100;

fn compute() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1) {
        black_box((0..1000u64).sum::<u64>());
    }
}

struct Counts {
    number: u64,
    at: u64,
    sum: u64,
    ends: Trust<u64>,
}

impl Drop for Counts {
    fn drop(&mut self) {
        self.ends.apply_then(|ended| *ended += 1, |()| {});
    }
}

/// 64 tasks that are all made on machine 0: some go to the other, and all have the right sum.
pub fn spread() {
    let mut moved = 0;
    let start = Instant::now();
    while moved == 0 {
        assert!(start.elapsed() < limits::HANG);
        moved = spread_once();
    }
    println!("all tasks, of which {moved} have ended elsewhere");
}

/// Returns the number that ended elsewhere.
fn spread_once() -> usize {
    let ends = gossamer::entrust(0u64);
    let tasks: Vec<_> = (0..64)
        .map(|number| {
            Task::new(Counts { number, at: 0, sum: 0, ends: ends.clone() }, |counts| {
                compute();
                counts.sum += counts.number * counts.at;
                counts.at += 1;
                if counts.at < STEPS { Step::Next } else { Step::Done((counts.sum, gossamer::here().machine)) }
            })
        })
        .collect();
    let ids: Vec<_> = tasks.iter().map(Task::id).collect();
    let mut listed = 0;
    for one in heap::tasks() {
        assert!(ids.contains(&one.id), "{one}");
        listed += 1;
    }
    assert!(listed > 0);
    let outcomes: Vec<(u64, u16)> = tasks.into_iter().map(|task| task.join().unwrap()).collect();
    let sum: u64 = outcomes.iter().map(|(sum, _)| sum).sum();
    assert_eq!(sum, (0..64).sum::<u64>() * (STEPS * (STEPS - 1) / 2));
    until(|| ends.apply(|ends| *ends) == 64);
    outcomes.iter().filter(|(_, machine)| *machine != 0).count()
}

/// Tasks go to two other machines and wait there; one of these is killed.
pub fn lost() {
    let victim = fastrand::u16(1..3);
    let may_end = gossamer::entrust(false);
    let begin = |number: u64| {
        Task::new((number, may_end.clone()), |(number, may_end)| {
            let goal = (*number % 3) as u16;
            if gossamer::here().machine != goal {
                link::go_after_step(goal);
                return Step::Next;
            }
            if may_end.apply(|may_end| *may_end) { Step::Done(*number) } else { Step::Sleep(Duration::from_millis(1)) }
        })
    };
    let tasks: Vec<_> = (0..30).map(|number| (number, begin(number))).collect();
    until(|| (0..3).all(|machine| heap::tasks().iter().filter(|one| one.machine == machine).count() == 10));
    kill(victim);
    let killed = Instant::now();
    let (gone, living): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|(number, _)| number % 3 == u64::from(victim));
    for (number, task) in gone {
        let payload = task.join().expect_err("it is lost");
        let error = payload.downcast_ref::<Error>();
        assert!(matches!(error, Some(Error::Lost { machine }) if *machine == victim), "{number}: {error:?}");
    }
    let took = killed.elapsed();
    assert!(took < limits::bound(Duration::from_secs(5)), "{took:?}");
    assert_eq!(heap::tasks().len(), 20);
    may_end.apply(|may_end| *may_end = true);
    for (number, task) in living {
        assert_eq!(task.join().unwrap(), number);
    }
    println!("lost ones after {took:?}, and all others");
}

/// Two tasks on each of three machines, which wait for ever.
pub fn wait() {
    let begin = |number: u16| {
        Task::new(number, |number| {
            let goal = *number % 3;
            if gossamer::here().machine == goal {
                return Step::<()>::Sleep(Duration::from_millis(1));
            }
            link::go_after_step(goal);
            Step::Next
        })
    };
    let tasks: Vec<_> = (0..6).map(begin).collect();
    println!("works");
    tasks.into_iter().for_each(|task| task.join().unwrap());
}

/// Tasks go from machine to machine all the time, while one is killed: each has its result or is lost with that one.
pub fn storm() {
    let victim = fastrand::u16(1..3);
    let begin = |number: u64| {
        Task::new((number, 0u64), |(number, steps)| {
            *steps += 1;
            link::go_after_step(fastrand::u16(..3));
            // So few that not all are on the way to that machine before its loss is known.
            if *steps < STEPS { Step::Sleep(Duration::from_millis(1)) } else { Step::Done(*number + *steps) }
        })
    };
    let tasks: Vec<_> = (0..64).map(|number| (number, begin(number))).collect();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(fastrand::u64(..150_000)));
        kill(victim);
    });
    let mut lost = 0;
    for (number, task) in tasks {
        match task.join() {
            Ok(value) => assert_eq!(value, number + STEPS),
            Err(payload) => {
                let error = payload.downcast_ref::<Error>();
                let is_loss = matches!(error, Some(Error::Lost { machine }) if *machine == victim);
                assert!(is_loss, "{number}: {}", gossamer::link::panic_text(&*payload));
                lost += 1;
            }
        }
    }
    until(|| rack().is_lost(victim));
    assert_eq!(heap::tasks(), []);
    println!("weathered: {lost} of 64 lost");
}

/// A task that reads much from the other machine goes there.
pub fn follow() {
    const OBJECTS: usize = 2000;
    const NUMBERS: usize = 8 << 10;
    let start = Instant::now();
    loop {
        let there = Place::of(1, 0);
        let make = || heap::slice(OBJECTS, |_| heap::slice(NUMBERS, |i| i as u64));
        let objects = gossamer::spawn_on(there, make).join().unwrap();
        let task = Task::new((objects, 0), |(objects, at)| {
            let numbers = &objects.read()[*at];
            assert_eq!(numbers.read()[NUMBERS - 1], NUMBERS as u64 - 1);
            *at += 1;
            if *at < OBJECTS { Step::Next } else { Step::Done(gossamer::here().machine) }
        });
        if task.join().unwrap() == 1 {
            break;
        }
        assert!(start.elapsed() < limits::HANG);
    }
    println!("followed");
}

/// With copies: an object that a task has made, and left behind, outlives the machine where it lies.
pub fn copied() {
    let (left, may_end) = (gossamer::entrust(false), gossamer::entrust(false));
    let object: Option<Global<u64>> = None;
    let task = Task::new((object, left.clone(), may_end.clone()), |(object, left, may_end)| {
        match (gossamer::here().machine, &object) {
            (1, None) => *object = Some(Global::new(7)),
            (1, Some(_)) => link::go_after_step(2),
            (2, Some(object)) => {
                left.apply(|left| *left = true);
                if may_end.apply(|may_end| *may_end) {
                    return Step::Done((object.place().machine, *object.read()));
                }
                return Step::Sleep(Duration::from_millis(1));
            }
            _ => link::go_after_step(1),
        }
        Step::Next
    });
    until(|| left.apply(|left| *left));
    kill(1);
    until(|| rack().is_lost(1));
    may_end.apply(|may_end| *may_end = true);
    let (machine, number) = task.join().unwrap();
    assert_eq!((machine != 1, number), (true, 7));
    println!("the object was there");
}
