//! Search for `rack.yaml`, and the check of its owner.
//!
//! A named file is taken as it is. A file that was found by search has to belong to the user or to root: otherwise its
//! author could redirect the programs of passers-by, with their environment, to hosts and a key of his choice.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use comm::secure::Keys;

use super::{ConfigError, RackConfig};

/// Longest file; longer ones are refused before they are parsed.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

impl RackConfig {
    /// Reads the file named by `asked`, or by `GOSSAMER_RACK`, or the first existing one of `./rack.yaml`,
    /// `~/.config/gossamer/rack.yaml` and `/etc/gossamer/rack.yaml`.
    ///
    /// # Errors
    /// When there is none, or it is not valid, or it was not named and neither this user nor root owns it, or others
    /// may write it.
    pub fn find(asked: Option<&Path>) -> Result<RackConfig, ConfigError> {
        let named = asked.map(Path::to_owned).or_else(|| std::env::var_os("GOSSAMER_RACK").map(PathBuf::from));
        if let Some(path) = named {
            return RackConfig::read(&path);
        }
        let home = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
        let mut places = vec![PathBuf::from("rack.yaml")];
        places.extend(home.map(|home| home.join("gossamer/rack.yaml")));
        places.push(PathBuf::from("/etc/gossamer/rack.yaml"));
        match places.iter().find(|place| place.exists()) {
            Some(place) => {
                let config = RackConfig::read_if(place, check_owner)?;
                Ok(RackConfig { was_named: false, ..config })
            }
            None => Err(ConfigError::Missing(places)),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is not valid.
    pub fn read(path: &Path) -> Result<RackConfig, ConfigError> {
        RackConfig::read_if(path, |_| Ok(()))
    }

    fn read_if(path: &Path, check: fn(&Metadata) -> Result<(), String>) -> Result<RackConfig, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let invalid = |what| ConfigError::Invalid { path: path.to_owned(), place: String::new(), what };
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        // Checks the open file: the name may mean another one by now.
        check(&file.metadata().map_err(failed)?).map_err(|trouble| {
            let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            let cure = format!("if it is the rack that you mean, say so: --rack {}", shown.display());
            invalid(format!("{trouble}, and nobody has named it: {cure}; else name yours, or go to another folder"))
        })?;
        // Counts the bytes read, not the length from the system: for a pipe that is 0.
        if file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)? as u64 > MAX_FILE_BYTES {
            return Err(invalid(format!("it is too long for a rack.yaml: more than {MAX_FILE_BYTES} bytes")));
        }
        RackConfig::parse(&text, path)
    }

    /// Reads the rack's key, and the old one where there is one, to launch with it. Where the file that names the key
    /// file was found by search, that has to be this user's.
    ///
    /// # Errors
    /// Same as [`Keys::read`].
    pub fn read_keys(&self) -> Result<Keys, comm::Error> {
        let own = rustix::process::geteuid().as_raw();
        match self.was_named {
            true => Keys::read(&self.key_path()),
            // A link to root's rack.yaml may lie beside somebody else's key.
            false => Keys::read_of(&self.key_path(), |owner| owner == own),
        }
    }
}

/// Checks that a file found by search may be used; the error says in words why not.
fn check_owner(file: &Metadata) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    if ![own, 0].contains(&file.uid()) {
        return Err(format!("it belongs to {}, not to {}, who runs this", name_of(file.uid()), name_of(own)));
    }
    // Many users other than root have a group of their own.
    let (others, who) = if own == 0 { (0o022, "its group or others") } else { (0o002, "others") };
    if file.is_file() && file.mode() & others != 0 {
        return Err(format!("{who} may write it (`chmod go-w` it)"));
    }
    Ok(())
}

fn name_of(user: u32) -> String {
    let known = uzers::get_user_by_uid(user).map(|user| user.name().to_string_lossy().into_owned());
    known.unwrap_or_else(|| format!("user {user}"))
}
