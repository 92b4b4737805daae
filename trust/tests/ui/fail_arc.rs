//! An atomically reference-counted value.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let shared = std::sync::Arc::new(3);
    counter.apply(move |c| *c += *shared);
}
