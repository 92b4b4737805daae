//! Interface for the crates above (`gossamer-heap`, `gossamer-region`, `gossamer-array`): shares, memory that other
//! machines read one-sidedly; page servers' workers (`page_server.rs`); the end of the program. Not for programs.
//!
//! A share is opened once a machine, by number; the numbers of the crates are defined here, from [`HEAP`] on. Machines
//! of one host map each other's shares ([`mapped`]). A worker reads shares of other hosts over its own connection
//! ([`read`], [`take`]), without any of their workers. Memory orders are in `comm::share`.
//!
//! A program that runs as one process has shares too, in a fabric of one machine that is made for them.
//!
//! Safe code of programs can reach all of this: functions that could change or take back memory in which a crate above
//! has its values are unsafe.

#![allow(unsafe_code)] // promises

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use comm::{Error, MachineId, ReadId, Share, ShareId};

pub use comm::verbs::call_c_library;
pub use trust::link::panic_text;
use trust::{JoinHandle, NoRef, TrusteeReference};

use crate::Builder;
pub use crate::board::{MachineLoad, MachineUse};
use crate::fabric::{self, with};
use crate::remote::connections::{self, SharePath};
pub use crate::remote::gate::Gate;
pub use crate::view::tasks::{BUSIEST_MAX, TaskSample, TasksSample};
pub use crate::view::threads::{DONE, ThreadSample, Threads, ThreadsSample};

/// Share of the objects of `gossamer-heap`.
pub const HEAP: ShareId = ShareId(0);
/// Share of the pages of `gossamer-region`.
pub const REGION: ShareId = ShareId(1);
/// Share of the chunks of `gossamer-array`.
pub const ARRAY: ShareId = ShareId(2);
/// Share of the replicas of other machines' objects, of `gossamer-heap`.
pub const REPLICAS: ShareId = ShareId(3);

/// Returns the limit of the heaps of the program's machines on this host together, if its `rack.yaml` gives one.
pub fn heap_bytes() -> Option<u64> {
    fabric::heap_bytes()
}

/// Returns a builder with a page server's worker on each machine, if there are several machines.
pub fn with_page_servers(builder: Builder) -> Builder {
    Builder { has_page_servers: true, ..builder }
}

/// Runs the program as [`Builder::main`] does, but `gsm_main` returns the program's exit status. The program ends then
/// and there, whatever other fibers do. Returns the status.
pub fn main_with_status<F: FnOnce() -> u8 + Send + 'static>(builder: Builder, gsm_main: F, threads: usize) -> u8 {
    crate::start::start_with_status(&builder, move || Some(gsm_main()), threads)
}

/// Returns whether machines may be lost while the program goes on.
pub fn outlives_losses() -> bool {
    crate::losses::record::may_come()
}

/// Returns the number of losses that this machine knows of. Another machine may not know of all of them yet.
pub fn losses() -> u32 {
    crate::losses::record::count()
}

/// Returns whether this machine is lost, on any thread, before and after the program too.
pub fn is_lost(machine: u16) -> bool {
    crate::losses::record::is_lost(machine)
}

/// Calls `hook` once for each machine that is lost while the program goes on, and for those that were lost before: on
/// any thread, after the machine was shut out, before [`is_lost`] says so and any request fails by that loss. The hook
/// is short, and calls none of these functions.
pub fn on_loss(hook: fn(u16)) {
    crate::losses::record::hook(hook);
}

/// Calls `hook` for each machine that is lost from now on, on each worker of this machine, in a fiber that runs nothing
/// else in between. When it is called the whole process knows of the loss ([`is_lost`]),
/// nothing of the lost machine arrives at this worker any more, and this worker's requests to it have failed; the
/// program's callbacks ([`on_loss`](crate::on_loss)) follow when all workers have been told. A hook must not wait.
///
/// A loss that is noted while this is called may come without the call: ask `is_lost` after this one.
pub fn on_worker_loss(hook: fn(u16)) {
    crate::losses::record::add_worker_hook(hook);
}

