//! Writing: the log's next record, images slice by slice, a new generation.

use super::format::{ImageHead, LogHead, PAGE, Record, SLICE, checksum, image_name, log_name};
use super::named::Files;
use crate::error::Result;

/// The log is zeroed this far ahead, so that a sync has no new blocks to record.
const AHEAD: u64 = if cfg!(any(test, feature = "fuzz")) { 16 << 10 } else { 4 << 20 };

/// Aligned to a page, so that the zeros are written without another copy.
#[repr(align(4096))]
struct Zeros([u8; 1 << 20]);

static ZEROS: Zeros = Zeros([0; 1 << 20]);

/// Data common to all files of a pool.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) pool: u128,
    pub(crate) seed: u64,
    /// The layout as JSON.
    pub(crate) layout: String,
}

/// Returns the name of a log that recovery ignores.
fn unfinished(generation: u64) -> String {
    log_name(generation) + ".tmp"
}

/// The end of a log.
pub(crate) struct Log {
    pub(crate) name: String,
    pub(crate) generation: u64,
    pub(crate) at: u64,
    /// Number of the next record's group.
    next: u64,
    /// End of the allocated blocks of the file, filled with zeros or with records of another generation.
    zeroed: u64,
}

impl Log {
    /// Begins a log under a name that recovery ignores.
    pub(crate) fn begin(files: &mut Files, head: LogHead) -> Result<Log> {
        let name = unfinished(head.generation);
        files.create(&name)?;
        files.write(&name, 0, &head.encode())?;
        Ok(Log { name, generation: head.generation, at: PAGE, next: head.first, zeroed: PAGE })
    }

    /// Begins a log in the file of an old log, of `bytes` bytes: its blocks are allocated, its records are of another
    /// generation.
    fn begin_again(files: &mut Files, head: LogHead, bytes: u64) -> Result<Log> {
        let name = unfinished(head.generation);
        files.write(&name, 0, &head.encode())?;
        Ok(Log { name, generation: head.generation, at: PAGE, next: head.first, zeroed: bytes })
    }

    /// Writes a record, without making it durable.
    pub(crate) fn write(&mut self, files: &mut Files, record: &Record) -> Result<()> {
        let end = self.at + record.bytes().len() as u64;
        if end > self.zeroed {
            let to = end + AHEAD;
            while self.zeroed < to {
                let len = ZEROS.0.len().min((to - self.zeroed) as usize);
                files.write(&self.name, self.zeroed, &ZEROS.0[..len])?;
                self.zeroed += len as u64;
            }
        }
        files.write(&self.name, self.at, record.bytes())?;
        self.at = end;
        self.next = record.group + 1;
        Ok(())
    }

    /// Makes the writes durable, and gives the log its final name.
    pub(crate) fn publish(&mut self, files: &mut Files) -> Result<()> {
        files.sync(&self.name)?;
        let name = log_name(self.generation);
        files.rename(&self.name, &name)?;
        self.name = name;
        files.sync_folder()
    }
}

/// An image that is being written.
pub(crate) struct Image {
    name: String,
    head: ImageHead,
    sums: Vec<u8>,
}

impl Image {
    pub(crate) fn begin(
        files: &mut Files,
        identity: &Identity,
        generation: u64,
        first: u64,
        len: u64,
    ) -> Result<Image> {
        let name = image_name(generation) + ".tmp";
        files.create(&name)?;
        let layout_len = identity.layout.len() as u64;
        let (pool, seed) = (identity.pool, identity.seed);
        let head = ImageHead { pool, generation, first, end: 0, len, seed, layout_len, sums: 0 };
        files.write(&name, PAGE, identity.layout.as_bytes())?;
        Ok(Image { name, head, sums: Vec::new() })
    }

    /// Writes the next slice.
    pub(crate) fn slice(&mut self, files: &mut Files, bytes: &[u8]) -> Result<()> {
        let index = self.sums.len() as u64 / 8;
        files.write(&self.name, self.head.data_at() + index * SLICE as u64, bytes)?;
        self.sums.extend_from_slice(&checksum([bytes]).to_le_bytes());
        Ok(())
    }

    /// Writes the head, last; then gives the image its final name.
    pub(crate) fn publish(mut self, files: &mut Files, identity: &Identity, end: u64) -> Result<()> {
        self.head.end = end;
        self.head.sums = checksum([identity.layout.as_bytes(), &self.sums]);
        files.write(&self.name, self.head.sums_at(), &self.sums)?;
        files.write(&self.name, 0, &self.head.encode())?;
        files.sync(&self.name)?;
        files.rename(&self.name, &image_name(self.head.generation))?;
        files.sync_folder()
    }
}

