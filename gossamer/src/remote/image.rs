//! Program in memory: its start, its constant parts, and its identity.
//!
//! A closure travels as the position of its operation relative to the start of the program (thesis 3.2.7), so that the
//! machines may load the program at different addresses (ASLR). That requires the very same program on all of them:
//! [`ImageId`] identifies it.
//!
//! Invariant [image-unchanging]: `constants` are mapped, readable and never change from before `main` until the process
//! ends: the program's read-only segments, and those that the dynamic linker makes read-only after relocation (RELRO).

#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::OnceLock;

use libc::{Elf64_Phdr, PF_R, PF_W, PF_X, PT_GNU_RELRO, PT_LOAD, PT_NOTE, dl_phdr_info};
use trust::link::Operation;

use super::slot::Violation;

const NT_GNU_BUILD_ID: u32 = 3;
/// Longer build ids are cut; none is longer.
pub(super) const BUILD_BYTES_MAX: usize = 32;

/// Identity of a program, and of its layout.
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

/// Image of a program; see the file's documentation.
#[derive(Debug)]
pub(crate) struct Image {
    base: usize,
    constants: Vec<Range<usize>>,
    id: ImageId,
}

impl Image {
    /// Returns the image of this process.
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
        // Usually the program itself; a library if that brings gossamer to a program that does not use it.
        let code = Image::read as fn() -> io::Result<Image> as usize;
        let program =
            objects.iter().find(|object| object.segments(PT_LOAD, |_| true).any(|range| range.contains(&code)));
        let program = program.ok_or_else(|| io::Error::other("the program has no headers"))?;
        let build = match program.build_id() {
            Some(id) => id,
            None => hash_of_file(&program.file)?.to_ne_bytes().to_vec(),
        };
        let id = ImageId { build, shape: program.shape() };
        Ok(Image { base: program.base, constants: program.constants(), id })
    }

    pub(crate) fn id(&self) -> &ImageId {
        &self.id
    }

    /// Returns the position of an operation.
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

    /// Returns the operation at a position that another machine sent.
    pub(super) fn operation_at(&self, position: u64) -> Result<&'static Operation, Violation> {
        let wrong = || Violation::new(format!("{position:#x} is not the position of a closure"));
        let address = usize::try_from(position).ok().and_then(|position| self.base.checked_add(position));
        let address = address.filter(|&address| self.is_constant(address)).ok_or_else(wrong)?;
        // SAFETY: aligned and inside the constants (`is_constant`), which stay as they are [image-unchanging].
        unsafe { Operation::at(address) }.ok_or_else(wrong)
    }

    /// Returns whether an aligned operation that begins here lies in the constants.
    fn is_constant(&self, address: usize) -> bool {
        let end = address.saturating_add(Operation::BYTES);
        address.is_multiple_of(8) && self.constants.iter().any(|range| range.start <= address && end <= range.end)
    }
}

/// Loaded program or library.
struct Object {
    base: usize,
    file: PathBuf,
    headers: Vec<Elf64_Phdr>,
}

/// Returns all loaded objects, the program first.
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
            // The program's own name is empty.
            let name = match info.dlpi_name.is_null() {
                true => &[],
                false => CStr::from_ptr(info.dlpi_name).to_bytes(),
            };
            let file = if name.is_empty() { "/proc/self/exe".into() } else { OsStr::from_bytes(name).into() };
            objects.push(Object { base: info.dlpi_addr as usize, file, headers });
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

    /// Returns the bytes of a segment, while this object is known to be loaded: during `Image::read`.
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        let loaded = self.segments(PT_LOAD, |flags| flags & PF_R != 0);
        if !loaded.into_iter().any(|segment| segment.start <= range.start && range.end <= segment.end) {
            return &[];
        }
        let start = std::ptr::with_exposed_provenance(range.start);
        // SAFETY: inside a readable segment of a loaded object; notes and unwind tables are not written.
        unsafe { slice::from_raw_parts(start, range.len()) }
    }

    fn shape(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
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
}

/// Returns the build id among these notes (elf(5)).
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

fn hash_of_file(path: &Path) -> io::Result<u64> {
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

    #[test]
    fn positions_that_are_no_operations_are_refused() {
        static WORD: u64 = 0x6f70_6572_6174_696f;
        let writable = Box::new([WORD; 8]);
        let positions = [0, 1, 3, u64::MAX, u64::MAX - 7, 1 << 47, 8, 64];
        let here = [&raw const *writable as usize, image as *const () as usize];
        let here = here.map(|address| address.wrapping_sub(image().base) as u64);
        for position in positions.into_iter().chain(here) {
            assert!(image().operation_at(position).is_err(), "{position:#x}");
        }
        // Every position in the constants may be asked for.
        for range in &image().constants {
            for address in (range.start..range.end).step_by(4096 + 4) {
                let _ = image().operation_at((address - image().base) as u64);
            }
        }
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
