//! Checkpoints of arrays: each place writes the elements that it owns, block by block, and reads them back.
//!
//! An attempt to write one:
//!
//! 1. place 0 takes a number for it, in the folder of its machine (`files.rs`)
//! 2. each place copies its elements, a block at a time (`block.rs`), and a thread writes them to a file of its own and
//!    waits until that is on disk
//! 3. place 0 writes the manifest (`manifest.rs`) and renames it: from here on the checkpoint is complete, and the one
//!    before it is not used any more
//! 4. each machine removes the files of earlier attempts
//!
//! To restore one, place 0 reads the manifest; each block is read by the place that owns its first element in the new
//! array, which sends elements to other owners as `copy_from` does. So nothing depends on the number of places, and
//! where that is the same each place reads its own file.
//!
//! Elements are read back as they lie in memory; that is sound because any bytes are an element (`element.rs`).

mod block;
mod files;
mod manifest;

use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use gossamer::{NoRef, Place};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zerocopy::IntoBytes;

use self::block::{blocks, elements, part_bytes};
use self::files::{Fault, Folder, MANIFEST, PartFile, Why};
use self::manifest::{Attempt, Contents, Manifest};
use crate::array::{Array, at_place};
use crate::builder::{Builder, on_place};
use crate::element::Element;
use crate::operator::bytes_of_all;
use crate::shape::Shape;
use crate::{Error, aside, held, lost, waits};

impl<T: Element> Array<T> {
    /// Writes all elements to files in a folder, so that [`restore`](Self::restore) makes an array of them, in this run
    /// of the program or a later one. Each place writes the elements that it owns, directly at its machine, with about
    /// a mebibyte of memory. A file system that all machines share works with any number of machines later; a folder of
    /// the same path on each machine's own disk works with the same machines, workers and split. The folder is created
    /// if need be, at each machine.
    ///
    /// When the call returns the checkpoint is on disk, and the one that the folder had before is gone. Until then that
    /// one stays: a call that fails, or a program that ends in the middle, leaves it as it was. A folder has one
    /// checkpoint, of one array; write one at a time.
    ///
    /// Elements are read at some moment during the call, each chunk atomically. So let no fiber change the array
    /// meanwhile: with all of them joined the checkpoint is exact, `apply` included.
    ///
    /// # Errors
    /// [`Error::File`] if the system refuses a call, such as for want of room; [`Error::Checkpoint`] if another
    /// checkpoint was written to the folder meanwhile, or the folder has a `manifest.json` of another program.
    ///
    /// # Panics
    /// Inside delegated closures and callbacks, where nothing may wait; if the array is poisoned.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let folder = std::env::temp_dir().join(format!("array-{}", std::process::id()));
    ///     let squares = Array::new(1000, 0u64).unwrap();
    ///     (0..1000).for_each(|i| squares.set(i, (i * i) as u64));
    ///     squares.checkpoint(&folder).unwrap();
    ///     squares.fill(0);
    ///     let restored = Array::<u64>::restore(&folder).unwrap();
    ///     assert_eq!((restored.len(), restored.get(30)), (1000, 900));
    ///     std::fs::remove_dir_all(folder).unwrap();
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn checkpoint(&self, folder: impl AsRef<Path>) -> Result<(), Error> {
        let folder = Folder::new(folder.as_ref().to_owned());
        at_place!(self, checkpoint_at_place(folder))
    }

    #[track_caller]
    fn checkpoint_at_place(&self, folder: Folder) -> Result<(), Error> {
        waits::may_wait("checkpoint");
        let places: Vec<Place> = self.part().members.places().collect();
        let attempt = at(first_place(), &folder, |folder, ()| folder.begin(), ())?;
        let array = self.clone();
        let write = move |_, folder: Vec<u8>| array.write_part(&Folder::of_bytes(folder), attempt);
        let written = self.at_owners_with("checkpoint", write, folder.to_bytes());
        if let Err(error) = all_done(&places, written, &folder) {
            on_machines(&folder, move |folder| folder.remove(attempt));
            return Err(error);
        }
        let manifest = Manifest::new::<T>(attempt, &self.part().shape).text();
        // If this fails the manifest may have its name already, so the parts stay.
        let commit = move |folder: Folder, manifest: String| folder.commit(attempt, &manifest);
        at(first_place(), &folder, commit, manifest)?;
        on_machines(&folder, move |folder| folder.remove_before(attempt));
        Ok(())
    }

