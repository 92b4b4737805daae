//! Guards stay on their thread.

use gossamer_heap::Global;

fn sent() {
    let owner: &'static Global<u64> = Box::leak(Box::new(Global::new(1u64)));
    let guard = owner.read();
    gossamer::spawn(move || println!("{}", *guard));
}

fn main() {
    sent();
}
