//! Names of trusts: [`publish`] gives a trust a name, and [`find`] returns it on any machine.
//!
//! Machine 0 keeps the names, in memory of its process; other machines ask a fiber of its first worker. A program ends
//! with machine 0, so names last as long as the program.
//!
//! Invariant: no trust is dropped under the lock.

use std::any::{Any, type_name};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trust::{NoRef, Trust};

use crate::rack::{Place, program};
use crate::{codec, spawn_with};

/// Most names that an error lists.
const LISTED: usize = 10;

/// The names, on machine 0.
static NAMES: Mutex<Names> = Mutex::new(Names { entries: BTreeMap::new(), count: 0 });

struct Names {
    entries: BTreeMap<String, Named>,
    /// Number of publications so far.
    count: u64,
}

/// Trust with a name.
struct Named {
    trust: Box<dyn Any + Send>,
    type_name: &'static str,
    place: Place,
    /// Number of its publication: the name may have been withdrawn and published again.
    number: u64,
}

fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A published name, from [`publish`]. Dropping it withdraws the name; [`keep`](Published::keep) leaves it until the
/// program ends. Trusts that were found stay valid either way.
#[must_use = "the name is withdrawn when this is dropped; `keep` leaves it until the program ends"]
#[derive(Debug)]
pub struct Published {
    name: String,
    number: u64,
}

impl Published {
    /// Leaves the name until the program ends.
    ///
    /// Example: at [`publish`].
    pub fn keep(self) {
        std::mem::forget(self);
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // Legal where nothing may wait.
        let bytes = codec::encode(&(&self.name, self.number));
        trust::link::post(FIRST.trustee(), withdraw, &bytes);
    }
}

/// The place where the names are.
const FIRST: Place = Place::of(0, 0);

/// Reason why a trust was not published or found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("a trust cannot be published under an empty name: give it one")]
    Empty,
    /// The name is another trust's.
    #[error(
        "the name `{name}` is that of a property of type `{type_name}` at {place}: choose another, or drop the \
         `Published` of that one first"
    )]
    Taken {
        /// The name.
        name: String,
        /// Type of the other trust's property.
        type_name: String,
        /// Its place.
        place: String,
    },
    /// Nothing has this name.
    #[error("nothing is published as `{name}`; {}", listed(known))]
    Unknown {
        /// The name.
        name: String,
        /// Names that there are, the first ten.
        known: Vec<String>,
    },
    /// The trust with this name is of another type.
    #[error("`{name}` is a property of type `{published}`, not `{asked}`: ask for a `Trust` of that type")]
    OtherType {
        /// The name.
        name: String,
        /// Type of the property that was asked for.
        asked: String,
        /// Type of the property that has the name.
        published: String,
    },
}

/// Returns the names that there are, as a message ends.
fn listed(known: &[String]) -> String {
    if known.is_empty() { "nothing else is either".to_owned() } else { format!("there is `{}`", known.join("`, `")) }
}

/// Gives a trust a name, by which [`find`] returns it on all machines, until the result is dropped. The name has a
/// trust of its own: the property lives at least as long.
///
/// Waits for an answer of machine 0's first worker.
///
/// ```
/// gossamer::main(
///     || {
///         let published = gossamer::publish("visits", &gossamer::entrust(0u64)).unwrap();
///         let fibers = gossamer::rack().places().map(|place| {
///             gossamer::spawn_on(place, || gossamer::find::<u64>("visits").unwrap().apply(|visits| *visits += 1))
///         });
///         let fibers: Vec<_> = fibers.collect();
///         fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
///         assert_eq!(gossamer::find::<u64>("visits").unwrap().apply(|visits| *visits), 2);
///         drop(published);
///         assert_eq!(gossamer::publish("", &gossamer::entrust(0)).unwrap_err(), gossamer::NameError::Empty);
///         gossamer::publish("visits", &gossamer::entrust("another".len())).unwrap().keep();
///     },
///     2,
/// );
/// ```
///
/// # Errors
/// [`NameError::Taken`], [`NameError::Empty`].
///
/// # Panics
/// Outside [`gossamer::main`](crate::main), and inside a delegated closure or a callback, where nothing may wait.
#[track_caller]
pub fn publish<T: 'static>(name: &str, trust: &Trust<T>) -> Result<Published, NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    let id = trust.trustee().id();
    let place = Place::of(id.machine(), id.index() as u16);
    let number = at_first_place("publish", enter::<T>, (name.to_owned(), trust.clone(), place))?;
    Ok(Published { name: name.to_owned(), number })
}

/// Returns the trust with this name, published on any machine of the program.
///
/// Waits for an answer of machine 0's first worker: keep the trust instead of asking for it again and again.
///
/// Example: at [`publish`].
///
/// # Errors
/// [`NameError::Unknown`], [`NameError::OtherType`].
///
/// # Panics
/// Same as [`publish`].
#[track_caller]
pub fn find<T: 'static>(name: &str) -> Result<Trust<T>, NameError> {
    at_first_place("find", look_up::<T>, name.to_owned())
}

/// Name, type and place of each published trust. On machine 0; empty on others.
pub(crate) fn published() -> Vec<(String, String, String)> {
    let row = |(name, named): (&String, &Named)| (name.clone(), named.type_name.to_owned(), named.place.to_string());
    names().entries.iter().map(row).collect()
}

/// Runs `f` on machine 0, in a fiber if that is another one.
#[track_caller]
fn at_first_place<A, R, F>(call: &str, f: F, argument: A) -> R
where
    F: FnOnce(A) -> R + NoRef + Send + 'static,
    A: Serialize + DeserializeOwned + Send + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    assert!(trust::may_wait(), "`{call}` waits, and nothing may wait inside a delegated closure or a callback");
    if program().rack.machine() == FIRST.machine {
        return f(argument);
    }
    spawn_with(FIRST, f, argument).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn enter<T: 'static>((name, trust, place): (String, Trust<T>, Place)) -> Result<u64, NameError> {
    let mut names = names();
    let number = names.count;
    match names.entries.entry(name) {
        Entry::Vacant(free) => {
            free.insert(Named { trust: Box::new(trust), type_name: type_name::<T>(), place, number });
            names.count += 1;
            Ok(number)
        }
        Entry::Occupied(taken) => {
            let (name, named) = (taken.key().clone(), taken.get());
            Err(NameError::Taken { name, type_name: named.type_name.to_owned(), place: named.place.to_string() })
        }
    }
}

fn look_up<T: 'static>(name: String) -> Result<Trust<T>, NameError> {
    let names = names();
    let Some(named) = names.entries.get(&name) else {
        return Err(NameError::Unknown { name, known: names.entries.keys().take(LISTED).cloned().collect() });
    };
    let trust = named.trust.downcast_ref::<Trust<T>>();
    trust.cloned().ok_or_else(|| NameError::OtherType {
        name,
        asked: type_name::<T>().to_owned(),
        published: named.type_name.to_owned(),
    })
}

/// Takes a name away, if it is still that of this publication.
fn withdraw(bytes: &[u8]) {
    let Ok((name, number)) = codec::decode::<(String, u64), { 1 << 20 }>(bytes) else { return };
    let named = match names().entries.entry(name) {
        Entry::Occupied(named) if named.get().number == number => Some(named.remove()),
        _ => None,
    };
    drop(named);
}
