//! Recovery: reads the newest image, its log and the next log; then writes a new log, so that everything read is
//! durable.

use super::format::{
    HEAD, ImageHead, LogHead, PAGE, Record, RecordHead, SLICE, VERSION, checksum, generation, image_name, log_name,
};
use super::named::Files;
use super::store::{Identity, Log, Store};
use crate::error::{Error, Result};
use crate::inspect::Inspection;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::walk::Damage;

/// Result of opening.
pub(crate) struct Opened {
    pub(crate) memory: Memory,
    pub(crate) store: Store,
    pub(crate) last: u64,
    pub(crate) replayed: u64,
    /// Bytes of a torn record, if its beginning was written.
    pub(crate) cut: u64,
}

/// End of the good part of a log.
struct LogEnd {
    at: u64,
    /// Bytes of a torn record after it.
    cut: u64,
    /// Does an end record follow?
    is_closed: bool,
}

/// Checks the memory of a pool, by the type of its root.
pub(crate) type Check = fn(&Memory) -> std::result::Result<(), Damage>;

/// Reader of files. Writes only where a method says so.
struct Reader<'d> {
    files: &'d mut Files,
}

impl Reader<'_> {
    fn damaged(&self, name: &str, offset: u64, what: &str) -> Error {
        Error::Damaged { file: self.files.path(name), offset, what: what.into() }
    }

    /// Returns the head of an image, and its layout as stored.
    fn image_head(&mut self, name: &str) -> Result<(ImageHead, String)> {
        let page = self.files.read(name, 0, PAGE as usize)?;
        match ImageHead::version(&page) {
            Some(found) if found != VERSION && found != 0 => {
                return Err(Error::Version { file: self.files.path(name), found, known: VERSION });
            }
            _ => {}
        }
        let head = ImageHead::decode(&page).ok_or_else(|| self.damaged(name, 0, "this is not the head of an image"))?;
        let len = self.files.len(name)?;
        if len < head.file_len() {
            let what = format!("its {} bytes", head.file_len());
            return Err(Error::Truncated { file: self.files.path(name), offset: len, what });
        }
        let json = self.files.read(name, PAGE, head.layout_len as usize)?;
        let sums = self.files.read(name, head.sums_at(), head.slices() as usize * 8)?;
        if checksum([&json[..], &sums]) != head.sums {
            return Err(self.damaged(name, PAGE, "the layout, or the sums of the slices, were changed"));
        }
        Ok((head, String::from_utf8_lossy(&json).into_owned()))
    }

    fn layout(&self, name: &str, json: &str) -> Result<Layout> {
        serde_json::from_str(json).map_err(|_| self.damaged(name, PAGE, "this is not the layout of a type"))
    }

    /// Calls `take` with each slice of the memory and its offset; `take` returns false if the slice does not fit.
    fn slices(&mut self, name: &str, head: &ImageHead, take: impl Fn(usize, &[u8]) -> bool) -> Result<()> {
        let sums = self.files.read(name, head.sums_at(), head.slices() as usize * 8)?;
        for (index, sum) in sums.as_chunks::<8>().0.iter().enumerate() {
            let start = index * SLICE;
            let at = head.data_at() + start as u64;
            let bytes = self.files.read(name, at, SLICE.min(head.len as usize - start))?;
            if checksum([&bytes[..]]) != u64::from_le_bytes(*sum) || !take(start, &bytes) {
                return Err(self.damaged(name, at, "this slice of the memory was changed"));
            }
        }
        Ok(())
    }

    fn image(&mut self, name: &str, head: &ImageHead, limit: usize) -> Result<Memory> {
        if head.len > limit as u64 {
            return Err(Error::Limit { file: self.files.path(name), bytes: head.len, limit: limit as u64 });
        }
        let memory = reserve(limit)?;
        self.slices(name, head, |start, bytes| memory.copy_in(start, bytes))?;
        Ok(memory)
    }

    /// Calls `take` with each good record of a log, in order, except its end record.
    fn log(
        &mut self,
        name: &str,
        head: &LogHead,
        mut take: impl FnMut(&mut Files, Record) -> Result<()>,
    ) -> Result<LogEnd> {
        let len = self.files.len(name)?;
        let (mut at, mut group, mut is_closed) = (PAGE, head.first, false);
        while let Some(record) = self.record(name, at, head)?.filter(|record| record.group == group) {
            if record.is_end() {
                is_closed = true;
                break;
            }
            at += (record.bytes().len() as u64).next_multiple_of(PAGE);
            group += 1;
            take(self.files, record)?;
        }
        // The end, or damage: nothing is written behind a record that is not complete. Bytes found there may be of an
        // earlier generation.
        for later in (at + PAGE..len).step_by(PAGE as usize) {
            if self.record(name, later, head)?.is_some_and(|record| record.group >= group) {
                return Err(self.damaged(name, at, "a record is damaged that whole ones follow"));
            }
        }
        let torn = self.record_head(name, at, head)?.filter(|torn| torn.group == group && !is_closed);
        let cut = torn.map_or(0, |torn| torn.len().next_multiple_of(PAGE).min(len - at));
        Ok(LogEnd { at, cut, is_closed })
    }

    /// Returns the head of a record of this log, complete or not.
    fn record_head(&mut self, name: &str, at: u64, log: &LogHead) -> Result<Option<RecordHead>> {
        let head = RecordHead::decode(&self.files.read(name, at, HEAD)?);
        Ok(head.filter(|head| (head.pool, head.generation) == (log.pool, log.generation)))
    }

    /// Returns the complete record of this log at `at`, if there is one.
    fn record(&mut self, name: &str, at: u64, log: &LogHead) -> Result<Option<Record>> {
        let Some(head) = self.record_head(name, at, log)? else { return Ok(None) };
        if head.len() > self.files.len(name)?.saturating_sub(at) {
            return Ok(None);
        }
        Ok(Record::decode(self.files.read(name, at, head.len() as usize)?))
    }

    /// Returns name, head and layout of the image of this generation.
    fn newest(&mut self, generation: u64) -> Result<(String, ImageHead, String)> {
        let name = image_name(generation);
        let (head, json) = self.image_head(&name)?;
        if head.generation != generation {
            return Err(self.damaged(&name, 32, "this image has another one's name"));
        }
        Ok((name, head, json))
    }

    /// Returns the log that belongs to an image.
    fn its_log(&mut self, names: &[String], image: &ImageHead) -> Result<(String, LogHead)> {
        let name = log_name(image.generation);
        if !names.contains(&name) {
            let what = "the log of the image (no such file)".into();
            return Err(Error::Truncated { file: self.files.path(&name), offset: 0, what });
        }
        let head = self.log_head(&name, image, image.generation)?;
        if head.first != image.first {
            return Err(self.damaged(&name, 40, "this log does not begin where its image does"));
        }
        Ok((name, head))
    }

    /// Returns the log of the next generation, if it continues with this group.
    fn next_log(&mut self, names: &[String], image: &ImageHead, group: u64) -> Result<Option<(String, LogHead)>> {
        let name = log_name(image.generation + 1);
        if !names.contains(&name) {
            return Ok(None);
        }
        let head = self.log_head(&name, image, image.generation + 1)?;
        if head.first > group {
            return Err(self.damaged(&name, 40, &format!("this log begins after the group {group}")));
        }
        // A log that begins earlier was replayed by a previous opening, which was cut off before removing it.
        Ok((head.first == group).then_some((name, head)))
    }

    /// Checks that the logs reach the group that the image needs. `next` is the group after the last one read, and the
    /// last log ends at `end` of the file `name`.
    fn reaches(&self, image: &ImageHead, next: u64, name: &str, end: u64) -> Result<()> {
        if next > image.end {
            return Ok(());
        }
        let what = format!("the group {}, which the image needs", image.end);
        Err(Error::Truncated { file: self.files.path(name), offset: end, what })
    }

    /// Checks that a folder without an image is new: it has no log, or the first one with no group in it. Creating a
    /// pool may have been cut off at that point.
    fn expect_new(&mut self, names: &[String]) -> Result<()> {
        for name in names {
            let Some(log) = generation(name, "log") else { continue };
            if log > 0 || self.files.len(name)? > PAGE {
                let what = format!("the image that `{name}` goes with (no such file)");
                return Err(Error::Truncated { file: self.files.path(&image_name(log)), offset: 0, what });
            }
        }
        Ok(())
    }

    /// Removes unfinished files, which nothing reads.
    fn remove_unfinished(&mut self, names: &[String]) -> Result<()> {
        for name in names.iter().filter(|name| is_ours(name) && name.ends_with(".tmp")) {
            self.files.remove(name)?;
        }
        Ok(())
    }

    fn log_head(&mut self, name: &str, image: &ImageHead, generation: u64) -> Result<LogHead> {
        let page = self.files.read(name, 0, PAGE as usize)?;
        let head = LogHead::decode(&page).ok_or_else(|| self.damaged(name, 0, "this is not the head of a log"))?;
        if (head.pool, head.generation) != (image.pool, generation) {
            return Err(self.damaged(name, 16, "this log is of another pool, or has another one's name"));
        }
        Ok(head)
    }
}

