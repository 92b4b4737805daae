//! A launched closure is no exception.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let latch = trust::local_trustee().entrust(trust::Latch::new(0usize));
    let list = vec![counter.apply(|c| *c)];
    latch.launch(move |v| *v += list.len());
}
