//! Thread-local variables of libraries that the program loads while it runs. Machine 0's dynamic linker numbers the
//! library's variables as a module, and may keep a place for them in the storage that each thread has from its start.
//! The library's code, which all machines have as machine 0 has bound it, asks for them by number or by place. So the
//! dynamic linkers of the other machines load a stub (`stub.rs`) with the same variables, in the same order: each
//! thread of theirs then has the variables under that number, at that place.
//!
//! A machine that has given the number or the place to something else ends the program.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::ptr;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::objects::{self, Object};
use crate::real::real;
use crate::stub::{Storage, library};
use crate::{bind, heap, side, table};

/// Module of a library's thread-local variables.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Module {
    library: String,
    number: usize,
    /// Place in the storage that threads have from their start, if it is there.
    place: Option<usize>,
    image: ByteBuf,
    bytes: usize,
    align: usize,
    address: usize,
}

/// Start of the dynamic linker's record of a library (`link_map`), which is public.
#[repr(C)]
struct Record {
    base: usize,
    name: usize,
    dynamic: usize,
    next: *const Record,
}

/// Start of the list of records (`r_debug`).
#[repr(C)]
struct Records {
    version: c_int,
    first: *const Record,
}

unsafe extern "C" {
    static _r_debug: Records;
    fn __tls_get_addr(index: *const [usize; 2]) -> *mut c_void;
}

/// Returns the addresses of the calling thread's variables of the program and its libraries, by object.
pub(crate) fn variables_of_this_thread() -> Vec<Range<usize>> {
    let of = |(module, storage): (usize, &libc::Elf64_Phdr)| {
        // SAFETY: the number of a loaded object.
        let start = unsafe { __tls_get_addr(&[module, 0]) }.expose_provenance();
        start..start + storage.p_memsz as usize
    };
    objects::modules().into_iter().map(of).collect()
}

/// Returns the place of a library's variables in the threads' storage from their start: `Ok(None)` if they have none,
/// `Err` if the dynamic linker's record does not say.
///
/// All versions of the C library have these words side by side in the record: address and bytes of the image, bytes of
/// the variables, their alignment, the image's place within it, the place asked for, and the module's number.
fn place(object: &Object) -> Result<Option<usize>, ()> {
    /// Words in which to look: those of a record, or of a shorter one with the name that lies behind it.
    const WORDS: usize = 148;
    /// Values for no place: not decided yet, and never, on processors whose places begin at 0 or behind it.
    const NONE: [usize; 3] = [0, usize::MAX, usize::MAX - 1];
    let storage = object.thread_storage().ok_or(())?;
    // SAFETY: the list of the dynamic linker, which grows and shrinks under our lock, in `dlopen`.
    let mut record = unsafe { (&raw const _r_debug.first).read() };
    // SAFETY: as above.
    while let Some(found) = unsafe { record.as_ref() }.filter(|found| found.base != object.base) {
        record = found.next;
    }
    if record.is_null() {
        return Err(());
    }
    // SAFETY: words of the record.
    let words = unsafe { std::slice::from_raw_parts(record.cast::<usize>(), WORDS) };
    let align = storage.p_align as usize;
    let expected = [
        object.base.wrapping_add(storage.p_vaddr as usize),
        storage.p_filesz as usize,
        storage.p_memsz as usize,
        align,
        (storage.p_vaddr as usize).checked_rem(align).unwrap_or(storage.p_vaddr as usize),
    ];
    let mut all = words.windows(7).filter(|words| words[..5] == expected && words[6] == object.module);
    all.next().map(|words| Some(words[5]).filter(|place| !NONE.contains(place))).ok_or(())
}

impl Module {
    /// The library, if it has a place in the storage of threads that are there.
    pub(crate) fn placed(&self) -> Option<&str> {
        self.place.map(|_| self.library.as_str())
    }
}

/// On machine 0: returns the modules of new libraries, by number.
///
/// # Errors
/// The name of a library whose module is unknown.
pub(crate) fn modules(new: &[Object]) -> Result<Vec<Module>, String> {
    let with_storage = new.iter().filter_map(|object| Some((object, object.thread_storage()?)));
    let of = |(object, storage): (&Object, &libc::Elf64_Phdr)| {
        let (address, bytes) = (storage.p_vaddr as usize, storage.p_filesz as usize);
        let start = ptr::with_exposed_provenance::<u8>(object.base.wrapping_add(address));
        // SAFETY: bytes of a loaded object, which are only read.
        let image = unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec();
        Ok(Module {
            library: object.name.clone(),
            number: object.module,
            place: place(object).map_err(|()| object.name.clone())?,
            image: ByteBuf::from(image),
            bytes: storage.p_memsz as usize,
            align: storage.p_align as usize,
            address,
        })
    };
    let mut modules = with_storage.map(of).collect::<Result<Vec<Module>, String>>()?;
    modules.sort_unstable_by_key(|module| module.number);
    Ok(modules)
}