    /// Writes the elements of this place.
    fn write_part(&self, folder: &Folder, attempt: Attempt) -> Result<(), Fault> {
        let (shape, own) = self.shape_here();
        if shape.owned(own).is_empty() {
            return Ok(());
        }
        let folder = folder.clone();
        let mut file = in_thread(attempt.part(own), move || PartFile::create(folder, attempt, own))?;
        let mut buffer: Vec<T> = Vec::new();
        for block in blocks(&shape, own) {
            buffer.resize(elements(&shape, own, &block), T::new_zeroed());
            let mut rest = &mut buffer[..];
            for range in shape.ranges(own, block.chunks.clone()) {
                let (to, behind) = std::mem::take(&mut rest).split_at_mut(range.len());
                self.copy_pieces("checkpoint", range.start, to);
                rest = behind;
            }
            let write = move || file.write(&block, bytes_of_all(&buffer)).map(|()| (file, buffer));
            (file, buffer) = in_thread(attempt.part(own), write)?;
        }
        in_thread(attempt.part(own), move || file.end())
    }

    /// Makes an array of the elements of a [`checkpoint`](Self::checkpoint), split evenly over all places of the rack.
    /// If all machines share the folder, their number and that of the workers may differ from those that wrote it.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`], [`Error::ElementType`]; [`Error::Checkpoint`] if a file is missing, torn or damaged, or
    /// of another version; [`Error::File`] if the system refuses a call; those of [`new`](Self::new).
    ///
    /// # Panics
    /// Those of [`Builder::build`].
    ///
    /// Example: at [`checkpoint`](Self::checkpoint).
    #[track_caller]
    pub fn restore(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().restore(folder)
    }

    /// Reads the blocks of which this place owns the first element.
    fn read_blocks(&self, folder: &Folder, manifest: &str) -> Result<(), Fault> {
        let Contents { attempt, shape, .. } = parse(manifest)?;
        let (new, own) = self.shape_here();
        for part in 0..shape.places() {
            self.read_part(folder, attempt, &shape, part, |first| new.home((first >> new.shift) as u32) == own)?;
        }
        Ok(())
    }

    fn read_part(
        &self,
        folder: &Folder,
        attempt: Attempt,
        shape: &Shape,
        part: usize,
        is_own: impl Fn(usize) -> bool,
    ) -> Result<(), Fault> {
        let part_bytes = part_bytes(shape, part);
        let mut opened: Option<PartFile> = None;
        let mut buffer: Vec<T> = Vec::new();
        for block in blocks(shape, part) {
            let ranges: Vec<Range<usize>> = shape.ranges(part, block.chunks.clone()).collect();
            if !ranges.first().is_some_and(|first| is_own(first.start)) {
                continue;
            }
            buffer.resize(elements(shape, part, &block), T::new_zeroed());
            let folder = folder.clone();
            let read = move || {
                let file = opened.map_or_else(|| PartFile::open(folder, attempt, part, part_bytes), Ok)?;
                file.read(&block, buffer.as_mut_slice().as_mut_bytes())?;
                Ok((file, buffer))
            };
            let (file, filled) = in_thread(attempt.part(part), read)?;
            (opened, buffer) = (Some(file), filled);
            let mut rest = &buffer[..];
            for range in ranges {
                let (from, behind) = rest.split_at(range.len());
                self.copy_from(range.start, from);
                rest = behind;
            }
        }
        Ok(())
    }

    fn shape_here(&self) -> (Shape, usize) {
        let part = self.part();
        (part.shape.clone(), part.own)
    }
}

impl<T: Element> Builder<T> {
    /// Makes the array as [`build`](Self::build) does, with the elements of a checkpoint; see [`Array::restore`].
    ///
    /// # Errors
    /// Those of [`Array::restore`] and [`build`](Self::build).
    ///
    /// # Panics
    /// Those of [`build`](Self::build).
    ///
    /// ```
    /// use gossamer_array::{Array, Error};
    /// gossamer::main(|| {
    ///     let folder = std::env::temp_dir().join(format!("builder-{}", std::process::id()));
    ///     let restore = || Array::<f32>::builder().cyclic().restore(&folder);
    ///     assert!(matches!(restore(), Err(Error::NoCheckpoint { .. })));
    ///     Array::new(5000, 0.5f32).unwrap().checkpoint(&folder).unwrap();
    ///     assert_eq!(restore().unwrap().get(4999), 0.5);
    ///     assert!(matches!(Array::<u32>::restore(&folder), Err(Error::ElementType { .. })));
    ///     std::fs::remove_dir_all(&folder).unwrap();
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn restore(self, folder: impl AsRef<Path>) -> Result<Array<T>, Error> {
        let () = T::FITS;
        waits::may_wait("restore");
        let folder = Folder::new(folder.as_ref().to_owned());
        on_place(move || restored(self, &folder))
    }
}

