//! Packages for the registry: they hold their needed files and nothing else, and work for programs that depend on them.
//!
//! Here: the manifests, the contents of the packages, and two programs that depend on them as a user's would. Not here:
//! the upload, and the tests of the code.
//!
//! Invariant: the programs lie outside of this workspace, so that no setting of it reaches them.

use crate::command::{Context, Done};
use crate::count::Counts;
use crate::tier::Verdict;
use anyhow::Context as _;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Selection from the tier.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publish {
    /// Looks at manifests and contents alone, and builds nothing
    #[arg(long)]
    pub contents: bool,
}

/// Files that every package has to hold.
const NEEDED: [&str; 5] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"];
/// Other files that a package may hold, and those that cargo adds.
const ALLOWED: [&str; 5] = ["src/", "build.rs", "Cargo.lock", "Cargo.toml.orig", ".cargo_vcs_info.json"];
/// Largest size of a compressed package. The registry takes ten times as much.
const PACKAGE_BYTES: u64 = 1 << 20;
/// Most keywords, and most categories, that the registry takes.
const WORDS: usize = 5;
/// Longest keyword.
const KEYWORD_BYTES: usize = 20;
/// Time limit of the build of all packages, one by one, in seconds.
const LIMIT_S: u64 = 3600;

/// A package that is published.
struct Package {
    name: String,
    version: String,
    manifest: Value,
}

