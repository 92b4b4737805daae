//! Loom models of [bit-after-pages], commit against read: `cargo dev loom`.

use super::{AtomicU64, Ordering, clear, covers, set};
use loom::sync::Arc;
use loom::thread;

/// Units of the models: in two words.
const UNITS: std::ops::Range<usize> = 62..66;

/// Value of a unit without pages.
const HOLE: u64 = u64::MAX;

/// A share: its map, the key that a use needs, the value of a unit, and the flag of a message.
struct Model {
    map: [AtomicU64; 2],
    key: AtomicU64,
    data: AtomicU64,
    message: AtomicU64,
}

fn model() -> Arc<Model> {
    Arc::new(Model {
        map: [AtomicU64::new(0), AtomicU64::new(0)],
        key: AtomicU64::new(0),
        data: AtomicU64::new(HOLE),
        message: AtomicU64::new(0),
    })
}

impl Model {
    fn commit(&self) {
        self.key.store(1, Ordering::Relaxed);
        // Only the owner does this: units with pages keep them.
        if self.data.load(Ordering::Relaxed) == HOLE {
            self.data.store(0, Ordering::Relaxed);
        }
        set(&self.map, &UNITS);
    }

    fn release(&self) {
        clear(&self.map, &UNITS);
        self.data.store(HOLE, Ordering::Relaxed);
    }

    /// Reads a unit, if it is committed.
    fn read(&self) -> Option<u64> {
        covers(&self.map, &UNITS).then(|| {
            assert_eq!(self.key.load(Ordering::Relaxed), 1, "committed, and there is no key");
            self.data.load(Ordering::Relaxed)
        })
    }
}

#[test]
fn loom_share_what_is_committed_is_whole() {
    loom::model(|| {
        let model = model();
        let owner = Arc::clone(&model);
        let owner = thread::spawn(move || owner.commit());
        assert!(matches!(model.read(), None | Some(0)), "committed, and a hole");
        owner.join().unwrap();
        assert_eq!(model.read(), Some(0));
    });
}

/// [commit-before-message]: a peer that sees a message sent after the commit may use the range.
#[test]
fn loom_share_who_sees_a_message_may_use_the_range() {
    loom::model(|| {
        let model = model();
        let owner = Arc::clone(&model);
        let owner = thread::spawn(move || {
            owner.commit();
            // Release, pairs with the Acquire below: the flag of a message [flag-last].
            owner.message.store(1, Ordering::Release);
        });
        // Acquire, pairs with the Release above.
        if model.message.load(Ordering::Acquire) == 1 {
            assert_eq!(model.read(), Some(0), "the range is not there");
        }
        owner.join().unwrap();
    });
}

/// A read that races with a release may come late, and finds the old value or the hole. A reader that was
/// told of the release finds nothing.
#[test]
fn loom_share_who_was_told_of_a_release_finds_nothing() {
    loom::model(|| {
        let model = model();
        model.commit();
        model.data.store(7, Ordering::Relaxed);
        let owner = Arc::clone(&model);
        let owner = thread::spawn(move || {
            owner.release();
            // Release, pairs with the Acquire below: the flag of a message [flag-last].
            owner.message.store(1, Ordering::Release);
        });
        // Acquire, pairs with the Release above.
        if model.message.load(Ordering::Acquire) == 1 {
            assert_eq!(model.read(), None, "it was released before the message");
        } else {
            assert!(matches!(model.read(), None | Some(7 | HOLE)));
        }
        owner.join().unwrap();
        assert_eq!(model.read(), None);
    });
}

/// A range that is committed again reads as 0 to each reader that was notified: neither the old value nor the hole.
#[test]
fn loom_share_what_is_committed_again_is_zero() {
    loom::model(|| {
        let model = model();
        model.commit();
        model.data.store(7, Ordering::Relaxed);
        let owner = Arc::clone(&model);
        let owner = thread::spawn(move || {
            owner.release();
            owner.commit();
            // As above.
            owner.message.store(1, Ordering::Release);
        });
        // Acquire, pairs with the Release above.
        if model.message.load(Ordering::Acquire) == 1 {
            assert_eq!(model.read(), Some(0), "it was committed again before the message");
        } else {
            assert!(matches!(model.read(), None | Some(0 | 7 | HOLE)));
        }
        owner.join().unwrap();
        assert_eq!(model.read(), Some(0));
    });
}

/// Commits of neighbours, whose bits are in the same word, do not lose each other's bits.
#[test]
fn loom_share_commits_of_one_word_are_both_seen() {
    loom::model(|| {
        let model = model();
        let other = Arc::clone(&model);
        let other = thread::spawn(move || set(&other.map, &(64..65)));
        set(&model.map, &(65..66));
        other.join().unwrap();
        assert!(covers(&model.map, &(64..66)));
    });
}

/// The models can fail: a bit that is set without Release shows a unit without its key.
#[test]
#[should_panic(expected = "there is no key")]
fn loom_share_without_release_a_key_is_missed() {
    loom::model(|| {
        let model = model();
        let owner = Arc::clone(&model);
        let owner = thread::spawn(move || {
            owner.key.store(1, Ordering::Relaxed);
            owner.map[0].fetch_or(u64::MAX, Ordering::Relaxed);
            owner.map[1].fetch_or(u64::MAX, Ordering::Relaxed);
        });
        model.read();
        owner.join().unwrap();
    });
}
