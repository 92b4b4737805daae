//! The rules of the house over every source file: `cargo dev tidy` and `cargo dev size`.
//!
//! Here: which files there are, which of them are tests, and the listing. Not here: the rules (`rules`, `prose`,
//! `labels`), how a file is taken apart (`text`), and the documents that have to agree with the code (`documents`).
//!
//! Invariant: every file is checked, though of a program that compile-fail tests feed to the compiler, and of a C
//! source, only the width; a run that found no file has failed.

mod documents;
mod labels;
mod names;
mod prose;
mod rules;
pub mod text;
mod unsafe_list;

use crate::command::Context;
use crate::tier::Verdict;
use anyhow::Context as _;
use rules::Offence;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Folders without sources of ours.
const SKIPPED_FOLDERS: [&str; 1] = ["target"];

/// Folders of programs that are meant not to compile, under a package's `tests`.
const FIXTURE_FOLDERS: [&str; 4] = ["ui", "compile-fail", "compile_fail", "fixtures"];

/// Endings of sources that are no Rust, of which only the width is checked.
const C_SOURCES: [&str; 2] = [".c", ".h"];

/// Checks every rule; the verdict has the offences.
pub fn check(context: &Context) -> anyhow::Result<Verdict> {
    let mut offences = Vec::new();
    let mut files = 0;
    let mut with_unsafe = Vec::new();
    let mut labels = labels::Labels::default();
    for path in rust_files(&context.root)? {
        let name = path.strip_prefix(&context.root).unwrap_or(&path);
        let source = read(&path)?;
        files += 1;
        if is_fixture(name) {
            offences.extend(listed(name, prose::columns(&source)));
            continue;
        }
        let all_tests = is_test_file(name, &path);
        if holds_unsafe(&source) {
            with_unsafe.push((name.display().to_string(), all_tests));
        }
        labels.learn_source(&name.display().to_string(), &source);
        let mut found = offences_of(&source, all_tests);
        let lines = text::lines(&source);
        found.extend(rules::untested(name, &lines));
        found.extend(prose::columns(&source));
        found.extend(prose::clauses(&lines));
        found.extend(prose::codes(&lines));
        offences.extend(listed(name, found));
    }
    for ending in C_SOURCES {
        for path in files_of(&context.root, ending)? {
            let name = path.strip_prefix(&context.root).unwrap_or(&path);
            files += 1;
            offences.extend(listed(name, prose::columns(&read(&path)?)));
        }
    }
    for path in files_of(&context.root, ".md")? {
        let name = path.strip_prefix(&context.root).unwrap_or(&path);
        let page = read(&path)?;
        files += 1;
        labels.learn_page(&name.display().to_string(), &page);
        let mut found = prose::page_columns(&page);
        found.extend(prose::page_clauses(&page));
        offences.extend(listed(name, found));
    }
    let unsafe_list = read(&context.root.join("docs/UNSAFE.md"))?;
    offences.extend(documents::check(context)?);
    offences.extend(unsafe_list::disagreements(&unsafe_list, &context.root, &with_unsafe));
    offences.extend(labels.disagreements());
    offences.iter().for_each(|offence| println!("{offence}"));
    Ok(if files == 0 {
        no_file(context)
    } else if !offences.is_empty() {
        Verdict::failed(format!("{} offences in {files} files", offences.len())).with_failures(offences)
    } else {
        println!("{files} files, nothing to object to");
        Verdict::passed()
    })
}

/// The offences of a file, in order, a line each.
fn listed(name: &Path, mut offences: Vec<Offence>) -> Vec<String> {
    offences.sort_by_key(|offence| offence.line);
    offences.iter().map(|Offence { line, what }| format!("{}:{line}: {what}", name.display())).collect()
}

fn no_file(context: &Context) -> Verdict {
    Verdict::failed(format!("no source file under {}", context.root.display()))
}

/// Lists each file with its lines of code, comment and test, the longest first.
pub fn size(context: &Context) -> anyhow::Result<Verdict> {
    let mut rows = Vec::new();
    for path in rust_files(&context.root)? {
        let name = path.strip_prefix(&context.root).unwrap_or(&path).to_path_buf();
        let lines = text::lines(&read(&path)?);
        let all_tests = is_test_file(&name, &path) || is_fixture(&name);
        let code = |test| lines.iter().filter(|line| line.test == test && !line.code.trim().is_empty()).count();
        let (code, tests) = if all_tests { (0, code(false) + code(true)) } else { (code(false), code(true)) };
        let comments = lines.iter().filter(|line| line.is_comment()).count();
        rows.push((code, tests, comments, name));
    }
    rows.sort();
    println!("{:>6} {:>6} {:>8}  file", "code", "tests", "comments");
    let mut total = (0, 0, 0);
    for (code, tests, comments, name) in rows.iter().rev() {
        total = (total.0 + code, total.1 + tests, total.2 + comments);
        println!("{code:>6} {tests:>6} {comments:>8}  {}", name.display());
    }
    println!("{:>6} {:>6} {:>8}  {} files", total.0, total.1, total.2, rows.len());
    Ok(if rows.is_empty() { no_file(context) } else { Verdict::passed() })
}

/// Whether code of a file that is no test is unsafe: lints that name it are not.
fn holds_unsafe(source: &str) -> bool {
    text::lines(source).iter().any(|line| line.is_code() && line.words().any(|word| word == "unsafe"))
}

