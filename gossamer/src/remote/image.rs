//! The program in memory: where it begins, what of it never changes, where functions begin, and its identity.
//!
//! A closure travels as the position of its operation relative to the start of the program (thesis 3.2.7), so that the
//! machines may load the program at different addresses (ASLR). That asks for the very same program on all of them:
//! [`ImageId`] says which one this is.
//!
//! A program that is loaded below 4 GiB (it is linked to a fixed address, or runs under a tool that loads it there) lies at the
//! same address on every machine: then its address is part of its identity, and addresses of its own functions may travel.
//! They would be hard to tell from small numbers there.
//!
//! Invariant I1: `constants` are mapped, readable and never change from before `main` until the process ends: the
//! program's read-only segments, and what the dynamic linker makes read-only after relocation (RELRO).

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::ops::Range;
use std::slice;
use std::sync::OnceLock;

use libc::{Elf64_Phdr, PF_R, PF_W, PF_X, PT_GNU_EH_FRAME, PT_GNU_RELRO, PT_LOAD, PT_NOTE, dl_phdr_info};
use trust::link::Operation;

use super::slot::Violation;

const NT_GNU_BUILD_ID: u32 = 3;
/// Longer build ids than this are cut; none is.
pub(super) const BUILD_BYTES_MAX: usize = 32;

/// Which program this is, and how it is laid out.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ImageId {
    /// The linker's build id, or a hash of the program's file.
    pub(super) build: Vec<u8>,
    /// Hash of the program headers.
    pub(super) shape: u64,
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.build.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "/{:016x}", self.shape)
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// See the file's documentation.
#[derive(Debug)]
pub(crate) struct Image {
    base: usize,
    constants: Vec<Range<usize>>,
    /// Executable segments of the program and of all libraries.
    code: Vec<Range<usize>>,
    /// Addresses where functions begin, rising; of the segments that have a table of them.
    functions: Vec<usize>,
    id: ImageId,
}

impl Image {
    /// The image of this process.
    ///
    /// # Errors
    /// If the program's headers or its file cannot be read.
    pub(crate) fn of_program() -> io::Result<&'static Image> {
        static IMAGE: OnceLock<Image> = OnceLock::new();
        if let Some(image) = IMAGE.get() {
            return Ok(image);
        }
        let image = Image::read()?;
        Ok(IMAGE.get_or_init(|| image))
    }

    fn read() -> io::Result<Image> {
        let objects = objects();
        // The first object is the program itself (dl_iterate_phdr(3)).
        let program = objects.first().ok_or_else(|| io::Error::other("the program has no headers"))?;
        let build = match program.build_id() {
            Some(id) => id,
            None => hash_of_file("/proc/self/exe")?.to_ne_bytes().to_vec(),
        };
        let mut image = Image {
            base: program.base,
            constants: program.constants(),
            code: Vec::new(),
            functions: Vec::new(),
            id: ImageId { build, shape: program.shape() },
        };
        // The program, if it is fixed, needs no look at its functions.
        for object in &objects[usize::from(program.is_fixed())..] {
            image.code.extend(object.segments(PT_LOAD, |flags| flags & PF_X != 0));
            match object.functions() {
                Some(functions) => image.functions.extend(functions),
                // Without a table each address of its code counts.
                None => image.functions.extend(object.segments(PT_LOAD, |flags| flags & PF_X != 0).flatten()),
            }
        }
        image.functions.sort_unstable();
        Ok(image)
    }

    pub(crate) fn id(&self) -> &ImageId {
        &self.id
    }

    /// The position of an operation.
    pub(super) fn position(&self, operation: &'static Operation) -> Result<u64, Violation> {
        let address = operation.position();
        if !self.is_constant(address) {
            return Err(Violation::new(
                "a closure that is not part of the program itself (but of a shared library, or of writable memory: \
                 link the program's crates statically, and with RELRO)",
            ));
        }
        Ok((address - self.base) as u64)
    }

    /// The operation at a position that another machine sent.
    pub(super) fn operation_at(&self, position: u64) -> Result<&'static Operation, Violation> {
        let wrong = || Violation::new(format!("{position:#x} is not the position of a closure"));
        let address = usize::try_from(position).ok().and_then(|position| self.base.checked_add(position));
        let address = address.filter(|&address| self.is_constant(address)).ok_or_else(wrong)?;
        // SAFETY: aligned and inside the constants (`is_constant`), which stay as they are (I1).
        unsafe { Operation::at(address) }.ok_or_else(wrong)
    }

    /// Does an aligned operation that begins here lie in the constants?
    fn is_constant(&self, address: usize) -> bool {
        let end = address.saturating_add(Operation::BYTES);
        address.is_multiple_of(8) && self.constants.iter().any(|range| range.start <= address && end <= range.end)
    }

    /// The first address of a function that stands in these bytes, at whatever offset.
    pub(super) fn function_in(&self, bytes: &[u8]) -> Option<usize> {
        bytes.windows(8).find_map(|word| {
            let word = usize::from_ne_bytes(word.try_into().unwrap_or_default());
            self.is_function(word).then_some(word)
        })
    }

    /// What bytes 4 and 5 of an address of code can be, in memory's order, if that is one of four.
    pub(super) fn code_marks(&self) -> Option<[u16; 4]> {
        let ranges = self.code.iter().filter(|range| !range.is_empty());
        let mut marks: Vec<u16> =
            ranges.flat_map(|range| range.start >> 32..=(range.end - 1) >> 32).map(|high| high as u16).collect();
        marks.sort_unstable();
        marks.dedup();
        let first = *marks.first()?;
        (marks.len() <= 4).then(|| std::array::from_fn(|index| marks.get(index).copied().unwrap_or(first)))
    }

    #[inline]
    fn is_function(&self, address: usize) -> bool {
        self.code.iter().any(|range| range.contains(&address)) && self.functions.binary_search(&address).is_ok()
    }
}