impl Package {
    /// Its name in files and folders of cargo.
    fn file(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// Checks the packages; unless told otherwise also that each builds, by itself and for programs of others.
pub fn check(context: &Context, publish: Publish) -> anyhow::Result<Verdict> {
    let metadata = context.cargo(&["metadata", "--no-deps", "--format-version", "1"]).capture()?;
    anyhow::ensure!(metadata.success, "cargo metadata: {}", metadata.stderr.trim());
    let packages = published(&serde_json::from_str(&metadata.stdout).context("cargo metadata is not JSON")?);
    if packages.is_empty() {
        return Ok(Verdict::failed("no package of the workspace is published"));
    }
    let mut pack = context.cargo(&["package", "--quiet", "--no-verify", "--allow-dirty"]);
    for package in &packages {
        pack = pack.args(&["--package", &package.name]);
    }
    let packed = pack.capture_aloud()?;
    if !packed.success {
        eprintln!("{}", packed.stderr.trim_end());
        return Ok(Verdict::failed(format!("the packages cannot be made: {}", packed.status)));
    }
    let mut offences = Vec::new();
    for package in &packages {
        let of_manifest = manifest_lacks(&package.manifest);
        let of_contents = contents_lack(context, package)?;
        let here = of_manifest.into_iter().chain(of_contents);
        offences.extend(here.map(|what| format!("{}: {what}", package.name)));
    }
    offences.iter().for_each(|offence| println!("{offence}"));
    let verdict = if offences.is_empty() {
        println!("{} packages, nothing to object to", packages.len());
        Verdict::passed().with_tests(Counts::PASSED)
    } else {
        Verdict::failed(format!("{} offences", offences.len())).with_failures(offences)
    };
    if publish.contents {
        return Ok(verdict);
    }
    let dry = ["publish", "--dry-run", "--workspace", "--allow-dirty"];
    let verdict = verdict.and(context.cargo(&dry).within(LIMIT_S).check()?);
    Ok(verdict.and(used(context, &packages)?))
}

/// The packages that the registry may have.
fn published(metadata: &Value) -> Vec<Package> {
    let all = metadata["packages"].as_array().into_iter().flatten();
    // `publish = false` is an empty list of registries.
    let open = all.filter(|package| package["publish"].as_array().is_none_or(|registries| !registries.is_empty()));
    let text = |package: &Value, field: &str| package[field].as_str().unwrap_or_default().to_owned();
    open.map(|package| Package {
        name: text(package, "name"),
        version: text(package, "version"),
        manifest: package.clone(),
    })
    .collect()
}

/// Entries that a manifest lacks, or that the registry refuses.
fn manifest_lacks(manifest: &Value) -> Vec<String> {
    let said = |field: &str| manifest[field].as_str().is_some_and(|text| !text.is_empty());
    let fields = ["description", "license", "repository", "readme", "rust_version"];
    let mut lacks: Vec<String> =
        fields.iter().filter(|field| !said(field)).map(|field| format!("has no `{field}`")).collect();
    for field in ["keywords", "categories"] {
        let words: Vec<&str> = manifest[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if words.is_empty() || words.len() > WORDS {
            lacks.push(format!("has {} {field}: 1 to {WORDS} are taken", words.len()));
        }
        let long = words.iter().filter(|word| field == "keywords" && word.len() > KEYWORD_BYTES);
        lacks.extend(long.map(|word| format!("has the keyword `{word}`: {KEYWORD_BYTES} letters at most")));
    }
    if !manifest["metadata"]["docs"]["rs"].is_object() {
        lacks.push("says nothing to docs.rs".to_owned());
    }
    lacks
}

/// Files that are missing in a package, or too many.
fn contents_lack(context: &Context, package: &Package) -> anyhow::Result<Vec<String>> {
    let file = context.target.join("package").join(format!("{}.crate", package.file()));
    let bytes = fs::metadata(&file).with_context(|| format!("no package {}", file.display()))?.len();
    let listed = context.command("tar", &["--list", "--verbose", "--file", &file.to_string_lossy()]).capture()?;
    anyhow::ensure!(listed.success, "tar: {}", listed.stderr.trim());
    let entries = entries(&listed.stdout, &package.file());
    println!("{}: {} files, {} KiB", package.file(), entries.len(), bytes / 1024);
    let mut lacks = objections(&entries);
    if bytes > PACKAGE_BYTES {
        lacks.push(format!("has {bytes} bytes: {PACKAGE_BYTES} at most"));
    }
    Ok(lacks)
}

/// A file of a package: its path and its size in bytes; a link has none.
type Entry = (String, u64);

/// The files in tar's list: mode, owner, bytes, day, time, path.
fn entries(listed: &str, folder: &str) -> Vec<Entry> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let bytes = words.nth(2)?.parse().ok()?;
        let path = words.nth(2)?.strip_prefix(folder)?.strip_prefix('/')?;
        Some((path.to_owned(), bytes))
    };
    listed.lines().filter_map(line).collect()
}

/// Missing files of a package, and files that should not be among them.
fn objections(entries: &[Entry]) -> Vec<String> {
    let has = |needed: &str| entries.iter().any(|(path, bytes)| path == needed && *bytes > 0);
    let missing = NEEDED.iter().filter(|needed| !has(needed)).map(|needed| format!("lacks {needed}"));
    let allowed = |path: &str| {
        NEEDED.contains(&path)
            || ALLOWED.iter().any(|name| path == *name || name.ends_with('/') && path.starts_with(name))
    };
    let more = entries.iter().filter(|(path, _)| !allowed(path)).map(|(path, _)| format!("holds {path}"));
    missing.chain(more).collect()
}

/// A project's setting that allows the language features of the strict `NoRef`, as README says.
const STRICT: &str = "[env]\nRUSTC_BOOTSTRAP = \"trust,gossamer\"\n";

/// A program that depends on the packages, and its expected result.
struct Program {
    name: &'static str,
    dependency: &'static str,
    main: &'static str,
    /// The program's output on a stable compiler with nothing set; or the compiler's error.
    by_default: Result<&'static str, &'static str>,
    /// Likewise with [`STRICT`].
    strict: Result<&'static str, &'static str>,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "one-process",
        dependency: "trust = { package = \"gossamer-trust\", version = \"0.1\" }",
        main: "fn main() {
            let pool = trust::Threadpool::new(2);
            let letters = pool.entrust(0usize);
            let word = String::from(\"word\");
            println!(\"{} letters\", letters.apply(move |letters| { *letters += word.len(); *letters }));
        }",
        by_default: Ok("4 letters"),
        strict: Err("no closure can carry it to a trustee"),
    },
    Program {
        name: "without-features",
        dependency: "trust = { package = \"gossamer-trust\", version = \"0.1\", default-features = false }",
        main: "fn main() {
            let pool = trust::Threadpool::new(2);
            let letters = pool.entrust(0usize);
            println!(\"{} letters\", letters.apply_with(|letters, word| *letters + word.len(), String::from(\"word\")));
        }",
        by_default: Ok("4 letters"),
        strict: Ok("4 letters"),
    },
    Program {
        name: "rack",
        dependency: "gossamer = { package = \"gossamer-rack\", version = \"0.1\" }",
        main: "fn main() {
            gossamer::main(|| println!(\"{} letters\", gossamer::entrust(4).apply(|letters| *letters)), 2);
        }",
        by_default: Err("gossamer needs the strict `NoRef` of `trust`"),
        strict: Ok("4 letters"),
    },
];

/// Each program, with the packages in the place of the registry's.
fn used(context: &Context, packages: &[Package]) -> anyhow::Result<Verdict> {
    let place = std::env::temp_dir().join(format!("gossamer-publish-{}", std::process::id()));
    let done = used_in(context, packages, &place);
    let _ = fs::remove_dir_all(&place);
    done
}

fn used_in(context: &Context, packages: &[Package], place: &Path) -> anyhow::Result<Verdict> {
    fs::create_dir_all(place).with_context(|| format!("creating {}", place.display()))?;
    let mut patches = String::from("[patch.crates-io]\n");
    for package in packages {
        let file = context.target.join("package").join(format!("{}.crate", package.file()));
        let folder = place.to_string_lossy();
        let unpacked =
            context.command("tar", &["--extract", "--file", &file.to_string_lossy(), "--directory", &folder]);
        anyhow::ensure!(unpacked.capture()?.success, "{} cannot be unpacked", file.display());
        let path = place.join(package.file());
        patches.push_str(&format!("{} = {{ path = \"{}\" }}\n", package.name, path.display()));
    }
    let mut verdict = Verdict::passed();
    for program in &PROGRAMS {
        for (way, config, expected) in
            [("as it comes", "", &program.by_default), ("with the features", STRICT, &program.strict)]
        {
            let folder = written(context, place, program, &patches, config)?;
            let done = context
                // `cargo dev` has the variable of this workspace.
                .command("env", &["--unset=RUSTC_BOOTSTRAP", &format!("--chdir={}", folder.display())])
                .args(&["cargo", "run", "--quiet"])
                .env("CARGO_TARGET_DIR", context.target.join("publish").join(folder_of(config)).to_string_lossy())
                .capture_aloud()?;
            verdict = verdict.and(verdict_on_use(&format!("{}, {way}", program.name), &done, expected));
        }
    }
    Ok(verdict)
}

/// A build folder for each way: a build of one way does not serve the other.
fn folder_of(config: &str) -> &'static str {
    if config.is_empty() { "fallback" } else { "strict" }
}

/// Writes a program with its manifest and configuration; the versions of other packages are those of this workspace.
fn written(context: &Context, place: &Path, program: &Program, patches: &str, config: &str) -> anyhow::Result<PathBuf> {
    let folder = place.join(format!("{}-{}", program.name, folder_of(config)));
    for inside in ["src", ".cargo"] {
        fs::create_dir_all(folder.join(inside)).with_context(|| format!("creating {}", folder.display()))?;
    }
    let (name, dependency) = (program.name, program.dependency);
    let manifest = format!(
        "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[dependencies]\n{dependency}\n\n{patches}\n[workspace]\n"
    );
    for (file, text) in
        [("Cargo.toml", manifest.as_str()), ("src/main.rs", program.main), (".cargo/config.toml", config)]
    {
        fs::write(folder.join(file), text).with_context(|| format!("writing {file}"))?;
    }
    fs::copy(context.root.join("Cargo.lock"), folder.join("Cargo.lock")).context("copying Cargo.lock")?;
    Ok(folder)
}

/// Whether the program printed the expected text, or was refused in these words.
fn verdict_on_use(what: &str, done: &Done, expected: &Result<&str, &str>) -> Verdict {
    let as_expected = match expected {
        Ok(said) => done.success && done.stdout.trim() == *said,
        Err(refused) => !done.success && done.stderr.contains(refused),
    };
    println!("{what}: {}", if done.success { "built and run" } else { "refused" });
    if as_expected {
        return Verdict::passed().with_tests(Counts::PASSED);
    }
    eprintln!("{}{}", done.stdout, done.stderr);
    Verdict::failed(format!("{what}: {expected:?} was expected"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::State;
    use serde_json::json;

    #[test]
    fn what_is_kept_from_the_registry_is_no_package_of_it() {
        let metadata = json!({"packages": [
            {"name": "a", "version": "1.0.0", "publish": null},
            {"name": "b", "version": "1.0.0", "publish": []},
        ]});
        let names: Vec<String> = published(&metadata).iter().map(Package::file).collect();
        assert_eq!(names, ["a-1.0.0"]);
    }

    #[test]
    fn a_manifest_is_complete_or_named() {
        let mut manifest = json!({
            "description": "d", "license": "l", "repository": "r", "readme": "R", "rust_version": "1.95",
            "keywords": ["k"], "categories": ["c"], "metadata": {"docs": {"rs": {}}},
        });
        assert!(manifest_lacks(&manifest).is_empty());
        manifest["readme"] = Value::Null;
        manifest["keywords"] = json!(["a-word-that-is-far-too-long"]);
        manifest["metadata"] = Value::Null;
        assert_eq!(manifest_lacks(&manifest).len(), 3, "{:?}", manifest_lacks(&manifest));
    }

    #[test]
    fn contents_are_all_that_is_needed_and_nothing_else() {
        let line = |bytes: u64, path: &str| format!("-rw-r--r-- 0/0 {bytes:>9} 2006-07-24 01:21 p-1.0.0/{path}\n");
        let good: String = NEEDED.iter().chain(&["src/a/b.rs", "Cargo.lock"]).map(|path| line(9, path)).collect();
        assert_eq!(objections(&entries(&good, "p-1.0.0")), [""; 0]);
        let data = good.clone() + &line(5, "benches/data.json");
        assert_eq!(objections(&entries(&data, "p-1.0.0")), ["holds benches/data.json"]);
        let dangling = good.replace(&line(9, "LICENSE-MIT"), &line(0, "LICENSE-MIT"));
        assert_eq!(objections(&entries(&dangling, "p-1.0.0")), ["lacks LICENSE-MIT"]);
    }

    #[test]
    fn a_program_is_used_as_expected_or_the_tier_fails() {
        let done = |success, stdout: &str, stderr: &str| Done {
            success,
            status: String::new(),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        };
        let state = |done: &Done, expected| verdict_on_use("it", done, &expected).state;
        assert_eq!(state(&done(true, "4\n", ""), Ok("4")), State::Passed);
        assert_eq!(state(&done(false, "", "error: no"), Err("no")), State::Passed);
        for (done, expected) in [
            (done(true, "5", ""), Ok("4")),
            (done(false, "4", ""), Ok("4")),
            (done(true, "", "no"), Err("no")),
            (done(false, "", "error: else"), Err("no")),
        ] {
            assert!(matches!(state(&done, expected), State::Failed(_)), "{done:?}");
        }
    }
}
