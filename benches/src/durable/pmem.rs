//! libpmemobj (PMDK), which has transactions with an undo log on memory that is the file: a program in C (`pmemobj/map.c`), made with `cc` where the
//! library is there.
//!
//! On a disk it syncs each range of its log with `msync`. On tmpfs it is told to take the file for persistent memory, where it flushes caches
//! instead (`PMEM_IS_PMEM_FORCE=1`): what the papers measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::puts::{Contender, KEYS, Ran, Work};
use crate::echo::programs::{compile, finish};
use crate::machine::program;

/// Longer than any run takes.
const TIME_LIMIT: Duration = Duration::from_secs(120);
const HEADER: &str = "/usr/include/libpmemobj.h";

/// The program.
#[derive(Clone, Debug)]
pub struct Pmem(PathBuf);

/// What it says of its puts.
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
    ///
    /// # Errors
    /// No place for what is built.
    pub fn prepare() -> Result<std::result::Result<Pmem, String>> {
        let Some(cc) = program("cc") else { return Ok(Err("there is no `cc`".to_owned())) };
        if !Path::new(HEADER).exists() {
            return Ok(Err("there is no libpmemobj (on Debian: apt-get install libpmemobj-dev)".to_owned()));
        }
        Ok(compile(&cc, "pmemobj/map.c", "map-pmemobj", &["-lpmemobj"])?.map(Pmem))
    }

    fn say(&self, is_memory: bool, command: &str, file: &Path, arguments: &[String]) -> Result<String> {
        let mut asked = Command::new(&self.0);
        asked.arg(command).arg(file).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        if is_memory {
            asked.env("PMEM_IS_PMEM_FORCE", "1");
        }
        finish(asked.spawn().with_context(|| format!("{} cannot be started", self.0.display()))?, TIME_LIMIT)
    }

    fn told<T: DeserializeOwned>(&self, is_memory: bool, command: &str, file: &Path, arguments: &[u64]) -> Result<T> {
        let arguments: Vec<String> = arguments.iter().map(u64::to_string).collect();
        let said = self.say(is_memory, command, file, &arguments)?;
        serde_json::from_str(&said).with_context(|| format!("it said {said:?}"))
    }

    /// Inserts of scattered keys into its tree, and into its map, from which they are then read; all on a file system that is memory.
    ///
    /// # Errors
    /// Of a run that failed.
    pub fn in_memory(&self, folder: &Path, bst: u64, map: u64, reads: u64) -> Result<(InMemory, InMemory)> {
        let of_tree = self.told(true, "bst", &folder.join("pmem-bst"), &[bst])?;
        Ok((of_tree, self.told(true, "map", &folder.join("pmem-map"), &[map, reads])?))
    }
}

impl Contender for Pmem {
    fn name(&self) -> &str {
        super::PMEM
    }

    fn run(&self, folder: &Path, work: Work) -> Result<Ran> {
        let puts: Puts = self.told(false, "put", &folder.join("map"), &[KEYS, work.time.as_millis() as u64])?;
        Ok(Ran { puts: vec![puts.ops], elapsed: Duration::from_secs_f64(puts.seconds), groups: None, writing: None })
    }

    fn read(&self, folder: &Path, keys: &[u64]) -> Result<Option<Vec<Option<u64>>>> {
        let keys: Vec<String> = keys.iter().map(u64::to_string).collect();
        let said = self.say(false, "get", &folder.join("map"), &keys)?;
        let found = said.lines().map(|line| Ok(Some(line.parse()?))).collect::<Result<Vec<_>>>()?;
        ensure!(found.len() == keys.len(), "it said {said:?} for {} keys", keys.len());
        Ok(Some(found))
    }
}