/// Makes the array and fills it. Called at a place; waits for all.
fn restored<T: Element>(builder: Builder<T>, folder: &Folder) -> Result<Array<T>, Error> {
    let text = at(first_place(), folder, |folder, ()| folder.manifest(), ())?;
    let Contents { manifest, .. } = parse(&text).map_err(|fault| error(fault, first_place(), folder))?;
    let (wanted, wanted_bytes) = (std::any::type_name::<T>(), size_of::<T>());
    if (manifest.element.as_str(), manifest.element_bytes) != (wanted, wanted_bytes) {
        return Err(Error::ElementType {
            path: folder.path(MANIFEST),
            found: manifest.element,
            found_bytes: manifest.element_bytes,
            wanted: wanted.to_owned(),
            wanted_bytes,
        });
    }
    let array = builder.build(manifest.length, T::new_zeroed())?;
    if let Some(machine) = lost::by(array.name()) {
        return Err(held::lost(machine));
    }
    let (own, places) = (array.clone(), array.part().members.places().collect::<Vec<_>>());
    let read = move |_, (folder, text): (Vec<u8>, String)| own.read_blocks(&Folder::of_bytes(folder), &text);
    let outcomes = array.try_at_owners_with("restore", read, (folder.to_bytes(), text));
    if outcomes.iter().any(Result::is_err)
        && let Some(machine) = array.wait_for_loss()
    {
        return Err(held::lost(machine));
    }
    all_done(&places, array.values(outcomes), folder)?;
    Ok(array)
}

fn parse(text: &str) -> Result<Contents, Fault> {
    Manifest::parse(text).map_err(|what| Fault::unusable(MANIFEST, what))
}

fn first_place() -> Place {
    Place::of(0, 0)
}

/// Runs `f` on a thread, while this fiber waits; `name` is that of its file.
fn in_thread<R, F>(name: String, f: F) -> Result<R, Fault>
where
    R: Send + 'static,
    F: FnOnce() -> Result<R, Fault> + Send + 'static,
{
    aside::run(f).unwrap_or_else(|error| Err(Fault { name, why: Why::System(format!("cannot be used: {error}")) }))
}

/// Runs `f` on the folder as a place sees it, and waits for the result.
fn at<A, R, F>(place: Place, folder: &Folder, f: F, argument: A) -> Result<R, Error>
where
    A: Serialize + DeserializeOwned + Send + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
    F: FnOnce(Folder, A) -> Result<R, Fault> + NoRef + Send + 'static,
{
    let run =
        move |(folder, argument): (Vec<u8>, A)| in_thread(String::new(), move || f(Folder::of_bytes(folder), argument));
    let outcome = gossamer::spawn_with(place, run, (folder.to_bytes(), argument)).join();
    outcome.unwrap_or_else(|panic| resume_unwind(panic)).map_err(|fault| error(fault, place, folder))
}

/// Runs `f` on the folder of each machine, and waits for all; failures do not matter.
fn on_machines(folder: &Folder, f: impl Fn(Folder) + Clone + NoRef + Send + 'static) {
    let firsts = gossamer::rack().living().filter(|place| place.worker == 0);
    let run_at = |place| {
        let f = f.clone();
        let run = move |folder| drop(aside::run(move || f(Folder::of_bytes(folder))));
        gossamer::spawn_with(place, run, folder.to_bytes())
    };
    let fibers: Vec<_> = firsts.map(run_at).collect();
    fibers.into_iter().for_each(|fiber| drop(fiber.join()));
}

/// Returns the error of the first of these places that has failed.
fn all_done(places: &[Place], outcomes: Vec<Result<(), Fault>>, folder: &Folder) -> Result<(), Error> {
    let mut outcomes = places.iter().zip(outcomes);
    outcomes.try_for_each(|(place, outcome)| outcome.map_err(|fault| error(fault, *place, folder)))
}

fn error(fault: Fault, place: Place, folder: &Folder) -> Error {
    let path: PathBuf = folder.path(&fault.name);
    match fault.why {
        Why::None => Error::NoCheckpoint { place, path },
        Why::System(what) => Error::File { place, path, what },
        Why::Unusable(what) => Error::Checkpoint { place, path, what },
    }
}
