//! The launched program: in `gsm_main` it plays the role that its arguments name. A role checks its own results and
//! panics if one is wrong, so the program's status is the verdict; it prints the facts that only the test can check.
//!
//! Every role is written for any number of machines, one included: that is the promise that is tested.

mod arrays;
mod calls;
mod drops;
mod dumps;
mod durable_losses;
mod ends;
mod heap_copies;
mod heap_losses;
mod heap_room;
mod heaps;
mod lives;
mod losses;
mod placed;
mod tasks;
mod traced;
mod ways;
mod work;
mod writes;

use gossamer::{Place, Trust};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let role: fn() = match words[..] {
        ["calls"] => calls::calls,
        ["large"] => calls::large,
        ["launch"] => calls::launch,
        ["panics"] => calls::panics,
        ["trusts"] => lives::trusts,
        ["drops-computing"] => drops::computing,
        ["drops-computing-alone"] => drops::computing_alone,
        ["drops-linkless-alone"] => drops::linkless_alone,
        ["drops-waiting"] => drops::waiting,
        ["drops-linkless"] => drops::linkless,
        ["places"] => lives::places,
        ["spawn"] => work::spawn,
        ["everyone"] => work::everyone,
        ["load"] => work::load,
        ["traced", ..] => traced::traced,
        ["wait"] => ends::wait,
        ["wait-large"] => ends::wait_large,
        ["starter"] => lives::starter,
        ["reserved"] => dumps::reserved,
        ["reserved", "abort"] => dumps::abort,
        ["grandchild"] => lives::grandchild,
        ["starts-others", _] => lives::starts_others,
        ["array-misses"] => ends::array_misses,
        ["arrays-lost", ..] => arrays::lost,
        ["region-faults"] => ends::region_faults,
        ["region-stuck", _] => ends::region_stuck,
        ["region-after", _] => ends::region_after,
        ["starts-at-once", _, _] => ends::starts_at_once,
        ["heap-busy-home"] => heaps::busy_home,
        ["heap-busy-asker"] => heaps::busy_asker,
        ["heap-small-behind-large"] => heaps::small_behind_large,
        ["heap-load"] => heaps::load,
        ["heap-elsewhere"] => heap_room::elsewhere,
        ["heap-elsewhere-copies"] => heap_room::elsewhere_with_copies,
        ["heap-jobs"] => heap_losses::jobs,
        ["heap-outcomes"] => heap_losses::outcomes,
        ["heap-copies"] => heap_copies::outcomes,
        ["heap-idle-backup"] => heap_copies::idle_backup,
        ["heap-keep"] => heap_copies::keep_one,
        ["heap-keep-two"] => heap_copies::keep_two,
        ["heap-keep-until-write", _, _] => heap_copies::keep_until_write,
        ["heap-storm-copies"] => heap_losses::storm_with_copies,
        ["heap-puts"] => heap_copies::puts,
        ["heap-puts-until-write", _, _] => heap_copies::puts_until_write,
        ["heap-placed"] => placed::placed_by_load,
        ["tasks-spread"] => tasks::spread,
        ["tasks-follow"] => tasks::follow,
        ["tasks-lost"] => tasks::lost,
        ["tasks-wait"] => tasks::wait,
        ["tasks-storm"] => tasks::storm,
        ["tasks-copied"] => tasks::copied,
        ["heap-storm"] => heap_losses::storm,
        ["durable-losses"] => durable_losses::durable,
        ["loses-one"] => losses::lose_one,
        ["waits-after-loss"] => losses::wait_for_each_other,
        ["goes-on"] => losses::go_on,
        ["panic"] => ends::panic,
        ["abort"] => ends::abort,
        ["killed"] => ends::killed,
        ["power_off"] => ends::power_off,
        ["status", _] => ends::nothing,
        ["deep", _] => ends::deep,
        ["lines", _] => work::lines,
        ["waits-in-vain", _] => ends::waits_in_vain,
        ["leave-running"] => ends::leave_running,
        ["long-closures"] => work::long_closures,
        ["returns", _] => ends::nothing,
        ["pinned"] => work::pinned,
        ["stuck", ..] => work::stuck,
        ["slow-answers"] => work::slow_answers,
        ["direct-ways"] => ways::direct,
        _ => panic!("no such role: {words:?}"),
    };
    match words[..] {
        ["deep", "roomy"] => gossamer::builder().stack_bytes(4 << 20).main(role, 4),
        ["returns", "an error"] => gossamer::main(ends::returns_an_error, 4),
        ["returns", "a status"] => gossamer::main(ends::returns_a_status, 4),
        ["loses-one" | "waits-after-loss"] => gossamer::builder().survives(1).main(role, 4),
        [
            "heap-copies"
            | "heap-elsewhere-copies"
            | "heap-idle-backup"
            | "heap-keep"
            | "heap-keep-two"
            | "heap-puts"
            | "heap-storm-copies"
            | "tasks-copied",
        ]
        | ["heap-keep-until-write" | "heap-puts-until-write", _, _] => {
            gossamer_heap::with_copies(gossamer::builder()).main(role, 4);
        }
        ["direct-ways"] => gossamer::builder().machine_ways(true).direct_ways(1).main(role, 4),
        ["deep", "impossible"] => gossamer::builder().stack_bytes(1).main(role, 4),
        ["region-faults"] | ["region-stuck" | "region-after", _] | ["reserved", ..] => gossamer_region::main(role, 4),
        _ => gossamer::main(role, 4),
    }
    match words[..] {
        ["status", status] => std::process::exit(status.parse().expect("a status")),
        ["region-after", thread] => ends::touch_after(thread),
        _ => {}
    }
}

/// Returns the last place of the rack: on another machine if there is one.
fn remote() -> Place {
    gossamer::rack().places().last().expect("a rack has a worker")
}

/// Returns a number at each place.
fn counters() -> Vec<Trust<u64>> {
    gossamer::rack().places().map(|place| gossamer::entrust_on(place, 0)).collect()
}

/// Returns the text of a panic; the payload is a `&str` or a `String` depending on how it was made and whether it has
/// travelled.
fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).expect("a panic with a text")
}