/// The program or a library that is loaded.
struct Object {
    base: usize,
    headers: Vec<Elf64_Phdr>,
}

/// All that is loaded, the program first.
fn objects() -> Vec<Object> {
    unsafe extern "C" fn note(info: *mut dl_phdr_info, _: usize, objects: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr gives a valid object with its headers, and the vector passed on below.
        unsafe {
            let (info, objects) = (&*info, &mut *objects.cast::<Vec<Object>>());
            let headers = if info.dlpi_phdr.is_null() {
                Vec::new()
            } else {
                slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)).to_vec()
            };
            objects.push(Object { base: info.dlpi_addr as usize, headers });
        }
        0
    }
    let mut objects = Vec::new();
    // SAFETY: `note` treats its arguments as dl_iterate_phdr gives them, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut objects).cast()) };
    objects
}

impl Object {
    fn segments(&self, kind: u32, flags: impl Fn(u32) -> bool) -> impl Iterator<Item = Range<usize>> {
        self.headers.iter().filter(move |header| header.p_type == kind && flags(header.p_flags)).map(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            start..start.saturating_add(header.p_memsz as usize)
        })
    }

    fn constants(&self) -> Vec<Range<usize>> {
        let read_only = |flags: u32| flags & (PF_R | PF_W | PF_X) == PF_R;
        self.segments(PT_LOAD, read_only).chain(self.segments(PT_GNU_RELRO, |_| true)).collect()
    }

    /// The bytes of a segment, while this object is known to be loaded: during `Image::read`.
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        let loaded = self.segments(PT_LOAD, |flags| flags & PF_R != 0);
        if !loaded.into_iter().any(|segment| segment.start <= range.start && range.end <= segment.end) {
            return &[];
        }
        let start = std::ptr::with_exposed_provenance(range.start);
        // SAFETY: inside a readable segment of a loaded object; notes and unwind tables are not written.
        unsafe { slice::from_raw_parts(start, range.len()) }
    }

    /// Does all of its code lie below 4 GiB?
    fn is_fixed(&self) -> bool {
        self.segments(PT_LOAD, |flags| flags & PF_X != 0).all(|range| range.end <= 1 << 32)
    }

    fn shape(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        if self.is_fixed() {
            hasher.write_usize(self.base);
        }
        for header in &self.headers {
            hasher.write_u32(header.p_type);
            hasher.write_u32(header.p_flags);
            [header.p_offset, header.p_vaddr, header.p_filesz, header.p_memsz, header.p_align]
                .into_iter()
                .for_each(|word| hasher.write_u64(word));
        }
        hasher.finish()
    }

    fn build_id(&self) -> Option<Vec<u8>> {
        self.segments(PT_NOTE, |_| true).find_map(|range| build_id(self.bytes(range)))
    }

    /// Where the functions begin, by the table for unwinding (`.eh_frame_hdr`, Linux Standard Base 10.6.2).
    fn functions(&self) -> Option<Vec<usize>> {
        const VERSION_1_POINTER_COUNT_TABLE: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let range = self.segments(PT_GNU_EH_FRAME, |_| true).next()?;
        let bytes = self.bytes(range.clone()).strip_prefix(&VERSION_1_POINTER_COUNT_TABLE)?;
        let count = u32::from_ne_bytes(*bytes.get(4..)?.first_chunk()?) as usize;
        let (entries, _) = bytes.get(8..)?.as_chunks::<8>();
        let entries = entries.get(..count)?;
        let start = |entry: &[u8; 8]| i32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
        Some(entries.iter().map(|entry| range.start.wrapping_add_signed(start(entry) as isize)).collect())
    }
}

