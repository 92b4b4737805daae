//! The least that any of this can cost: a loop of `pwrite` and `fdatasync` of as many bytes as a group of the durable
//! trust has, into a file with allocated blocks.

use super::puts::{Contender, Ran, Work};
use crate::prelude::*;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes of the file, which is written round and round.
const FILE_BYTES: usize = 64 << 20;

/// A loop of its own.
#[derive(Default)]
pub struct Bare {
    /// Puts and bytes of a group, as the durable trust had with one, and with many outstanding.
    groups: [Cell<(u64, u64)>; 2],
}

impl Bare {
    fn group(&self, work: Work) -> &Cell<(u64, u64)> {
        &self.groups[usize::from(work.outstanding > 1)]
    }

    /// From now on its groups are as these.
    pub fn learn(&self, work: Work, ran: &Ran) {
        if let Some((groups, bytes)) = ran.groups.filter(|(groups, _)| *groups > 0) {
            self.group(work).set((ran.sum().div_ceil(groups), bytes.div_ceil(groups)));
        }
    }
}

impl Contender for Bare {
    fn name(&self) -> &str {
        "bare-loop"
    }

    fn run(&self, folder: &Path, work: Work) -> Result<Ran> {
        let (puts_each, bytes_each) = self.group(work).get();
        let file = File::create_new(folder.join("log"))?;
        let zeros = vec![0; 1 << 20];
        (0..FILE_BYTES / zeros.len()).try_for_each(|piece| file.write_all_at(&zeros, (piece * zeros.len()) as u64))?;
        file.sync_all()?;
        let group = vec![7u8; (bytes_each as usize).clamp(1, FILE_BYTES)];
        let began = Instant::now();
        let (mut at, mut groups) = (0, 0u64);
        while began.elapsed() < work.time {
            if at + group.len() > FILE_BYTES {
                at = 0;
            }
            file.write_all_at(&group, at as u64)?;
            file.sync_data()?;
            (at, groups) = (at + group.len(), groups + 1);
        }
        let elapsed = began.elapsed();
        Ok(Ran {
            puts: vec![groups * puts_each],
            elapsed,
            groups: Some((groups, groups * group.len() as u64)),
            writing: Some(elapsed),
        })
    }

    fn read(&self, _: &Path, _: &[u64]) -> Result<Option<Vec<Option<u64>>>> {
        Ok(None)
    }
}