fn reserve(limit: usize) -> Result<Memory> {
    Memory::reserve(limit).map_err(|error| Error::Reservation { bytes: limit as u64, error })
}

/// Removes the pool's files that no generation needs.
fn tidy(files: &mut Files, names: &[String], kept: u64) -> Result<()> {
    for name in names {
        let is_kept = *name == image_name(kept) || *name == log_name(kept);
        if is_ours(name) && !is_kept && files.list()?.contains(name) {
            files.remove(name)?;
        }
    }
    Ok(())
}

fn is_ours(name: &str) -> bool {
    let base = name.strip_suffix(".tmp").unwrap_or(name);
    generation(base, "image").is_some() || generation(base, "log").is_some()
}

/// Refuses a folder that has no pool but other files.
pub(crate) fn refuse_foreign(files: &mut Files) -> Result<()> {
    let names = files.list()?;
    let has_pool = names.iter().any(|name| generation(name, "image").is_some());
    match names.into_iter().find(|name| !is_ours(name)) {
        Some(file) if !has_pool => Err(Error::Foreign { folder: files.path(""), file }),
        _ => Ok(()),
    }
}

/// Refuses a folder that has any file, except those that creating a pool may have left. These are removed.
pub(crate) fn expect_empty(files: &mut Files) -> Result<()> {
    let names = files.list()?;
    let foreign = names.iter().find(|name| !is_ours(name) || generation(name, "image").is_some());
    let begun = names.iter().find(|name| generation(name, "log").is_some());
    let mut reader = Reader { files };
    if let Some(file) = foreign.or(begun.filter(|_| reader.expect_new(&names).is_err())) {
        return Err(Error::Foreign { folder: reader.files.path(""), file: file.clone() });
    }
    names.iter().try_for_each(|name| files.remove(name))
}

