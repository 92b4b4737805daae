//! Guards borrow the owner, and stay where they are.

use gossamer_heap::{Global, Ref};

fn escapes() -> Ref<'static, u64> {
    let owner = Global::new(1u64);
    owner.read()
}

fn handed_over_while_lent() {
    let owner = Global::new(1u64);
    let guard = owner.read();
    gossamer::spawn(move || drop(owner));
    drop(guard);
}

fn written_while_read() {
    let mut owner = Global::new(1u64);
    let guard = owner.read();
    *owner.write() += 1;
    drop(guard);
}

fn main() {
    drop(escapes());
    handed_over_while_lent();
    written_while_read();
}
