//! A closure that captures a mutable reference.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let mut seen = 0;
    counter.apply(|c| seen = *c);
}
