//! Tasks: work in steps, which goes to another machine between two of them (DRust, 4.2.2).
//!
//! A task's fiber runs its steps, and looks at the loads between them at most every 5 ms (`look.rs`); so nothing runs
//! where there are no tasks. `policy.rs` decides who goes where, from the loads of the machines and what `registry.rs`
//! knows of the tasks here (`entry.rs`, `rate.rs`). State, step and two promises travel (`run.rs`): of the value, and
//! of the text of a panic. Their maker waits for these (`task.rs`), and asks around when a machine is lost
//! (`whereabouts.rs`).

mod entry;
mod list;
mod look;
mod policy;
mod rate;
pub(crate) mod registry;
mod run;
mod step;
mod task;
mod task_id;
mod whereabouts;

pub(crate) use entry::note_fetch;
pub use list::{TaskInfo, tasks};
pub use step::Step;
pub use task::Task;
pub use task_id::TaskId;

/// For tests and benchmarks, not for programs.
#[doc(hidden)]
pub mod link {
    /// The task that runs the calling step goes to that machine after it, if that is another living one.
    pub fn go_after_step(machine: u16) {
        let rack = gossamer::rack();
        let is_other = machine != rack.machine() && usize::from(machine) < rack.machines().len();
        if is_other && !rack.is_lost(machine) {
            super::entry::ask(machine);
        }
    }
}
