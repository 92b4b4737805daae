//! A lent owner stays in its scope, and cannot be used meanwhile.

use gossamer_heap::{Global, Lent, scope};

fn escapes_with_the_scope() {
    let owner = Global::new(1u64);
    let lent = scope(|s| s.lend(&owner));
    drop(lent);
}

fn escapes_as_a_result() {
    let owner = Global::new(1u64);
    scope(|s| {
        let lent = s.lend(&owner);
        let _: Lent<'static, u64> = s.spawn_on(gossamer::here(), move || lent).join().unwrap();
    });
}

fn escapes_in_a_fiber() {
    let owner = Global::new(1u64);
    scope(|s| {
        let lent = s.lend(&owner);
        gossamer::spawn_on(gossamer::here(), move || *lent.read());
    });
}

fn written_while_lent() {
    let mut owner = Global::new(1u64);
    scope(|s| {
        let lent = s.lend(&owner);
        s.spawn_on(gossamer::here(), move || *lent.read());
        *owner.write() += 1;
    });
}

fn lent_twice_for_writing() {
    let mut owner = Global::new(1u64);
    scope(|s| {
        let (one, two) = (s.lend_mut(&mut owner), s.lend_mut(&mut owner));
        drop((one, two));
    });
}

fn shorter_than_the_scope() {
    scope(|s| {
        let owner = Global::new(1u64);
        let lent = s.lend(&owner);
        s.spawn_on(gossamer::here(), move || *lent.read());
    });
}

fn references() {
    let number = 1;
    scope(|s| {
        s.spawn_on(gossamer::here(), || number + 1);
    });
}

fn main() {
    escapes_with_the_scope();
    escapes_as_a_result();
    escapes_in_a_fiber();
    written_while_lent();
    lent_twice_for_writing();
    shorter_than_the_scope();
    references();
}
