//! Open files of stdio. A `FILE` lies in the program's heap, so threads of all machines use it, with one buffer, one
//! position and one lock. Two things are each C library's own: its list of open files, which is machine 0's here, and
//! `stdin`, `stdout` and `stderr`, which are made anew in the heap before `main`.
//!
//! Where the program names its shared memory, each machine has streams of its own.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use gossamer::NoRef;
use libc::FILE;

use super::blocking::Threads;
use crate::real::real;
use crate::{PAGE_BYTES, arena, copy, heap, mask, objects, side, table, trap};

/// Threads that open and close files for others, in the program's code.
static OPENERS: Threads = Threads::new(trap::filter_this_thread);

/// Names of the three, with the mode in which each is open.
const STANDARD: [(&CStr, &CStr, &CStr); 3] =
    [(c"stdin", c"_IO_2_1_stdin_", c"r"), (c"stdout", c"_IO_2_1_stdout_", c"w"), (c"stderr", c"_IO_2_1_stderr_", c"w")];

/// The new ones; 0 for one that is not replaced.
static NEW: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

/// Words of this machine that refer to the C library's three: the address of the word, and which one.
static WORDS: OnceLock<Vec<(usize, usize)>> = OnceLock::new();

/// Bits of a stream's first word.
const UNBUFFERED: u32 = 2;
const BY_LINES: u32 = 0x200;

fn symbol(name: &CStr) -> usize {
    // SAFETY: a name that ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr()
}

fn at<T>(address: usize) -> *mut T {
    ptr::with_exposed_provenance_mut(address)
}

/// Notes the words that refer to the C library's streams: the variables, and copies that constructors have made, such
/// as those of `std::cout` and those in blocks that they have allocated. Called before the program's memory is laid
/// out, while nothing else runs.
pub(crate) fn note() {
    let old = STANDARD.map(|(_, object, _)| symbol(object));
    let variables = STANDARD.map(|(variable, ..)| symbol(variable));
    let mut words: Vec<(usize, usize)> = variables.into_iter().zip(0..).filter(|(word, _)| *word != 0).collect();
    let all = objects::all_pages().into_iter().chain([arena::pages()]);
    for pages in all.filter(|pages| !old.iter().any(|object| pages.contains(object))) {
        for page in copy::touched(&pages) {
            for word in (page..page + PAGE_BYTES).step_by(size_of::<usize>()) {
                // SAFETY: a word of a touched page of variables or of the arena; no other thread runs.
                let value = unsafe { at::<usize>(word).read_volatile() };
                if let Some(which) = old.iter().position(|object| *object == value && value != 0) {
                    words.push((word, which));
                }
            }
        }
    }
    WORDS.get_or_init(|| words);
}

/// In the first fiber: makes the three streams, and has all machines use them.
pub(crate) fn replace() {
    if side::machines() == 1 || table::is_explicit() {
        return;
    }
    let new: [usize; 3] = std::array::from_fn(make);
    for machine in 0..side::machines() {
        side::from_worker(machine, move || refer_to(new));
    }
}

/// Makes a stream of a descriptor. 0: it is not open.
fn make(number: usize) -> usize {
    let (_, object, mode) = STANDARD[number];
    let old = at::<FILE>(symbol(object));
    if old.is_null() {
        return 0;
    }
    let _side = side::the_programs();
    unsafe extern "C" {
        fn setvbuf(file: *mut FILE, buffer: *mut c_char, mode: c_int, bytes: usize) -> c_int;
    }
    // SAFETY: the C library's stream. The constructors' output is written first.
    unsafe { libc::fflush(old) };
    let new = real!(fdopen: fn(c_int, *const c_char) -> *mut FILE, number as c_int, mode.as_ptr());
    // SAFETY: the C library's stream, and a new one.
    unsafe {
        match old.cast::<u32>().read() {
            _ if new.is_null() => {}
            flags if flags & UNBUFFERED != 0 => _ = setvbuf(new, ptr::null_mut(), libc::_IONBF, 0),
            flags if flags & BY_LINES != 0 => _ = setvbuf(new, ptr::null_mut(), libc::_IOLBF, 0),
            _ => {}
        }
    }
    new.expose_provenance()
}

/// On a worker: makes this machine's words refer to the new streams.
fn refer_to(new: [usize; 3]) {
    NEW.iter().zip(new).for_each(|(to, new)| to.store(new, Ordering::Relaxed));
    for (word, which) in WORDS.get().into_iter().flatten().copied() {
        // Those that all machines share, machine 0 has changed.
        if new[which] != 0 && (side::own_machine() == 0 || !table::is_shared(word)) {
            // SAFETY: a word that refers to a stream, of variables or the arena; no thread of the program runs yet.
            unsafe { at::<usize>(word).write(new[which]) };
        }
    }
}

/// Whether a call goes to machine 0.
fn goes_to_first() -> bool {
    side::is_machine_in_program() && side::own_machine() != 0 && !table::is_explicit()
}

