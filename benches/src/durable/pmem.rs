//! libpmemobj (PMDK), which has transactions with an undo log on memory that is the file: a program in C
//! (`pmemobj/map.c`), made where the library is there.
//!
//! On a disk it syncs each range of its log with `msync`. On tmpfs it is told to take the file for persistent memory,
//! where it flushes caches instead (`PMEM_IS_PMEM_FORCE=1`), as the papers measured it.

use super::foreign::{Foreign, Source};
use super::puts::{Contender, KEYS, Ran, Work};
use crate::prelude::*;

const SOURCE: Source = Source {
    file: "pmemobj/map.c",
    binary: "map-pmemobj",
    header: "/usr/include/libpmemobj.h",
    libraries: &["-lpmemobj"],
    library: "libpmemobj",
    package: "libpmemobj-dev",
};

const FORCED: [(&str, &str); 1] = [("PMEM_IS_PMEM_FORCE", "1")];

/// The program.
#[derive(Clone, Debug)]
pub struct Pmem(Foreign);

/// Its report of its puts.
#[derive(Deserialize)]
struct Puts {
    ops: u64,
    seconds: f64,
}

/// Rates on tmpfs, in each second.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct InMemory {
    pub inserts: f64,
    pub reads: f64,
}

impl Pmem {
    /// Makes it; or says why it cannot be had here.
    pub fn prepare() -> Result<Found<Pmem>> {
        Ok(Foreign::prepare(&SOURCE)?.map(Pmem))
    }

    /// Inserts of scattered keys into its tree, and into its map, from which they are then read; all on a file system
    /// that is memory.
    pub fn in_memory(&self, folder: &Path, bst: u64, map: u64, reads: u64) -> Result<(InMemory, InMemory)> {
        let of_tree = self.0.told(&FORCED, "bst", &folder.join("pmem-bst"), &[bst])?;
        Ok((of_tree, self.0.told(&FORCED, "map", &folder.join("pmem-map"), &[map, reads])?))
    }
}

impl Contender for Pmem {
    fn name(&self) -> &str {
        super::PMEM
    }

    fn run(&self, folder: &Path, work: Work) -> Result<Ran> {
        let puts: Puts = self.0.told(&[], "put", &folder.join("map"), &[KEYS, work.time.as_millis() as u64])?;
        Ok(Ran { puts: vec![puts.ops], elapsed: Duration::from_secs_f64(puts.seconds), groups: None, writing: None })
    }

    fn read(&self, folder: &Path, keys: &[u64]) -> Result<Option<Vec<Option<u64>>>> {
        self.0.numbers(&folder.join("map"), keys)
    }
}
