//! The heap while workers compute, and under load until the program ends.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gossamer::{Place, Transport};
use gossamer_heap::{self as heap, Global, Mutex, Shared};

/// Longer than anything here takes.
const LIMIT: Duration = limits::HANG;

/// End signal for computing workers: a file, for they use nothing of the library.
#[derive(Clone, Copy)]
struct Enough(u32);

impl Enough {
    fn new() -> Enough {
        let enough = Enough(std::process::id());
        let _ = std::fs::remove_file(enough.path());
        enough
    }

    fn path(self) -> PathBuf {
        std::env::temp_dir().join(format!("gossamer-heap-busy-{}", self.0))
    }

    fn tell(self) {
        std::fs::write(self.path(), "").unwrap();
    }

    /// Computes until the signal. False if none came.
    fn compute(self) -> bool {
        let start = Instant::now();
        while !self.path().exists() && start.elapsed() < LIMIT {
            std::hint::spin_loop();
        }
        self.path().exists()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.path());
    }
}

/// Removes the file on drop.
struct Ended(Enough);

fn at<R: gossamer::NoRef + Send + 'static>(
    place: Place,
    f: impl FnOnce() -> R + gossamer::NoRef + Send + 'static,
) -> R {
    gossamer::spawn_on(place, f).join().unwrap()
}

fn places() -> Vec<Place> {
    gossamer::rack().places().collect()
}

/// Objects of a machine with only computing workers are read, copied and moved by others.
pub fn busy_home() {
    for machine in 1..gossamer::rack().machines().len() as u16 {
        let home: Vec<Place> = places().into_iter().filter(|place| place.machine == machine).collect();
        let make = || heap::slice(100_000, |i| i as u64);
        let (small, large, mut moved) = (at(home[0], || Global::new(7u64)), at(home[0], make), at(home[0], make));
        let (enough, told) = (Enough::new(), Shared::new(7u64));
        let ended = Ended(enough);
        // Read first, so that no request follows once they compute.
        assert_eq!(*told.read(), 7);
        let computing: Vec<_> =
            home.into_iter().map(|place| gossamer::spawn_on(place, move || enough.compute())).collect();
        // The fibers go out with the first wait; later requests are not served before they have ended.
        gossamer::sleep(Duration::from_millis(20));
        assert_eq!(*small.read(), 7);
        assert_eq!(large.read()[99_999], 99_999);
        moved.write()[5] = 9;
        assert_eq!((moved.read()[5], moved.read()[6]), (9, 6));
        enough.tell();
        assert!(
            computing.into_iter().all(|fiber| fiber.join().unwrap()),
            "they were read while all workers there computed"
        );
        drop(ended);
    }
}

/// A worker that has asked for an object and then computes does not keep another one of its machine from reading it.
pub fn busy_asker() {
    let far = places().pop().unwrap();
    let [here, beside] = [Place::of(0, 0), Place::of(0, 1)];
    assert!(gossamer::here() == here || gossamer::here() == beside);
    let (asks, reads) = if gossamer::here() == here { (beside, here) } else { (here, beside) };
    for bytes in [8, 16 << 20] {
        let object = Shared::from(at(far, move || heap::slice(bytes, |i| i as u8)));
        let enough = Enough::new();
        let ended = Ended(enough);
        let other = object.clone();
        let asker = gossamer::spawn_on(asks, move || {
            other.prefetch();
            // The fetching fiber begins, and waits.
            gossamer::yield_now();
            enough.compute()
        });
        at(reads, move || {
            // In any state of the fetch: a copy is here, the asker would have to take one, or there is none.
            assert_eq!(object.read()[7], 7);
            enough.tell();
        });
        assert!(asker.join().unwrap(), "it was read while the one that asked for it computed");
        drop(ended);
    }
}

/// A small object arrives before a large one that the same worker asked for first.
pub fn small_behind_large() {
    let far = places().pop().unwrap();
    if matches!(gossamer::rack().machines()[usize::from(far.machine)].transport, Transport::Here | Transport::Shm) {
        return;
    }
    let (large, small) = at(far, || (Shared::from(heap::slice(256 << 20, |_| 1u8)), Global::new(7u64)));
    let asked = large.clone();
    let reads = gossamer::spawn_on(gossamer::here(), move || asked.read().len());
    gossamer::yield_now();
    assert_eq!(*small.read(), 7);
    assert!(large.try_read().is_none(), "the large one has not come yet");
    assert_eq!(reads.join().unwrap(), 256 << 20);
}

/// Objects are made, handed on, read, written and locked at all places, so that reads, moves and frees are always on
/// their way.
pub fn load() {
    super::ends::tell_machines();
    let table = Mutex::new([0u64; 100]);
    let fibers: Vec<_> = (0..places().len())
        .map(|index| {
            let table = table.clone();
            gossamer::spawn_on(places()[index], move || {
                let mut object = heap::slice(10_000, |i| i as u64);
                for round in 0usize.. {
                    let next = places()[(index + round) % places().len()];
                    object = at(next, move || {
                        let mut object = object;
                        assert_eq!(object.read()[9_999], 9_999);
                        object.write()[0] += 1;
                        object
                    });
                    table.lock().unwrap()[index % 100] += 1;
                    drop(heap::slice(100, |i| i));
                    if index == 0 && round == 3 {
                        println!("works");
                    }
                }
            })
        })
        .collect();
    for fiber in fibers {
        fiber.join().unwrap();
    }
}