/// Starts a fiber on the less loaded of two living machines that are picked at random, on one of its workers in turn;
/// the first caller's `measure` returns the use of the machine that calls it. The first call of a program, or of
/// [`loads`], begins the reports of all machines; calls wait for the first ones, up to 250 ms, where they may wait.
///
/// # Panics
/// Outside of the program.
#[track_caller]
pub fn spawn_by_load<F, R, M>(f: F, measure: M) -> JoinHandle<R>
where
    F: FnOnce() -> R + NoRef + Send + 'static,
    R: NoRef + Send + 'static,
    M: Fn() -> MachineUse + NoRef + Copy + Send + 'static,
{
    crate::board::spawn(f, measure)
}

/// Returns the loads of the living machines as of their last reports, this one included: for tasks, which move by them.
/// There are none before the first reports, which this asks for as [`spawn_by_load`] does. Does not wait.
///
/// # Panics
/// Outside of the program.
pub fn loads<M>(measure: M) -> Vec<MachineLoad>
where
    M: Fn() -> MachineUse + NoRef + Copy + Send + 'static,
{
    crate::board::loads_of_all(measure)
}

/// From now on the view of the program has the tasks of this machine that `show` returns: on a thread of its own, while
/// somebody looks. The first call counts.
pub fn show_tasks(show: fn() -> TasksSample) {
    crate::view::tasks::show(show);
}

/// From now on the view of the program has the C threads of this machine, and asks them to move: on threads of its own.
/// The first call counts.
pub fn show_threads(threads: Threads) {
    crate::view::threads::show(threads);
}

/// Returns whether the calling worker reaches other machines: those of a machine are connected one after the other, and
/// the service thread first, so that it may have a request of another machine before they are.
pub fn is_connected() -> bool {
    (0..crate::rack().machines().len() as u16).any(|machine| connections::to(MachineId(machine)).is_some())
}

/// Returns whether this machine has a page server's worker.
pub fn has_page_servers() -> bool {
    crate::page_server::is_started()
}

/// Returns the page server's worker of a machine, where the program was started with them and has several machines.
pub fn page_server(machine: u16) -> TrusteeReference {
    crate::rack().page_server(machine)
}

/// Ends the program, which cannot go on, with this cause.
pub fn end(cause: &str) -> ! {
    crate::fate::end(cause)
}

/// Ends the program, which cannot go on because of this error of the fabric. If a machine is gone, its loss is the
/// cause.
pub fn end_by(doing: &str, error: &Error) -> ! {
    let cause = format!("{doing}: {error}");
    match error {
        Error::Gone { machine } => crate::fate::end_without(machine.0, &cause),
        _ => crate::fate::end(&cause),
    }
}

/// Ends the program with this cause, and this process by SIGABRT. No exit handlers run: these may wait for a thread
/// that waits for the caller.
pub fn abort(cause: &str) -> ! {
    crate::fate::abort(cause)
}

/// Runs work that other threads wait for, and whose loss none of them would notice: a panic ends the program, with the
/// name of its thread and the panic as the cause.
pub fn or_end<R>(whose: &str, work: impl FnOnce() -> R) -> R {
    crate::fate::or_end(whose, work)
}

/// Opens a share of this machine: so many bytes of addresses, none of them committed.
///
/// # Errors
/// Those of `comm::Fabric::open_share`.
pub fn open_share(share: ShareId, bytes: usize) -> Result<(), Error> {
    with(|fabric| fabric.open_share(share, bytes))
}

/// Makes a range of an own share usable, by this machine and by all machines that learn of it from now on.
///
/// # Errors
/// Those of `comm::Fabric::commit`, for example that there is no more memory.
pub fn commit(share: ShareId, range: Range<usize>) -> Result<(), Error> {
    with(|fabric| fabric.commit(share, range))
}

/// Gives a range of an own share back.
///
/// # Safety
/// The share is the calling crate's, and the range holds nothing that is still in use.
///
/// # Errors
/// Those of `comm::Fabric::release`.
pub unsafe fn release(share: ShareId, range: Range<usize>) -> Result<(), Error> {
    with(|fabric| fabric.release(share, range))
}