/// Calls `f` in the program's code on machine 0; sets `errno` as it does.
pub(crate) fn at_first<F: FnOnce() -> usize + NoRef + Send + 'static>(f: F) -> usize {
    let mask = mask::mask();
    let (result, errno) = side::at(0, move || {
        let in_program = move || {
            let _side = side::the_programs();
            // A process that it starts begins with the caller's.
            let before = mask::set_mask(mask);
            let result = f();
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            mask::set_mask(before);
            (result, errno)
        };
        OPENERS.wait_for(in_program).unwrap_or((0, libc::EAGAIN))
    });
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// Argument of a function, which machine 0 may use; a string that other machines do not have is copied.
struct Argument {
    word: usize,
    is_copy: bool,
}

impl Argument {
    fn word(word: usize) -> Argument {
        Argument { word, is_copy: false }
    }

    /// Null, or the address of a string of the program.
    fn text(text: usize) -> Argument {
        if text == 0 || table::is_shared(text) {
            return Argument::word(text);
        }
        // SAFETY: a string that ends with a zero, as the caller of a function of the C library promises.
        let bytes = unsafe { CStr::from_ptr(at(text)) }.to_bytes_with_nul();
        let Some((block, _)) = heap::allocate(bytes.len(), 1) else { return Argument::word(0) };
        // SAFETY: a block of that many bytes, which no other code has.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at(block), bytes.len()) };
        Argument { word: block, is_copy: true }
    }
}

impl Drop for Argument {
    fn drop(&mut self) {
        if self.is_copy {
            heap::free(self.word);
        }
    }
}

/// Replaces a type by that of a word.
macro_rules! word {
    ($kind:ident) => {
        usize
    };
}

/// Functions that change the list of open files. Their arguments and results are words, as the processor passes them.
macro_rules! on_first {
    ($($name:ident($($argument:ident: $kind:ident),*);)*) => {$(
        /// The C library's function: machine 0 has the list of open files.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: usize),*) -> usize {
            if !goes_to_first() {
                return real!($name: fn($(word!($kind)),*) -> usize $(, $argument)*);
            }
            $(let $argument = Argument::$kind($argument);)*
            let words = [$($argument.word),*];
            at_first(move || {
                let [$($argument),*] = words;
                real!($name: fn($(word!($kind)),*) -> usize $(, $argument)*)
            })
        }
    )*};
}

on_first! {
    fopen(path: text, mode: text);
    fopen64(path: text, mode: text);
    fdopen(descriptor: word, mode: text);
    freopen(path: text, mode: text, file: word);
    freopen64(path: text, mode: text, file: word);
    open_memstream(start: word, bytes: word);
    open_wmemstream(start: word, bytes: word);
    pclose(file: word);
}

/// Calls without arguments, for which the macro's list would be empty.
macro_rules! without_arguments {
    ($($name:ident;)*) => {$(
        /// See [`fopen`].
        ///
        /// # Safety
        /// As for that function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> usize {
            match goes_to_first() {
                true => at_first(|| real!($name: fn() -> usize)),
                false => real!($name: fn() -> usize),
            }
        }
    )*};
}

without_arguments! {
    tmpfile;
    tmpfile64;
    fcloseall;
}

/// Whether this machine's C library has the stream on its own list, as those with functions of the program
/// (`fopencookie`) and in memory (`fmemopen`), which work on the machine that has opened them.
fn is_of_this_machine(file: usize) -> bool {
    unsafe extern "C" {
        fn _IO_list_lock();
        fn _IO_list_unlock();
        static _IO_list_all: *mut [usize; FIELDS];
    }
    /// Words of a stream up to the next one of the list.
    const FIELDS: usize = 14;
    const NEXT: usize = 13;
    side::outside(move || {
        // SAFETY: the list does not change while it is locked; it ends with null.
        unsafe {
            _IO_list_lock();
            let mut next = _IO_list_all;
            while !next.is_null() && next.addr() != file {
                next = at((*next)[NEXT]);
            }
            _IO_list_unlock();
            !next.is_null()
        }
    })
}

/// The C library's function: machine 0 has the list of open files. The three standard streams stay, closed, as the C
/// library's own do.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(file: usize) -> usize {
    match goes_to_first() && !is_of_this_machine(file) {
        true => at_first(move || close_here(file)),
        false => close_here(file),
    }
}

fn close_here(file: usize) -> usize {
    if file == 0 || !NEW.iter().any(|new| new.load(Ordering::Relaxed) == file) {
        return real!(fclose: fn(usize) -> usize, file);
    }
    unsafe extern "C" {
        fn flockfile(file: *mut FILE);
        fn funlockfile(file: *mut FILE);
        fn _IO_file_close_it(file: *mut FILE) -> c_int;
    }
    // SAFETY: a stream that stays.
    unsafe {
        flockfile(at(file));
        let done = _IO_file_close_it(at(file));
        funlockfile(at(file));
        done as usize
    }
}

/// The C library's function; of all files: those of machine 0's list.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fflush(file: usize) -> usize {
    if file == 0 && goes_to_first() {
        at_first(|| real!(fflush: fn(usize) -> usize, 0));
    }
    real!(fflush: fn(usize) -> usize, file)
}
