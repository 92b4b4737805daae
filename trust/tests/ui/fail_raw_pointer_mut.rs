//! A raw pointer to something mutable.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    struct Pointer(*mut u8);
    unsafe impl Send for Pointer {}
    let pointer = Pointer(std::ptr::null_mut());
    counter.apply(move |_| drop(pointer));
}
