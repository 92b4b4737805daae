//! Inspection of a folder without the program that wrote it: its contents, and whether its files are intact.

use std::fmt;
use std::path::Path;

use crate::error::Result;
use crate::files::folder::Folder;
use crate::files::named::Files;
use crate::files::recover;
use crate::service::lock::open_folder;

/// Contents of a pool's folder, as [`inspect`] returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The type of the root.
    pub root: String,
    /// The types in the pool, one a line.
    pub layout: Vec<String>,
    /// Generation of the image.
    pub generation: u64,
    /// Bytes of memory in the image.
    pub memory_bytes: u64,
    /// First group of the log.
    pub first_group: u64,
    /// Last complete group.
    pub last_group: u64,
    /// Last group that the image needs.
    pub needed_group: u64,
    /// Complete groups in the log.
    pub groups: u64,
    /// Lines of 64 bytes in these groups.
    pub lines: u64,
    /// Bytes up to the end of the last group.
    pub log_bytes: u64,
    /// Bytes of a torn record after it, which opening cuts off.
    pub bytes_cut: u64,
    /// Was the pool closed? If not, its program was ended or killed, and a last record that was damaged since then
    /// cannot be told from one that was never complete.
    pub is_closed: bool,
    /// Was a new image being written?
    pub is_renewing: bool,
}

/// Checks the files of a pool that is not open: heads, checksums, and that the log reaches the last group that the
/// image needs. Writes nothing. The values themselves are checked when the pool is opened, by code that knows their
/// types.
///
/// The program `durable-check` of this package prints the result.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("inspect-{}", std::process::id()));
/// use trust_durable::Durable;
///
/// let pool = trust::Threadpool::new(1);
/// let number = Durable::<u64>::open(pool.trustees()[0], &folder, |_| 7)?;
/// number.apply(|number, _| *number += 1);
/// number.close()?;
/// let found = trust_durable::inspect(&folder)?;
/// assert_eq!((&*found.root, found.groups, found.lines), ("u64", 1, 1));
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok::<(), trust_durable::Error>(())
/// ```
///
/// # Errors
/// Those of [`Durable::open`](crate::Durable::open); [`Truncated`](crate::Error::Truncated) where there is no pool.
pub fn inspect(folder: impl AsRef<Path>) -> Result<Inspection> {
    let (folder, _lock) = open_folder(folder.as_ref(), Folder::there)?;
    recover::inspect(&mut Files::of(folder))
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inspection { root, layout, generation, memory_bytes, .. } = self;
        writeln!(f, "root: {root}")?;
        layout.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        writeln!(f, "image: generation {generation}, {memory_bytes} bytes of memory, whole")?;
        let Inspection {
            first_group, last_group, needed_group, groups, lines, log_bytes, bytes_cut, is_closed, ..
        } = self;
        writeln!(
            f,
            "log: from group {first_group} to {last_group}, {groups} groups of {lines} lines, {log_bytes} bytes, \
             whole; the image needs it up to group {needed_group}"
        )?;
        if *bytes_cut > 0 {
            writeln!(
                f,
                "  a record of {bytes_cut} bytes follows that is torn, and so was never acknowledged, or that was \
                 damaged since: opening cuts it off"
            )?;
        }
        if !is_closed {
            writeln!(f, "  the pool was not closed: its program was ended or killed before")?;
        }
        if self.is_renewing {
            writeln!(f, "  a new image was under way: the log goes on in the next generation's")?;
        }
        Ok(())
    }
}
