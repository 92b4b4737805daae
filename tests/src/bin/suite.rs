//! Runs the behavioural suite (`gossamer_tests::suite`) on the rack that it is started on: the behaviours whose names
//! contain one of its arguments, or all. With `--after NAME`, only those behind this one. With `--lose MACHINE AFTER
//! NAME`, the one of that name, while that machine is killed so many microseconds after its begin.

use std::time::Duration;

use gossamer_tests::suite;

/// Workers of all machines.
const WORKERS: usize = 6;

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if let [lose, machine, after, name] = &words[..]
        && lose == "--lose"
    {
        let machine = machine.parse().expect("a number of a machine");
        let after = Duration::from_micros(after.parse().expect("microseconds"));
        let name = name.clone();
        let main = move || assert!(suite::losses::run(&name, machine, after), "it does not hold");
        return gossamer::builder().survives(1).main(main, WORKERS);
    }
    let mut after = None;
    if words.first().is_some_and(|word| word == "--after") {
        after = words.get(1).cloned();
        words.drain(..words.len().min(2));
    }
    let suite = move || assert!(suite::run(&words, after.as_deref()), "not every behaviour holds");
    gossamer_region::main(suite, WORKERS);
}
