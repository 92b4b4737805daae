//! Blocks (`--move asked`): the thread-local storage of a thread of the program, in memory of all machines, with the C
//! library's record of the thread behind it. Addresses of such variables, `errno` too, then mean the same everywhere.
//!
//! A block is that of a new thread: the images of all objects, and the record of its host (`host.rs`), whose addresses
//! of itself become the block's. Neither the system nor the C library's lists of threads know blocks. Fields that the
//! system writes to (the end of a thread, its processor) stay with the host.
//!
//! Here: their layout and first contents. Not here: threads that run in them (`host.rs`).

use std::ffi::CStr;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use crate::allocate::__libc_free;
use crate::objects::{self, Object};
use crate::table;
use crate::{PAGE_BYTES, heap, host};

/// Bytes of a block that go along with its thread, at most: its record, and the variables nearest to that.
const FIRST_TOUCHED_BYTES: usize = 4 * PAGE_BYTES;
/// Variable that says which threads move.
const MOVE: &str = "GOSSAMER_REGION_MOVE";
/// Its value where threads also go by themselves.
const BY_THEMSELVES: &str = "self";
/// Entry of a module without variables in its table (`TLS_DTV_UNALLOCATED`).
const UNALLOCATED: usize = usize::MAX;
/// Words of an entry: the address of the variables, and the block to free at the thread's end.
const ENTRY_WORDS: usize = 2;
const ENTRY_BYTES: usize = ENTRY_WORDS * size_of::<usize>();
/// Processor of a thread that the system does not tell (`RSEQ_CPU_ID_REGISTRATION_FAILED`).
const NO_PROCESSOR: u32 = (-2_i32).cast_unsigned();

/// Variables of an object, at a fixed distance below the thread pointer.
#[derive(Debug)]
struct Module {
    number: usize,
    distance: usize,
    /// Their first bytes, in the object.
    image: usize,
    image_bytes: usize,
}

/// The C library's layout of a thread's storage.
#[derive(Debug)]
struct Layout {
    /// Bytes of the variables, below the thread pointer.
    below: usize,
    align: usize,
    /// Bytes of the record, at the thread pointer.
    record: usize,
    /// Place of the thread's id in the record.
    id: usize,
    /// Place of the words that the system writes the processor to, if they are in the record.
    processor: Option<usize>,
    /// Distance of the variable with the address of the thread's resolver, which is in the record.
    resolver: Option<usize>,
    modules: Vec<Module>,
}

/// Place of the word in the record by which the C library hides addresses of functions.
const GUARD: usize = 0x30;

/// That word of machine 0, which all blocks have: what a thread has hidden on one machine is found on others. 0 where
/// there are no blocks.
static COMMON_GUARD: AtomicUsize = AtomicUsize::new(0);

static LAYOUT: OnceLock<Layout> = OnceLock::new();

fn layout() -> &'static Layout {
    LAYOUT.get().unwrap_or_else(|| unreachable!("blocks are made after `note`"))
}

/// Whether threads of the program have blocks.
pub(crate) fn are_on() -> bool {
    LAYOUT.get().is_some()
}

/// Whether threads also go by themselves.
pub(crate) fn go_by_themselves() -> bool {
    are_on() && std::env::var_os(MOVE).is_some_and(|asked| asked == BY_THEMSELVES)
}

/// Finds out whether threads are to have blocks, and the layout; before any thread starts.
///
/// # Errors
/// A message: the variable holds something else, or this machine has no blocks.
pub(crate) fn note(is_explicit: bool) -> Result<(), String> {
    let asked = std::env::var_os(MOVE).is_some_and(|asked| asked != "never");
    match asked {
        false => return Ok(()),
        true if std::env::var_os(MOVE).is_some_and(|asked| asked != "asked" && asked != BY_THEMSELVES) => {
            return Err(format!("{MOVE} is never, asked or self"));
        }
        true if is_explicit => {
            return Err("threads move (--move asked) where all memory is shared: use --region auto".to_owned());
        }
        true => {}
    }
    let found = find_layout().map_err(|why| format!("threads cannot move (--move asked): {why}; use --move never"))?;
    LAYOUT.get_or_init(|| found);
    Ok(())
}

