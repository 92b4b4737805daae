//! Runs the behavioural suite (`gossamer_tests::suite`) on the rack that it is started on: the behaviours whose names
//! contain one of its arguments, or all. With `--after NAME`, only those behind this one.

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut after = None;
    if words.first().is_some_and(|word| word == "--after") {
        after = words.get(1).cloned();
        words.drain(..words.len().min(2));
    }
    let suite = move || assert!(gossamer_tests::suite::run(&words, after.as_deref()), "not every behaviour holds");
    gossamer_region::main(suite, 6);
}
