//! `gossamer-launch run --region`: what a threaded C program has to be started with.

use std::ffi::OsString;
use std::path::PathBuf;

/// The library that it is to load first (`gossamer/region/ffi`).
const LIBRARY: &str = "libgossamer_region_c.so";
/// Where it is, if not beside the launcher.
const VARIABLE: &str = "GOSSAMER_REGION_LIBRARY";

/// Variables for the program, each with its value.
///
/// # Errors
/// In words: the library is nowhere.
pub(super) fn variables() -> Result<Vec<OsString>, String> {
    let library = find()?;
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(&library);
    if let Some(more) = std::env::var_os("LD_PRELOAD").filter(|more| !more.is_empty()) {
        preload.push(":");
        preload.push(more);
    }
    // Bound at the start: else each machine would write the addresses of functions where all have variables.
    Ok(vec![preload, "LD_BIND_NOW=1".into(), "GOSSAMER_REGION=auto".into()])
}

fn find() -> Result<PathBuf, String> {
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
            "--region needs {LIBRARY}, which is not at {}: build it (cargo build --package gossamer-region-ffi), or name it in {VARIABLE}",
            places.join(" nor at ")
        )
    })
}