/// Returns a share as this process has it mapped: an own one, or one of a machine of this host. It stays mapped while
/// the `Arc` is held.
///
/// # Safety
/// The share is the calling crate's: its words are stored to as that crate's values allow.
///
/// # Errors
/// Those of `comm::Fabric::mapped`.
pub unsafe fn mapped(machine: u16, share: ShareId) -> Result<Option<Arc<Share>>, Error> {
    find_mapped(machine, share)
}

fn find_mapped(machine: u16, share: ShareId) -> Result<Option<Arc<Share>>, Error> {
    with(|fabric| fabric.mapped(MachineId(machine), share))
}

/// Returns whether this process maps the shares of a machine, or will once that machine opens them: it is one of this
/// host, reached by shared memory.
pub fn maps(machine: u16, share: ShareId) -> bool {
    matches!(find_mapped(machine, share), Ok(Some(_)) | Err(Error::NoSuchShare { .. }))
}

/// Sets the gate that looks at all frames that leave this machine, before the program starts.
pub fn set_gate(gate: Gate) {
    crate::remote::gate::set(gate);
}

/// Returns the service thread of a machine: it computes nothing, so it runs soon what is [posted](trust::link::post)
/// to it.
pub fn service(machine: u16) -> TrusteeReference {
    crate::rack().service(machine)
}

/// Returns the lost machines in the order that all machines see.
pub fn lost_machines() -> Vec<u16> {
    crate::losses::record::after(0)
}

/// Writes into a share of another machine, on a worker of the program; a later [`read`] of the same worker sees it.
/// Nothing is written to a machine that is gone.
///
/// # Safety
/// The share is the calling crate's, whose values allow the write.
///
/// # Errors
/// Those of `comm::Connection::write_share`; [`Error::NoSuchPeer`] on a thread that is no worker.
pub unsafe fn write(machine: u16, share: ShareId, offset: usize, bytes: &[u8]) -> Result<(), Error> {
    connection(machine)?.write_share(share, offset, bytes)
}

/// Begins to read from a share of another machine, on a worker of the program.
///
/// # Errors
/// Those of `comm::Connection::read_share`; [`Error::NoSuchPeer`] on a thread that is no worker.
pub fn read(machine: u16, share: ShareId, offset: usize, bytes: usize) -> Result<ReadId, Error> {
    connection(machine)?.read_share(share, offset, bytes)
}

/// Takes the bytes that the calling worker has read, if they are there. Their arrival wakes no fiber: a waiter polls,
/// and lets the worker run other fibers in between.
///
/// # Errors
/// Those of `comm::Connection::take`.
pub fn take(machine: u16, read_id: ReadId, into: &mut [u8]) -> Result<bool, Error> {
    connection(machine)?.take(read_id, into)
}

fn connection(machine: u16) -> Result<Rc<dyn SharePath>, Error> {
    let none = || {
        let rack = crate::rack();
        Error::NoSuchPeer {
            machine: MachineId(machine),
            own: MachineId(rack.machine()),
            machines: rack.machines().len() as u16,
        }
    };
    connections::to(MachineId(machine)).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    /// Functions that safe code may call at any time: they change no memory in which a crate above has its values.
    const SAFE: [&str; 27] = [
        "heap_bytes",
        "with_page_servers",
        "main_with_status",
        "outlives_losses",
        "losses",
        "is_lost",
        "on_loss",
        "on_worker_loss",
        "spawn_by_load",
        "loads",
        "show_tasks",
        "show_threads",
        "is_connected",
        "has_page_servers",
        "page_server",
        "end",
        "end_by",
        "abort",
        "or_end",
        "open_share",
        "commit",
        "maps",
        "set_gate",
        "service",
        "lost_machines",
        "read",
        "take",
    ];

    #[test]
    fn functions_are_unsafe_or_known_to_be_safe() {
        let lines = include_str!("link.rs").lines();
        let names =
            lines.filter_map(|line| line.strip_prefix("pub fn ")).filter_map(|line| line.split(['(', '<']).next());
        let names: Vec<_> = names.collect();
        assert!(names.contains(&"read"), "{names:?}");
        let unknown: Vec<_> = names.iter().filter(|name| !SAFE.contains(name)).collect();
        assert!(unknown.is_empty(), "safe whatever safe code does, or unsafe? {unknown:?}");
    }
}
