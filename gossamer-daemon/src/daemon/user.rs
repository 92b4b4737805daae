//! The user that a daemon's programs run as. Never root by accident.

use std::path::PathBuf;

use super::DaemonError;
use crate::child_setup::Identity;
use rustix::process::{Gid, Uid};
use uzers::os::unix::UserExt;

/// The user of the programs.
#[derive(Clone, Debug)]
pub struct RunAs {
    /// Its name.
    pub name: String,
    /// Its home.
    pub home: PathBuf,
    /// Its shell.
    pub shell: PathBuf,
    /// User and group to change to; `None`: the daemon's own.
    pub ids: Option<(u32, u32)>,
    /// The same, with all groups of the user.
    pub(super) identity: Option<Identity>,
}

impl RunAs {
    /// Returns the user named by `rack.yaml` or `--user`, or else the daemon's own, unless that is root.
    ///
    /// # Errors
    /// When there is no such user, or the daemon may not become it, or the user is root and was not asked for.
    pub fn choose(asked: Option<&str>) -> Result<RunAs, DaemonError> {
        let own = uzers::get_effective_uid();
        let user = match asked {
            None if own == 0 => return Err(DaemonError::Root),
            None => uzers::get_user_by_uid(own),
            Some(name) => uzers::get_user_by_name(name),
        };
        let Some(user) = user else {
            let name = asked.map_or_else(|| format!("with number {own}"), str::to_owned);
            return Err(DaemonError::User { name, trouble: "does not exist on this host".into() });
        };
        let name = user.name().to_string_lossy().into_owned();
        if user.uid() != own && own != 0 {
            let trouble = "cannot be taken on: gossamer-daemon runs as another user, and only root can change".into();
            return Err(DaemonError::User { name, trouble });
        }
        let ids = (user.uid() != own).then(|| (user.uid(), user.primary_group_id()));
        let identity = ids.map(|(user, group)| {
            let groups = uzers::get_user_groups(&name, group).unwrap_or_default();
            let others = groups.iter().map(uzers::Group::gid).filter(|other| *other != group);
            let groups = std::iter::once(group).chain(others).map(Gid::from_raw).collect();
            Identity { user: Uid::from_raw(user), group: Gid::from_raw(group), groups }
        });
        Ok(RunAs { identity, name, home: user.home_dir().to_owned(), shell: user.shell().to_owned(), ids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_never_taken_by_accident() {
        let own = uzers::get_effective_uid();
        let chosen = RunAs::choose(None);
        match own {
            0 => {
                assert!(chosen.unwrap_err().to_string().contains("user: NAME"));
                assert!(RunAs::choose(Some("root")).unwrap().ids.is_none());
            }
            _ => {
                assert!(chosen.unwrap().ids.is_none());
                let message = RunAs::choose(Some("root")).unwrap_err().to_string();
                assert!(message.contains("runs as another user"), "{message}");
            }
        }
        let message = RunAs::choose(Some("no-such-user-here")).unwrap_err().to_string();
        assert!(message.contains("does not exist"), "{message}");
    }
}
