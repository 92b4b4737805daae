//! A reference into the property.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let inside: &usize = counter.apply(|c| c);
    println!("{inside}");
}
