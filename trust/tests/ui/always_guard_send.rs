//! The value of a latch stays on its thread while it is held, as does a fiber's handle's thread-bound result.
fn sent<T: Send>(_: T) {}
fn main() {
    let latch = trust::Latch::new(0);
    sent(latch.lock());
}
