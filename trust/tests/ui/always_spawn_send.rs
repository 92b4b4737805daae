//! A fiber of another worker runs on another thread.
fn main() {
    let own = std::rc::Rc::new(0);
    trust::Threadpool::new(1).spawn(move || *own);
}
