//! Only the argument of apply_with is serialised, not what the closure captures.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let list = vec![1, 2];
    counter.apply_with(move |c, n: usize| *c += n + list.len(), 1);
}
