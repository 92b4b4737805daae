//! A call within the process goes to another thread.
fn main() {
    let own = std::rc::Rc::new(0);
    let _ = trust::Threadpool::new(1).entrust(0).call().in_process().apply(move |_| *own);
}
