//! Which `rack.yaml` is taken, and whether it may be.
//!
//! A file that was named is taken as it is. One that was found by itself has to be the user's own, or root's: otherwise
//! whoever has written it would choose where the programs of those who happen to pass by are sent, with their
//! environment, and by which key.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use comm::secure::Key;

use super::{ConfigError, RackConfig};

/// Longer files are refused before they are parsed.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

impl RackConfig {
    /// Reads the file named by `asked`, or by `GOSSAMER_RACK`, or the first of `./rack.yaml`,
    /// `~/.config/gossamer/rack.yaml` and `/etc/gossamer/rack.yaml` that is there.
    ///
    /// # Errors
    /// When there is none, or it is not valid, or it was not named and is not this user's nor root's, or others may
    /// write it.
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
                let config = RackConfig::read_if(place, is_own)?;
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
        // What was opened is looked at, not what the name may mean by now.
        check(&file.metadata().map_err(failed)?).map_err(|trouble| {
            let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            let cure = format!("if it is the rack that you mean, say so: --rack {}", shown.display());
            invalid(format!("{trouble}, and nobody has named it: {cure}; else name yours, or go to another folder"))
        })?;
        // What is read counts, not what the system says of it: of a pipe that is nothing.
        if file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)? as u64 > MAX_FILE_BYTES {
            return Err(invalid(format!("it is too long for a rack.yaml: more than {MAX_FILE_BYTES} bytes")));
        }
        RackConfig::parse(&text, path)
    }

    /// Reads the rack's key, to launch with it. Where the file that names it was found by itself, the key has to be
    /// this user's.
    ///
    /// # Errors
    /// As [`Key::read`].
    pub fn read_key(&self) -> Result<Key, comm::Error> {
        let own = rustix::process::geteuid().as_raw();
        match self.was_named {
            true => Key::read(&self.key_path()),
            // A link to root's rack.yaml may lie beside somebody else's key.
            false => Key::read_of(&self.key_path(), |owner| owner == own),
        }
    }
}

/// Whether a file may be followed that nobody has named; why not, in words.
fn is_own(file: &Metadata) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    if ![own, 0].contains(&file.uid()) {
        return Err(format!("it belongs to {}, not to {}, who runs this", name_of(file.uid()), name_of(own)));
    }
    // Of those who are not root many have a group of their own.
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