/// The build id among these notes (elf(5)).
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    while let Some((head, rest)) = notes.split_first_chunk::<12>() {
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (name_bytes, id_bytes) = (word(0) as usize, word(4) as usize);
        let name = rest.get(..name_bytes)?;
        let rest = rest.get(name_bytes.next_multiple_of(4)..)?;
        let id = rest.get(..id_bytes)?;
        if word(8) == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return Some(id[..id.len().min(BUILD_BYTES_MAX)].to_vec());
        }
        notes = rest.get(id_bytes.next_multiple_of(4)..)?;
    }
    None
}

fn hash_of_file(path: &str) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let (mut hasher, mut buffer) = (DefaultHasher::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            bytes => hasher.write(&buffer[..bytes]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> &'static Image {
        Image::of_program().unwrap()
    }

    fn some_function(a: &u32, b: &u32, c: &u32) -> u32 {
        a + b + c
    }

    #[test]
    fn function_pointers_are_found_at_every_offset() {
        let pointer = some_function as for<'a, 'b, 'c> fn(&'a u32, &'b u32, &'c u32) -> u32 as usize;
        let library = libc::abs as *const () as usize;
        for address in [pointer, library] {
            for offset in 0..9 {
                let mut bytes = [0xAB; 17];
                bytes[offset..offset + 8].copy_from_slice(&address.to_ne_bytes());
                assert_eq!(image().function_in(&bytes), Some(address), "at {offset}");
            }
            assert_eq!(
                image().function_in(&(address + 1).to_ne_bytes()),
                None,
                "the middle of a function is no pointer"
            );
        }
    }

    #[test]
    fn every_function_has_one_of_the_marks() {
        let marks = image().code_marks().unwrap();
        assert!(image().functions.iter().all(|address| marks.contains(&((address >> 32) as u16))));
        let heap = Box::into_raw(Box::new(0u8)).addr();
        assert!(image().code.iter().all(|range| !range.contains(&heap)));
    }

    #[test]
    fn other_values_are_not_taken_for_functions() {
        let here = 5u64;
        let values = [0, 1, u64::MAX, (&raw const here).addr() as u64, Box::into_raw(Box::new(0u8)).addr() as u64];
        for value in values {
            assert_eq!(image().function_in(&value.to_ne_bytes()), None, "{value:#x}");
        }
        assert_eq!(image().function_in(&[1, 2, 3]), None);
    }

    #[test]
    fn positions_that_are_no_operations_are_refused() {
        static WORD: u64 = 0x6f70_6572_6174_696f;
        let writable = Box::new([WORD; 8]);
        let positions = [0, 1, 3, u64::MAX, u64::MAX - 7, 1 << 47, 8, 64];
        let here = [&raw const *writable as usize, some_function as *const () as usize];
        let here = here.map(|address| address.wrapping_sub(image().base) as u64);
        for position in positions.into_iter().chain(here) {
            assert!(image().operation_at(position).is_err(), "{position:#x}");
        }
        // Every place of the constants can be asked for.
        for range in &image().constants {
            for address in (range.start..range.end).step_by(4096 + 4) {
                let _ = image().operation_at((address - image().base) as u64);
            }
        }
    }

    #[test]
    fn a_program_at_a_fixed_address_is_known_by_it() {
        let header = |vaddr| Elf64_Phdr {
            p_type: PT_LOAD,
            p_flags: PF_R | PF_X,
            p_offset: 0,
            p_vaddr: vaddr,
            p_paddr: 0,
            p_filesz: 4096,
            p_memsz: 4096,
            p_align: 4096,
        };
        let object = |base| Object { base, headers: vec![header(0x1000)] };
        assert!(object(0).is_fixed() && object(0x10_8000).is_fixed() && !object(0x5555_0000_0000).is_fixed());
        assert_ne!(object(0).shape(), object(0x10_8000).shape());
        assert_eq!(object(0x5555_0000_0000).shape(), object(0x5556_0000_0000).shape());
    }

    #[test]
    fn the_id_is_of_this_file() {
        assert!(image().id().build.len() >= 8);
        assert_eq!(*image().id(), Image::read().unwrap().id);
        let mut note = vec![4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
        note.extend_from_slice(b"GNU\0\x0a\x0b\0\0");
        assert_eq!(build_id(&note), Some(vec![0x0a, 0x0b]));
        for len in 0..note.len() - 2 {
            assert_eq!(build_id(&note[..len]), None, "cut at {len}");
        }
    }
}
