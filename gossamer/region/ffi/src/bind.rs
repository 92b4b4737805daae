//! Functions that this library, the C library and the dynamic linker call: bound to the C library's own before anything
//! of ours runs, where the dynamic linker has found a definition of the program or of one of its libraries.
//!
//! A program may define `write` or `malloc`, or have an entry of its own for a function whose address it takes (without
//! position-independent code). These use memory that the machines share, which threads of the runtime must not wait
//! for.

use std::ffi::CStr;
use std::ops::Range;

use libc::Elf64_Sym;

use crate::objects::{self, FUNCTION, Kind, NAMES, Object, SYMBOLS, c_function};
use crate::{PAGE_BYTES, allocate, arena, theirs};

/// Relocations that are the address of a symbol.
#[cfg(target_arch = "x86_64")]
const ADDRESSES: [u64; 3] = [1, 6, 7];
#[cfg(not(target_arch = "x86_64"))]
const ADDRESSES: [u64; 3] = [257, 1025, 1026];

/// Functions that tell the program machine 0's clocks (`clocks.rs`), and our own code those of its host.
const CLOCKS: [&CStr; 2] = [c"clock_gettime", c"clock_nanosleep"];

/// A word of an object that is the address of a symbol.
struct Slot {
    place: usize,
    value: usize,
    name: &'static CStr,
    /// The object's own definition, if it has one: a function or none.
    own: Option<usize>,
}

/// Returns the words of an object that are addresses of symbols.
fn slots(object: &Object) -> Vec<Slot> {
    let (Some(symbols), Some(names)) = (object.address_of(SYMBOLS), object.address_of(NAMES)) else { return vec![] };
    let slot = |[offset, info, addend]: [u64; 3]| {
        if !ADDRESSES.contains(&(info & 0xffff_ffff)) || addend != 0 || info >> 32 == 0 {
            return None;
        }
        let place = object.base.wrapping_add(offset as usize);
        let symbol = symbols.wrapping_add((info >> 32) as usize * size_of::<Elf64_Sym>());
        // SAFETY: a word, a symbol and a name of a loaded object, as its relocations say.
        let (value, symbol) = unsafe {
            let word = std::ptr::with_exposed_provenance::<usize>(place).read();
            (word, std::ptr::with_exposed_provenance::<Elf64_Sym>(symbol).read())
        };
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance(names + symbol.st_name as usize)) };
        let is_own_function = symbol.st_shndx != 0 && symbol.st_info & 0xf == FUNCTION;
        let own = is_own_function.then(|| object.base.wrapping_add(symbol.st_value as usize));
        Some(Slot { place, value, name, own })
    };
    object.relocations().copied().filter_map(slot).collect()
}

/// Writes these words of an object, also where they are read-only.
pub(crate) fn write(object: &Object, words: &[(usize, usize)]) {
    let protect = |pages: &Range<usize>, protection: i32| {
        // SAFETY: pages of the object that were writable until the dynamic linker protected them.
        unsafe { libc::syscall(libc::SYS_mprotect, pages.start, pages.len(), protection) == 0 }
    };
    let read_only = object.read_only();
    let pages = read_only.start / PAGE_BYTES * PAGE_BYTES..read_only.end / PAGE_BYTES * PAGE_BYTES;
    let unprotects = words.iter().any(|(place, _)| pages.contains(place));
    if unprotects && !protect(&pages, libc::PROT_READ | libc::PROT_WRITE) {
        return;
    }
    for (place, value) in words {
        // SAFETY: an aligned word of the object, which may be written now.
        unsafe { std::ptr::with_exposed_provenance_mut::<usize>(*place).write(*value) };
    }
    if unprotects {
        protect(&pages, libc::PROT_READ);
    }
}

/// Returns the words in which the dynamic linker has its allocator, with what they are to be: blocks of its own are
/// looked at by all threads.
fn allocator_of_linker(linker: &Object) -> Vec<(usize, usize)> {
    let functions = theirs::NAMES.map(|name| {
        let found = objects::find(libc::RTLD_DEFAULT, name);
        (found, theirs::of_linker(name))
    });
    let words = linker.writable().flat_map(|part| {
        let start = part.start.next_multiple_of(size_of::<usize>());
        let all = std::ptr::with_exposed_provenance::<usize>(start);
        let count = part.end.saturating_sub(start) / size_of::<usize>();
        // SAFETY: words of a loaded object; no other thread runs.
        (0..count).map(move |at| unsafe { (all.add(at).addr(), all.add(at).read()) })
    });
    let bound = |(place, word)| functions.iter().find(|(found, _)| *found == word).map(|(_, new)| (place, *new));
    words.filter_map(bound).collect()
}

/// Binds the functions; called once, before `main` and before any other thread.
fn bind() {
    let objects = objects::all();
    let is_shared = |object: &&Object| object.kind == Kind::Shared;
    let of_program = |slot: &Slot| objects.iter().filter(is_shared).any(|object| object.contains(slot.value));
    theirs::note(objects.iter().filter(is_shared).flat_map(Object::writable).collect());
    let linker = c_function(c"__tls_get_addr").unwrap_or(0);
    // This library's own calls first: the rest may need more memory than there is until then.
    let of_own = |object: &&Object| object.kind == Kind::Own;
    let (own, others) = (objects.iter().filter(of_own), objects.iter().filter(|object| !of_own(object)));
    for object in own.chain(others) {
        // Our own code has the clocks of its host.
        let is_clock = |slot: &Slot| object.kind == Kind::Own && CLOCKS.contains(&slot.name);
        let slots = slots(object).into_iter().filter(|slot| of_program(slot) || is_clock(slot));
        let mut words: Vec<(usize, usize)> = match object.kind {
            Kind::Own => {
                let own = |slot: &Slot| slot.own.filter(|_| !is_clock(slot)).or_else(|| c_function(slot.name));
                slots.filter_map(|slot| Some((slot.place, own(&slot)?))).collect()
            }
            Kind::System => {
                slots.filter_map(|slot| Some((slot.place, theirs::replace(slot.name, slot.value)?))).collect()
            }
            Kind::Shared => continue,
        };
        if object.contains(linker) {
            words.extend(allocator_of_linker(object));
        }
        write(object, &words);
        if object.kind == Kind::Own {
            allocate::note_bound();
        }
    }
}

/// Constructor of this library, which runs before the program's.
extern "C" fn construct() {
    if arena::begin() {
        let _ours = arena::Ours::begin();
        bind();
    }
    allocate::note_bound();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCT: extern "C" fn() = construct;
