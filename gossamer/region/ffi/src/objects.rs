//! Objects of this process (the program and its libraries), and which of them the machines share.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::{Elf64_Phdr, Elf64_Sym, dl_phdr_info};

use crate::{PAGE_BYTES, side};

/// Owner of an object's variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The program, or one of its libraries: all machines have one.
    Shared,
    /// This library.
    Own,
    /// The C library and other runtimes below the program: each machine has its own.
    System,
}

/// Beginnings of the file names of [`Kind::System`].
const SYSTEM: [&str; 20] = [
    "ld-linux",
    "ld64.so",
    "libanl.so",
    "libasan.so",
    "libc.so",
    "libclang_rt.",
    "libdl.so",
    "libgcc_s.so",
    "libhwasan.so",
    "liblsan.so",
    "libm.so",
    "libmvec.so",
    "libnss_",
    "libpthread.so",
    "libresolv.so",
    "librt.so",
    "libtsan.so",
    "libubsan.so",
    "linux-vdso",
    "vgpreload_",
];

/// Beginnings of the file names of the C library's parts.
const C_LIBRARY: [&str; 7] = ["libpthread.so", "libdl.so", "librt.so", "libc.so", "libm.so", "libgcc_s.so", "ld-linux"];

/// Types of symbols.
pub(crate) const FUNCTION: u8 = 2;
/// A function that returns the one to call on this processor.
const CHOICE: u8 = 10;

/// Tags of an object's dynamic section.
pub(crate) const NAMES: u64 = 5;
pub(crate) const SYMBOLS: u64 = 6;
const HASHES: u64 = 0x6fff_fef5;
const VERSIONS: u64 = 0x6fff_fff0;
pub(crate) const INIT_ARRAY_BYTES: u64 = 27;
const FINI: u64 = 13;
const FINI_ARRAY: u64 = 26;
const FINI_ARRAY_BYTES: u64 = 28;

/// Tags of a dynamic section: relocations and their bytes, and those of calls.
const RELOCATIONS: [(u64, u64); 2] = [(7, 8), (23, 2)];

/// Pages of variables.
#[derive(Debug, Clone)]
pub(crate) struct Variables {
    pub(crate) pages: Range<usize>,
    /// The first page that has no bytes in the object's file: what is not touched from there on is zero.
    pub(crate) zeros: usize,
}

/// A loaded object, which stays loaded.
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) base: usize,
    /// Number of the module of its thread-local variables; 0 for none.
    pub(crate) module: usize,
    headers: &'static [Elf64_Phdr],
}

/// Entry of a dynamic section: tag and value.
type Entry = [u64; 2];

