//! Use of this machine, for the reports of loads.

use gossamer::link::MachineUse;

use crate::limit;
use crate::tasks::registry;

/// Returns the use of the machine that calls it.
pub(crate) fn of_own_machine() -> MachineUse {
    MachineUse { fill: limit::fill(), ..registry::load() }
}
