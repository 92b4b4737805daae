//! `Folder`: the files of checkpoints, as one machine sees them. All of it blocks in the operating system, so it is
//! called on threads (`aside.rs`).
//!
//! A folder has one complete checkpoint, named by `manifest.json`, or none. The parts of an attempt have names of their
//! own, and no file of a complete checkpoint is written again, so an attempt that does not finish changes nothing. The
//! manifest is renamed to its name when all parts are on disk, and only then are files of earlier attempts removed.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::block::{Block, CHECKSUM_BYTES, checksum};
use super::manifest::{Attempt, Manifest};

/// Name of a complete checkpoint's manifest.
pub(super) const MANIFEST: &str = "manifest.json";

/// Failure at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fault {
    /// Name of the file in the folder; empty for the folder itself.
    pub(super) name: String,
    pub(super) why: Why,
}

/// Reason of a failure; texts complete a sentence that begins with the name of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Why {
    /// The folder has no manifest.
    None,
    /// The operating system refused a call.
    System(String),
    /// The checkpoint cannot be used.
    Unusable(String),
}

impl Fault {
    pub(super) fn write(name: impl Into<String>, error: &io::Error) -> Fault {
        let what = format!("cannot be written: {error}; the checkpoint before it stays: cure that and write another");
        Fault { name: name.into(), why: Why::System(what) }
    }

    pub(super) fn read(name: impl Into<String>, error: &io::Error) -> Fault {
        Fault { name: name.into(), why: Why::System(format!("cannot be read: {error}; cure that and restore again")) }
    }

    pub(super) fn unusable(name: impl Into<String>, what: impl Into<String>) -> Fault {
        Fault { name: name.into(), why: Why::Unusable(what.into()) }
    }
}

