//! A result that is a reference.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let word: &'static str = counter.apply(|_| "word");
    println!("{word}");
}
