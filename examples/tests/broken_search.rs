//! A worker that panics in the middle of a search ends it for all: nobody waits for a worker that is gone.

use std::sync::mpsc;
use std::time::Duration;

use gossamer_examples::sssp::search::search;
use gossamer_examples::sssp::team::Team;

const TIME_LIMIT: Duration = limits::HANG;

#[test]
fn a_panic_in_one_part_ends_the_search() {
    let (tell, told) = mpsc::channel();
    let search_in_vain = move || {
        let team = Team::new(10);
        // Over three workers with four vertices each, but for the last: it has 8 and 9, and panics at 11.
        let errors = [11, 11].map(|root| search(&team, root).map(|_| ()).unwrap_err().to_string());
        tell.send(errors).unwrap();
    };
    // `gossamer::main` does not return while a fiber waits.
    std::thread::spawn(move || gossamer::main(search_in_vain, 3));
    for error in told.recv_timeout(TIME_LIMIT).expect("it waits for a worker that is gone") {
        assert!(error.starts_with("a worker's part has panicked"), "{error}");
    }
}
