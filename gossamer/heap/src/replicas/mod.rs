//! Replicas: what has left a machine is at its backup, too, and is there when the machine is lost
//! ([`with_copies`]). In the order of reading:
//!
//! 1. `head.rs`: the version and the steps of an object; `heads.rs`: where heads are; `switch.rs`: whether there
//!    are any
//! 2. `backups.rs`: whose backup a machine is; `window.rs`: where in its memory replicas lie
//! 3. `replica.rs`: one replica; `leaving.rs`: objects that leave
//! 4. `promoted.rs`: the objects of a lost machine; `refill.rs`: their second place
//!
//! Objects are written on the writer's own machine only: else they move, also from another machine of the host.
//!
//! Invariant [replica-is-named]: a whole replica of a name has the bytes of that name. For an object of that version
//! does not change ([idle-is-whole] of `head.rs`), versions rise ([version-grows] of `partition/mod.rs`), and heads are
//! not made of anything else ([check-unknown]).

#![allow(unsafe_code)]

mod backups;
mod head;
pub(crate) mod heads;
mod leaving;
pub(crate) mod promoted;
mod refill;
mod replica;
pub(crate) mod switch;
pub(crate) mod window;

use std::hint::black_box;

use gossamer::{Builder, link};

use crate::bases;
use crate::name::Name;
use heads::Busy;

/// Keeps the objects of each machine at another one, too, for programs that outlive the loss of machines
/// ([`Builder::survives`]): those with owners or handles on other machines stay when their machine is lost.
///
/// An object goes to the machine's *backup* (one of another host, if there is one) when its owner leaves the machine,
/// before the message with the owner; objects that stay cost nothing. So whoever got an owner can read and write the
/// object after the loss. A [`Mutex`](crate::Mutex) stays, too. With the machine go all the same: each
/// [`Atomic`](crate::Atomic) and [`raw`](crate::raw) memory there, objects that were lent for writing there, and those
/// of which a [`RefMut`](crate::RefMut) was forgotten. Machine 0 has no backup, for its loss ends the program.
///
/// Objects have 32 bytes more, or as many as their alignment if that is more; a write moves an object of another
/// machine also if that is on the same host. The backup has as much memory for replicas as half of its heap; what finds
/// no room there is reported once, and counted ([`Stats::unsaved`](crate::Stats::unsaved)).
///
/// ```
/// use gossamer_heap::{self as heap, Global};
///
/// fn gsm_main() {
///     let there = gossamer::rack().places().last().unwrap();
///     let number = gossamer::spawn_on(there, || Global::new(7u64)).join().unwrap();
///     assert_eq!(*number.read(), 7); // also if the machine has been lost meanwhile
/// }
///
/// heap::with_copies(gossamer::builder().survives(1)).main(gsm_main, 2);
/// ```
///
/// Source: an owner is the only way to an object (DRust, section 4.1), so that it is enough to copy what leaves; the
/// order of writes is that of FaRM (SOSP 2015).
pub fn with_copies(builder: Builder) -> Builder {
    if !switch::turn_on() {
        link::set_gate(link::Gate {
            look: leaving::look,
            is_open: leaving::is_open,
            forget: leaving::forget,
            turn: leaving::turn,
        });
        link::on_loss(backups::lose);
        link::on_worker_loss(lose);
    }
    builder
}

/// On each worker, when a machine is lost.
fn lose(_: u16) {
    if switch::has_heads() {
        leaving::lose();
    }
    refill::lose();
}

/// Returns the number of refills that are to come, or under way ([`Stats::refills`](crate::Stats::refills)).
pub(crate) fn refills() -> usize {
    if switch::are_on() { leaving::pending() + refill::pending() } else { 0 }
}

/// The objects that a value names, which leaves this machine where no gate looks, on their way to the backup.
#[derive(Debug, Default)]
pub(crate) struct Saves(Vec<u64>);

impl Saves {
    /// Notes the objects that this value names.
    pub(crate) fn look<T>(&mut self, value: &T) {
        if switch::has_heads() {
            let bytes = black_box((&raw const *value).cast::<u8>());
            // SAFETY: the value's bytes; those of padding are as they lie there, of which the compiler is not to know.
            let number = leaving::look(unsafe { std::slice::from_raw_parts(bytes, size_of::<T>()) });
            self.0.extend((number != 0).then_some(number));
        }
    }

    /// Waits until the backup has them.
    pub(crate) fn wait(&mut self) {
        while let Some(number) = self.0.pop() {
            while !leaving::is_open(number) && !trust::link::is_ending() {
                gossamer::sleep(leaving::AGAIN);
                leaving::turn();
            }
        }
    }
}

impl Drop for Saves {
    fn drop(&mut self) {
        self.0.iter().for_each(|number| leaving::forget(*number));
    }
}

/// An object that changes without a new version has no replica.
pub(crate) fn keep_none(name: Name) {
    if switch::has_heads()
        && let Some(object) = bases::mapped(name.at)
    {
        std::mem::forget(Busy::begin(object, name));
    }
}
