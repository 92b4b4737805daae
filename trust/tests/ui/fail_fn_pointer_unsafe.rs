//! An unsafe function pointer.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    unsafe fn next(c: usize) -> usize {
        c + 1
    }
    let f: unsafe fn(usize) -> usize = next;
    counter.apply(move |c| *c = unsafe { f(*c) });
}
