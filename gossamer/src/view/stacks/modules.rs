//! Executable and libraries of this process: how to unwind their code, and the names of their functions.
//!
//! Read anew for each sampler, and freed with it: tables for unwinding at once, debug information of a module with the
//! first address in it. Every address is checked against the tables, and a damaged file gives fewer frames.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use addr2line::{Loader, demangle_auto};
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Unwinder, UnwinderNative,
};
use object::{Object, ObjectSection, ObjectSegment, ReadCache, ReadRef};

use super::capture::{Capture, Registers, read_memory};

/// The process' code.
pub(super) struct Modules {
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    modules: Vec<Module>,
}

/// Executable, library, or the kernel's page of functions.
struct Module {
    name: String,
    path: PathBuf,
    code: Range<u64>,
    /// Distance of its addresses in memory from those in its file.
    bias: u64,
    loader: OnceCell<Option<Loader>>,
}

/// Function on a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its name, and its line, if they are known.
    pub(super) text: String,
    /// Whether it is left out below the entry of a fiber, a closure or a thread.
    pub(super) is_runtime: bool,
}

impl Frame {
    pub(super) fn new(name: String, line: Option<(&str, u32)>) -> Frame {
        let is_runtime = is_runtime(&name, line.map_or("", |(file, _)| file));
        let text = match line {
            Some((file, line)) => format!("{name} ({}:{line})", short(file)),
            None => name,
        };
        Frame { text: text.chars().take(FRAME_CHARS_MAX).collect(), is_runtime }
    }
}

/// Crates of the runtime's functions.
const RUNTIME: [&str; 6] = ["trust", "gossamer", "std", "core", "alloc", "context"];
/// Their files: names of inlined functions may lack the crate.
const RUNTIME_FILES: [&str; 5] = ["/library/", "/trust/src/", "/gossamer-trust-", "/gossamer/src/", "/gossamer-rack-"];
/// Functions that start a thread.
const ROOTS: [&str; 9] = [
    "__rust_try",
    "__rust_begin_short_backtrace",
    "main",
    "__libc_start_call_main",
    "__libc_start_main",
    "_start",
    "start_thread",
    "clone",
    "clone3",
];

fn is_runtime(name: &str, file: &str) -> bool {
    // `<alloc::boxed::Box<F> as core::ops::FnOnce<A>>::call_once`
    let path = name.trim_start_matches(['<', '&']);
    let is_of = |krate: &str| path.strip_prefix(krate).is_some_and(|rest| rest.starts_with("::"));
    let has_path = name.split('<').next().is_some_and(|name| name.contains("::")) || name.starts_with('<');
    RUNTIME.into_iter().any(is_of)
        || ROOTS.contains(&name)
        || !has_path && RUNTIME_FILES.into_iter().any(|part| file.contains(part))
}

/// Frames that are unwound at most. More are skipped at the outer end.
const FRAMES_MAX: usize = 256;
/// Most characters of a frame.
const FRAME_CHARS_MAX: usize = 240;
/// Last components of a source file's path that are shown.
const PATH_PARTS: usize = 3;

impl Modules {
    /// Finds the modules that are loaded now.
    pub(super) fn load() -> Modules {
        let (mut unwinder, mut modules) = (UnwinderNative::new(), Vec::<Module>::new());
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        for mapping in maps.lines().filter_map(Mapping::parse) {
            if let Some(last) = modules.last_mut().filter(|last| last.path == Path::new(mapping.path)) {
                last.code.end = mapping.code.end;
                continue;
            }
            let Some((bias, sections)) = mapping.read() else { continue };
            let path = PathBuf::from(mapping.path);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = name.trim_end_matches(DELETED).to_owned();
            let code = mapping.code;
            unwinder.add_module(framehop::Module::new(name.clone(), code.clone(), bias, sections));
            modules.push(Module { name, path, code, bias, loader: OnceCell::new() });
        }
        Modules { unwinder, cache: CacheNative::new(), modules }
    }

