//! `gossamer-launch run --region`: the library that a threaded C program loads first, and where it is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::environment::Environment;

pub mod check;

/// Library to load first (`gossamer/region/ffi`).
const LIBRARY: &str = "libgossamer_region_c.so";
/// Path of the library, if not beside the launcher.
const VARIABLE: &str = "GOSSAMER_REGION_LIBRARY";
/// Libraries that the loader loads first, separated by colons or spaces.
pub const PRELOAD: &str = "LD_PRELOAD";

/// Sharing of a threaded program's memory among its machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Sharing {
    /// All memory: variables, heap and stacks
    Auto,
    /// Memory that the program names by gsm_region_share (gossamer_region.h); the rest is copied to each machine once
    Explicit,
}

impl Sharing {
    /// Returns its name on the command line and in `GOSSAMER_REGION`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sharing::Auto => "auto",
            Sharing::Explicit => "explicit",
        }
    }
}

/// Which threads of a threaded program move between its machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Moves {
    /// None
    Never,
    /// Those that ask for it, or are asked (gsm_thread_move of gossamer_region.h, gossamer-launch move)
    Asked,
    /// Also by themselves: from hosts with fewer cores than threads that compute to idle cores of others, and to the
    /// machine for whose pages they wait
    #[value(name = "self")]
    Itself,
}

impl Moves {
    /// Returns its name on the command line and in `GOSSAMER_REGION_MOVE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Moves::Never => "never",
            Moves::Asked => "asked",
            Moves::Itself => "self",
        }
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

/// Makes the teams of OpenMP sleep where they wait, unless the user has chosen how they do: a thread that spins on a
/// word that another machine writes fetches its page again and again.
pub fn make_teams_sleep(environment: &mut Environment) {
    const POLICY: &str = "OMP_WAIT_POLICY";
    if [POLICY, "GOMP_SPINCOUNT"].iter().all(|name| environment.value(name).is_none()) {
        environment.set(POLICY, "passive".into());
    }
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
    fn teams_sleep_unless_the_user_says_how_they_wait() {
        for (chosen, expected) in [
            (None, Some("passive")),
            (Some("OMP_WAIT_POLICY=active"), Some("active")),
            (Some("GOMP_SPINCOUNT=9"), None),
        ] {
            let asked: Vec<OsString> = chosen.into_iter().map(OsString::from).collect();
            let mut environment = Environment::new(true, &asked).unwrap();
            make_teams_sleep(&mut environment);
            assert_eq!(environment.value("OMP_WAIT_POLICY").as_deref(), expected.map(OsStr::new), "{chosen:?}");
        }
    }

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
}
