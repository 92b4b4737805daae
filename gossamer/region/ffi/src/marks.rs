//! Marks of the program in this process, by which the machines find out whether all of them run the same one.

use std::ffi::{CStr, c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use crate::block;

/// See [`find_marks`].
static MARKS: OnceLock<[u64; 3]> = OnceLock::new();

/// Finds the marks of a program with this main function; called before the runtime loads objects that only some
/// machines have, such as drivers of network cards.
pub(crate) fn note(main: usize) {
    MARKS.get_or_init(|| find_marks(main));
}

/// Returns the marks that `note` has found.
pub(crate) fn marks() -> [u64; 3] {
    MARKS.get().copied().unwrap_or_else(|| unreachable!("they are noted before the runtime starts"))
}

/// Returns hashes that are equal on all machines if these have the same program and libraries, at the same addresses,
/// and processors for which the C library chooses the same functions: the program's variables, which all machines
/// share, may hold addresses of these.
fn find_marks(main: usize) -> [u64; 3] {
    extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, hasher: *mut c_void) -> c_int {
        // SAFETY: the arguments that the loader and `find_marks` pass, for as long as this runs.
        let (info, hasher) = unsafe { (&*info, &mut *hasher.cast::<DefaultHasher>()) };
        // SAFETY: a string of the loader; null for none.
        let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
        if name.to_bytes().starts_with(b"linux-vdso") {
            return 0; // the kernel's: only the C library has an address in it
        }
        hasher.write_u64(info.dlpi_addr);
        // SAFETY: `dlpi_phnum` headers of a loaded object.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let is_loaded = |note: &libc::Elf64_Phdr| {
            headers.iter().any(|part| {
                let is_readable = part.p_type == libc::PT_LOAD && part.p_flags & libc::PF_R != 0;
                is_readable
                    && part.p_vaddr <= note.p_vaddr
                    && note.p_vaddr + note.p_memsz <= part.p_vaddr + part.p_filesz
            })
        };
        for header in headers {
            hasher.write_u32(header.p_type);
            [header.p_vaddr, header.p_filesz, header.p_memsz].hash(hasher);
            if header.p_type == libc::PT_NOTE && is_loaded(header) {
                // Includes the object's build id (`--build-id`).
                let start = std::ptr::with_exposed_provenance::<u8>((info.dlpi_addr + header.p_vaddr) as usize);
                // SAFETY: a part of the object that is loaded, and that no code writes.
                hasher.write(unsafe { std::slice::from_raw_parts(start, header.p_memsz as usize) });
            }
        }
        0
    }
    let mut objects = DefaultHasher::new();
    // SAFETY: `note` takes the arguments passed here.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut objects).cast()) };
    block::hash(&mut objects);
    let mut chosen = DefaultHasher::new();
    for name in [c"memcpy", c"memset", c"memchr", c"strlen", c"strcmp", c"strchr"] {
        // SAFETY: a name that ends with a zero.
        chosen.write_usize(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.expose_provenance());
    }
    [objects.finish(), chosen.finish(), main as u64]
}
