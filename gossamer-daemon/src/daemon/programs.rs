//! The programs that run on this host, as its daemon knows them.
//!
//! Invariants: programs that run, and those that are only coming (their executable is on its way), are counted together,
//! against one limit. A part is started and entered, or its orphans are ended, by one thread at a time ([`Programs::starting`]):
//! so no part is ever taken for an orphan.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::orphans;
use crate::wire::{MachineStatus, ProgramId, ProgramStatus};

/// How long killed processes may take to go.
const END_LIMIT: Duration = Duration::from_secs(2);

/// A program, on this host.
pub struct Program {
    /// Its path on the launcher's host.
    pub path: String,
    /// Who started it.
    pub owner: String,
    /// Since when it runs.
    pub since: Instant,
    /// The process between daemon and machines.
    pub part: Pid,
    /// The way to it.
    pub channel: UnixStream,
    /// Its machines.
    pub machines: BTreeMap<u16, Machine>,
    /// Why it was made to end, where the daemon did it.
    pub ended_by: Option<String>,
}

/// A machine of a program on this host.
pub struct Machine {
    pid: u32,
    /// Bytes of its slots, by its own account; `None` until it is ready.
    slots_bytes: Option<u64>,
}

/// All of them.
#[derive(Default)]
pub struct Programs {
    list: Mutex<BTreeMap<ProgramId, Program>>,
    coming: Mutex<BTreeSet<ProgramId>>,
    starting: Mutex<()>,
}

/// Room for a program that is coming; it ends when that runs, or was refused.
pub struct Reserved<'a> {
    programs: &'a Programs,
    id: ProgramId,
}

impl Reserved<'_> {
    /// The program runs: its part was started under `starting`.
    pub fn enter(self, program: Program) {
        self.programs.list().insert(self.id, program);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.programs.coming().remove(&self.id);
    }
}

impl Programs {
    fn coming(&self) -> MutexGuard<'_, BTreeSet<ProgramId>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> MutexGuard<'_, BTreeMap<ProgramId, Program>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No other process of the daemon is started while this is held.
    pub fn starting(&self) -> MutexGuard<'_, ()> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves room for one more.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn reserve(&self, id: ProgramId, most: u16) -> Result<Reserved<'_>, String> {
        let mut coming = self.coming();
        let running = self.list();
        if running.contains_key(&id) || coming.contains(&id) {
            return Err(format!("program {id} runs here already"));
        }
        if running.len() + coming.len() >= usize::from(most) {
            let cure = "wait for one to end, or raise limits.programs in rack.yaml";
            return Err(format!("{most} programs run here or are coming, and no more may: {cure}"));
        }
        coming.insert(id);
        Ok(Reserved { programs: self, id })
    }

    /// A machine of it has been started.
    pub fn add_machine(&self, id: ProgramId, machine: u16, pid: u32) {
        if let Some(program) = self.list().get_mut(&id) {
            program.machines.insert(machine, Machine { pid, slots_bytes: None });
        }
    }

    /// A machine of it is ready, and has said how much its slots take.
    pub fn set_slots(&self, id: ProgramId, machine: u16, bytes: u64) {
        let mut list = self.list();
        if let Some(machine) = list.get_mut(&id).and_then(|program| program.machines.get_mut(&machine)) {
            machine.slots_bytes = Some(bytes);
        }
    }

    /// Ends a program: its part is cut off, kills its machines and goes. False when there is no such program.
    pub fn end(&self, id: ProgramId, reason: &str) -> bool {
        let mut list = self.list();
        let Some(program) = list.get_mut(&id) else { return false };
        program.ended_by.get_or_insert_with(|| reason.to_owned());
        let _ = program.channel.shutdown(Shutdown::Both); // gone already: as good
        true
    }

    /// Ends all of them; how many there were.
    pub fn end_all(&self, reason: &str) -> usize {
        let ids: Vec<ProgramId> = self.list().keys().copied().collect();
        ids.iter().filter(|id| self.end(**id, reason)).count()
    }

    /// Why the daemon ended it, if it did.
    pub fn ended_by(&self, id: ProgramId) -> Option<String> {
        self.list().get(&id)?.ended_by.clone()
    }

    /// The part has gone and was collected: what it left behind is ended.
    pub fn remove(&self, id: ProgramId) {
        let _one_at_a_time = self.starting();
        let others = |(other, program): (&ProgramId, &Program)| (*other != id).then_some(program.part);
        let parts: Vec<Pid> = self.list().iter().filter_map(others).collect();
        let left = orphans::end(&parts, END_LIMIT);
        if left > 0 {
            tracing::warn!(program = %id, left, "processes of the program cannot be killed");
        }
        self.list().remove(&id); // last: a daemon that is told to end waits for this
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list().len()
    }

    /// What to tell of them.
    pub fn status(&self) -> Vec<ProgramStatus> {
        let machine = |(number, machine): (&u16, &Machine)| {
            let Machine { pid, slots_bytes } = *machine;
            let (resident_bytes, shared_bytes) = memory_of(pid);
            MachineStatus { machine: *number, pid, slots_bytes, resident_bytes, shared_bytes }
        };
        let program = |(id, program): (&ProgramId, &Program)| ProgramStatus {
            id: id.to_string(),
            path: program.path.clone(),
            owner: program.owner.clone(),
            seconds: program.since.elapsed().as_secs(),
            machines: program.machines.iter().map(machine).collect(),
        };
        self.list().iter().map(program).collect()
    }
}

/// Memory of a process in use, and how much of it is shared, in bytes; 0 where it is gone.
fn memory_of(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
    };
    (field("VmRSS:").unwrap_or(0), field("RssShmem:").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_coming_are_counted() {
        let programs = Programs::default();
        let refused = |id, most| programs.reserve(ProgramId(id), most).err().unwrap_or_default();
        let first = programs.reserve(ProgramId(1), 2).unwrap();
        assert!(refused(1, 2).contains("00000001 runs here already"));
        let second = programs.reserve(ProgramId(2), 2).unwrap();
        assert!(refused(3, 2).contains("2 programs run here or are coming"));
        drop(first);
        assert_eq!(refused(3, 2), "");
        let (channel, _) = UnixStream::pair().unwrap();
        let (path, owner, machines) = (String::new(), String::new(), BTreeMap::new());
        let part = rustix::process::getpid();
        second.enter(Program { path, owner, since: Instant::now(), part, channel, machines, ended_by: None });
        assert!(refused(2, 9).contains("already") && refused(3, 1).contains("1 programs"));
        assert!(programs.coming().is_empty());
    }

    #[test]
    fn memory_of_this_process_is_known() {
        assert!(memory_of(std::process::id()).0 > 100_000);
        assert_eq!(memory_of(0), (0, 0));
    }
}