    /// Returns the addresses of a stack's frames, the innermost first, each inside its call.
    pub(super) fn unwind(&mut self, capture: &Capture) -> Vec<u64> {
        let mut read = |address| capture.word(address).ok_or(());
        let (first, registers) = (capture.registers.program_counter, unwind_registers(&capture.registers));
        let mut frames = self.unwinder.iter_frames(first, registers, &mut self.cache, &mut read);
        // An error is the end of the part that can be read.
        let next = || frames.next().ok().flatten().map(FrameAddress::address_for_lookup);
        std::iter::from_fn(next).take(FRAMES_MAX).collect()
    }

    /// Returns the functions at this address, inlined ones first; or the module and the offset in it.
    pub(super) fn frames(&self, address: u64) -> Vec<Frame> {
        let module = self.modules.iter().find(|module| module.code.contains(&address));
        module.map_or_else(
            || vec![Frame::new(format!("{address:#x}"), None)],
            |module| module.frames(address.wrapping_sub(module.bias)),
        )
    }
}

impl Module {
    fn frames(&self, address: u64) -> Vec<Frame> {
        // The C library's start of a thread has no exported name.
        let is_runtime = file_of(&self.path) == self.path;
        let unnamed = || Frame { text: format!("{}+{address:#x}", self.name), is_runtime };
        let loader = self.loader.get_or_init(|| Loader::new(file_of(&self.path)).ok());
        let Some(loader) = loader else { return vec![unnamed()] };
        let mut named = Vec::new();
        let mut inlined = loader.find_frames(address).ok();
        while let Some(frame) = inlined.as_mut().and_then(|frames| frames.next().ok().flatten()) {
            let name = frame.function.and_then(|function| Some(function.demangle().ok()?.into_owned()));
            let line = frame.location.and_then(|location| Some((location.file?, location.line?)));
            named.push((name, line));
        }
        let symbol = loader.find_symbol(address).map(|symbol| demangle_auto(symbol.into(), None).into_owned());
        // The last is the function that is not inlined. Its symbol has the path, which debug information may lack.
        match (named.last_mut(), symbol) {
            (Some(last), Some(symbol)) => last.0 = Some(symbol),
            (None, Some(symbol)) => named.push((Some(symbol), None)),
            (_, None) => {}
        }
        named.retain(|(name, _)| name.is_some());
        if named.is_empty() {
            return vec![unnamed()];
        }
        named.into_iter().map(|(name, line)| Frame::new(name.unwrap_or_default(), line)).collect()
    }
}

/// Mapping of code.
struct Mapping<'a> {
    code: Range<u64>,
    /// Its place in the file.
    offset: u64,
    path: &'a str,
}

/// Added by the kernel to the path of a file that is gone.
const DELETED: &str = " (deleted)";
const VDSO: &str = "[vdso]";

