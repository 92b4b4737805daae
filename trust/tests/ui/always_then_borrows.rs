//! A callback outlives its caller's frame (trap 2).
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let mut seen = 0;
    counter.apply_then(|c| *c, |c| seen = c);
    println!("{seen}");
}
