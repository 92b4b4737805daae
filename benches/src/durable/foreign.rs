//! Contenders that are programs in C over a library of the system, made with `cc` where its header is:
//!
//! - RocksDB by its C API (`rocksdb/map.c`). Its writers are threads: those that wait at the same time get one sync, so
//!   it runs with several numbers of them.
//! - libpmemobj of PMDK (`pmemobj/map.c`), which has transactions with an undo log on memory that is the file. On a
//!   disk it syncs each range of its log with `msync`; on tmpfs it is told to take the file for persistent memory,
//!   where it flushes caches instead, as the papers measured it.

use super::puts::{Contender, KEYS, Ran, Work};
use super::{PMEM, ROCKS};
use crate::prelude::*;
use crate::programs::cc;

/// A program, which so many puts at a time are asked of.
pub struct Foreign {
    name: String,
    program: Program,
    pub outstanding: u64,
    /// Threads and puts a commit, of RocksDB.
    writers: String,
}

/// Its report of its puts: of each client, or of all.
#[derive(Deserialize)]
struct Puts {
    #[serde(default)]
    puts: Vec<u64>,
    ops: Option<u64>,
    seconds: f64,
}

/// Rates of libpmemobj on tmpfs, in each second.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct InMemory {
    pub inserts: f64,
    pub reads: f64,
}

fn made(header: &str, source: &str, libraries: &[&str], package: &str) -> Result<Found<Program>> {
    if !Path::new(header).exists() {
        return Ok(Err(format!("there is no {header} (on Debian: apt-get install {package})")));
    }
    Ok(cc(source, &source.replace(['/', '.'], "-"), libraries)?.map(Program::at))
}

/// RocksDB's program, which takes far longer to build than all else here; or why it cannot be had here.
pub fn rocks() -> Result<Found<Program>> {
    made("/usr/include/rocksdb/c.h", "rocksdb/map.c", &["-lrocksdb", "-lpthread"], "librocksdb-dev")
}

impl Foreign {
    /// RocksDB with so many threads, or puts a commit by one.
    pub fn of_rocks(program: &Program, threads: u64, batch: u64) -> Foreign {
        let name = match (threads, batch) {
            (1, 1) => ROCKS.to_owned(),
            (1, _) => format!("{ROCKS}-{batch}"),
            _ => format!("{ROCKS}-{threads}-threads"),
        };
        let writers = format!("{threads} {batch}");
        Foreign { name, program: program.clone(), outstanding: threads * batch, writers }
    }

    /// libpmemobj, or why it cannot be had here.
    pub fn pmem() -> Result<Found<Foreign>> {
        let program = made("/usr/include/libpmemobj.h", "pmemobj/map.c", &["-lpmemobj"], "libpmemobj-dev")?;
        Ok(program.map(|program| Foreign { name: PMEM.to_owned(), program, outstanding: 1, writers: String::new() }))
    }

    /// Inserts of scattered keys into libpmemobj's tree, and into its map, from which they are then read; all on a file
    /// system that is memory.
    pub fn in_memory(&self, folder: &Path, bst: u64, map: u64, reads: u64) -> Result<(InMemory, InMemory)> {
        let program = self.program.clone().set("PMEM_IS_PMEM_FORCE", "1");
        let tree = program.clone().say("bst").with([folder.join("pmem-bst")]).say(&bst.to_string()).told()?;
        Ok((tree, program.say("map").with([folder.join("pmem-map")]).say(&format!("{map} {reads}")).told()?))
    }
}

impl Contender for Foreign {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, folder: &Path, work: Work) -> Result<Ran> {
        let words = format!("{KEYS} {} {}", work.time.as_millis(), self.writers);
        let program = self.program.clone().say("put").with([folder.join("map")]).say(&words);
        let Puts { mut puts, ops, seconds } = program.told()?;
        puts.extend(ops);
        Ok(Ran { puts, elapsed: Duration::from_secs_f64(seconds), groups: None, writing: None })
    }

    fn read(&self, folder: &Path, keys: &[u64]) -> Result<Option<Vec<Option<u64>>>> {
        let keys_of = keys.iter().map(u64::to_string);
        let said = self.program.clone().say("get").with([folder.join("map")]).with(keys_of).run()?;
        let found = said.lines().map(|line| Ok(Some(line.parse()?))).collect::<Result<Vec<_>>>()?;
        ensure!(found.len() == keys.len(), "it said {said:?} for {} keys", keys.len());
        Ok(Some(found))
    }
}