impl Mapping<'_> {
    /// Reads a line of `/proc/self/maps`: `start-end rwxp offset device inode   path`. `None` unless it is code of a
    /// module.
    fn parse(line: &str) -> Option<Mapping<'_>> {
        let mut words = line.splitn(6, ' ');
        let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
        let path = words.nth(2)?.trim_start();
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = range.split_once('-')?;
        let is_code = rights.contains('x') && (path.starts_with('/') || path == VDSO);
        is_code.then_some(Mapping { code: hex(start)?..hex(end)?, offset: hex(offset)?, path })
    }

    /// Reads bias and tables of the module.
    fn read(&self) -> Option<(u64, ExplicitModuleSectionInfo<Vec<u8>>)> {
        if self.path == VDSO {
            let bytes = read_memory(self.code.start, usize::try_from(self.code.end - self.code.start).ok()?)?;
            self.read_from(&*bytes)
        } else {
            self.read_from(&ReadCache::new(File::open(file_of(Path::new(self.path))).ok()?))
        }
    }

    fn read_from<'data>(&self, data: impl ReadRef<'data>) -> Option<(u64, ExplicitModuleSectionInfo<Vec<u8>>)> {
        const PAGE: u64 = 4096;
        let file = object::File::parse(data).ok()?;
        let bias = file.segments().filter(|segment| segment.permissions().executable()).find_map(|segment| {
            let (offset, bytes) = segment.file_range();
            let range = offset / PAGE * PAGE..offset.saturating_add(bytes);
            let start = segment.address().wrapping_add(self.offset).wrapping_sub(offset);
            range.contains(&self.offset).then_some(self.code.start.wrapping_sub(start))
        })?;
        let table = |name| {
            let section = file.section_by_name(name)?;
            let range = section.address()..section.address().checked_add(section.size())?;
            Some((range, section.uncompressed_data().ok()?.into_owned()))
        };
        let (eh_frame_svma, eh_frame) = table(".eh_frame").unzip();
        let (eh_frame_hdr_svma, eh_frame_hdr) = table(".eh_frame_hdr").unzip();
        let debug_frame = table(".debug_frame").map(|(_, bytes)| bytes);
        Some((
            bias,
            ExplicitModuleSectionInfo {
                eh_frame_svma,
                eh_frame,
                eh_frame_hdr_svma,
                eh_frame_hdr,
                debug_frame,
                ..Default::default()
            },
        ))
    }
}

/// Returns the file to read: the executable's is there even if its path is gone.
fn file_of(path: &Path) -> &Path {
    let own = Path::new("/proc/self/exe");
    if fs::read_link(own).is_ok_and(|target| target == path) { own } else { path }
}

#[cfg(target_arch = "x86_64")]
fn unwind_registers(registers: &Registers) -> framehop::UnwindRegsNative {
    framehop::UnwindRegsNative::new(registers.program_counter, registers.stack_pointer, registers.frame_pointer)
}

#[cfg(target_arch = "aarch64")]
fn unwind_registers(registers: &Registers) -> framehop::UnwindRegsNative {
    framehop::UnwindRegsNative::new(registers.link, registers.stack_pointer, registers.frame_pointer)
}

/// Returns the last components of a path.
fn short(path: &str) -> &str {
    path.rmatch_indices('/').nth(PATH_PARTS - 1).map_or(path, |(at, _)| &path[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line = "7f12000-7f13000 r-xp 00001000 fd:00 1234                       /opt/a b/lib.so (deleted)";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.code, mapping.offset), (0x7f1_2000..0x7f1_3000, 0x1000));
        assert_eq!(mapping.path, "/opt/a b/lib.so (deleted)");
        assert!(Mapping::parse("7ffe000-7fff000 r-xp 00000000 00:00 0                          [vdso]").is_some());
        for line in
            ["", "7f12-7f13 r--p 00000000 fd:00 1 /lib.so", "7f12-7f13 r-xp 00000000 00:00 0 ", "x-y r-xp 0 0 0 /a"]
        {
            assert!(Mapping::parse(line).is_none(), "{line}");
        }
    }

    #[test]
    fn frames_of_the_runtime_are_known_by_crate_or_file() {
        for (name, file, is) in [
            ("trust::fiber::start", "", true),
            ("<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once", "", true),
            ("catch_unwind<program::F, ()>", "/rustc/0/library/std/src/panic.rs", true),
            ("clone3", "", true),
            ("trusty::run", "/home/me/trust/src/main.rs", false),
            ("work<u64>", "/home/me/program/src/main.rs", false),
            ("<program::Tree as core::ops::drop::Drop>::drop", "", false),
        ] {
            assert_eq!(is_runtime(name, file), is, "{name}");
        }
    }

    #[test]
    fn paths_are_short() {
        assert_eq!(short("/home/me/project/src/bin/it.rs"), "src/bin/it.rs");
        assert_eq!(short("src/it.rs"), "src/it.rs");
    }
}
