//! Byte format of images and logs.
//!
//! A log: a page that identifies it, then records, each aligned to a page; of a closed pool an end record is the last
//! one. An image: a page, the layout as JSON, slices
//! of the memory, a checksum of each slice. Numbers are little-endian.

use crate::memory::copy::LINE;

pub(crate) const PAGE: u64 = 4096;
pub(crate) const VERSION: u32 = 1;
/// Size of the slices in which the memory is copied into an image.
pub(crate) const SLICE: usize = 256 << 10;

const LOG: u64 = u64::from_le_bytes(*b"trustlog");
const RECORD: u64 = u64::from_le_bytes(*b"trustrec");
const IMAGE: u64 = u64::from_le_bytes(*b"trustimg");
/// Bytes of a record before its runs.
pub(crate) const HEAD: usize = 64;

pub(crate) fn checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut digest = crc64fast::Digest::new();
    parts.into_iter().for_each(|part| digest.write(part));
    digest.sum64()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

fn wide(bytes: &[u8], at: usize) -> Option<u128> {
    bytes.get(at..)?.first_chunk().map(|word| u128::from_le_bytes(*word))
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn image_name(generation: u64) -> String {
    format!("image-{generation}")
}

pub(crate) fn log_name(generation: u64) -> String {
    format!("log-{generation}")
}

/// Returns the generation in a file name of this kind.
pub(crate) fn generation(name: &str, kind: &str) -> Option<u64> {
    let number = name.strip_prefix(kind)?.strip_prefix('-')?;
    number.parse().ok().filter(|parsed: &u64| parsed.to_string() == number)
}

/// First page of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogHead {
    pub(crate) pool: u128,
    pub(crate) generation: u64,
    pub(crate) first: u64,
}

impl LogHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE as usize];
        put(&mut page, 0, LOG);
        put(&mut page, 8, VERSION.into());
        page[16..32].copy_from_slice(&self.pool.to_le_bytes());
        put(&mut page, 32, self.generation);
        put(&mut page, 40, self.first);
        let sum = checksum([&page[..48]]);
        put(&mut page, 48, sum);
        page
    }

    pub(crate) fn decode(page: &[u8]) -> Option<LogHead> {
        let is_log =
            word(page, 0)? == LOG && word(page, 8)? == u64::from(VERSION) && word(page, 48)? == checksum([&page[..48]]);
        let head = LogHead { pool: wide(page, 16)?, generation: word(page, 32)?, first: word(page, 40)? };
        is_log.then_some(head)
    }
}

/// The changes of a group. Built in the order of its bytes: head, runs, lines.
pub(crate) struct Record {
    pub(crate) group: u64,
    buffer: Vec<u8>,
    /// Start of the record in `buffer`: where it was built, a page boundary in memory, so that it is written without
    /// another copy.
    start: usize,
}

/// Head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) pool: u128,
    pub(crate) generation: u64,
    pub(crate) group: u64,
    pub(crate) runs: u32,
    pub(crate) lines: u32,
    sum: u64,
}

impl RecordHead {
    pub(crate) fn decode(bytes: &[u8]) -> Option<RecordHead> {
        if word(bytes, 0)? != RECORD {
            return None;
        }
        let counts = word(bytes, 40)?;
        let (runs, lines) = (counts as u32, (counts >> 32) as u32);
        let head = RecordHead {
            pool: wide(bytes, 8)?,
            generation: word(bytes, 24)?,
            group: word(bytes, 32)?,
            runs,
            lines,
            sum: word(bytes, 48)?,
        };
        (runs <= lines && head.len() < 1 << 40).then_some(head)
    }

    /// Bytes of the record, without the padding of its last page.
    pub(crate) fn len(&self) -> u64 {
        HEAD as u64 + u64::from(self.runs) * 8 + u64::from(self.lines) * LINE as u64
    }
}

impl Record {
    /// Begins the record of a group with these runs, in this buffer; the caller appends the lines.
    pub(crate) fn begin(group: u64, runs: &[(u32, u32)], mut buffer: Vec<u8>) -> Record {
        let lines: u32 = runs.iter().map(|run| run.1).sum();
        let len = HEAD + runs.len() * 8 + lines as usize * LINE;
        buffer.clear();
        // Reserved in full, so that neither filling nor padding reallocates it.
        buffer.reserve(len.next_multiple_of(PAGE as usize) + PAGE as usize);
        // Where `align_offset` gives up, the record is not aligned, which costs another copy.
        let start = buffer.as_ptr().align_offset(PAGE as usize).min(PAGE as usize);
        buffer.resize(start + HEAD, 0);
        let head = &mut buffer[start..];
        put(head, 0, RECORD);
        put(head, 32, group);
        put(head, 40, runs.len() as u64 | u64::from(lines) << 32);
        for &(start, count) in runs {
            buffer.extend_from_slice(&start.to_le_bytes());
            buffer.extend_from_slice(&count.to_le_bytes());
        }
        Record { group, buffer, start }
    }

