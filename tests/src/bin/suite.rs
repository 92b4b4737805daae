//! Runs the behavioural suite (`gossamer_tests::suite`) on whatever rack it is started: those behaviours whose names contain
//! one of its arguments, or all.

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let suite = move || assert!(gossamer_tests::suite::run(&words), "not every behaviour holds");
    gossamer_region::main(suite, 6);
}