/// See the file's documentation.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(path: PathBuf) -> Folder {
        Folder(path)
    }

    /// Returns the folder from bytes that have travelled.
    pub(super) fn of_bytes(path: Vec<u8>) -> Folder {
        Folder(std::ffi::OsString::from_vec(path).into())
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.0.as_os_str().as_bytes().to_vec()
    }

    /// Returns the path of a file, or that of the folder for an empty name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.0.clone() } else { self.0.join(name) }
    }

    /// Makes the names of its files durable.
    fn sync(&self) -> io::Result<()> {
        sync_folder(&self.0)
    }

    /// Creates the folder and those above it where they do not exist, and makes their names durable.
    fn make(&self) -> io::Result<()> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let missing: Vec<&Path> = self.0.ancestors().take_while(is_missing).collect();
        fs::create_dir_all(&self.0)?;
        missing.into_iter().filter_map(Path::parent).try_for_each(sync_folder)
    }

    /// Returns the attempts that files in the folder belong to.
    fn attempts(&self) -> io::Result<Vec<(String, Attempt)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            if let Ok(name) = entry?.file_name().into_string()
                && let Some(attempt) = Attempt::of_name(&name)
            {
                found.push((name, attempt));
            }
        }
        Ok(found)
    }

    /// Returns the last attempt in the folder, complete or not.
    fn last(&self, except: Option<Attempt>) -> io::Result<Option<Attempt>> {
        // A manifest that cannot be read does not keep its program from writing a good one.
        let complete = fs::read_to_string(self.0.join(MANIFEST)).ok().and_then(|text| Manifest::parse(&text).ok());
        let all = self.attempts()?.into_iter().map(|(_, attempt)| attempt).chain(complete.map(|read| read.attempt));
        Ok(all.filter(|attempt| Some(*attempt) != except).max_by_key(|attempt| attempt.sequence))
    }

    /// Refuses a folder whose `manifest.json` is a file of another program. One that is merely damaged has files of its
    /// checkpoint beside it.
    fn refuse_foreign(&self) -> Result<(), Fault> {
        let is_ours = match fs::read_to_string(self.0.join(MANIFEST)) {
            Ok(text) => Manifest::parse(&text).is_ok(),
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if is_ours || !self.attempts().map_err(|error| Fault::read("", &error))?.is_empty() {
            return Ok(());
        }
        let what = "is not the manifest of a checkpoint, and was not replaced: write to a folder of its own, or remove \
                    the file";
        Err(Fault::unusable(MANIFEST, what))
    }

    /// Begins an attempt, with a file that takes its number.
    pub(super) fn begin(&self) -> Result<Attempt, Fault> {
        self.make().map_err(|error| Fault::write("", &error))?;
        self.refuse_foreign()?;
        let begin = || {
            let last = self.last(None)?.map_or(0, |last| last.sequence);
            let attempt = Attempt { sequence: last.saturating_add(1), id: RandomState::new().build_hasher().finish() };
            File::create_new(self.0.join(attempt.unfinished()))?;
            Ok(attempt)
        };
        begin().map_err(|error: io::Error| Fault::write("", &error))
    }

    /// Completes an attempt whose parts are on disk.
    pub(super) fn commit(&self, attempt: Attempt, manifest: &str) -> Result<(), Fault> {
        let other = self.last(Some(attempt)).map_err(|error| Fault::read("", &error))?;
        if other.is_some_and(|other| other.sequence >= attempt.sequence) {
            let what = "has got another checkpoint meanwhile, and this one was given up: write one at a time, and each \
                        array to a folder of its own";
            return Err(Fault::unusable("", what));
        }
        let unfinished = self.0.join(attempt.unfinished());
        let complete = || {
            let mut file = File::create(&unfinished)?;
            file.write_all(manifest.as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, self.0.join(MANIFEST))?;
            self.sync()
        };
        complete().map_err(|error| Fault::write(MANIFEST, &error))
    }

    /// Removes the files of this attempt, which was given up.
    pub(super) fn remove(&self, attempt: Attempt) {
        self.remove_where(|other| other == attempt);
    }

    /// Removes the files of attempts before this one, which is complete.
    pub(super) fn remove_before(&self, attempt: Attempt) {
        self.remove_where(|other| other.sequence < attempt.sequence);
    }

    fn remove_where(&self, is_stale: impl Fn(Attempt) -> bool) {
        // Another machine may remove the same; files that stay go after the next checkpoint.
        let stale = self.attempts().unwrap_or_default().into_iter().filter(|(_, attempt)| is_stale(*attempt));
        stale.for_each(|(name, _)| drop(fs::remove_file(self.0.join(name))));
    }

    /// Returns the text of the manifest.
    pub(super) fn manifest(&self) -> Result<String, Fault> {
        fs::read_to_string(self.0.join(MANIFEST)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Fault { name: String::new(), why: Why::None },
            ErrorKind::InvalidData => Fault::unusable(MANIFEST, "is not a text: restore another checkpoint"),
            _ => Fault::read(MANIFEST, &error),
        })
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    // The parent of a relative path may be empty.
    File::open(if path.as_os_str().is_empty() { Path::new(".") } else { path })?.sync_all()
}

/// File of a part.
#[derive(Debug)]
pub(super) struct PartFile {
    folder: Folder,
    attempt: Attempt,
    part: usize,
    name: String,
    file: File,
}

impl PartFile {
    /// Creates the file of a place's part.
    pub(super) fn create(folder: Folder, attempt: Attempt, part: usize) -> Result<PartFile, Fault> {
        let name = attempt.part(part);
        let create = || {
            folder.make()?;
            File::create_new(folder.path(&name))
        };
        let file = create().map_err(|error| Fault::write(&name, &error))?;
        Ok(PartFile { folder, attempt, part, name, file })
    }

    /// Writes a block.
    pub(super) fn write(&self, block: &Block, bytes: &[u8]) -> Result<(), Fault> {
        let sum = checksum(self.attempt, self.part, block, bytes).to_le_bytes();
        let written = self.file.write_all_at(bytes, block.offset);
        let written = written.and_then(|()| self.file.write_all_at(&sum, block.offset + bytes.len() as u64));
        written.map_err(|error| Fault::write(&self.name, &error))
    }