/// Whether the calling thread has a shadow stack, which cannot be switched by a jump.
#[cfg(target_arch = "x86_64")]
fn has_shadow_stack() -> bool {
    /// Asks for the features that the thread has (`ARCH_SHSTK_STATUS`).
    const STATUS: i64 = 0x5005;
    let mut features = 0_u64;
    // SAFETY: it writes to the variable.
    let done = unsafe { libc::syscall(libc::SYS_arch_prctl, STATUS, &raw mut features) };
    done == 0 && features & 1 != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_shadow_stack() -> bool {
    false
}

fn find_layout() -> Result<Layout, String> {
    /// Bit of the system's capabilities: programs may write the thread pointer.
    const FSGSBASE: u64 = 2;
    if !cfg!(target_arch = "x86_64") {
        return Err("it needs a processor of the kind x86-64".to_owned());
    }
    // SAFETY: it reads what the system has given the process.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & FSGSBASE == 0 {
        return Err("it needs Linux 5.9, and a processor with the instruction wrfsbase".to_owned());
    }
    if has_shadow_stack() {
        return Err("the program runs with shadow stacks (GLIBC_TUNABLES=glibc.cpu.x86_shstk=off)".to_owned());
    }
    let symbol = |name: &'static CStr| match objects::find(libc::RTLD_DEFAULT, name) {
        0 => Err(format!("this C library does not tell {} (glibc 2.36 does)", name.to_string_lossy())),
        found => Ok(found),
    };
    let word = |name| {
        symbol(name).map(|at| {
            // SAFETY: a variable of the C library of that type.
            unsafe { std::ptr::with_exposed_provenance::<u32>(at).read() }
        })
    };
    let (mut bytes, mut align) = (0_usize, 0_usize);
    // SAFETY: the C library's function of that name has this type.
    unsafe {
        std::mem::transmute::<usize, unsafe extern "C" fn(*mut usize, *mut usize)>(symbol(c"_dl_get_tls_static_info")?)(
            &raw mut bytes,
            &raw mut align,
        );
    }
    let record = word(c"_thread_db_sizeof_pthread")? as usize;
    // SAFETY: bits, count and place of a field of the record.
    let id =
        unsafe { std::ptr::with_exposed_provenance::<[u32; 3]>(symbol(c"_thread_db_pthread_tid")?).read()[2] as usize };
    let processor = symbol(c"__rseq_offset").ok().map(|at| {
        // SAFETY: a variable of the C library.
        unsafe { std::ptr::with_exposed_provenance::<isize>(at).read() }
    });
    let processor = match processor.map(usize::try_from) {
        // Elsewhere the system would not tell the processor of a thread in a block, and the C library would not know.
        Some(at) => Some(at.ok().filter(|at| at.saturating_add(8) <= record).ok_or(
            "this C library keeps the processor (rseq) outside of its record of a thread (glibc 2.36 does not)",
        )?),
        None => None,
    };
    let below = bytes.checked_sub(record).filter(|_| align.is_power_of_two() && align <= PAGE_BYTES);
    let below = below.ok_or_else(|| format!("storage of {bytes} bytes at multiples of {align} is not understood"))?;
    if id.saturating_add(4) > record {
        return Err("the place of a thread's id is not understood".to_owned());
    }
    let resolver =
        symbol(c"__resp").ok().and_then(|at| host::thread_pointer().checked_sub(at)).filter(|at| *at <= below);
    let modules = find_modules(below)?;
    Ok(Layout { below, align, record, id, processor, resolver, modules })
}

/// Returns the modules whose variables each thread has from its start.
fn find_modules(below: usize) -> Result<Vec<Module>, String> {
    let own = host::thread_pointer();
    let entries = word_at(own + size_of::<usize>());
    let of = |object: &Object| {
        let storage = object.thread_storage()?;
        let variables = word_at(entries + object.module * ENTRY_BYTES);
        let distance = own.checked_sub(variables).filter(|distance| *distance <= below);
        Some(distance.ok_or_else(|| format!("{} has no place in each thread's storage", object.name)).map(|distance| {
            let image = object.base.wrapping_add(storage.p_vaddr as usize);
            Module { number: object.module, distance, image, image_bytes: storage.p_filesz as usize }
        }))
    };
    objects::all().iter().filter(|object| object.module != 0).filter_map(of).collect()
}

/// On a worker of machine 0: returns what [`note_guard`] has to note on all machines; 0 without blocks.
pub(crate) fn guard() -> usize {
    if are_on() { word_at(host::thread_pointer() + GUARD) } else { 0 }
}

/// On a worker: notes it.
pub(crate) fn note_guard(guard: usize) {
    COMMON_GUARD.store(guard, Ordering::Relaxed); // blocks are made later, by requests
}

/// Whether threads in blocks have another such word than others.
pub(crate) fn has_guard() -> bool {
    COMMON_GUARD.load(Ordering::Relaxed) != 0
}

/// On our side: calls `f`, which calls functions of the C library that threads in blocks have hidden.
pub(crate) fn as_in_blocks(f: impl FnOnce()) {
    if !has_guard() {
        return f();
    }
    let at = host::thread_pointer() + GUARD;
    let own = word_at(at);
    write_at(at, COMMON_GUARD.load(Ordering::Relaxed));
    f();
    write_at(at, own);
}

/// Adds what all machines must have alike to a hash.
pub(crate) fn hash(hasher: &mut impl Hasher) {
    if let Some(Layout { below, record, modules, .. }) = LAYOUT.get() {
        [*below, *record].hash(hasher);
        modules.iter().for_each(|module| [module.number, module.distance].hash(hasher));
    }
}

fn word_at(address: usize) -> usize {
    // SAFETY: a word of the C library's record of a thread, or of what it refers to.
    unsafe { std::ptr::with_exposed_provenance::<usize>(address).read() }
}

fn write_at<T>(address: usize, value: T) {
    // SAFETY: within a block that no other code has, or a word of the calling thread's record.
    unsafe { std::ptr::with_exposed_provenance_mut::<T>(address).write(value) };
}

