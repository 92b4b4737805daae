//! Opening the files of a pool whose root has one of two types: the old one, which is to be changed, or the new one.
//!
//! Not here: the change of the root (`Memory::change_type`), and that of the files (`Store::change_type`).
//!
//! Invariant: at each moment of a migration the folder holds a pool of one of the two types, with all of its values.

use super::named::Files;
use super::recover::{self, Check, Opened};
use crate::error::Result;
use crate::layout::Layout;

/// Opens the pool of a folder: as one of type `new` if it has that type, and as one of type `old` otherwise. Returns
/// whether it has the old one. Where it has neither, the error names the difference from the old one.
pub(crate) fn open(
    mut files: Files,
    new: (&Layout, Check),
    old: (&Layout, Check),
    limit: usize,
) -> Result<(Opened, bool)> {
    let Some(found) = recover::layout(&mut files)? else { return Err(recover::no_pool(&files)) };
    let is_old = found.differs_from(new.0).is_some();
    let (layout, check) = if is_old { old } else { new };
    recover::open(files, layout, limit, check)?.map(|opened| (opened, is_old)).map_err(|files| recover::no_pool(&files))
}
