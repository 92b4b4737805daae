//! `gossamer-launch run --region`: start settings of a threaded C program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Library to load first (`gossamer/region/ffi`).
const LIBRARY: &str = "libgossamer_region_c.so";
/// Path of the library, if not beside the launcher.
const VARIABLE: &str = "GOSSAMER_REGION_LIBRARY";
/// Libraries that the loader loads first, separated by colons or spaces.
pub const PRELOAD: &str = "LD_PRELOAD";

/// Sharing of a threaded program's memory among its machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// All memory: variables, heap and stacks
    Auto,
    /// Memory that the program names by gsm_region_share (gossamer_region.h); the rest is copied to each machine once
    Explicit,
}

/// A threaded program with threads on all machines.
#[derive(Debug, Clone)]
pub struct Region {
    /// Sharing of its memory.
    pub way: Way,
    /// Number of pages to name at its end; `None`: no report.
    pub stats: Option<u32>,
    /// Number of consecutive threads to start on each machine; empty: one.
    pub threads_at: Vec<u32>,
    /// Library to load first, on this host.
    pub library: PathBuf,
}

impl Region {
    /// Checks that the numbers of threads, if there are any, match the number of machines.
    ///
    /// # Errors
    /// A text: they do not, or all of them are 0.
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

    /// Returns the variables for the program, as `NAME=VALUE`, without [`PRELOAD`].
    #[must_use]
    pub fn variables(&self) -> Vec<OsString> {
        let way = match self.way {
            Way::Auto => "GOSSAMER_REGION=auto",
            Way::Explicit => "GOSSAMER_REGION=explicit",
        };
        let stats = self.stats.map(|pages| format!("GOSSAMER_REGION_STATS={pages}").into());
        let counts = self.threads_at.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let places = (!counts.is_empty()).then(|| format!("GOSSAMER_REGION_THREADS_AT={counts}").into());
        // Bound at the start: else each machine would write the addresses of functions among the variables of all.
        ["LD_BIND_NOW=1".into(), way.into()].into_iter().chain(stats).chain(places).collect()
    }
}

/// Returns the value of [`PRELOAD`] with this library, and with the other ones in `more`.
///
/// # Errors
/// A text: the loader would take its path for several.
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

/// Finds the library on this host.
///
/// # Errors
/// A text: it is nowhere.
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
