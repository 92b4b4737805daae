//! Environment that the user chose for a program: the launcher's or none, plus single variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Difference between the environment of the machines and the launcher's.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    is_clean: bool,
    set: Vec<(OsString, OsString)>,
}

impl Environment {
    /// Builds it from `asked`: `NAME=VALUE`, or `NAME` with its value here. Of several with one name the last counts.
    /// If it `is_clean`, no other variable of the launcher is passed on.
    ///
    /// # Errors
    /// A name that is empty or unknown here, in words.
    pub fn new(is_clean: bool, asked: &[OsString]) -> Result<Environment, String> {
        let mut set: Vec<(OsString, OsString)> = Vec::new();
        for text in asked {
            let mut parts = text.as_bytes().splitn(2, |byte| *byte == b'=');
            let name = OsStr::from_bytes(parts.next().unwrap_or_default());
            if name.is_empty() {
                return Err(format!("--env {}: a variable has a name: NAME=VALUE, or NAME", text.display()));
            }
            let value = match parts.next() {
                Some(value) => OsString::from_vec(value.to_vec()),
                None => std::env::var_os(name).ok_or_else(|| {
                    let name = name.display();
                    format!("--env {name}: there is no such variable here; --env {name}=VALUE sets one")
                })?,
            };
            set.retain(|(other, _)| other != name);
            set.push((name.to_owned(), value));
        }
        Ok(Environment { is_clean, set })
    }

    /// Returns whether the machines get the launcher's variables unchanged.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        !self.is_clean && self.set.is_empty()
    }

    /// Returns the names of the variables that were asked for one by one.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.set.iter().map(|(name, _)| name.as_os_str())
    }

    /// Returns the value of a variable: the one asked for, or else the launcher's own.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<OsString> {
        let asked = self.set.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
        asked.or_else(|| if self.is_clean { None } else { std::env::var_os(name) })
    }

    /// Sets a variable as if it had been asked for.
    pub fn set(&mut self, name: &str, value: OsString) {
        self.set.retain(|(other, _)| other != name);
        self.set.push((name.into(), value));
    }

    /// Returns all variables: those asked for, and of the launcher's own those for which `is_passed_on` holds.
    pub fn variables(&self, is_passed_on: impl Fn(&OsStr) -> bool) -> Vec<(OsString, OsString)> {
        let is_asked_for = |name: &OsStr| self.names().any(|asked| asked == name);
        let own = std::env::vars_os().filter(|(name, _)| !self.is_clean && is_passed_on(name) && !is_asked_for(name));
        own.chain(self.set.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(is_clean: bool, asked: &[&str]) -> Result<Environment, String> {
        Environment::new(is_clean, &asked.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_asked_for_replaces_what_is_there() {
        let clean = environment(true, &["A=1", "B=x=y", "A=2", "EMPTY="]).unwrap();
        let expected = [("B", "x=y"), ("A", "2"), ("EMPTY", "")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(clean.variables(|_| true), expected);
        let path = std::env::var_os("PATH").unwrap();
        assert_eq!(environment(true, &["PATH"]).unwrap().variables(|_| false), [("PATH".into(), path)]);
        let mut set = environment(false, &["PATH=/here"]).unwrap();
        assert_eq!((set.value("PATH"), clean.value("PATH")), (Some("/here".into()), None));
        assert_eq!(environment(false, &[]).unwrap().value("PATH"), std::env::var_os("PATH"));
        set.set("PATH", "/there".into());
        set.set("PATH", "/here".into());
        let paths = set.variables(|_| true).into_iter().filter(|(name, _)| name == "PATH").map(|(_, value)| value);
        assert_eq!(paths.collect::<Vec<_>>(), ["/here"]);
        assert!(!set.is_inherited() && environment(false, &[]).unwrap().is_inherited());
        assert!(!environment(true, &[]).unwrap().is_inherited());
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for (asked, words) in [("", "has a name"), ("=1", "has a name"), ("NO_SUCH_ONE", "--env NO_SUCH_ONE=VALUE")] {
            let refused = environment(false, &[asked]).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
