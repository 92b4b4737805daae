//! `gossamer-launch run --region auto --check`: reads a program and its libraries, and says which of their calls
//! several machines refuse, and whether the program can load the library at all.
//!
//! Not here: the calls and their effects (`region_calls`). The program does not run: the loader lists its libraries.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::elf::{ET_EXEC, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};
use region_calls::{CALLS, Call, Effect};

/// Libraries whose own calls are the C library's business.
const C_LIBRARY: [&str; 9] = [
    "libc.so",
    "libm.so",
    "libpthread.so",
    "libdl.so",
    "librt.so",
    "libutil.so",
    "libresolv.so",
    "libgcc_s.so",
    "ld-linux",
];

/// Most interpreters of scripts that interpret each other.
const SCRIPTS_MAX: usize = 4;

/// Result of a check.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// Lines to print.
    pub text: String,
    /// Whether the program cannot run on several machines, or has a call that is always refused.
    pub is_refused: bool,
}

/// Use of a call: its row, its name, and the file that has it.
type Use = (&'static Call, String, PathBuf);

/// Reads a program.
///
/// # Errors
/// A text: it cannot be read, or is no program.
pub fn check(program: &Path) -> Result<Report, String> {
    let program = interpreter_of(program)?;
    let bytes = read(&program)?;
    let file = parse(&bytes).map_err(|cause| format!("{}: {cause}", program.display()))?;
    let mut text = String::new();
    if let Some(cause) = cannot_load(&program, &file) {
        let _ = writeln!(text, "{}: {cause}", program.display());
        return Ok(Report { text, is_refused: true });
    }
    let header = file.elf_header();
    let kind = match header.e_type(file.endian()) {
        ET_EXEC => "at addresses of its own",
        _ => "position-independent",
    };
    let libraries = libraries(&program)?;
    let _ = writeln!(text, "{}: {kind}, with {} libraries", program.display(), libraries.len());
    let mut uses = uses(&file, &program);
    for library in &libraries {
        let bytes = read(library)?;
        if let (Ok(file), false) = (parse(&bytes), is_c_library(library)) {
            uses.extend(self::uses(&file, library));
        }
    }
    text += &in_words(&uses);
    Ok(Report { text, is_refused: uses.iter().any(|(call, ..)| call.is_always_refused()) })
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn parse(bytes: &[u8]) -> Result<ElfFile64<'_, Endianness>, String> {
    ElfFile64::parse(bytes).map_err(|error| format!("not a program of 64 bits: {error}"))
}

/// Returns the program, or the one that interprets it.
fn interpreter_of(program: &Path) -> Result<PathBuf, String> {
    let mut program = program.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let bytes = read(&program)?;
        let Some(line) = bytes.strip_prefix(b"#!").and_then(|rest| rest.split(|byte| *byte == b'\n').next()) else {
            return Ok(program);
        };
        let line = String::from_utf8_lossy(line).into_owned();
        let mut words = line.split_whitespace().skip_while(|word| word.ends_with("/env") || *word == "-S");
        let word = words.next().ok_or_else(|| format!("{}: a script of no interpreter", program.display()))?;
        let found = crate::rack::plan::find_program(word.as_ref());
        program = found.map_err(|error| format!("{}: its interpreter {word}: {error}", program.display()))?;
    }
    Err(format!("{}: interpreters interpret each other", program.display()))
}

/// Returns the reason why the loader does not load a library into the program first, if there is one.
fn cannot_load(program: &Path, file: &ElfFile64<'_, Endianness>) -> Option<String> {
    let machine = file.architecture();
    if machine != object::Architecture::X86_64 {
        return Some(format!("a program for {machine:?}: regions are for x86-64"));
    }
    let mode = std::fs::metadata(program).map_or(0, |about| about.permissions().mode());
    if mode & 0o6000 != 0 {
        return Some(
            "it runs as another user or group (setuid, setgid), so no library is loaded first: copy it".into(),
        );
    }
    match loader_of(file) {
        None => Some(
            "a static program: no library can be loaded first; link it with the C library's shared object (without \
             -static)"
                .into(),
        ),
        Some(loader) if loader.contains("ld-musl") => {
            Some(format!("a program of another C library ({loader}): build it for this machine's glibc"))
        }
        Some(loader) if !Path::new(&loader).exists() => Some(format!("its loader {loader} is not on this host")),
        Some(_) => None,
    }
}

