//! An open file.
fn main() {
    let counter = trust::local_trustee().entrust(0usize);
    let file: std::os::fd::OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    counter.apply(move |_| drop(file));
}
