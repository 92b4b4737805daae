//! A struct that holds a box, in an array, in an option.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    struct Inner(Box<usize>);
    struct Outer(Option<[Inner; 1]>);
    let outer = Outer(Some([Inner(Box::new(1))]));
    counter.apply(move |c| *c += outer.0.iter().flatten().map(|inner| *inner.0).sum::<usize>());
}
