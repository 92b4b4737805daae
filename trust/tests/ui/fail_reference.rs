//! A closure that borrows what it uses.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let step = 3;
    counter.apply(|c| *c += step);
}