impl Object {
    /// Returns the addresses of the parts of this type.
    fn parts(&self, kind: u32) -> impl Iterator<Item = (u32, Range<usize>)> {
        let of_kind = self.headers.iter().filter(move |header| header.p_type == kind);
        of_kind.map(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            (header.p_flags, start..start.saturating_add(header.p_memsz as usize))
        })
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        self.parts(libc::PT_LOAD).any(|(_, range)| range.contains(&address))
    }

    /// Returns the writable parts, with what the dynamic linker makes read-only.
    pub(crate) fn writable(&self) -> impl Iterator<Item = Range<usize>> {
        self.parts(libc::PT_LOAD).filter(|(flags, _)| flags & libc::PF_W != 0).map(|(_, range)| range)
    }

    /// Returns the pages that the dynamic linker makes read-only.
    pub(crate) fn read_only(&self) -> Range<usize> {
        self.parts(libc::PT_GNU_RELRO).map(|(_, range)| range).max_by_key(|range| range.end).unwrap_or(0..0)
    }

    /// Returns the pages of its variables, without those that the dynamic linker makes read-only.
    fn variables(&self) -> impl Iterator<Item = Variables> {
        let read_only = self.read_only().end;
        let writable = self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let found = writable.filter(|header| header.p_flags & libc::PF_W != 0).map(move |header| {
            let first = self.base.wrapping_add(header.p_vaddr as usize);
            let segment = first..first.saturating_add(header.p_memsz as usize);
            let start = match segment.contains(&read_only.saturating_sub(1)) {
                true => read_only.next_multiple_of(PAGE_BYTES),
                false => segment.start / PAGE_BYTES * PAGE_BYTES,
            };
            let pages = start..segment.end.next_multiple_of(PAGE_BYTES).max(start);
            let zeros = first.saturating_add(header.p_filesz as usize).next_multiple_of(PAGE_BYTES);
            Variables { zeros: zeros.clamp(pages.start, pages.end), pages }
        });
        found.filter(|variables| !variables.pages.is_empty())
    }

    /// Returns the header of its thread-local variables.
    pub(crate) fn thread_storage(&self) -> Option<&'static Elf64_Phdr> {
        self.headers.iter().find(|header| header.p_type == libc::PT_TLS && header.p_memsz > 0)
    }

    /// Returns its pages, with their protection.
    pub(crate) fn parts_by_protection(&self) -> Vec<(c_int, Range<usize>)> {
        let read_only = self.read_only().end / PAGE_BYTES * PAGE_BYTES;
        let flag = |flags: u32, flag: u32, protection: c_int| if flags & flag != 0 { protection } else { 0 };
        let mut parts = vec![];
        for (flags, range) in self.parts(libc::PT_LOAD) {
            let pages = range.start / PAGE_BYTES * PAGE_BYTES..range.end.next_multiple_of(PAGE_BYTES);
            let protection = flag(flags, libc::PF_R, libc::PROT_READ)
                | flag(flags, libc::PF_W, libc::PROT_WRITE)
                | flag(flags, libc::PF_X, libc::PROT_EXEC);
            let middle = if flags & libc::PF_W != 0 { read_only.clamp(pages.start, pages.end) } else { pages.start };
            parts.push((libc::PROT_READ, pages.start..middle));
            parts.push((protection, middle..pages.end));
        }
        parts.retain(|(_, pages)| !pages.is_empty());
        parts
    }

    /// Returns where the frames for its unwinding begin, if that is told in the usual way.
    pub(crate) fn frames(&self) -> Option<usize> {
        /// The version, and a signed distance of 32 bits from its own place.
        const USUAL: [u8; 2] = [1, 0x1b];
        let (_, header) = self.parts(libc::PT_GNU_EH_FRAME).next()?;
        // SAFETY: a part of a loaded object.
        let [version, encoding, _, _, distance @ ..] =
            unsafe { std::ptr::with_exposed_provenance::<[u8; 8]>(header.start).read() };
        let distance = i32::from_le_bytes(distance) as isize;
        ([version, encoding] == USUAL).then(|| (header.start + 4).wrapping_add_signed(distance))
    }

    /// Returns the place of a value in its dynamic section.
    pub(crate) fn place_of(&self, tag: u64) -> Option<*mut u64> {
        let (_, dynamic) = self.parts(libc::PT_DYNAMIC).next()?;
        let count = dynamic.len() / size_of::<Entry>();
        let entries = std::ptr::with_exposed_provenance_mut::<Entry>(dynamic.start);
        // SAFETY: entries of a loaded object.
        let mut all = (0..count).map(|at| unsafe { entries.add(at) });
        // SAFETY: as above.
        all.find(|entry| unsafe { (**entry)[0] } == tag).map(|entry| entry.cast::<u64>().wrapping_add(1))
    }

    /// Returns a value of its dynamic section.
    pub(crate) fn value_of(&self, tag: u64) -> Option<usize> {
        // SAFETY: a place in a loaded object.
        self.place_of(tag).map(|place| unsafe { place.read() } as usize)
    }

    /// Returns an address in its dynamic section, which some processors' dynamic linkers leave as the file has it.
    pub(crate) fn address_of(&self, tag: u64) -> Option<usize> {
        self.value_of(tag).map(|value| if value < self.base { value.wrapping_add(self.base) } else { value })
    }

    /// Returns the symbol that it defines by a name, in its default version.
    fn definition(&self, name: &CStr) -> Option<Elf64_Sym> {
        const IS_HIDDEN: u16 = 0x8000;
        let hash =
            name.to_bytes().iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let (symbols, names) = (self.address_of(SYMBOLS)?, self.address_of(NAMES)?);
        let (table, versions) = (self.address_of(HASHES)?, self.address_of(VERSIONS));
        // SAFETY: a word of the tables of a loaded object, as their format says.
        let word = |at: usize| unsafe { std::ptr::with_exposed_provenance::<u32>(table + 4 * at).read() };
        let version = |at: usize| {
            // SAFETY: as above.
            versions.map_or(0, |list| unsafe { std::ptr::with_exposed_provenance::<u16>(list + 2 * at).read() })
        };
        let (buckets, first, filters) = (word(0), word(1) as usize, word(2) as usize);
        let (begin, bucket) = (4 + 2 * filters, hash.checked_rem(buckets)? as usize);
        let mut at = word(begin + bucket) as usize;
        while at >= first {
            let link = word(begin + buckets as usize + at - first);
            if link | 1 == hash | 1 && version(at) & IS_HIDDEN == 0 {
                let place = symbols + at * size_of::<Elf64_Sym>();
                // SAFETY: a symbol of a loaded object, and its name.
                let symbol = unsafe { std::ptr::with_exposed_provenance::<Elf64_Sym>(place).read() };
                let place = std::ptr::with_exposed_provenance(names + symbol.st_name as usize);
                // SAFETY: as above.
                if symbol.st_shndx != 0 && unsafe { CStr::from_ptr(place) } == name {
                    return Some(symbol);
                }
            }
            if link & 1 != 0 {
                break;
            }
            at += 1;
        }
        None
    }

    /// Returns its relocations: place, symbol and type, addend.
    pub(crate) fn relocations(&self) -> impl Iterator<Item = &'static [u64; 3]> {
        let tables = RELOCATIONS.iter().filter_map(|(start, bytes)| {
            let (start, bytes) = (self.address_of(*start)?, self.value_of(*bytes)?);
            let start = std::ptr::with_exposed_provenance::<[u64; 3]>(start);
            // SAFETY: relocations of a loaded object, which stays.
            Some(unsafe { std::slice::from_raw_parts(start, bytes / size_of::<[u64; 3]>()) })
        });
        tables.flatten()
    }

    /// Returns the offset of a thread-local variable that it defines by a name.
    pub(crate) fn variable_of_threads(&self, name: &CStr) -> Option<usize> {
        const OF_THREADS: u8 = 6;
        let symbol = self.definition(name).filter(|symbol| symbol.st_info & 0xf == OF_THREADS)?;
        Some(symbol.st_value as usize)
    }

    /// Returns the address of a function that it defines by a name.
    fn function(&self, name: &CStr) -> Option<usize> {
        let symbol = self.definition(name)?;
        let address = self.base.wrapping_add(symbol.st_value as usize);
        match symbol.st_info & 0xf {
            // SAFETY: the object's, which takes the features of the processor on some.
            CHOICE => Some(unsafe {
                std::mem::transmute::<usize, extern "C" fn(u64) -> usize>(address)(libc::getauxval(libc::AT_HWCAP))
            }),
            FUNCTION => Some(address),
            _ => None,
        }
    }

    /// Returns its destructors, in the order in which they are to run.
    fn destructors(&self) -> Vec<usize> {
        let count = self.value_of(FINI_ARRAY_BYTES).unwrap_or(0) / size_of::<usize>();
        let list = self.address_of(FINI_ARRAY).map(std::ptr::with_exposed_provenance::<usize>);
        // SAFETY: a list of a loaded object.
        let listed = list.map_or(vec![], |list| unsafe { std::slice::from_raw_parts(list, count) }.to_vec());
        let is_function = |function: &usize| *function != 0 && *function != usize::MAX;
        listed.into_iter().rev().chain(self.address_of(FINI)).filter(is_function).collect()
    }
}

