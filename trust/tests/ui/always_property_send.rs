//! A property goes to its trustee's thread.
fn main() {
    trust::local_trustee().entrust(std::rc::Rc::new(0));
}