/// Removes the files of an unfinished pool, as far as possible.
pub(crate) fn remove_ours(files: &mut Files) {
    for name in files.list().unwrap_or_default().iter().filter(|name| is_ours(name)) {
        let _ = files.remove(name);
    }
}

/// Returns the error for a folder that should have a pool and has none.
pub(crate) fn no_pool(files: &Files) -> Error {
    let what = "the image of a pool (no such file)".into();
    Error::Truncated { file: files.path(&image_name(0)), offset: 0, what }
}

/// Returns the layout in the newest image, if there is one. Writes nothing.
pub(crate) fn layout(files: &mut Files) -> Result<Option<Layout>> {
    let names = files.list()?;
    let Some(newest) = names.iter().filter_map(|name| generation(name, "image")).max() else { return Ok(None) };
    let mut reader = Reader { files };
    let (image, _, json) = reader.newest(newest)?;
    reader.layout(&image, &json).map(Some)
}

/// Opens the pool of a folder. Returns the folder if there is no pool yet.
pub(crate) fn open(
    mut files: Files,
    layout: &Layout,
    limit: usize,
    check: Check,
) -> Result<std::result::Result<Opened, Files>> {
    let mut reader = Reader { files: &mut files };
    let names = reader.files.list()?;
    let Some(newest) = names.iter().filter_map(|name| generation(name, "image")).max() else {
        reader.expect_new(&names)?;
        reader.remove_unfinished(&names)?;
        return Ok(Err(files));
    };
    let (image, head, json) = reader.newest(newest)?;
    let found = reader.layout(&image, &json)?;
    if let Some(difference) = found.differs_from(layout) {
        let (found, wanted) = (found.name().into(), layout.name().into());
        return Err(Error::OtherType { file: reader.files.path(&image), found, wanted, difference });
    }
    let memory = reader.image(&image, &head, limit)?;
    let (name, log_head) = reader.its_log(&names, &head)?;

    reader.remove_unfinished(&names)?;
    let log = Log::begin(reader.files, log_head)?;
    let mut replay = Replay { memory, log, next: head.first, replayed: 0, pool: head.pool };
    let mut end = reader.log(&name, &log_head, |files, record| replay.take(&name, files, record))?;
    let mut ends_in = name.clone();
    if let Some((next, next_head)) = reader.next_log(&names, &head, replay.next)? {
        end = reader.log(&next, &next_head, |files, record| replay.take(&next, files, record))?;
        ends_in = next;
    }
    reader.reaches(&head, replay.next, &ends_in, end.at)?;
    check(&replay.memory).map_err(|damage| Error::Damaged {
        file: reader.files.path(&image),
        offset: head.data_at() + damage.at,
        what: format!("the memory is damaged there, or in the log: {}", damage.what),
    })?;
    let Replay { memory, mut log, next, replayed, pool } = replay;
    // The folder may be a copy that was not synced, or the image may have got its name a moment ago.
    reader.files.sync(&image)?;
    reader.files.sync_folder()?;
    log.publish(reader.files)?;
    tidy(reader.files, &names, newest)?;
    memory.set_seed(head.seed);
    let identity = Identity { pool, seed: head.seed, layout: json };
    let store = Store::of(files, identity, newest, log);
    Ok(Ok(Opened { memory, store, last: next - 1, replayed, cut: end.cut }))
}