/// Returns the loaded objects; the first is the program.
pub(crate) fn all() -> Vec<Object> {
    unsafe extern "C" fn add(info: *mut dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: `dl_iterate_phdr` gives a loaded object with its headers, and the vector passed on below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<Object>>()) };
        // SAFETY: a string of the loader; null for none.
        let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
        let (name, base) = (name.to_string_lossy(), info.dlpi_addr as usize);
        // SAFETY: the loader's, for as long as the object is loaded.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let file = name.rsplit('/').next().unwrap_or_default();
        let kind = match SYSTEM.iter().any(|beginning| file.starts_with(beginning)) {
            true => Kind::System,
            false => Kind::Shared,
        };
        let mut object = Object { kind, name: name.into_owned(), base, module: info.dlpi_tls_modid, headers };
        if object.contains(add as *const () as usize) {
            object.kind = Kind::Own;
        }
        found.push(object);
        0
    }
    let mut found = vec![];
    // SAFETY: `add` takes its arguments as `dl_iterate_phdr` gives them, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
    found
}

/// Returns the address of a function of the C library, whatever the program and its libraries define by that name.
pub(crate) fn c_function(name: &CStr) -> Option<usize> {
    static ALL: OnceLock<Vec<Object>> = OnceLock::new();
    let is_of_c = |object: &Object| {
        let file = object.name.rsplit('/').next().unwrap_or_default();
        C_LIBRARY.iter().any(|beginning| file.starts_with(beginning))
    };
    let all = ALL.get_or_init(|| all().into_iter().filter(is_of_c).collect());
    all.iter().find_map(|object| object.function(name))
}