/// Returns the path of the loader that a program asks for.
fn loader_of(file: &ElfFile64<'_, Endianness>) -> Option<String> {
    let (endian, bytes): (Endianness, &[u8]) = (file.endian(), file.data());
    let header: &FileHeader64<Endianness> = file.elf_header();
    let segments = header.program_headers(endian, bytes).ok()?;
    let path = segments.iter().find_map(|segment| segment.interpreter(endian, bytes).ok().flatten())?;
    Some(String::from_utf8_lossy(path).into_owned())
}

/// Returns the program's libraries, of which the loader makes a list in place of a run.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = Command::new(program).env("LD_TRACE_LOADED_OBJECTS", "1").env_remove("LD_PRELOAD").output();
    let listed = listed.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = [listed.stdout, listed.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        return Err(format!("{}: {}", program.display(), line.trim()));
    }
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(text.lines().filter_map(path).collect())
}

fn is_c_library(library: &Path) -> bool {
    let name = library.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    C_LIBRARY.iter().any(|own| name.starts_with(own))
}

/// Returns the calls of a file that have a row.
fn uses(file: &ElfFile64<'_, Endianness>, path: &Path) -> Vec<Use> {
    let names: BTreeSet<&str> =
        file.dynamic_symbols().filter(|symbol| symbol.is_undefined()).filter_map(|symbol| symbol.name().ok()).collect();
    let of_name = |name: &str| {
        let rows = CALLS.iter().filter(|call| call.names.contains(&name));
        rows.map(|call| (call, name.to_owned(), path.to_owned())).collect::<Vec<_>>()
    };
    names.into_iter().flat_map(of_name).collect()
}

const TITLES: [&str; 4] =
    ["refused wherever it is called", "refused under a condition", "of one machine", "without effect"];

/// Lists uses: those that are always refused, those that are at times, and those of one machine.
fn in_words(uses: &[Use]) -> String {
    let title_of = |call: &Call| match (call.effect, call.is_always_refused()) {
        (Effect::Refused, true) => TITLES[0],
        (Effect::Refused, false) => TITLES[1],
        (Effect::OneMachine(_), _) => TITLES[2],
        (Effect::Hint(_), _) => TITLES[3],
    };
    let mut text = String::new();
    for title in TITLES {
        let here: Vec<&Use> = uses.iter().filter(|(call, ..)| title_of(call) == title).collect();
        if !here.is_empty() {
            let _ = writeln!(text, "{title}:");
        }
        for (call, name, file) in here {
            let file = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let _ = writeln!(text, "  {} [{file}]", call.message(name));
        }
    }
    if text.is_empty() { "nothing is refused\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
        let (file, program) = (folder.join("program.c"), folder.join("program"));
        std::fs::write(&file, source).unwrap();
        let cc = Command::new("cc").arg(&file).arg("-o").arg(&program).args(flags).output().unwrap();
        assert!(cc.status.success(), "{cc:?}");
        program
    }

    #[test]
    fn calls_are_listed_by_their_effect() {
        let folder = tempfile::tempdir().unwrap();
        let source = "#define _GNU_SOURCE\n#include <sys/mman.h>\n#include <unistd.h>\n#include <dlfcn.h>\n\
                      int main(void) { mprotect(0, 0, PROT_READ); mlock(0, 0); dlmopen(0, 0, 0); return fork(); }";
        let report = check(&built(folder.path(), source, &[])).unwrap();
        assert!(report.is_refused);
        let place = |words: &str| report.text.find(words).unwrap_or_else(|| panic!("{words}: {}", report.text));
        assert!(place("refused wherever") < place("fork does not work"));
        assert!(place("under a condition") < place("mprotect with PROT_EXEC"));
        assert!(place("of one machine") < place("dlmopen the library"));
        assert!(place("without effect") < place("mlock returns 0"));
    }

    #[test]
    fn a_program_without_such_calls_has_nothing_refused() {
        let folder = tempfile::tempdir().unwrap();
        let report = check(&built(folder.path(), "int main(void) { return 0; }", &[])).unwrap();
        assert!(!report.is_refused && report.text.ends_with("nothing is refused\n"), "{report:?}");
        let script = folder.path().join("script");
        std::fs::write(&script, format!("#!{}\n", folder.path().join("program").display())).unwrap();
        assert_eq!(check(&script), Ok(report));
        assert!(check(&folder.path().join("program.c")).unwrap_err().contains("not a program"));
    }

    #[test]
    fn a_program_that_loads_no_library_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let program = built(folder.path(), "int main(void) { return 0; }", &["-static"]);
        let report = check(&program).unwrap();
        assert!(report.is_refused && report.text.contains("static program"), "{report:?}");
        let program = built(folder.path(), "int main(void) { return 0; }", &[]);
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
        assert!(check(&program).unwrap().text.contains("setuid"));
    }
}