    /// Returns the buffer to append the lines to.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Returns its buffer for reuse.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Completes the record for its log: identity, checksum, padding of its last page.
    pub(crate) fn seal(&mut self, pool: u128, generation: u64) {
        if let Some(len) = RecordHead::decode(self.bytes()).map(|head| head.len() as usize) {
            self.buffer.truncate(self.start + len);
        }
        let bytes = &mut self.buffer[self.start..];
        bytes[8..24].copy_from_slice(&pool.to_le_bytes());
        put(bytes, 24, generation);
        put(bytes, 48, 0);
        let sum = checksum([&*bytes]);
        put(bytes, 48, sum);
        let len = bytes.len().next_multiple_of(PAGE as usize);
        self.buffer.resize(self.start + len, 0);
    }

    /// Decodes a record, if its checksum is right.
    pub(crate) fn decode(bytes: Vec<u8>) -> Option<Record> {
        let head = RecordHead::decode(&bytes)?;
        let body = bytes.get(..head.len() as usize)?;
        let is_right = checksum([&body[..48], &[0; 8], &body[56..]]) == head.sum;
        let record = Record { group: head.group, buffer: bytes, start: 0 };
        (is_right && record.runs().map(|(_, count)| u64::from(count)).sum::<u64>() == u64::from(head.lines))
            .then_some(record)
    }

    /// Returns the end record of a log in which `group` would be next. It has no lines; every group has some.
    pub(crate) fn end(group: u64) -> Record {
        Record::begin(group, &[], Vec::new())
    }

    /// Returns whether this is an end record.
    pub(crate) fn is_end(&self) -> bool {
        self.lines() == 0
    }

    pub(crate) fn lines(&self) -> u64 {
        word(self.bytes(), 40).unwrap_or(0) >> 32
    }

    fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let runs = word(self.bytes(), 40).unwrap_or(0) as u32 as usize;
        self.bytes()[HEAD..].as_chunks::<8>().0.iter().take(runs).map(|run| {
            let both = u64::from_le_bytes(*run);
            (both as u32, (both >> 32) as u32)
        })
    }

    /// Iterates over its runs: offset of the first line, and the bytes.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut rest = &self.bytes()[HEAD + self.runs().count() * 8..];
        self.runs().map(move |(start, count)| {
            let (lines, behind) = rest.split_at(count as usize * LINE);
            rest = behind;
            (u64::from(start) * LINE as u64, lines)
        })
    }
}

/// First page of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageHead {
    pub(crate) pool: u128,
    pub(crate) generation: u64,
    /// Group that was open when the first slice was copied: the log begins with it.
    pub(crate) first: u64,
    /// Last group that had changed anything when the last slice was copied: the log has to reach it.
    pub(crate) end: u64,
    /// Bytes of memory.
    pub(crate) len: u64,
    pub(crate) seed: u64,
    pub(crate) layout_len: u64,
    /// Checksum of the layout and the checksums of the slices.
    pub(crate) sums: u64,
}

impl ImageHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE as usize];
        put(&mut page, 0, IMAGE);
        put(&mut page, 8, VERSION.into());
        page[16..32].copy_from_slice(&self.pool.to_le_bytes());
        let rest = [self.generation, self.first, self.end, self.len, self.seed, self.layout_len, self.sums];
        rest.iter().enumerate().for_each(|(index, &value)| put(&mut page, 32 + index * 8, value));
        let sum = checksum([&page[..88]]);
        put(&mut page, 88, sum);
        page
    }

    /// Returns the version in a page, if it is the first of an image.
    pub(crate) fn version(page: &[u8]) -> Option<u32> {
        (word(page, 0)? == IMAGE).then(|| word(page, 8)).flatten().map(|version| version as u32)
    }

    pub(crate) fn decode(page: &[u8]) -> Option<ImageHead> {
        let rest = |index: usize| word(page, 32 + index * 8);
        let head = ImageHead {
            pool: wide(page, 16)?,
            generation: rest(0)?,
            first: rest(1)?,
            end: rest(2)?,
            len: rest(3)?,
            seed: rest(4)?,
            layout_len: rest(5)?,
            sums: rest(6)?,
        };
        let is_image = word(page, 0)? == IMAGE && word(page, 88)? == checksum([&page[..88]]);
        (is_image && head.len < 1 << 48 && head.layout_len < 1 << 30).then_some(head)
    }

    /// Offset of the memory.
    pub(crate) fn data_at(&self) -> u64 {
        PAGE + self.layout_len.next_multiple_of(PAGE)
    }

    /// Offset of the checksums of the slices.
    pub(crate) fn sums_at(&self) -> u64 {
        self.data_at() + self.len.next_multiple_of(PAGE)
    }

    pub(crate) fn slices(&self) -> u64 {
        self.len.div_ceil(SLICE as u64)
    }

    pub(crate) fn file_len(&self) -> u64 {
        self.sums_at() + self.slices() * 8
    }
}
