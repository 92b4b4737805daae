//! The work: puts that are acknowledged when they are on disk. Clients, their keys and values, and how a run is
//! verified.

use crate::prelude::*;

pub const VALUE_BYTES: usize = 64;
/// Keys of all clients together.
pub const KEYS: u64 = 65_536;
/// Puts of each client that are looked for after a run.
const LOOKED_FOR: u64 = 4;

/// A value: the number of its put, and zeros.
pub type Value = [u8; VALUE_BYTES];

/// Task of a run.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub outstanding: u64,
    pub time: Duration,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    pub puts: Vec<u64>,
    /// From the first to the last acknowledgement.
    pub elapsed: Duration,
    /// Syncs, and bytes that were written for them, where they are counted.
    pub groups: Option<(u64, u64)>,
    /// The time in which one of these was being written and synced, where it is counted.
    pub writing: Option<Duration>,
}

impl Ran {
    pub fn sum(&self) -> u64 {
        self.puts.iter().sum()
    }
}

pub fn key(clients: u64, client: u64, number: u64) -> u64 {
    let own = (KEYS / clients).max(1);
    client * own + number % own
}

pub fn value(number: u64) -> Value {
    let mut value = [0; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// The store. Each run begins with an empty folder.
pub trait Contender {
    fn name(&self) -> &str;

    /// Puts for a while, and closes.
    fn run(&self, folder: &Path, work: Work) -> Result<Ran>;

    /// Opens again and gives the numbers of these puts' keys; `None` where nothing can be read again.
    fn read(&self, folder: &Path, keys: &[u64]) -> Result<Option<Vec<Option<u64>>>>;
}

/// Runs it in a folder of its own, and looks for the last puts of each client.
pub fn verified(contender: &dyn Contender, parent: &Path, work: Work) -> Result<Ran> {
    let folder = tempfile::tempdir_in(parent)?;
    let ran = contender.run(folder.path(), work)?;
    let clients = ran.puts.len() as u64;
    let last = |(client, &puts): (usize, &u64)| {
        let own = (KEYS / clients).max(1);
        let numbers = (1..=puts).rev().take(LOOKED_FOR.min(own) as usize);
        numbers.map(|number| (key(clients, client as u64, number), number)).collect::<Vec<_>>()
    };
    let (keys, numbers): (Vec<u64>, Vec<u64>) = ran.puts.iter().enumerate().flat_map(last).unzip();
    ensure!(!keys.is_empty(), "{} has put nothing", contender.name());
    if let Some(found) = contender.read(folder.path(), &keys)? {
        for ((key, number), found) in keys.iter().zip(&numbers).zip(&found) {
            ensure!(
                *found == Some(*number),
                "{}: key {key} has {found:?}, and put {number} was acknowledged",
                contender.name()
            );
        }
    }
    Ok(ran)
}