/// In a fiber of another machine: has its dynamic linker know these modules.
pub(crate) fn add(modules: Vec<Module>) {
    let end = |why: &str| -> ! {
        gossamer::link::end(&format!(
            "machine {} cannot have the thread-local variables of a library that the program loads while it runs \
             (dlopen): {why}; link the program with the library, or load it first (LD_PRELOAD)",
            side::own_machine()
        ))
    };
    let (promise, done) = trust::promise();
    // The dynamic linker takes more of a stack than a fiber has.
    let started = std::thread::Builder::new().spawn(move || {
        add_here(&modules).unwrap_or_else(|why| end(&why));
        promise.keep(());
    });
    if started.is_err() || done.wait().is_err() {
        end("no thread loads them");
    }
}

fn add_here(modules: &[Module]) -> Result<(), String> {
    let mut added = vec![];
    for module in modules {
        let Module { library: name, number, bytes, align, address, .. } = module;
        let storage = Storage { image: &module.image, bytes: *bytes, align: *align, address: *address };
        let file = library(&symbol_of(module), Some(&storage));
        let object = loop {
            let object = load(&file)?;
            match object.module.cmp(number) {
                // Machine 0 has loaded others for itself before, such as those of the C library.
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => break object,
                std::cmp::Ordering::Greater => {
                    return Err(format!("{name} is module {number} of machine 0, and {} here", object.module));
                }
            }
        };
        added.push((module, object));
    }
    // In the order in which machine 0 has given the places.
    added.sort_unstable_by_key(|(module, _)| module.place);
    for (module, object) in added.iter().filter(|(module, _)| module.place.is_some()) {
        load(&library(&symbol_of(module), None))?;
        let found = place(object);
        if found != Ok(module.place) {
            return Err(format!("{} has place {:?} on machine 0, and {found:?} here", module.library, module.place));
        }
    }
    Ok(())
}

fn symbol_of(module: &Module) -> String {
    format!("gossamer_thread_storage_{}", module.number)
}

/// Loads a library with these bytes; its file stays open, as the dynamic linker tells files apart by their names.
fn load(bytes: &[u8]) -> Result<Object, String> {
    let of_system = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
    // SAFETY: a name that ends with a zero.
    let descriptor = unsafe { libc::memfd_create(c"gossamer-threads".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(of_system("memfd_create"));
    }
    // SAFETY: the descriptor is new, and nobody else's.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(bytes).map_err(|error| error.to_string())?;
    let name = format!("/proc/self/fd/{}", file.into_raw_fd());
    let path = CString::new(name.clone()).unwrap_or_default();
    let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL;
    let handle = real!(dlopen: fn(*const libc::c_char, c_int) -> *mut c_void, path.as_ptr(), flags);
    if handle.is_null() {
        let text = real!(dlerror: fn() -> *const libc::c_char);
        // SAFETY: null, or a string of the C library.
        let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy());
        return Err(text.unwrap_or_default().into_owned());
    }
    objects::all().into_iter().find(|object| object.name == name).ok_or_else(|| format!("{name} is not loaded"))
}

/// On machine 0: replaces what an object's code asks the dynamic linker by for its variables where that is a block of
/// machine 0's alone (`TLSDESC`).
///
/// # Errors
/// A message, where the machines share no heap for it.
pub(crate) fn share_descriptors(object: &Object) -> Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    const DESCRIPTOR: u64 = 36;
    #[cfg(target_arch = "aarch64")]
    const DESCRIPTOR: u64 = 1031;
    /// Other values are distances from the thread's own address.
    const ADDRESSES: std::ops::Range<usize> = 1 << 32..1 << 47;
    let mut words = vec![];
    for [offset, info, _] in object.relocations().filter(|[_, info, _]| info & 0xffff_ffff == DESCRIPTOR) {
        let at = object.base.wrapping_add(*offset as usize).wrapping_add(size_of::<usize>());
        // SAFETY: the second word of a descriptor of a loaded object.
        let value = unsafe { ptr::with_exposed_provenance::<usize>(at).read() };
        if !ADDRESSES.contains(&value) {
            continue;
        }
        // SAFETY: module, offset and generation, as the dynamic linker has made them.
        let [module, offset, _] = unsafe { ptr::with_exposed_provenance::<[usize; 3]>(value).read() };
        let block = (!table::is_explicit()).then(|| heap::allocate(3 * size_of::<usize>(), 16)).flatten();
        let Some((block, _)) = block else {
            return Err(format!("no memory is shared for descriptor {info:#x} of its thread-local variables"));
        };
        // No thread has seen that generation: each call looks the variable up.
        // SAFETY: a block of three words, which no other code has.
        unsafe { ptr::with_exposed_provenance_mut::<[usize; 3]>(block).write([module, offset, usize::MAX]) };
        words.push((at, block));
    }
    if !words.is_empty() {
        bind::write(object, &words);
    }
    Ok(())
}

/// Returns module and offset of the variable of this name at an address of the calling thread; none, if it is no
/// thread-local variable.
pub(crate) fn index_of(name: &CStr, address: usize) -> Option<[usize; 2]> {
    let candidates = objects::all().into_iter().filter(|object| object.module != 0);
    candidates
        .filter_map(|object| Some([object.module, object.variable_of_threads(name)?]))
        .find(|index| of_this_thread(index) == address)
}

/// Returns the address of a variable for the calling thread.
pub(crate) fn of_this_thread(index: &[usize; 2]) -> usize {
    // SAFETY: a module of a loaded library, as the dynamic linker counts them.
    unsafe { __tls_get_addr(index) }.expose_provenance()
}
