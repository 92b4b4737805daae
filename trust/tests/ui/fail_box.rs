//! A box.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let boxed = Box::new(3);
    counter.apply(move |c| *c += *boxed);
}