/// Address of the C library's `dlsym`.
static DLSYM: AtomicUsize = AtomicUsize::new(0);

/// Returns the address of the C library's `dlsym`.
pub(crate) extern "C" fn find_dlsym() -> usize {
    if DLSYM.load(Ordering::Relaxed) == 0 {
        let found = side::outside(|| c_function(c"dlsym")).unwrap_or_else(|| std::process::abort());
        DLSYM.store(found, Ordering::Relaxed);
    }
    DLSYM.load(Ordering::Relaxed)
}

/// Looks a name up by the C library's `dlsym`; 0 for none.
pub(crate) fn find(handle: *mut c_void, name: &CStr) -> usize {
    type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: the C library's function.
    let find = unsafe { std::mem::transmute::<usize, Find>(find_dlsym()) };
    // SAFETY: a handle that it has given, or one of its own, and a name that ends with a zero.
    unsafe { find(handle, name.as_ptr()) }.expose_provenance()
}

/// Objects that were there as `main` was to begin: without those that the runtime loads.
static AT_START: OnceLock<Vec<Object>> = OnceLock::new();
/// Objects that the program has loaded since.
static LATER: Mutex<Vec<Object>> = Mutex::new(vec![]);

/// Returns the address of a function that this library interposes: the definition that comes next, or the first one of
/// a loaded object, of which the program may have loaded some for itself alone.
pub(crate) fn next(name: &CStr) -> Option<usize> {
    let loaded = || all().iter().filter(|object| object.kind != Kind::Own).find_map(|object| object.function(name));
    Some(find(libc::RTLD_NEXT, name)).filter(|found| *found != 0).or_else(loaded).or_else(|| of_program(name))
}

