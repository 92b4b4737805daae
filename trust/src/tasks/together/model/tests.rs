//! Scenarios: calls, launches and ends of threads that can meet, two or three at a time.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::trustee::{Latch, Trustee};
use super::{Call, Fiber, Place, Rule, Step, World};
use crate::ids::TrusteeId;

type Calls = &'static [(usize, &'static [usize], How)];

/// Threads, calls and launches of one world.
#[derive(Clone, Copy)]
struct Scenario {
    /// Properties of each thread's trustee.
    threads: &'static [&'static [usize]],
    /// Calls: the thread, the properties, and the manner.
    calls: Calls,
    /// Launches: the thread, and the property.
    launches: &'static [(usize, usize)],
    ends: &'static [usize],
}

/// Manner of a call, and its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Waits,
    /// The call is sent by `together_then`, after which the thread drops its trusts.
    Then,
    Panics,
    ThenPanics,
}

impl Scenario {
    fn world(&self, rule: Rule) -> World {
        let thens = |property: usize| {
            let is_it = |(_, names, how): &&(usize, &[usize], How)| {
                matches!(how, How::Then | How::ThenPanics) && names.contains(&property)
            };
            self.calls.iter().filter(is_it).count() as i32
        };
        // A waiting caller has its trusts all the time.
        let waits = |property: usize| {
            let is_it = |(_, names, how): &&(usize, &[usize], How)| {
                matches!(how, How::Waits | How::Panics) && names.contains(&property)
            };
            self.calls.iter().any(|call| is_it(&call)) || self.launches.iter().any(|(_, on)| *on == property)
        };
        let trustees = self.threads.iter().zip(0..).map(|(properties, index)| Trustee {
            id: TrusteeId::new(0, index, 0),
            is_ended: false,
            latches: properties.iter().map(|&it| (it, Latch::new(thens(it) + i32::from(waits(it))))).collect(),
            spoiled: BTreeSet::new(),
            deferred: [].into(),
        });
        let of_thread = |(thread, properties): (usize, &&[usize])| {
            properties.iter().map(move |&property| (property, thread)).collect::<Vec<_>>()
        };
        let homes: BTreeMap<usize, usize> = self.threads.iter().enumerate().flat_map(of_thread).collect();
        let mut world = World {
            rule,
            trustees: trustees.collect(),
            values: homes.keys().map(|&property| (property, Place::Latch)).collect(),
            homes,
            calls: vec![],
            fibers: self.launches.iter().map(|&(of, property)| Fiber::New(of, property)).collect(),
            ends: self.ends.iter().copied().collect(),
            requests: BTreeMap::new(),
            responses: BTreeMap::new(),
            orphans: BTreeMap::new(),
            spoiled: BTreeSet::new(),
        };
        for &(of, names, how) in self.calls {
            let call = Call {
                of,
                is_then: matches!(how, How::Then | How::ThenPanics),
                panics: matches!(how, How::Panics | How::ThenPanics),
                order: world.order(names),
                taken: 0,
                gives_back: None,
                has_begun: false,
                outcome: None,
                is_told: false,
            };
            world.calls.push(call);
        }
        world
    }

    /// Tries all orders. Returns the number of different states.
    fn explore(&self, rule: Rule) -> usize {
        let hasher = RandomState::new();
        let mut seen = HashSet::new();
        let mut open = vec![(self.world(rule), Vec::new())];
        while let Some((world, trail)) = open.pop() {
            if !seen.insert(hasher.hash_one(&world)) {
                continue;
            }
            let told = Told(&trail);
            let steps = world.steps();
            if steps.is_empty() {
                world.check_end();
            }
            std::mem::forget(told);
            for step in steps {
                let (mut next, mut trail) = (world.clone(), trail.clone());
                trail.push(step);
                let told = Told(&trail);
                next.take(step);
                std::mem::forget(told);
                open.push((next, trail));
            }
        }
        seen.len()
    }

    fn holds(&self) {
        let states = self.explore(Rule::Sound);
        println!("{states} states");
        assert!(states > 30, "there is nothing to try: {states} states");
    }
}

/// Prints the events that led to a failure.
struct Told<'a>(&'a [Step]);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        println!("after {:?}", self.0);
    }
}

use How::{Panics, Then, ThenPanics, Waits};

/// Two calls that name the same two properties in both orders, from threads of their own.
const CROSSED: Scenario = Scenario {
    threads: &[&[1], &[2], &[], &[]],
    calls: &[(2, &[1, 2], Waits), (3, &[2, 1], Waits)],
    launches: &[],
    ends: &[],
};

#[test]
fn crossed_calls_do_not_wait_for_each_other() {
    CROSSED.holds();
}

#[test]
#[should_panic(expected = "waits for ever")]
fn crossed_calls_that_take_values_as_they_are_named_wait_for_ever() {
    let scenario = Scenario { threads: &[&[1], &[2]], calls: &[(0, &[1, 2], Then), (1, &[2, 1], Then)], ..CROSSED };
    scenario.explore(Rule::Unsorted);
}

/// Three calls in a ring over three trustees.
#[test]
fn calls_in_a_ring_do_not_wait_for_each_other() {
    let calls: Calls = &[(0, &[1, 2], Waits), (1, &[2, 3], Waits), (2, &[3, 1], Waits)];
    Scenario { threads: &[&[1], &[2], &[3]], calls, ..CROSSED }.holds();
}

/// Several values of one trustee, in both orders, together with a call for one of them from elsewhere.
#[test]
fn values_of_one_trustee_are_had_together() {
    let calls: Calls = &[(0, &[1, 2], Then), (1, &[2, 1], Waits), (1, &[1, 3], Waits)];
    Scenario { threads: &[&[1, 2], &[3]], calls, ..CROSSED }.holds();
}