/// Files of an open pool.
pub(crate) struct Store {
    pub(crate) files: Files,
    pub(crate) identity: Identity,
    /// Generation of the image.
    pub(crate) generation: u64,
    pub(crate) log: Log,
    image: Option<Image>,
    /// Bytes of the previous log, while a new image is being written.
    before: u64,
    /// Size of a log that is no longer needed, kept under the name that the next one begins with. Overwriting it needs
    /// no new blocks, and no zeros ahead.
    spare: Option<u64>,
}

impl Store {
    pub(crate) fn of(files: Files, identity: Identity, generation: u64, log: Log) -> Store {
        Store { files, identity, generation, log, image: None, before: 0, spare: None }
    }

    /// Creates the first files of a pool with the memory `bytes`.
    pub(crate) fn create(mut files: Files, identity: Identity, bytes: &[u8]) -> Result<Store> {
        let mut log = Log::begin(&mut files, LogHead { pool: identity.pool, generation: 0, first: 1 })?;
        log.publish(&mut files)?;
        let mut image = Image::begin(&mut files, &identity, 0, 1, bytes.len() as u64)?;
        bytes.chunks(SLICE).try_for_each(|slice| image.slice(&mut files, slice))?;
        image.publish(&mut files, &identity, 0)?;
        let mut store = Store::of(files, identity, 0, log);
        store.expect_there()?;
        Ok(store)
    }

    /// Makes a group durable.
    pub(crate) fn commit(&mut self, record: &mut Record) -> Result<()> {
        record.seal(self.identity.pool, self.log.generation);
        self.log.write(&mut self.files, record)?;
        self.files.sync(&self.log.name)?;
        self.expect_there()
    }

    /// Writes the end record, behind which nothing is written: opening then takes a bad record before it for damage,
    /// not for one that a crash cut off.
    pub(crate) fn close(&mut self) -> Result<()> {
        let mut record = Record::end(self.log.next);
        record.seal(self.identity.pool, self.log.generation);
        // Not by `Log::write`: no zeros are needed ahead.
        self.files.write(&self.log.name, self.log.at, record.bytes())?;
        self.files.sync(&self.log.name)
    }

    /// Fails if another program has taken one of the files that recovery needs: data is durable only in a file that
    /// still has its name.
    pub(crate) fn expect_there(&mut self) -> Result<()> {
        self.files.expect_there(&image_name(self.generation))?;
        if self.log.generation != self.generation {
            self.files.expect_there(&log_name(self.generation))?;
        }
        self.files.expect_there(&self.log.name)
    }

    /// Begins a new generation: from the group `first` on records go to another log, which belongs to an image of `len`
    /// bytes that is begun here.
    pub(crate) fn begin_generation(&mut self, first: u64, len: u64) -> Result<()> {
        let generation = self.generation + 1;
        let head = LogHead { pool: self.identity.pool, generation, first };
        let mut log = match self.spare.take() {
            Some(bytes) => Log::begin_again(&mut self.files, head, bytes)?,
            None => Log::begin(&mut self.files, head)?,
        };
        log.publish(&mut self.files)?;
        self.before = self.log.zeroed;
        self.image = Some(Image::begin(&mut self.files, &self.identity, generation, first, len)?);
        self.log = log;
        Ok(())
    }

    /// Writes the next slice of the image.
    pub(crate) fn slice(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.image {
            Some(image) => image.slice(&mut self.files, bytes),
            None => Ok(()),
        }
    }

    /// Ends a generation: the image is complete, and the group `end` durable, so the previous generation is removed.
    /// Its log is kept for the next one, as a file that recovery removes.
    pub(crate) fn end_generation(&mut self, end: u64) -> Result<()> {
        let Some(image) = self.image.take() else { return Ok(()) };
        image.publish(&mut self.files, &self.identity, end)?;
        // Before the files that these replace are removed.
        self.files.expect_there(&image_name(self.generation + 1))?;
        self.files.expect_there(&self.log.name)?;
        self.files.remove(&image_name(self.generation))?;
        self.files.rename(&log_name(self.generation), &unfinished(self.generation + 2))?;
        self.spare = Some(self.before);
        self.generation += 1;
        Ok(())
    }

    /// Replaces type and memory of the pool, whose last group is `last`, by a new generation: its image has this layout
    /// and this memory. Until the image has its name opening finds the old type, from then on the new one.
    pub(crate) fn change_type(&mut self, layout: String, last: u64, bytes: &[u8]) -> Result<()> {
        self.identity.layout = layout;
        self.begin_generation(last + 1, bytes.len() as u64)?;
        bytes.chunks(SLICE).try_for_each(|slice| self.slice(slice))?;
        self.end_generation(last)
    }
}
