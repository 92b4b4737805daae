//! A vector.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let list = vec![1, 2];
    counter.apply(move |c| *c += list.len());
}
