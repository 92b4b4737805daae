//! Fibers that wait for each other in a circle, wherever they are: one of them gets an error, and the others continue.

use std::time::{Duration, Instant};

use gossamer::{Error, Latch, Place, Trust};

use super::ground::{Gate, JoinOutcome, effort, places, remote, text};

type Values = Trust<Latch<u64>>;

/// The error comes within a second in one process, within five on a rack, and later on a busy machine.
const TIME_LIMIT: Duration = limits::HANG;

/// Texts of the errors.
#[derive(Clone)]
struct Told(Trust<Vec<String>>);

impl Told {
    fn nobody() -> Told {
        Told(gossamer::entrust_on(gossamer::here(), Vec::new()))
    }

    /// Notes the outcome of a call, which either has its value or is the one with the error.
    fn note(&self, outcome: Result<u64, Error>) -> u64 {
        match outcome {
            Ok(value) => value,
            Err(Error::Deadlock { cycle }) => {
                self.0.apply_with(|told, cycle: String| told.push(cycle), cycle);
                0
            }
            Err(error) => panic!("neither a value nor a deadlock: {error}"),
        }
    }

    /// Checks that one call got the error, about fibers on these workers and no others.
    #[track_caller]
    fn one(&self, of: &[Place], since: Instant) {
        let told = self.0.apply_with(|told, ()| told.clone(), ());
        assert!(since.elapsed() < TIME_LIMIT, "{:?}", since.elapsed());
        assert_eq!(told.len(), 1, "{told:?}");
        let names = |place: &Place| {
            told[0].contains(&format!("of {place} waits for"))
                || told[0].contains(&format!("of {place}, which waits for"))
        };
        for place in places() {
            assert_eq!(names(&place), of.contains(&place), "{place}: {}", told[0]);
        }
        assert!(told[0].contains("the value of a `Latch<u64>`"), "{}", told[0]);
    }
}

/// Returns one worker of each machine, or all workers where there is but one machine.
fn apart() -> Vec<Place> {
    let mut apart = places();
    if gossamer::rack().machines().len() > 1 {
        apart.dedup_by_key(|place| place.machine);
    }
    apart
}

fn values(at: &[Place]) -> Vec<Values> {
    at.iter().map(|&place| gossamer::entrust_with(place, || Latch::new(1))).collect()
}

/// Each of these launches with its value on that of the next one, the last on that of the first, when all have theirs.
fn launch_in_a_ring(at: &[Place]) {
    let (told, gate) = (Told::nobody(), Gate::at(gossamer::here()));
    let (all, start) = (values(at), Instant::now());
    let fibers: Vec<_> = (0..all.len())
        .map(|index| {
            let (mine, next) = (all[index].clone(), all[(index + 1) % all.len()].clone());
            let (told, gate) = (told.clone(), gate.clone());
            let cross = move |mine: &mut u64| {
                gate.pass();
                *mine + told.note(next.call().launch(|next| *next).wait())
            };
            gossamer::spawn_on(at[(index + 1) % at.len()], move || mine.launch(cross))
        })
        .collect();
    gate.gather(all.len());
    gate.open();
    let mut got: Vec<u64> = fibers.into_iter().map(|fiber| fiber.join().or_its_panic()).collect();
    // The one with the error did not get the other value, and all others did.
    got.sort_unstable();
    assert!(got[0] == 1 && got[1..].iter().all(|&got| got == 2), "{got:?}");
    told.one(at, start);
    assert!(all.iter().all(|values| values.launch(|value| *value) == 1), "nothing is poisoned");
}

pub fn crossing_launches_are_told() {
    let apart = apart();
    if apart.len() > 1 {
        launch_in_a_ring(&[apart[0], apart[apart.len() - 1]]);
    }
}

pub fn a_ring_of_launches_over_all_machines_is_told() {
    let apart = apart();
    if apart.len() > 1 {
        launch_in_a_ring(&apart);
    }
}

/// One launch, inside it one on each other machine in turn, and in the last one again on the first.
pub fn a_launch_that_comes_round_by_other_machines_is_told() {
    fn on(round: Vec<Values>, told: Told) -> u64 {
        let next = round[0].clone();
        let travels = (round, told);
        let outcome = next
            .call()
            .with((travels.0, travels.1.0.clone()))
            .launch(|value, (mut round, told): (Vec<Values>, Trust<Vec<String>>)| {
                round.remove(0);
                *value + if round.is_empty() { 0 } else { on(round, Told(told)) }
            })
            .wait();
        travels.1.note(outcome)
    }
    let at = apart();
    let (told, start) = (Told::nobody(), Instant::now());
    let mut round = values(&at);
    round.push(round[0].clone());
    assert_eq!(on(round, told.clone()), at.len() as u64);
    told.one(&at, start);
}

/// A launched closure joins a fiber of another machine, which launches on the same value.
pub fn joins_in_a_circle_are_told() {
    let (told, start) = (Told::nobody(), Instant::now());
    let values = gossamer::entrust_with(gossamer::here(), || Latch::new(1u64));
    let (again, tell) = (values.clone(), told.clone());
    let there = remote();
    let outcome = values.launch(move |_| {
        let fiber = gossamer::spawn_on(there, move || tell.note(again.call().launch(|value| *value).wait()));
        // The one with the error may be the joiner.
        fiber.join().map_err(|payload| match payload.downcast_ref() {
            Some(Error::Deadlock { .. }) => true,
            _ => panic!("{}", text(&*payload)),
        })
    });
    match outcome {
        Ok(0) => told.one(&[gossamer::here(), there], start),
        outcome => assert_eq!(outcome, Err(true)),
    }
    assert!(start.elapsed() < TIME_LIMIT, "{:?}", start.elapsed());
}

/// Launches in launches on three values, all in one order, by so many that each waits long for its turn: no error
/// comes.
pub fn launches_in_one_order_are_no_deadlock() {
    let at: Vec<Place> = apart().into_iter().cycle().take(3).collect();
    let all: [Values; 3] = values(&at).try_into().unwrap();
    let (told, times) = (Told::nobody(), effort(10));
    let fibers: Vec<_> = places()
        .into_iter()
        .cycle()
        .take(6)
        .map(|place| {
            let (all, told) = (all.clone(), told.clone());
            gossamer::spawn_on(place, move || {
                (0..times).for_each(|_| {
                    let ([one, two, three], within, innermost) = (all.clone(), told.clone(), told.clone());
                    told.note(
                        one.call()
                            .launch(move |one| {
                                *one += 1;
                                let (more, three) = (innermost, three);
                                within.note(
                                    two.call()
                                        .launch(move |two| {
                                            *two += 1;
                                            gossamer::sleep(Duration::from_millis(15));
                                            more.note(
                                                three
                                                    .call()
                                                    .launch(|three| {
                                                        *three += 1;
                                                        *three
                                                    })
                                                    .wait(),
                                            )
                                        })
                                        .wait(),
                                )
                            })
                            .wait(),
                    );
                });
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().or_its_panic());
    assert_eq!(told.0.apply_with(|told, ()| told.clone(), ()), Vec::<String>::new());
    assert!(all.iter().all(|values| values.launch(|value| *value) == 1 + 6 * times));
}
