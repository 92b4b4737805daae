//! `gossamer-launch run --region`: what a threaded C program has to be started with.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The library that it is to load first (`gossamer/region/ffi`).
const LIBRARY: &str = "libgossamer_region_c.so";
/// Where it is, if not beside the launcher.
const VARIABLE: &str = "GOSSAMER_REGION_LIBRARY";
/// What the loader of programs loads first, the names between them colons or spaces.
pub const PRELOAD: &str = "LD_PRELOAD";

/// How the memory of a threaded program is shared by its machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// All of it: variables, heap and stacks
    Auto,
    /// What the program names by gsm_region_share (gossamer_region.h); all else is copied to each machine once
    Explicit,
}

/// A threaded program whose threads run on all machines.
#[derive(Debug, Clone)]
pub struct Region {
    /// How its memory is shared.
    pub way: Way,
    /// How many pages it is to name at its end; `None`: it says nothing.
    pub stats: Option<u32>,
    /// How many threads start on each machine, one after the other; empty: one.
    pub threads_at: Vec<u32>,
    /// What it loads first, on this host.
    pub library: PathBuf,
}

impl Region {
    /// Whether numbers of threads are there for each of so many machines, if there are any.
    ///
    /// # Errors
    /// In words: there are not, or all of them are 0.
    pub fn check(&self, machines: usize) -> Result<(), String> {
        let counts = &self.threads_at;
        if !counts.is_empty() && counts.len() != machines {
            return Err(format!(
                "--threads-at has numbers for {} machines, and the program has {machines}",
                counts.len()
            ));
        }
        if !counts.is_empty() && counts.iter().all(|count| *count == 0) {
            return Err("--threads-at leaves no machine for threads: one number at least has to be above 0".to_owned());
        }
        Ok(())
    }

    /// Variables for the program, as `NAME=VALUE`, but for [`PRELOAD`].
    #[must_use]
    pub fn variables(&self) -> Vec<OsString> {
        let way = match self.way {
            Way::Auto => "GOSSAMER_REGION=auto",
            Way::Explicit => "GOSSAMER_REGION=explicit",
        };
        let stats = self.stats.map(|pages| format!("GOSSAMER_REGION_STATS={pages}").into());
        let counts = self.threads_at.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let places = (!counts.is_empty()).then(|| format!("GOSSAMER_REGION_THREADS_AT={counts}").into());
        // Bound at the start: else each machine would write the addresses of functions where all have variables.
        ["LD_BIND_NOW=1".into(), way.into()].into_iter().chain(stats).chain(places).collect()
    }
}

/// The value of [`PRELOAD`] that has a library loaded, and what else was to be.
///
/// # Errors
/// In words: the loader would take its path for several.
pub fn preload(library: &Path, more: Option<&OsStr>) -> Result<OsString, String> {
    if library.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
        return Err(format!(
            "{}: {PRELOAD} has no way to name a path with a space or a colon: put it elsewhere (where a rack's host \
             keeps programs: gossamer-daemon --cache)",
            library.display()
        ));
    }
    let mut all = library.as_os_str().to_owned();
    if let Some(more) = more.filter(|more| !more.is_empty()) {
        all.push(":");
        all.push(more);
    }
    Ok(all)
}

/// Where the library is, on this host.
///
/// # Errors
/// In words: nowhere.
pub fn find_library() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let found = path.canonicalize();
        return found.map_err(|error| format!("{VARIABLE}={}: {error}", path.display()));
    }
    let own = std::env::current_exe().map_err(|error| format!("the launcher's own file is not known: {error}"))?;
    let folder = own.parent().unwrap_or(&own);
    let places = [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)];
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    found.ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        format!(
            "--region needs {LIBRARY}, which is not at {}: build it (cargo build --package gossamer-region-ffi), or \
             name it in {VARIABLE}",
            places.join(" nor at ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_first_is_one_path_before_others() {
        let library = Path::new("/a/lib.so");
        assert_eq!(preload(library, None).unwrap(), "/a/lib.so");
        assert_eq!(preload(library, Some(OsStr::new(""))).unwrap(), "/a/lib.so");
        assert_eq!(preload(library, Some(OsStr::new("b.so"))).unwrap(), "/a/lib.so:b.so");
        for path in ["/a b/lib.so", "/a:b/lib.so"] {
            let refused = preload(Path::new(path), None).unwrap_err();
            assert!(refused.contains(path) && refused.contains("--cache"), "{refused}");
        }
    }

    #[test]
    fn there_is_a_number_of_threads_for_each_machine() {
        let region = |counts: &[u32]| Region {
            way: Way::Auto,
            stats: None,
            threads_at: counts.to_vec(),
            library: "/a/lib.so".into(),
        };
        region(&[]).check(3).unwrap();
        region(&[9, 0]).check(2).unwrap();
        assert!(region(&[9, 10]).check(3).unwrap_err().contains("for 2 machines, and the program has 3"));
        assert!(region(&[0, 0]).check(2).unwrap_err().contains("above 0"));
    }
}
