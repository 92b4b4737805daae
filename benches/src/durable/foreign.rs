//! Contenders that are programs in C over a library of the system: made with `cc` where its header is, and asked by
//! their arguments.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;

use crate::echo::programs::{compile, finish};
use crate::machine::program;

/// Longer than any run takes.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Sources of such a program.
pub struct Source {
    /// Of this package.
    pub file: &'static str,
    pub binary: &'static str,
    pub header: &'static str,
    /// For the linker.
    pub libraries: &'static [&'static str],
    /// For people: the library, and the package that has it.
    pub library: &'static str,
    pub package: &'static str,
}

/// The program.
#[derive(Clone, Debug)]
pub struct Foreign(PathBuf);

impl Foreign {
    /// Makes it; or says why it cannot be had here.
    ///
    /// # Errors
    /// There is no folder to build in.
    pub fn prepare(source: &Source) -> Result<std::result::Result<Foreign, String>> {
        let Some(cc) = program("cc") else { return Ok(Err("there is no `cc`".to_owned())) };
        if !Path::new(source.header).exists() {
            let Source { library, package, .. } = source;
            return Ok(Err(format!("there is no {library} (on Debian: apt-get install {package})")));
        }
        Ok(compile(&cc, source.file, source.binary, source.libraries)?.map(Foreign))
    }

    /// Its output, with these variables in its environment.
    ///
    /// # Errors
    /// Of a run that failed, or took too long.
    pub fn say(&self, variables: &[(&str, &str)], command: &str, place: &Path, arguments: &[u64]) -> Result<String> {
        let mut asked = Command::new(&self.0);
        asked.arg(command).arg(place).args(arguments.iter().map(u64::to_string)).envs(variables.iter().copied());
        asked.stdin(Stdio::null()).stdout(Stdio::piped());
        finish(asked.spawn().with_context(|| format!("{} cannot be started", self.0.display()))?, TIME_LIMIT)
    }

    /// As [`say`](Self::say), read as JSON.
    ///
    /// # Errors
    /// As there, and if it says something else.
    pub fn told<T: DeserializeOwned>(
        &self,
        variables: &[(&str, &str)],
        command: &str,
        place: &Path,
        arguments: &[u64],
    ) -> Result<T> {
        let said = self.say(variables, command, place, arguments)?;
        serde_json::from_str(&said).with_context(|| format!("it said {said:?}"))
    }

    /// The numbers in the values of these keys.
    ///
    /// # Errors
    /// As [`told`](Self::told).
    pub fn numbers(&self, place: &Path, keys: &[u64]) -> Result<Option<Vec<Option<u64>>>> {
        let said = self.say(&[], "get", place, keys)?;
        let found = said.lines().map(|line| Ok(Some(line.parse()?))).collect::<Result<Vec<_>>>()?;
        ensure!(found.len() == keys.len(), "it said {said:?} for {} keys", keys.len());
        Ok(Some(found))
    }
}
