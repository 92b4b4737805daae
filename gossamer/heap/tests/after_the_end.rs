//! Objects that are kept beyond the end of the program's workers stay readable, for as long as the process lives.

use std::sync::OnceLock;

use gossamer_heap::{Global, Ref, Shared};

static SHARED: OnceLock<Shared<[u64; 64]>> = OnceLock::new();
static KEPT: OnceLock<&'static [u64; 64]> = OnceLock::new();

/// Reads, as it is dropped with the last worker, an object of another one.
struct Late(Shared<[u64; 64]>);

impl Drop for Late {
    fn drop(&mut self) {
        assert_eq!(*self.0.read(), [7; 64]);
    }
}

#[test]
fn objects_are_read_after_the_end() {
    gossamer::main(
        || {
            let shared = Shared::new([7u64; 64]);
            for worker in 0..4 {
                let late = Late(shared.clone());
                let there = gossamer::Place::of(0, worker).trustee();
                std::mem::forget(trust::spawn_on(&there, move || trust::local_trustee().entrust(late)).join().unwrap());
            }
            let leaked: &'static Shared<[u64; 64]> = Box::leak(Box::new(shared.clone()));
            let guard: &'static Ref<'static, [u64; 64]> = Box::leak(Box::new(leaked.read()));
            KEPT.set(&**guard).unwrap();
            assert!(SHARED.set(shared).is_ok());
            let _objects: Vec<_> = (0..100u64).map(|n| Global::new([n; 64])).collect();
        },
        4,
    );
    assert_eq!(**KEPT.get().unwrap(), [7; 64]);
    assert_eq!(*SHARED.get().unwrap().read(), [7; 64]);
    let refused = std::thread::spawn(|| Shared::from(Global::new(1u64))).join();
    assert!(refused.is_err(), "a plain thread has no part of the heap");
}
