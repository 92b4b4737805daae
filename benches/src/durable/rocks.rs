//! RocksDB, by its C API: a program in C (`rocksdb/map.c`), made where the library is there, which takes far longer to
//! build than all else here.
//!
//! Its writers are threads: those that wait at the same time get one sync, so it runs with several numbers of them.

use super::foreign::{Foreign, Source};
use super::puts::{Contender, KEYS, Ran, Work};
use crate::prelude::*;

const SOURCE: Source = Source {
    file: "rocksdb/map.c",
    binary: "map-rocksdb",
    header: "/usr/include/rocksdb/c.h",
    libraries: &["-lrocksdb", "-lpthread"],
    library: "RocksDB",
    package: "librocksdb-dev",
};

/// Its program, with so many threads and puts a commit.
pub struct Rocks {
    name: String,
    program: Foreign,
    threads: u64,
    batch: u64,
}

/// Its report of its puts.
#[derive(Deserialize)]
struct Puts {
    puts: Vec<u64>,
    seconds: f64,
}

/// Makes the program; or says why it cannot be had here.
pub fn prepare() -> Result<Found<Foreign>> {
    Foreign::prepare(&SOURCE)
}

impl Rocks {
    /// A put a commit, by so many threads.
    pub fn threads(program: &Foreign, threads: u64) -> Rocks {
        let name = if threads == 1 { super::ROCKS.into() } else { format!("{}-{threads}-threads", super::ROCKS) };
        Rocks { name, program: program.clone(), threads, batch: 1 }
    }

    pub fn outstanding(&self) -> u64 {
        self.threads * self.batch
    }

    /// So many puts a commit, by one thread.
    pub fn gathered(program: &Foreign, batch: u64) -> Rocks {
        Rocks { name: format!("{}-{batch}", super::ROCKS), program: program.clone(), threads: 1, batch }
    }
}

impl Contender for Rocks {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, folder: &Path, work: Work) -> Result<Ran> {
        let arguments = [KEYS, work.time.as_millis() as u64, self.threads, self.batch];
        let Puts { puts, seconds } = self.program.told(&[], "put", &folder.join("map"), &arguments)?;
        Ok(Ran { puts, elapsed: Duration::from_secs_f64(seconds), groups: None, writing: None })
    }

    fn read(&self, folder: &Path, keys: &[u64]) -> Result<Option<Vec<Option<u64>>>> {
        self.program.numbers(&folder.join("map"), keys)
    }
}