/// In the program's code in a block: whether the dynamic linker has added variables to it, on this machine.
pub(crate) fn has_added() -> bool {
    let (layout, own) = (layout(), host::thread_pointer());
    let first = word_at(own + size_of::<usize>());
    let room = word_at(first - ENTRY_BYTES);
    (1..=room)
        .map(|number| word_at(first + number * ENTRY_BYTES))
        .any(|variables| variables != UNALLOCATED && variables != 0 && own.wrapping_sub(variables) > layout.below)
}

/// Block of a thread.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Block {
    start: usize,
    /// The thread pointer of a thread that runs in it.
    pub(crate) pointer: usize,
    /// Table of modules.
    entries: usize,
    /// Number of modules for which the table has room.
    room: usize,
}

impl Block {
    /// Allocates a block from this machine's part of the heap. `None`: there is no room.
    pub(crate) fn allocate() -> Option<Block> {
        let layout = layout();
        let start_to_pointer = layout.below.next_multiple_of(layout.align.max(64));
        let (start, _) = heap::allocate(start_to_pointer.checked_add(layout.record)?, PAGE_BYTES)?;
        // As much as the C library keeps for modules to come.
        let room = word_at(word_at(host::thread_pointer() + size_of::<usize>()) - ENTRY_BYTES);
        let Some((entries, _)) = heap::allocate(room.checked_add(2)?.checked_mul(ENTRY_BYTES)?, 16) else {
            heap::free(start);
            return None;
        };
        Some(Block { start, pointer: start + start_to_pointer, entries, room })
    }

    /// On its host, which has run nothing of the program: makes it the storage of a new thread.
    pub(crate) fn fill(&self) {
        let (layout, own) = (layout(), host::thread_pointer());
        let to = |address: usize| std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the block is this thread's alone, and as long; the record is the calling thread's.
        unsafe {
            to(self.start).write_bytes(0, self.pointer - self.start);
            to(self.pointer).copy_from_nonoverlapping(to(own), layout.record);
        }
        for at in (self.pointer..self.pointer + layout.record).step_by(size_of::<usize>()) {
            let word = word_at(at);
            if word.wrapping_sub(own) < layout.record {
                write_at(at, word - own + self.pointer);
            }
        }
        write_at(self.pointer + GUARD, COMMON_GUARD.load(Ordering::Relaxed));
        if let Some(processor) = layout.processor {
            write_at(self.pointer + processor, [0, NO_PROCESSOR]);
        }
        let generation = word_at(word_at(own + size_of::<usize>()));
        let entry = |number: usize, words: [usize; ENTRY_WORDS]| {
            write_at(self.entries + (number + 1) * ENTRY_BYTES, words);
        };
        write_at(self.entries, [self.room, 0]);
        entry(0, [generation, 0]);
        (1..=self.room).for_each(|number| entry(number, [UNALLOCATED, 0]));
        for module in &layout.modules {
            let variables = self.pointer - module.distance;
            entry(module.number, [variables, 0]);
            // SAFETY: the image of a loaded object, and the part of the block that is for its variables.
            unsafe { to(variables).copy_from_nonoverlapping(to(module.image), module.image_bytes) };
        }
        if let Some(distance) = layout.resolver {
            let resolver = word_at(own - distance);
            if resolver.wrapping_sub(own) < layout.record {
                write_at(self.pointer - distance, resolver - own + self.pointer);
            }
        }
        write_at(self.pointer + size_of::<usize>(), self.entries + ENTRY_BYTES);
    }

    /// On a host, before a thread that has departed goes on there.
    pub(crate) fn arrive(&self) {
        // SAFETY: it touches no memory.
        let id = unsafe { libc::gettid() };
        write_at(self.pointer + layout().id, id);
    }

    /// Addresses that a thread in it touches first: the last ones.
    pub(crate) fn first_touched(&self) -> Range<usize> {
        let end = self.pointer + layout().record;
        self.start.max(end.saturating_sub(FIRST_TOUCHED_BYTES))..end
    }

    /// Addresses of its table of modules.
    pub(crate) fn entries(&self) -> Range<usize> {
        self.entries..self.entries + (self.room + 2) * ENTRY_BYTES
    }

    /// Frees it, where no thread has begun in it.
    pub(crate) fn give_back(self) {
        heap::free(self.entries);
        heap::free(self.start);
    }

    /// When its thread has ended, on our side: frees it, with the variables that the dynamic linker has added.
    pub(crate) fn free(self) {
        // It may have moved the table.
        let first = word_at(self.pointer + size_of::<usize>());
        let room = word_at(first - ENTRY_BYTES);
        for number in 1..=room {
            let own = word_at(first + number * ENTRY_BYTES + size_of::<usize>());
            if own != 0 && !table::is_shared(own) {
                // SAFETY: a block of the C library, which nothing refers to any more.
                unsafe { __libc_free(std::ptr::with_exposed_provenance_mut(own)) };
            }
        }
        heap::free(first - ENTRY_BYTES);
        heap::free(self.start);
    }
}
