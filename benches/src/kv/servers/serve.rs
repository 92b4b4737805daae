//! `kv-server`: the server of `kv` with the table that is asked for behind it, in this process, until it is killed.

use super::maps::{Item, ItemMap, Map, Shared, Text};
use crate::kv::record::Hashing;
use crate::kv::tables::kinds::Sharded;
use crate::prelude::*;
use dashmap::DashMap;
use gossamer::Place;
use gossamer_examples::kv::delegated::Delegated;
use gossamer_examples::kv::server::Server;
use gossamer_examples::kv::shard::Shard;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use trust::TrusteeReference;

/// Connections it takes.
const CONNECTIONS_MAX: usize = 4096;

/// The table behind the server.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Behind {
    /// That of `kv`: shards that are entrusted to the workers.
    Kv,
    /// The same, with the last workers for the table alone.
    KvDedicated,
    /// DashMap.
    Dashmap,
    /// papaya.
    Papaya,
    /// 512 shards, each under a parking_lot Mutex.
    Mutex,
    /// 512 shards, each under a parking_lot RwLock.
    Rwlock,
}

/// Options of `kv-server`.
#[derive(Clone, Copy, Debug, Args)]
pub struct KvServer {
    /// The table behind it.
    #[arg(long, value_enum)]
    pub table: Behind,
    /// Workers.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Keys it has room for from the start, where the table grows by itself.
    #[arg(long, default_value_t = 1000)]
    pub keys: usize,
    /// Memory for items, where the table has a limit.
    #[arg(long, default_value_t = 256)]
    pub memory_mib: usize,
}

pub fn command(options: KvServer) -> Result<()> {
    let (tell, told) = std::sync::mpsc::channel();
    // The channel outlives the program of the rack, which ends first.
    gossamer::main(move || drop(tell.send(serve(options))), options.threads);
    told.recv().context("the server ended without a word")?.context("it cannot listen")
}

fn serve(options: KvServer) -> io::Result<()> {
    let server =
        Server::listen(([127, 0, 0, 1], 0).into(), CONNECTIONS_MAX, options.threads, options.memory_mib << 20)?;
    println!("listens at {}", server.address()?);
    let workers: Vec<Place> = (0..options.threads).map(|worker| Place::of(0, worker as u16)).collect();
    match options.table {
        Behind::Kv => entrusted(&server, &workers, &workers, options.memory_mib),
        Behind::KvDedicated => {
            let (clients, trustees) = workers.split_at(options.threads - (options.threads / 2));
            entrusted(&server, clients, trustees, options.memory_mib);
        }
        Behind::Dashmap => shared::<DashMap<Text, Item, Hashing>>(&server, &workers, options.keys),
        Behind::Papaya => shared::<papaya::HashMap<Text, Item, Hashing>>(&server, &workers, options.keys),
        Behind::Mutex => shared::<Sharded<parking_lot::Mutex<ItemMap>>>(&server, &workers, options.keys),
        Behind::Rwlock => shared::<Sharded<parking_lot::RwLock<ItemMap>>>(&server, &workers, options.keys),
    }
    Ok(())
}

fn trustees(places: &[Place]) -> Vec<TrusteeReference> {
    places.iter().map(|place| place.trustee()).collect()
}

fn entrusted(server: &Arc<Server>, clients: &[Place], with_shards: &[Place], memory_mib: usize) {
    let (memory_bytes, sharers) = (memory_mib << 20, with_shards.len());
    let shard = |&place: &Place| gossamer::entrust_with(place, move || Shard::new(memory_bytes, sharers));
    let shards: Vec<_> = with_shards.iter().map(shard).collect();
    server.serve(&trustees(clients), move || Delegated::new(shards.clone(), 1));
}

fn shared<M: Map>(server: &Arc<Server>, workers: &[Place], keys: usize) {
    let (map, next) = (Arc::new(M::with_capacity(keys)), AtomicUsize::new(0));
    server.serve(&trustees(workers), move || Shared::new(Arc::clone(&map), next.fetch_add(1, Ordering::Relaxed)));
}
