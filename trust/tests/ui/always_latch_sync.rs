//! A latch is for the fibers of one thread (T6).
fn shared<T: Sync>(_: &T) {}
fn main() {
    shared(&trust::Latch::new(0));
}
