//! Types that the heap can hold: values with the same meaning on every machine, which do not change while they are only
//! read.

use gossamer::{Frozen, NoRef};

/// A type that the heap of a rack can hold: it may be copied, byte by byte, to any machine, and each copy is as good as
/// the original for as long as nobody writes.
///
/// Implemented for all that is [`NoRef`] (no references or pointers), [`Frozen`] (no cells, atomics or locks), `Send`,
/// `Sync` and `'static`. So numbers, arrays, plain structs and enums, trusts, places, and the owners of this crate may
/// be in it, also inside each other. Not so: types with pointers of one process (`Vec`, `String`, `Box`, `Rc`, `fn`),
/// and types that change behind a `&` (`Cell`, `AtomicU64`, `std::sync::Mutex`).
///
/// ```
/// use gossamer_heap::{Global, Mutex, Portable, Shared};
/// struct Node { value: u64, next: Option<Global<Node>> }
/// fn takes<T: Portable + ?Sized>() {}
/// takes::<Node>();
/// takes::<Shared<[Mutex<u64>; 8]>>();
/// takes::<Global<str>>();
/// takes::<[u8]>();
/// ```
///
/// ```compile_fail
/// fn takes<T: gossamer_heap::Portable>() {}
/// takes::<Vec<u8>>(); // a `Global<[u8]>` in its place
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be in the heap: its bytes would mean nothing on another machine, or could change while \
               they are read there",
    label = "not `Portable`",
    note = "in the place of `Vec<T>` and `Box<T>`: `Global<[T]>`, `Global<T>`; of `String`: `Global<str>`; of \
            `Arc<T>`: `gossamer_heap::Shared<T>`; of a lock or an atomic: `gossamer_heap::Mutex<T>`, \
            `gossamer_heap::Atomic`, or a `Trust<T>`",
    note = "in generic code, require it: `T: gossamer_heap::Portable`"
)]
pub trait Portable: NoRef + Frozen + Send + Sync + 'static {}

impl<T: NoRef + Frozen + Send + Sync + 'static + ?Sized> Portable for T {}
