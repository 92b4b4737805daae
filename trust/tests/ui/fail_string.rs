//! A string.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let name = String::from("name");
    counter.apply_then(move |c| *c += name.len(), |()| ());
}
