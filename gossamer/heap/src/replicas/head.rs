//! The head of an object, in the memory before it, where the heap has replicas: its version, whether somebody writes
//! it, and how far its replica is.
//!
//! Invariants
//! - [idle-is-whole] An idle head says that nobody writes the object of this version; a writer stores a busy one before
//!   its first store to the object, and an idle one after its last.
//! - [check-unknown] No safe code knows the check of a head, nor reads one, so bytes of objects are no heads. The end
//!   of an object clears it.
//! - [safe-is-deep] The step `Safe` is reached when the replicas of all objects that this one names have landed, too.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of a head. An object begins at least so far behind the start of its room.
pub(crate) const HEAD_BYTES: usize = 32;

const IDLE: u64 = 1;
const STEP_SHIFT: u32 = 1;
const STEPS: u64 = 3 << STEP_SHIFT;
const EPOCH_SHIFT: u32 = 3;
const VERSION_SHIFT: u32 = 7;
/// Backups that a machine can have one after the other.
pub(super) const EPOCHS: u8 = 15;

/// How far the replica of an object is, of its version at the backup of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Step {
    /// Nobody has begun.
    Unsaved = 0,
    /// A worker writes it.
    Saving = 1,
    /// The backup has it.
    Landed = 2,
    /// The backup has it, and all that it names [safe-is-deep].
    Safe = 3,
}

/// See the file's documentation.
#[repr(C, align(16))]
pub(crate) struct Head {
    state: AtomicU64,
    bytes: AtomicU64,
    check: AtomicU64,
    unused: u64,
}

const _: () = assert!(size_of::<Head>() == HEAD_BYTES || cfg!(loom));

/// The words of the head of a whole replica.
pub(super) fn words(version: u64, bytes: usize, check: u64) -> [u64; 4] {
    [version << VERSION_SHIFT | IDLE, bytes as u64, check, 0]
}

fn state(version: u64, epoch: u8, step: Step) -> u64 {
    version << VERSION_SHIFT | u64::from(epoch) << EPOCH_SHIFT | (step as u64) << STEP_SHIFT | IDLE
}

impl Head {
    /// A new object, which is being written.
    pub(crate) fn make(&self, version: u64, bytes: usize, check: u64) {
        self.begin(version);
        self.bytes.store(bytes as u64, Ordering::Relaxed);
        self.check.store(check, Ordering::Relaxed);
    }

    /// A writer begins, under this version.
    #[inline]
    pub(crate) fn begin(&self, version: u64) {
        // Loom orders a plain store behind another thread's exchange only where that was seen.
        #[cfg(loom)]
        self.state.swap(version << VERSION_SHIFT, Ordering::Relaxed);
        #[cfg(not(loom))]
        self.state.store(version << VERSION_SHIFT, Ordering::Relaxed);
        // Release: with the Acquire in `is_still`, a copy with bytes of this write finds the head busy [idle-is-whole].
        fence(Ordering::Release);
    }

    /// The writer has ended.
    #[inline]
    pub(crate) fn end(&self) {
        // Relaxed: only its writer stores to a busy head.
        let busy = self.state.load(Ordering::Relaxed);
        // Release: with the Acquire in `step` and `claim`, who finds it idle sees what was written.
        self.state.store(busy | IDLE, Ordering::Release);
    }

    /// The object has ended [check-unknown].
    pub(crate) fn clear(&self) {
        self.state.store(0, Ordering::Relaxed);
        self.check.store(0, Ordering::Relaxed);
    }

    /// Returns the length of the object, if this is its head.
    pub(super) fn bytes_of(&self, check: u64) -> Option<usize> {
        let is_it = self.check.load(Ordering::Relaxed) == check;
        is_it.then(|| self.bytes.load(Ordering::Relaxed) as usize)
    }

