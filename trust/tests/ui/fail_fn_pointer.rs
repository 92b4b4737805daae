//! A function pointer.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let f: fn(usize) -> usize = |c| c + 1;
    counter.apply(move |c| *c = f(*c));
}
