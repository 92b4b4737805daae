//! The stores that it is compared with (feature `stores`): each put, or so many together, a transaction that is synced
//! before the next.
//!
//! One thread commits one after the other: LMDB, redb and SQLite have one writer at a time, and fjall one journal, so
//! more of them would wait for each other.

mod lmdb;

use self::lmdb::Lmdb;
use super::puts::{Contender, Ran, Value, Work, key, value};
use crate::prelude::*;
use fjall::{KeyspaceCreateOptions, PersistMode};
use redb::{ReadableDatabase, TableDefinition};
use rusqlite::Connection;

const TABLE: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("map");

/// A store that is open.
pub trait Store: Sized {
    const NAME: &'static str;
    fn open(folder: &Path) -> Result<Self>;
    /// All of these in one transaction, on disk when it returns.
    fn commit(&mut self, puts: &[(u64, Value)]) -> Result<()>;
    fn get(&mut self, key: u64) -> Result<Option<Vec<u8>>>;
}

/// A store, with so many puts a commit.
struct By<S> {
    name: String,
    batch: u64,
    store: std::marker::PhantomData<S>,
}

impl<S: Store> Contender for By<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, folder: &Path, work: Work) -> Result<Ran> {
        let mut store = S::open(folder)?;
        one_by_one(work, self.batch, |puts| store.commit(puts))
    }

    fn read(&self, folder: &Path, keys: &[u64]) -> Result<Option<Vec<Option<u64>>>> {
        let mut store = S::open(folder)?;
        let mut number = |&key: &u64| {
            let value = store.get(key)?;
            Ok(value.and_then(|value| value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))))
        };
        keys.iter().map(&mut number).collect::<Result<_>>().map(Some)
    }
}

/// Commits puts of one client for a while, so many at a time: each is acknowledged before the next.
fn one_by_one(work: Work, batch: u64, mut commit: impl FnMut(&[(u64, Value)]) -> Result<()>) -> Result<Ran> {
    let began = Instant::now();
    let mut puts = 0;
    let mut some = Vec::new();
    while began.elapsed() < work.time {
        some.clear();
        some.extend((puts + 1..=puts + batch).map(|number| (key(1, 0, number), value(number))));
        commit(&some)?;
        puts += batch;
    }
    Ok(Ran { puts: vec![puts], elapsed: began.elapsed(), groups: None, writing: None })
}

fn by<S: Store + 'static>(batch: u64) -> Box<dyn Contender> {
    let name = if batch == 1 { S::NAME.to_owned() } else { format!("{}-{batch}", S::NAME) };
    Box::new(By::<S> { name, batch, store: std::marker::PhantomData })
}

pub fn all(batch: u64) -> Vec<Box<dyn Contender>> {
    vec![by::<Lmdb>(batch), by::<redb::Database>(batch), by::<Fjall>(batch), by::<Connection>(batch)]
}

impl Store for redb::Database {
    const NAME: &'static str = "redb";

    fn open(folder: &Path) -> Result<Self> {
        Ok(redb::Database::create(folder.join("map.redb"))?)
    }

    fn commit(&mut self, puts: &[(u64, Value)]) -> Result<()> {
        // Durability is immediate unless set.
        let transaction = self.begin_write()?;
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in puts {
            table.insert(key, value.as_slice())?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: u64) -> Result<Option<Vec<u8>>> {
        let table = self.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.map(|value| value.value().to_vec()))
    }
}

struct Fjall {
    database: fjall::Database,
    map: fjall::Keyspace,
}

impl Store for Fjall {
    const NAME: &'static str = "fjall";

    fn open(folder: &Path) -> Result<Self> {
        let database = fjall::Database::builder(folder).open()?;
        let map = database.keyspace("map", KeyspaceCreateOptions::default)?;
        Ok(Fjall { database, map })
    }

    fn commit(&mut self, puts: &[(u64, Value)]) -> Result<()> {
        let mut batch = self.database.batch();
        for (key, value) in puts {
            batch.insert(&self.map, key.to_be_bytes(), value);
        }
        batch.commit()?;
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn get(&mut self, key: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.map.get(key.to_be_bytes())?.map(|value| value.to_vec()))
    }
}

impl Store for Connection {
    const NAME: &'static str = "sqlite";

    fn open(folder: &Path) -> Result<Self> {
        let connection = Connection::open(folder.join("map.sqlite"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch("CREATE TABLE IF NOT EXISTS map (key INTEGER PRIMARY KEY, value BLOB NOT NULL)")?;
        Ok(connection)
    }

    fn commit(&mut self, puts: &[(u64, Value)]) -> Result<()> {
        let transaction = self.transaction()?;
        let mut put = transaction.prepare_cached("INSERT OR REPLACE INTO map VALUES (?1, ?2)")?;
        for (key, value) in puts {
            put.execute((*key as i64, value.as_slice()))?;
        }
        drop(put);
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: u64) -> Result<Option<Vec<u8>>> {
        let mut find = self.prepare_cached("SELECT value FROM map WHERE key = ?1")?;
        let mut rows = find.query([key as i64])?;
        Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
    }
}
