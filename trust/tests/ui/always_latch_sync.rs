//! A latch is for the fibers of one thread.
fn shared<T: Sync>(_: &T) {}
fn main() {
    shared(&trust::Latch::new(0));
}