/// Returns what `f` finds in one of the program and its libraries, also those that were loaded while the program runs,
/// once all machines have them.
fn in_program<R>(f: impl Fn(&Object) -> Option<R>) -> Option<R> {
    let in_shared = |objects: &[Object]| objects.iter().filter(|object| object.kind == Kind::Shared).find_map(&f);
    in_shared(at_start()).or_else(|| in_shared(&LATER.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Returns the address of a function of the program or one of its libraries.
pub(crate) fn of_program(name: &CStr) -> Option<usize> {
    in_program(|object| object.function(name))
}

/// Returns the address at which the program or the library of the program with this address is loaded.
pub(crate) fn base_of(address: usize) -> Option<usize> {
    in_program(|object| object.contains(address).then_some(object.base))
}

/// Returns the modules of the program and its libraries that have thread-local variables, by number.
pub(crate) fn modules() -> Vec<(usize, &'static Elf64_Phdr)> {
    let later = LATER.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = at_start().iter().chain(&*later).filter(|object| object.kind == Kind::Shared);
    shared.filter_map(|object| Some((object.module, object.thread_storage()?))).collect()
}

/// Returns the objects of the program at its start. First called before the runtime starts.
pub(crate) fn at_start() -> &'static [Object] {
    AT_START.get_or_init(all)
}

/// Returns the pages of the variables that all machines share (`.data`, `.bss`): those of the program and of its
/// libraries.
pub(crate) fn variables() -> Vec<Variables> {
    at_start().iter().filter(|object| object.kind == Kind::Shared).flat_map(Object::variables).collect()
}

/// Returns the pages of [`variables`].
pub(crate) fn pages() -> Vec<Range<usize>> {
    variables().into_iter().map(|variables| variables.pages).collect()
}

/// Returns the pages of the variables of all objects, also of those that each machine has for itself.
pub(crate) fn all_pages() -> Vec<Range<usize>> {
    at_start().iter().flat_map(Object::variables).map(|variables| variables.pages).collect()
}

/// Beginnings of the file names of libraries whose threads point to each other's thread-local variables: LLVM's OpenMP.
const KEEP_THREADS: [&str; 2] = ["libomp.so", "libiomp5.so"];

/// Whether a thread with this function has to run on the machine of the thread that creates it.
pub(crate) fn keeps_threads(function: usize) -> bool {
    let keeps = |object: &&Object| {
        let file = object.name.rsplit('/').next().unwrap_or_default();
        KEEP_THREADS.iter().any(|beginning| file.starts_with(beginning))
    };
    at_start().iter().filter(keeps).any(|object| object.contains(function))
}

/// Adds an object that the program has loaded on machine 0: there, and on another machine, which has its bytes.
pub(crate) fn add(object: Object) {
    LATER.lock().unwrap_or_else(PoisonError::into_inner).push(object);
}

/// See [`add`]: the object's base, its module, and the address and number of its headers.
pub(crate) type Parts = (usize, usize, usize, usize);

impl Object {
    /// Returns what another machine that has its bytes must know of an object of the program's. `None`: it is none, or
    /// its headers are not among the bytes.
    pub(crate) fn to_parts(&self) -> Option<Parts> {
        let headers = self.headers.as_ptr().expose_provenance();
        let is_known = self.kind == Kind::Shared && self.contains(headers);
        is_known.then_some((self.base, self.module, headers, self.headers.len()))
    }

    /// Returns an object of the program's, without its name.
    ///
    /// # Safety
    /// They are those of an object whose bytes are here, and stay.
    pub(crate) unsafe fn of_parts((base, module, headers, count): Parts) -> Object {
        // SAFETY: as the caller says; headers are among the bytes.
        let headers = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(headers), count) };
        Object { kind: Kind::Shared, name: String::new(), base, module, headers }
    }
}

/// Returns how many bytes above the addresses in its file the program is loaded.
pub(crate) fn bias() -> usize {
    at_start().first().map_or(0, |program| program.base)
}

/// In the program's code: runs the destructors of the program and its libraries, as the dynamic linker does at the end
/// of a process. Those of libraries that the runtime has loaded are left out: it still needs them.
pub(crate) fn run_destructors() {
    let all = side::outside(|| {
        let later = std::mem::take(&mut *LATER.lock().unwrap_or_else(PoisonError::into_inner));
        let shared = later.iter().rev().chain(at_start()).filter(|object| object.kind == Kind::Shared);
        shared.flat_map(Object::destructors).collect::<Vec<usize>>()
    });
    for destructor in &all {
        // SAFETY: a function of an object, which is called once.
        unsafe { std::mem::transmute::<usize, extern "C" fn()>(*destructor)() };
    }
    side::outside(|| drop(all));
}
