//! [`Team`]: a property on each worker of the rack, and fibers at each of them.

use anyhow::anyhow;
use gossamer::{NoRef, Place, Trust};

/// All properties, as a fiber of the first machine has them.
pub struct Team<S> {
    places: Vec<Place>,
    /// Shards by number.
    pub shards: Vec<Trust<S>>,
    /// The same: a closure that goes to another machine may capture a trust, but no `Vec`.
    directory: Trust<Vec<Trust<S>>>,
}

/// The properties, as a fiber has them that works on one of them.
pub struct Member<S> {
    /// The number of the one that is on this worker.
    pub own: usize,
    /// Shards by number.
    pub shards: Vec<Trust<S>>,
}

impl<S: 'static> Team<S> {
    /// One on each worker of the rack; `make` gets its number and is called there.
    pub fn new(make: impl Fn(usize, Place) -> S + NoRef + Clone + Send + 'static) -> Team<S> {
        let places: Vec<Place> = gossamer::rack().places().collect();
        let make_one = |(own, &place): (usize, &Place)| {
            let make = make.clone();
            gossamer::entrust_with(place, move || make(own, place))
        };
        let shards: Vec<Trust<S>> = places.iter().enumerate().map(make_one).collect();
        let directory = gossamer::entrust(shards.clone());
        Team { places, shards, directory }
    }

    /// Runs a fiber on each worker, and waits for all of them.
    ///
    /// # Errors
    /// If one of them panics.
    pub fn on_each<R, F>(&self, part: F) -> anyhow::Result<Vec<R>>
    where
        F: FnOnce(Member<S>) -> R + NoRef + Clone + Send + 'static,
        R: NoRef + Send + 'static,
    {
        let start = |(own, place): (usize, &Place)| {
            let (directory, part) = (self.directory.clone(), part.clone());
            gossamer::spawn_on(*place, move || {
                let shards = directory.apply_with(|shards, ()| shards.clone(), ());
                part(Member { own, shards })
            })
        };
        let fibers: Vec<_> = self.places.iter().enumerate().map(start).collect();
        // All of them, also where one has panicked: nobody is left at work.
        let ended: Vec<_> = fibers.into_iter().map(|fiber| fiber.join()).collect();
        ended.into_iter().map(|ended| ended.map_err(panicked)).collect()
    }
}

impl<S> Member<S> {
    /// The property of this worker: requests to it are calls.
    pub fn own(&self) -> &Trust<S> {
        &self.shards[self.own]
    }
}

/// The panic of a fiber.
pub(crate) fn panicked(panic: Box<dyn std::any::Any + Send>) -> anyhow::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    anyhow!("a worker's part has panicked: {}", text.unwrap_or("with no message"))
}