    /// Returns how far the replica of this version is; nothing if the object is written, or has another version.
    pub(super) fn step(&self, version: u64, epoch: u8) -> Option<Step> {
        // Acquire: pairs with the Release in `end`, and with that in `advance`.
        let now = self.state.load(Ordering::Acquire);
        if now & IDLE == 0 || now >> VERSION_SHIFT != version {
            return None;
        }
        if now != state(version, epoch, Step::Unsaved) | now & STEPS {
            return Some(Step::Unsaved); // of an earlier backup
        }
        Some(match (now & STEPS) >> STEP_SHIFT {
            0 => Step::Unsaved,
            1 => Step::Saving,
            2 => Step::Landed,
            _ => Step::Safe,
        })
    }

    /// Takes it upon the caller to write the replica, if nobody has begun.
    pub(super) fn claim(&self, version: u64, epoch: u8) -> bool {
        // Relaxed, as `step` below and the exchange look again.
        let now = self.state.load(Ordering::Relaxed);
        let saving = state(version, epoch, Step::Saving);
        // Acquire: pairs with the Release in `end`.
        self.step(version, epoch) == Some(Step::Unsaved)
            && self.state.compare_exchange(now, saving, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes a step, if it is at the one before still.
    pub(super) fn advance(&self, version: u64, epoch: u8, from: Step, to: Step) -> bool {
        let (from, to) = (state(version, epoch, from), state(version, epoch, to));
        // Release: with the Acquire in `step`, who finds it has what the caller knows to be at the backup.
        self.state.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Returns whether bytes that were copied since `step` returned something are those of this version.
    pub(super) fn is_still(&self, version: u64) -> bool {
        // Acquire: pairs with the Release in `begin`.
        fence(Ordering::Acquire);
        let now = self.state.load(Ordering::Relaxed);
        now & IDLE != 0 && now >> VERSION_SHIFT == version
    }

    /// For models: a head outside of the heap.
    #[cfg(any(test, loom))]
    fn new() -> Head {
        let [state, bytes, check] = [(); 3].map(|()| AtomicU64::new(0));
        Head { state, bytes, check, unused: 0 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_replica_goes_through_its_steps_once_for_each_version_and_backup() {
        let head = Head::new();
        head.make(7, 24, 99);
        assert_eq!((head.bytes_of(99), head.bytes_of(98)), (Some(24), None));
        assert_eq!((head.step(7, 1), head.claim(7, 1)), (None, false), "it is being written");
        head.end();
        assert_eq!((head.step(7, 1), head.step(6, 1), head.claim(6, 1)), (Some(Step::Unsaved), None, false));
        assert!(head.claim(7, 1) && !head.claim(7, 1));
        assert!(!head.advance(7, 1, Step::Landed, Step::Safe));
        assert!(head.advance(7, 1, Step::Saving, Step::Landed) && head.advance(7, 1, Step::Landed, Step::Safe));
        assert_eq!((head.step(7, 1), head.step(7, 2)), (Some(Step::Safe), Some(Step::Unsaved)));
        assert!(head.claim(7, 2) && !head.advance(7, 1, Step::Saving, Step::Landed));
        assert!(head.is_still(7));
        head.begin(8);
        assert!(!head.is_still(7) && !head.is_still(8) && !head.advance(7, 2, Step::Saving, Step::Landed));
        head.end();
        assert_eq!((head.step(8, 2), head.is_still(8)), (Some(Step::Unsaved), true));
        head.clear();
        assert_eq!((head.bytes_of(99), head.step(8, 2)), (None, None));
    }
}

/// A scanner copies an object by a stale name while its owner writes it: the copy is whole, or not used.
#[cfg(loom)]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn loom_a_copy_amid_a_write_is_not_used() {
        loom::model(|| {
            let object = Arc::new((Head::new(), [AtomicU64::new(1), AtomicU64::new(1)]));
            object.0.make(1, 16, 9);
            object.0.end();
            let writer = {
                let object = Arc::clone(&object);
                thread::spawn(move || {
                    object.0.begin(2);
                    object.1.iter().for_each(|word| word.store(2, Ordering::Relaxed));
                    object.0.end();
                })
            };
            for version in [1, 2] {
                if object.0.claim(version, 1) {
                    let copy = [0, 1].map(|at| object.1[at].load(Ordering::Relaxed));
                    if object.0.is_still(version) {
                        assert_eq!(copy, [version; 2]);
                    }
                }
            }
            writer.join().unwrap();
        });
    }
}
