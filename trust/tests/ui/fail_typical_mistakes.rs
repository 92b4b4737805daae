//! Mistakes of newcomers: the compiler names each one, with its cure, in the first lines of its message
//! (`compile_fail.rs` looks for both).
use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use trust::{Threadpool, Trust};

fn text(names: &Trust<Vec<String>>, name: String) {
    names.apply(move |names| names.push(name));
}

fn list(sum: &Trust<u64>, numbers: Vec<u64>) {
    sum.apply(move |sum| *sum += numbers.iter().sum::<u64>());
}

fn returned_table(table: &Trust<HashMap<u32, u32>>) -> HashMap<u32, u32> {
    table.apply(|table| table.clone())
}

fn shared(counter: &Trust<u64>, total: Arc<Mutex<u64>>) {
    counter.apply(move |counter| *total.lock().unwrap() += *counter);
}

fn chosen_at_run_time(counter: &Trust<u64>, step: Box<dyn Fn(u64) -> u64 + Send>) {
    counter.apply(move |counter| *counter = step(*counter));
}

fn failing(file: &Trust<std::fs::File>) -> std::io::Result<()> {
    file.apply(|file| file.sync_all())
}

fn borrowed(counter: &Trust<u64>, step: u64) {
    counter.apply(|counter| *counter += step);
}

fn answered_by_channel(counter: &Trust<u64>, answer: mpsc::Sender<u64>) {
    counter.apply(move |counter| answer.send(*counter).unwrap());
}

fn generic<T: Copy + Send + 'static>(place: &Trust<Option<T>>, value: T) {
    place.apply(move |place| *place = Some(value));
}

fn without_latch(pool: &Threadpool) {
    pool.entrust(0).launch(|counter| *counter += 1);
}

fn main() {}
