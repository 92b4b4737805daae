//! A boxed closure.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let boxed: Box<dyn Fn(usize) -> usize + Send> = Box::new(|c| c + 1);
    counter.apply(move |c| *c = boxed(*c));
}
