//! A function pointer for C.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    extern "C" fn next(c: usize) -> usize {
        c + 1
    }
    let f: extern "C" fn(usize) -> usize = next;
    counter.apply(move |c| *c = f(*c));
}
