//! Start by hand on the controller, with `GOSSAMER_RACK` naming a rack: the process becomes `gossamer-launch run`,
//! which starts the program on that rack (thesis 3.2.2). The rest of the launcher is in `gossamer-daemon`.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bootstrap::LAUNCHER;
use crate::error::StartError;

/// Name of the variable that names the rack's file.
pub(crate) const RACK: &str = "GOSSAMER_RACK";
const LAUNCH: &str = "gossamer-launch";

/// Replaces this process by the launcher of this program, if `GOSSAMER_RACK` names a rack; returns if not, or if that
/// fails. A process that a machine has started inherits the variable, but it is meant for that process as little as the
/// launcher's other variables.
pub(crate) fn become_launcher() -> Result<(), StartError> {
    let Some(rack) = env::var_os(RACK).filter(|rack| !rack.is_empty()) else { return Ok(()) };
    if env::var_os(LAUNCHER).is_some() {
        return Ok(());
    }
    let fail = |problem: String| StartError::NoLauncher { rack: rack.clone(), problem };
    let program = env::current_exe().map_err(|error| fail(format!("the program's own file is not known: {error}")))?;
    let launcher = beside(&program).unwrap_or_else(|| PathBuf::from(LAUNCH));
    let error = Command::new(&launcher).args(arguments(&rack, &program)).exec();
    Err(fail(match error.kind() {
        std::io::ErrorKind::NotFound => {
            let folder = program.parent().unwrap_or(Path::new("/")).display();
            format!(
                "{LAUNCH} is neither in {folder} nor in PATH: build it (cargo build -p gossamer-daemon) or install it"
            )
        }
        _ => format!("{} cannot be started: {error}", launcher.display()),
    }))
}

/// Returns the launcher in the program's folder, where a build puts both.
fn beside(program: &Path) -> Option<PathBuf> {
    Some(program.with_file_name(LAUNCH)).filter(|path| path.is_file())
}

fn arguments(rack: &OsString, program: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["run".into(), "--rack".into(), rack.clone(), "--".into(), program.into()];
    arguments.extend(env::args_os().skip(1));
    arguments
}
