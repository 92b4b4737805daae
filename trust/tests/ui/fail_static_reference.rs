//! A reference that lives for ever is an address all the same.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let word: &'static str = "word";
    counter.apply(move |c| *c += word.len());
}