/// Replay of records into the memory and into a new log.
struct Replay {
    memory: Memory,
    log: Log,
    /// Number of the next group.
    next: u64,
    replayed: u64,
    pool: u128,
}

impl Replay {
    fn take(&mut self, name: &str, files: &mut Files, mut record: Record) -> Result<()> {
        for (at, bytes) in record.changes() {
            if !self.memory.copy_in(at as usize, bytes) {
                let limit = self.memory.limit() as u64;
                return Err(Error::Limit { file: files.path(name), bytes: at + bytes.len() as u64, limit });
            }
        }
        self.next = record.group + 1;
        self.replayed += 1;
        record.seal(self.pool, self.log.generation);
        self.log.write(files, &record)
    }
}

/// Inspects a folder, as far as possible without the type of the root.
pub(crate) fn inspect(files: &mut Files) -> Result<Inspection> {
    let mut reader = Reader { files };
    let names = reader.files.list()?;
    let Some(newest) = names.iter().filter_map(|name| generation(name, "image")).max() else {
        return Err(no_pool(reader.files));
    };
    let (image, head, json) = reader.newest(newest)?;
    let layout = reader.layout(&image, &json)?;
    reader.slices(&image, &head, |_, _| true)?;
    let mut inspection = Inspection {
        root: layout.name().into(),
        layout: layout.lines(),
        generation: newest,
        memory_bytes: head.len,
        first_group: head.first,
        last_group: head.first.saturating_sub(1),
        needed_group: head.end,
        groups: 0,
        lines: 0,
        log_bytes: 0,
        bytes_cut: 0,
        is_closed: false,
        is_renewing: false,
    };
    let (name, log_head) = reader.its_log(&names, &head)?;
    let mut ends_in = name.clone();
    let mut end = inspection.read(&mut reader, &name, &log_head)?;
    if let Some((next, next_head)) = reader.next_log(&names, &head, inspection.last_group + 1)? {
        end = inspection.read(&mut reader, &next, &next_head)?;
        inspection.is_renewing = true;
        ends_in = next;
    }
    reader.reaches(&head, inspection.last_group + 1, &ends_in, end)?;
    Ok(inspection)
}

impl Inspection {
    fn read(&mut self, reader: &mut Reader<'_>, name: &str, head: &LogHead) -> Result<u64> {
        let end = reader.log(name, head, |_, record| {
            self.groups += 1;
            self.last_group = record.group;
            self.lines += record.lines();
            Ok(())
        })?;
        self.log_bytes += end.at;
        self.bytes_cut = end.cut;
        self.is_closed = end.is_closed;
        Ok(end.at)
    }
}