    /// Makes the file and its name durable.
    pub(super) fn end(self) -> Result<(), Fault> {
        self.file.sync_all().and_then(|()| self.folder.sync()).map_err(|error| Fault::write(self.name, &error))
    }

    /// Opens a part, which has to have this number of bytes.
    pub(super) fn open(folder: Folder, attempt: Attempt, part: usize, part_bytes: u64) -> Result<PartFile, Fault> {
        let name = attempt.part(part);
        let file = File::open(folder.path(&name)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Fault::unusable(
                &name,
                "is missing. If each machine has a folder of its own, restore with the machines, workers and split \
                 that wrote it; otherwise put the file back, or restore another checkpoint",
            ),
            _ => Fault::read(&name, &error),
        })?;
        let bytes = file.metadata().map_err(|error| Fault::read(&name, &error))?.len();
        if bytes != part_bytes {
            let what = format!("has {bytes} bytes instead of {part_bytes}, so it is torn: restore another checkpoint");
            return Err(Fault::unusable(name, what));
        }
        Ok(PartFile { folder, attempt, part, name, file })
    }

    /// Reads a block.
    pub(super) fn read(&self, block: &Block, bytes: &mut [u8]) -> Result<(), Fault> {
        let mut sum = [0; CHECKSUM_BYTES];
        let read = self.file.read_exact_at(bytes, block.offset);
        let read = read.and_then(|()| self.file.read_exact_at(&mut sum, block.offset + bytes.len() as u64));
        read.map_err(|error| Fault::read(&self.name, &error))?;
        if u64::from_le_bytes(sum) != checksum(self.attempt, self.part, block, bytes) {
            let (first, end) = (block.offset, block.offset + bytes.len() as u64);
            let what = format!("is damaged between bytes {first} and {end} (checksum): restore another checkpoint");
            return Err(Fault::unusable(&self.name, what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Shape, Split};

    fn names(folder: &Folder) -> Vec<String> {
        let names = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn block(number: u64) -> Block {
        Block { number, chunks: 0..1, offset: number * 13 }
    }

    /// Writes a part of two blocks of five bytes.
    fn write(folder: &Folder, attempt: Attempt, part: usize) {
        let file = PartFile::create(folder.clone(), attempt, part).unwrap();
        [0, 1].iter().for_each(|number| file.write(&block(*number), b"block").unwrap());
        file.end().unwrap();
    }

    fn manifest(attempt: Attempt) -> String {
        Manifest::new::<u8>(attempt, &Shape::new(5, 1, &Split::Even, &[1]).unwrap()).text()
    }

    #[test]
    fn the_last_complete_checkpoint_stays_until_the_next_is_complete() {
        let above = tempfile::tempdir().unwrap();
        let folder = Folder::new(above.path().join("a/b"));
        assert_eq!(folder.manifest(), Err(Fault { name: String::new(), why: Why::None }));
        let first = folder.begin().unwrap();
        assert_eq!(first.sequence, 1);
        write(&folder, first, 0);
        assert!(folder.manifest().is_err(), "it is not complete");
        folder.commit(first, &manifest(first)).unwrap();
        folder.remove_before(first);
        assert_eq!(names(&folder), [first.part(0), MANIFEST.to_owned()]);
        // One that was cut off, one that was given up, and a file of somebody else.
        fs::write(folder.path("notes.part"), "").unwrap();
        let torn = folder.begin().unwrap();
        write(&folder, torn, 3);
        let given_up = folder.begin().unwrap();
        write(&folder, given_up, 0);
        folder.remove(given_up);
        assert_eq!(folder.manifest(), Ok(manifest(first)));
        let last = folder.begin().unwrap();
        assert_eq!((torn.sequence, last.sequence), (2, 3));
        write(&folder, last, 0);
        folder.commit(last, &manifest(last)).unwrap();
        assert!(PartFile::open(folder.clone(), first, 0, 26).is_ok());
        folder.remove_before(last);
        assert_eq!(names(&folder), [last.part(0), MANIFEST.to_owned(), "notes.part".to_owned()]);
        assert_eq!(folder.manifest(), Ok(manifest(last)));
    }

    #[test]
    fn the_manifest_of_another_program_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path().to_owned());
        for text in [&b"{\"name\": \"a web app\"}"[..], b"", b"\xff"] {
            fs::write(folder.path(MANIFEST), text).unwrap();
            let refused = folder.begin().unwrap_err();
            let Why::Unusable(what) = &refused.why else { panic!("{refused:?}") };
            assert!(refused.name == MANIFEST && what.contains("a folder of its own"), "{refused:?}");
            assert_eq!(
                (names(&folder), fs::read(folder.path(MANIFEST)).unwrap()),
                (vec![MANIFEST.into()], text.into())
            );
        }
        fs::remove_file(folder.path(MANIFEST)).unwrap();
        let attempt = folder.begin().unwrap();
        folder.commit(attempt, &manifest(attempt)).unwrap();
        folder.begin().unwrap();
    }

    #[test]
    fn of_two_attempts_at_a_time_the_later_wins() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path().to_owned());
        let [early, late] = [(); 2].map(|()| folder.begin().unwrap());
        let refused = folder.commit(early, &manifest(early)).unwrap_err();
        assert!(matches!(&refused.why, Why::Unusable(what) if what.contains("one at a time")), "{refused:?}");
        folder.commit(late, &manifest(late)).unwrap();
        assert!(folder.commit(early, &manifest(early)).is_err());
        assert_eq!(folder.manifest(), Ok(manifest(late)));
        // A manifest that is damaged does not stand in the way of the next.
        fs::write(folder.path(MANIFEST), "{").unwrap();
        let next = folder.begin().unwrap();
        folder.commit(next, &manifest(next)).unwrap();
    }

    #[test]
    fn blocks_are_read_as_written_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path().to_owned());
        let attempt = folder.begin().unwrap();
        write(&folder, attempt, 0);
        let open = |part, bytes| PartFile::open(folder.clone(), attempt, part, bytes);
        let mut bytes = [0; 5];
        let file = open(0, 26).unwrap();
        file.read(&block(1), &mut bytes).unwrap();
        assert_eq!(&bytes, b"block");
        let says = |fault: Fault, words: &str| match &fault.why {
            Why::Unusable(what) => assert!(what.contains(words), "{fault:?}"),
            _ => panic!("{fault:?}"),
        };
        says(open(1, 26).unwrap_err(), "is missing");
        says(open(0, 27).unwrap_err(), "has 26 bytes instead of 27");
        // Each bit counts, that of the checksum too, and so does the place.
        let path = folder.path(&attempt.part(0));
        let good = fs::read(&path).unwrap();
        for at in 0..13 {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, bad).unwrap();
            says(open(0, 26).unwrap().read(&block(0), &mut bytes).unwrap_err(), "is damaged between bytes 0 and 5");
        }
        fs::write(&path, [&good[13..], &good[..13]].concat()).unwrap();
        says(open(0, 26).unwrap().read(&block(0), &mut bytes).unwrap_err(), "checksum");
        fs::write(&path, &good).unwrap();
        fs::copy(&path, folder.path(&attempt.part(2))).unwrap();
        says(open(2, 26).unwrap().read(&block(0), &mut bytes).unwrap_err(), "checksum");
    }

    #[test]
    fn the_system_s_refusals_are_told() {
        let above = tempfile::tempdir().unwrap();
        fs::write(above.path().join("file"), "").unwrap();
        let folder = Folder::new(above.path().join("file/folder"));
        let fault = folder.begin().unwrap_err();
        assert!(matches!(&fault.why, Why::System(what) if what.contains("Not a directory")), "{fault:?}");
        fs::create_dir(above.path().join(MANIFEST)).unwrap();
        let fault = Folder::new(above.path().to_owned()).manifest().unwrap_err();
        assert!(matches!(&fault.why, Why::System(what) if what.contains("cannot be read")), "{fault:?}");
    }
}
