//! [`Team`]: the shards of all workers, and fibers at each of them.

use anyhow::anyhow;
use gossamer::{NoRef, Place, Trust};
use graph::{Ranges, Shard, Vertex};

/// Vertices that are asked about at once: far below the limit of a message.
const ASKED_AT_ONCE: usize = 1 << 16;

/// All shards, as a fiber of the first machine has them.
pub struct Team {
    /// Which shard has which vertices.
    pub ranges: Ranges,
    places: Vec<Place>,
    /// By number.
    pub shards: Vec<Trust<Shard>>,
    /// The same: a closure that goes to another machine may capture a trust, but no `Vec`.
    directory: Trust<Vec<Trust<Shard>>>,
}

/// The shards, as a fiber has them that works on one of them.
pub struct Member {
    /// The number of the shard that is on this worker.
    pub own: usize,
    /// By number.
    pub shards: Vec<Trust<Shard>>,
}

impl Team {
    /// A shard on each worker of the rack, without edges.
    pub fn new(vertices: u32) -> Team {
        let places: Vec<Place> = gossamer::rack().places().collect();
        let ranges = Ranges::new(vertices, places.len());
        let make = |(own, place): (usize, &Place)| gossamer::entrust_with(*place, move || Shard::new(ranges, own));
        let shards: Vec<Trust<Shard>> = places.iter().enumerate().map(make).collect();
        let directory = gossamer::entrust(shards.clone());
        Team { ranges, places, shards, directory }
    }

    /// Runs a fiber on each worker, and waits for all of them.
    ///
    /// # Errors
    /// If one of them panics.
    pub fn on_each<R, F>(&self, part: F) -> anyhow::Result<Vec<R>>
    where
        F: FnOnce(Member) -> R + NoRef + Clone + Send + 'static,
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

impl Member {
    /// The shard of this worker: requests to it are calls.
    pub fn own(&self) -> &Trust<Shard> {
        &self.shards[self.own]
    }

    /// Asks each other shard about those of its vertices that edges from here lead to.
    pub fn ask<T, F>(&self, question: F) -> Vec<(usize, Vec<T>)>
    where
        T: serde::Serialize + serde::de::DeserializeOwned + 'static,
        F: Fn(&mut Shard, Vec<Vertex>) -> Vec<T> + NoRef + Copy + Send + 'static,
    {
        let others = (0..self.shards.len()).filter(|owner| *owner != self.own);
        let ask_one = |owner: usize| {
            let wanted = self.own().apply_with(|shard, owner| shard.wanted(owner), owner);
            let pieces = wanted.chunks(ASKED_AT_ONCE);
            let answers = pieces.flat_map(|piece| self.shards[owner].apply_with(question, piece.to_vec()));
            (owner, answers.collect())
        };
        others.map(ask_one).collect()
    }
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> anyhow::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    anyhow!("a worker's part has panicked: {}", text.unwrap_or("with no message"))
}
