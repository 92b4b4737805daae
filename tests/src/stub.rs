//! Place of the stub of libibverbs (`tests/verbs-stub`), under the name that programs look for.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Returns the folder for `LD_LIBRARY_PATH` with the stub in it, made beside the running test: cargo leaves the stub
/// there, under a name that nobody loads by accident.
///
/// # Errors
/// The stub was not built: the test has to depend on it.
pub fn folder() -> Result<PathBuf, String> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOLDER.get_or_init(|| make().map_err(|error| format!("no stub of libibverbs beside this test: {error}"))).clone()
}

fn make() -> io::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let folder = test.with_file_name("verbs-stub");
    std::fs::create_dir_all(&folder)?;
    // Renamed as a whole, for other processes that do the same at this moment.
    let new = folder.join(format!("new-{}", std::process::id()));
    std::fs::copy(test.with_file_name("libverbs_stub.so"), &new)?;
    std::fs::rename(&new, folder.join("libibverbs.so.1"))?;
    Ok(folder)
}
