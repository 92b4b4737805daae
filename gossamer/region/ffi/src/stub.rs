//! Stubs: libraries without code, which give the dynamic linker of a machine thread-local variables, or a reason to
//! keep a place for them in the storage that each thread has from its start.
//!
//! Here: the bytes of their files. Not here: which ones a machine loads (`thread_storage.rs`).

use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Sym};

use crate::PAGE_BYTES;
use crate::objects::{NAMES, SYMBOLS};

/// Thread-local variables of a library.
pub(crate) struct Storage<'a> {
    /// Their first bytes, as a thread has them at its start; the others are zero.
    pub(crate) image: &'a [u8],
    pub(crate) bytes: usize,
    pub(crate) align: usize,
    /// Address of the image in the library's file.
    pub(crate) address: usize,
}

#[cfg(target_arch = "x86_64")]
mod processor {
    pub(super) const MACHINE: u16 = 62;
    /// Relocation: distance of a variable from the thread's own address.
    pub(super) const DISTANCE: u64 = 18;
}

#[cfg(target_arch = "aarch64")]
mod processor {
    pub(super) const MACHINE: u16 = 183;
    /// See above.
    pub(super) const DISTANCE: u64 = 1030;
}

/// Tags of a dynamic section.
const HASH: u64 = 4;
const RELOCATIONS: u64 = 7;
const RELOCATIONS_BYTES: u64 = 8;
const RELOCATION_BYTES: u64 = 9;
const NAMES_BYTES: u64 = 10;
const SYMBOL_BYTES: u64 = 11;

const HEADERS: usize = 4;
/// Places in the file: a table of the symbol's hash, the symbols, a relocation, its word, the dynamic section, names.
const HASH_AT: usize = size_of::<Elf64_Ehdr>() + HEADERS * size_of::<Elf64_Phdr>();
const SYMBOLS_AT: usize = HASH_AT + 24;
const RELOCATION_AT: usize = SYMBOLS_AT + 2 * size_of::<Elf64_Sym>();
const WORD_AT: usize = RELOCATION_AT + 24;
const DYNAMIC_AT: usize = WORD_AT + 8;
const ENTRIES: usize = 9;
const NAMES_AT: usize = DYNAMIC_AT + 16 * ENTRIES;

/// Returns a library that defines `symbol` as the first of these variables; without variables, one that needs `symbol`
/// of another library in the threads' storage from their start.
pub(crate) fn library(symbol: &str, storage: Option<&Storage>) -> Vec<u8> {
    let names = [b"\0", symbol.as_bytes(), b"\0"].concat();
    let align = storage.map_or(1, |storage| storage.align.max(1));
    let image_at = (NAMES_AT + names.len()).next_multiple_of(align);
    let image_at = storage.map_or(image_at, |storage| image_at + storage.address % align);
    let image = storage.map_or(&[][..], |storage| storage.image);
    let bytes = image_at + image.len();

    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // A shared library of this processor, with its headers behind this one.
    [3, processor::MACHINE, 1, 0].iter().for_each(|half| file.extend(half.to_le_bytes()));
    put_words(&mut file, &[0, size_of::<Elf64_Ehdr>() as u64, 0]);
    file.extend(0_u32.to_le_bytes());
    let sizes = [size_of::<Elf64_Ehdr>(), size_of::<Elf64_Phdr>(), HEADERS, 0, 0, 0];
    sizes.iter().for_each(|size| file.extend((*size as u16).to_le_bytes()));

    let mut header = |kind: u32, at: usize, in_file: usize, in_memory: usize, align: usize| {
        file.extend([kind, libc::PF_R | libc::PF_W].iter().flat_map(|half| half.to_le_bytes()));
        put_words(&mut file, &[at, at, at, in_file, in_memory, align].map(|word| word as u64));
    };
    header(libc::PT_LOAD, 0, bytes, bytes, PAGE_BYTES);
    header(libc::PT_DYNAMIC, DYNAMIC_AT, 16 * ENTRIES, 16 * ENTRIES, 8);
    header(libc::PT_GNU_STACK, 0, 0, 0, 16); // without it stacks become executable
    match storage {
        Some(storage) => header(libc::PT_TLS, image_at, image.len(), storage.bytes, align),
        None => header(libc::PT_NULL, 0, 0, 0, 0),
    }

    // One bucket of two symbols; the first is none, and so is one that is not defined here.
    let first = u32::from(storage.is_some());
    [1, 2, first, 0, 0, 0].iter().for_each(|half: &u32| file.extend(half.to_le_bytes()));
    file.extend([0; size_of::<Elf64_Sym>()]);
    const GLOBAL_VARIABLE_OF_THREADS: u8 = 0x16;
    file.extend(1_u32.to_le_bytes());
    file.extend([GLOBAL_VARIABLE_OF_THREADS, 0]);
    file.extend((first as u16).to_le_bytes());
    put_words(&mut file, &[0, 0]);
    put_words(&mut file, &[WORD_AT as u64, 1 << 32 | processor::DISTANCE, 0, 0]);

    let relocations = if storage.is_some() { 0 } else { 24 };
    let entries: [[u64; 2]; ENTRIES] = [
        [HASH, HASH_AT as u64],
        [SYMBOLS, SYMBOLS_AT as u64],
        [SYMBOL_BYTES, size_of::<Elf64_Sym>() as u64],
        [NAMES, NAMES_AT as u64],
        [NAMES_BYTES, names.len() as u64],
        [RELOCATIONS, RELOCATION_AT as u64],
        [RELOCATIONS_BYTES, relocations],
        [RELOCATION_BYTES, 24],
        [0, 0],
    ];
    put_words(&mut file, entries.as_flattened());
    file.extend(names);
    file.resize(image_at, 0);
    file.extend(image);
    file
}

fn put_words(file: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| file.extend(word.to_le_bytes()));
}
