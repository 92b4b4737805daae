//! A result that holds a pointer.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let name = counter.apply(|c| format!("{c}"));
    println!("{name}");
}
