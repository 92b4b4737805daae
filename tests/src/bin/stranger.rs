//! A program other than `test-roles`: the two must not become machines of one program. With an argument it is no
//! program for a rack at all, but one that uses `trust` alone.

fn main() {
    if std::env::args().len() > 1 {
        return println!("by itself: {}", trust::local_trustee().entrust(1).apply(|one| *one));
    }
    gossamer::main(|| println!("the stranger runs"), 2);
}
