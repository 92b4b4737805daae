//! A closure of the builder is no exception.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let list = vec![counter.apply(|c| *c)];
    let _ = counter.call().apply(move |c| *c += list.len()).wait();
}