/// The offences of one file.
fn offences_of(source: &str, all_tests: bool) -> Vec<Offence> {
    let lines = text::lines(source);
    let mut offences = rules::opening(source);
    offences.extend(rules::marks(&lines));
    offences.extend(rules::times(&lines, all_tests));
    if !all_tests {
        offences.extend(rules::size(&lines));
        offences.extend(rules::orderings(&lines));
    }
    offences
}

/// The `.rs` files under a folder, sorted; hidden folders and build outputs left out.
pub fn rust_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    files_of(folder, ".rs")
}

/// The same for files with names that end so.
fn files_of(folder: &Path, ending: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && !SKIPPED_FOLDERS.contains(&name.as_ref()) {
                    folders.push(entry.path());
                }
            } else if name.ends_with(ending) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Whether the code of some source file under a folder holds a declaration, such as `fn loom_`.
pub fn declares(folder: &Path, declaration: &str) -> anyhow::Result<bool> {
    for path in rust_files(folder)? {
        if text::lines(&read(&path)?).iter().any(|line| line.code.contains(declaration)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a file is a program that compile-fail tests feed to the compiler.
fn is_fixture(name: &Path) -> bool {
    let mut parts = name.components().map(Component::as_os_str);
    parts.any(|part| part == "tests") && parts.any(|part| FIXTURE_FOLDERS.iter().any(|folder| part == *folder))
}

/// Whether all of a file is tests: it lies in a package's `tests` folder or in the package of tests, or the
/// file above it declares it under `#[cfg(test)]`.
pub fn is_test_file(name: &Path, path: &Path) -> bool {
    if !name.starts_with("tests/dev") && name.components().any(|part| part.as_os_str() == "tests") {
        return true;
    }
    let (Some(stem), Some(folder)) = (path.file_stem(), path.parent()) else {
        return false;
    };
    let (module, folder) = match stem.to_string_lossy().as_ref() {
        "lib" | "main" => return false,
        "mod" => (folder.file_name().unwrap_or_default(), folder.parent().unwrap_or(folder)),
        _ => (stem, folder),
    };
    let declaration = format!("mod {};", module.to_string_lossy());
    let above = [folder.join("mod.rs"), folder.join("lib.rs"), folder.join("main.rs"), folder.with_extension("rs")];
    above.iter().any(|parent| {
        parent != path
            && fs::read_to_string(parent).is_ok_and(|source| {
                text::lines(&source).iter().any(|line| line.test && line.code.trim().ends_with(&declaration))
            })
    })
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path
    }

    #[test]
    fn finds_sources_and_leaves_build_outputs() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = write(folder.path(), "trust/src/lib.rs", "");
        write(folder.path(), "target/debug/out.rs", "");
        write(folder.path(), ".git/x.rs", "");
        write(folder.path(), "trust/readme.md", "");
        assert_eq!(rust_files(folder.path()).expect("files"), [kept]);
        assert!(rust_files(&folder.path().join("none")).is_err());
    }

    #[test]
    fn finds_declarations_in_code_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "a.rs", "// fn loom_a()\nfn loom_b() {}\n");
        assert!(declares(folder.path(), "fn loom_b").expect("reads"));
        assert!(!declares(folder.path(), "fn loom_a").expect("reads"));
    }

    #[test]
    fn tells_tests_from_code() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        write(root, "trust/src/lib.rs", "mod slot;\n#[cfg(test)]\nmod oracle;\n");
        write(root, "trust/src/slot/mod.rs", "mod ring;\n#[cfg(all(test, loom))]\nmod models;\n");
        for (name, expected) in [
            ("trust/src/lib.rs", false),
            ("trust/src/oracle.rs", true),
            ("trust/src/slot/mod.rs", false),
            ("trust/src/slot/ring.rs", false),
            ("trust/src/slot/models.rs", true),
            ("trust/tests/panic.rs", true),
            ("tests/src/kill.rs", true),
            ("tests/dev/src/tier.rs", false),
        ] {
            assert_eq!(is_test_file(Path::new(name), &root.join(name)), expected, "{name}");
        }
    }

    #[test]
    fn unsafe_code_is_told_from_words_about_it() {
        for code in ["let x = unsafe { f() };", "unsafe impl Send for X {}", "unsafe extern \"C\" { fn f(); }"] {
            assert!(holds_unsafe(code), "{code}");
        }
        let none = "// unsafe\n#![allow(unsafe_code)]\nlet x = \"unsafe\";\n#[cfg(test)]\nmod tests { fn f() { unsafe \
                    { g() } } }";
        assert!(!holds_unsafe(none));
    }

    #[test]
    fn only_compile_fail_programs_are_left_out() {
        assert!(is_fixture(Path::new("trust/tests/compile_fail/reference.rs")));
        assert!(is_fixture(Path::new("tests/tests/ui/rc.rs")));
        assert!(!is_fixture(Path::new("trust/src/ui/mod.rs")));
        assert!(!is_fixture(Path::new("trust/tests/panic.rs")));
    }

    #[test]
    fn tests_may_be_long_but_not_unfinished() {
        let long = format!("//! A.\n{}", "x.load(Acquire);\n".repeat(rules::FILE_LINES + 1));
        assert_eq!(offences_of(&long, true), []);
        assert!(offences_of(&long, false).len() > rules::FILE_LINES);
        assert_eq!(offences_of("//! A.\n// TODO later", true).len(), 1);
    }
}
