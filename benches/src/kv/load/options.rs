//! The load's options, of `kv` and `memcached` alike, and the load that they ask for. Not here: making it.

use super::{Load, Mix};
use crate::prelude::*;

/// Options of the load on a server.
#[derive(Clone, Debug, Args, Serialize)]
pub struct LoadOptions {
    /// Client threads.
    #[arg(long, default_value_t = 2)]
    pub client_threads: usize,
    /// Connections, spread over the client threads.
    #[arg(long, default_value_t = 16)]
    pub connections: usize,
    /// How long a run is counted, in milliseconds; it warms up for a quarter of it.
    #[arg(long, default_value_t = 1000)]
    pub load_millis: u64,
}

impl LoadOptions {
    /// Checks the options and, for a smoke test, makes the time short.
    pub fn prepare(&mut self, smoke: bool) -> Result<()> {
        let Self { client_threads, connections, .. } = *self;
        if smoke {
            self.load_millis = self.load_millis.min(50);
        }
        ensure!(self.load_millis > 0, "--load-millis 0: a run needs some time");
        ensure!(client_threads > 0, "--client-threads 0: at least one is needed");
        ensure!(
            connections >= client_threads,
            "--connections {connections} for --client-threads {client_threads}: each thread needs one"
        );
        Ok(())
    }

    /// The load on a table of so many keys: as fast as replies come, of reads alone.
    pub fn load(&self, keys: usize, dist: Dist, seed: u64) -> Load {
        Load {
            threads: self.client_threads,
            connections: self.connections,
            keys: keys as u32,
            mix: Mix::Writes(0),
            picks: Picks::new(dist, keys, self.client_threads, seed),
            warm_up: Duration::from_millis(self.load_millis / 4),
            measured: Duration::from_millis(self.load_millis),
            pace_hz: None,
            seed,
        }
    }
}
