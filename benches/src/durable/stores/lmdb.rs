//! LMDB, by heed: on its own, for opening it is `unsafe`.

#![allow(unsafe_code)]

use super::Store;
use crate::durable::puts::Value;
use crate::prelude::*;
use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions};

const MAP_BYTES: usize = 1 << 30;

/// An environment with one database.
pub struct Lmdb {
    env: Env,
    map: Database<'static, U64<BigEndian>, Bytes>,
}

impl Store for Lmdb {
    const NAME: &'static str = "lmdb";

    fn open(folder: &Path) -> Result<Self> {
        // SAFETY: the folder is this run's alone, on a local file system, and opened once at a time.
        let env = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).open(folder)? };
        let map = env
            .open_databases_and_commit(env.read_txn()?, |opener, transaction| {
                opener.open_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
            })?
            .commit()
            .flatten()
            .context("the unnamed database is always there")?;
        Ok(Lmdb { env, map })
    }

    fn commit(&mut self, puts: &[(u64, Value)]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in puts {
            self.map.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: u64) -> Result<Option<Vec<u8>>> {
        let transaction = self.env.read_txn()?;
        Ok(self.map.get(&transaction, &key)?.map(<[u8]>::to_vec))
    }
}
