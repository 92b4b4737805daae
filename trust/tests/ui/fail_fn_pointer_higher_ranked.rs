//! A function pointer for references of any lifetime (trap 11).
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let f: for<'a> fn(&'a u8) -> usize = |c| usize::from(*c);
    counter.apply(move |c| *c += f(&1));
}