/// Launched closures together with calls: each in turn.
const LAUNCHED: Scenario = Scenario {
    threads: &[&[1], &[2], &[]],
    calls: &[(2, &[2, 1], Waits), (1, &[1, 2], Waits)],
    launches: &[(2, 1), (0, 2)],
    ends: &[],
};

#[test]
fn calls_and_launches_are_served_in_turn() {
    LAUNCHED.holds();
}

#[test]
fn three_calls_and_a_launch_are_served_in_turn() {
    let calls: Calls = &[(2, &[1, 2], Waits), (2, &[1, 2], Waits), (2, &[1, 3], Waits)];
    Scenario { threads: &[&[1], &[2, 3], &[]], calls, launches: &[(1, 1)], ends: &[] }.holds();
}

#[test]
#[should_panic(expected = "have it before")]
fn a_fiber_that_overtakes_who_stands_in_line_is_found() {
    Scenario { launches: &[(2, 1), (0, 1)], ..LAUNCHED }.explore(Rule::Overtaking);
}

#[test]
#[should_panic(expected = "has not got")]
fn a_value_that_goes_back_with_the_first_share_is_found() {
    let calls: Calls = &[(2, &[1, 2], Waits), (2, &[1, 2], Waits)];
    Scenario { threads: &[&[1], &[2], &[]], calls, launches: &[(1, 2)], ends: &[] }.explore(Rule::ReturnedEarly);
}

/// The trusts that the calls were made with are dropped at once.
const DROPPED: Scenario = Scenario {
    threads: &[&[1], &[2], &[]],
    calls: &[(2, &[1, 2], Then), (0, &[2, 1], Then)],
    launches: &[],
    ends: &[],
};

#[test]
fn properties_live_while_a_call_is_under_way() {
    DROPPED.holds();
}

#[test]
#[should_panic(expected = "is freed")]
fn a_call_without_trusts_of_its_own_follows_what_is_freed() {
    DROPPED.explore(Rule::NoTrusts);
}

/// Panic together with calls that have shares of the same values, or wait for them.
const PANICKED: Scenario = Scenario {
    threads: &[&[1], &[2], &[]],
    calls: &[(2, &[1, 2], Panics), (2, &[1, 2], Waits), (1, &[2, 1], Waits)],
    launches: &[],
    ends: &[],
};

#[test]
fn nobody_sees_what_a_panic_has_left() {
    PANICKED.holds();
}

/// Value lent to two calls, one of which panics, that have nothing else in common.
const SHARED_WITH_A_PANIC: Scenario = Scenario {
    threads: &[&[1], &[2, 3], &[]],
    calls: &[(2, &[1, 2], Panics), (2, &[3, 1], Waits), (1, &[1, 3], Waits)],
    ..PANICKED
};

#[test]
fn nobody_sees_what_a_panic_has_left_of_a_shared_value() {
    SHARED_WITH_A_PANIC.holds();
}

#[test]
fn nobody_sees_what_a_panic_at_a_borrower_has_left() {
    let calls: Calls = &[(1, &[1, 2], Panics), (2, &[1, 2], Waits), (0, &[1, 2], Then)];
    Scenario { calls, ..PANICKED }.holds();
}

#[test]
#[should_panic(expected = "sees what a panic has left")]
fn a_panic_of_which_only_the_lenders_hear_is_found() {
    SHARED_WITH_A_PANIC.explore(Rule::Unspoiled);
}

/// A trustee on the way ends, in any state.
const ENDING: Scenario = Scenario {
    threads: &[&[1], &[2], &[]],
    calls: &[(2, &[1, 2], Waits), (1, &[2, 1], Waits)],
    launches: &[(2, 1)],
    ends: &[0],
};

#[test]
fn calls_are_told_when_a_lender_ends() {
    ENDING.holds();
}

/// A trustee ends that has lent its value to one trustee while a call for another one stands in line.
const IN_LINE_AT_ITS_END: Scenario = Scenario {
    threads: &[&[1], &[2], &[3]],
    calls: &[(1, &[1, 2], Panics), (1, &[3, 1], Waits), (2, &[1, 3], Waits)],
    launches: &[],
    ends: &[0],
};

#[test]
fn calls_in_line_are_told_when_a_lender_ends() {
    IN_LINE_AT_ITS_END.holds();
}

#[test]
fn calls_are_told_when_the_trustee_ends_at_which_they_run() {
    Scenario { calls: &[(2, &[1, 2], Waits), (0, &[2, 1], Waits)], ends: &[1], ..ENDING }.holds();
}

#[test]
fn calls_are_told_when_all_trustees_end() {
    Scenario { calls: &[(2, &[1, 2], Waits), (2, &[2, 1], Panics)], launches: &[(2, 2)], ends: &[0, 1], ..ENDING }
        .holds();
}

#[test]
fn calls_of_threads_that_end_are_dropped() {
    let calls: Calls = &[(2, &[1, 2], Then), (0, &[1, 2], ThenPanics)];
    Scenario { calls, launches: &[(1, 1)], ends: &[0, 2], ..ENDING }.holds();
}

/// Everything at once: calls that wait, that do not, that panic and that borrow, launches, and a lender that ends.
#[test]
fn all_that_can_meet_meets() {
    Scenario {
        threads: &[&[1], &[2], &[3]],
        calls: &[(2, &[3, 1], Waits), (1, &[2, 1], ThenPanics), (0, &[1, 3], Then)],
        launches: &[(2, 1)],
        ends: &[0],
    }
    .holds();
}

#[test]
#[should_panic(expected = "waits for ever")]
fn a_trustee_that_ends_without_a_word_is_found() {
    IN_LINE_AT_ITS_END.explore(Rule::Silent);
}
