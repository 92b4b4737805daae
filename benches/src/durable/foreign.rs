//! Contenders that are programs in C over a library of the system: made with `cc` where its header is, and asked by
//! their arguments.

use crate::prelude::*;
use crate::programs::cc;
use serde::de::DeserializeOwned;

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
pub struct Foreign(Program);

impl Foreign {
    /// Makes it; or says why it cannot be had here.
    pub fn prepare(source: &Source) -> Result<Found<Foreign>> {
        let Source { file, binary, header, libraries, library, package } = source;
        if !Path::new(header).exists() {
            return Ok(Err(format!("there is no {library} (on Debian: apt-get install {package})")));
        }
        Ok(cc(file, binary, libraries)?.map(|built| Foreign(Program::at(built))))
    }

    fn asked(&self, command: &str, place: &Path, arguments: &[u64]) -> Program {
        self.0.clone().say(command).with([place]).with(arguments.iter().map(u64::to_string))
    }

    /// Its report, with these variables in its environment.
    pub fn told<T: DeserializeOwned>(
        &self,
        variables: &[(&'static str, &str)],
        command: &str,
        place: &Path,
        arguments: &[u64],
    ) -> Result<T> {
        let asked = self.asked(command, place, arguments);
        variables.iter().fold(asked, |asked, (name, value)| asked.set(name, value)).told()
    }

    /// The numbers in the values of these keys.
    pub fn numbers(&self, place: &Path, keys: &[u64]) -> Result<Option<Vec<Option<u64>>>> {
        let said = self.asked("get", place, keys).run()?;
        let found = said.lines().map(|line| Ok(Some(line.parse()?))).collect::<Result<Vec<_>>>()?;
        ensure!(found.len() == keys.len(), "it said {said:?} for {} keys", keys.len());
        Ok(Some(found))
    }
}
