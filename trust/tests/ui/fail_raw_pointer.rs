//! A raw pointer, wrapped so that it may be sent.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    struct Pointer(*const u8);
    unsafe impl Send for Pointer {}
    let pointer = Pointer(std::ptr::null());
    counter.apply(move |_| drop(pointer));
}
