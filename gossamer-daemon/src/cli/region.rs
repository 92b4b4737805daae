//! `gossamer-launch run --region`: what a threaded C program has to be started with.

use std::ffi::OsString;
use std::path::PathBuf;

/// The library that it is to load first (`gossamer/region/ffi`).
const LIBRARY: &str = "libgossamer_region_c.so";
/// Where it is, if not beside the launcher.
const VARIABLE: &str = "GOSSAMER_REGION_LIBRARY";

/// How the memory of a threaded program is shared by its machines.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Way {
    /// All of it: variables, heap and stacks
    Auto,
    /// What the program names by gsm_region_share (gossamer_region.h); all else is copied to each machine once
    Explicit,
}

/// What is wrong with numbers of threads for each of so many machines, if anything is.
pub(super) fn check_threads_at(counts: &[u32], machines: u16) -> Result<(), String> {
    if !counts.is_empty() && counts.len() != usize::from(machines) {
        return Err(format!(
            "--threads-at has numbers for {} machines, and --local {machines} starts {machines}",
            counts.len()
        ));
    }
    if !counts.is_empty() && counts.iter().all(|count| *count == 0) {
        return Err("--threads-at leaves no machine for threads: one number at least has to be above 0".to_owned());
    }
    Ok(())
}

/// Variables for the program, each with its value. `stats`: how many pages it is to name at its end; `threads_at`: how many threads
/// start on each machine, one after the other.
///
/// # Errors
/// In words: the library is nowhere.
pub(super) fn variables(way: Way, stats: Option<u32>, threads_at: &[u32]) -> Result<Vec<OsString>, String> {
    let library = find()?;
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(&library);
    if let Some(more) = std::env::var_os("LD_PRELOAD").filter(|more| !more.is_empty()) {
        preload.push(":");
        preload.push(more);
    }
    // Bound at the start: else each machine would write the addresses of functions where all have variables.
    let way = match way {
        Way::Auto => "GOSSAMER_REGION=auto",
        Way::Explicit => "GOSSAMER_REGION=explicit",
    };
    let stats = stats.map(|pages| format!("GOSSAMER_REGION_STATS={pages}").into());
    let counts = threads_at.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let places = (!counts.is_empty()).then(|| format!("GOSSAMER_REGION_THREADS_AT={counts}").into());
    Ok([preload, "LD_BIND_NOW=1".into(), way.into()].into_iter().chain(stats).chain(places).collect())
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
