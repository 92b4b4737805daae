//! The limit of open files, which a machine with many workers and peers reaches: it needs two
//! connections for each worker and remote machine. Not here: anything else.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process' own limit to what the system allows it, when it was reached. Whether there is
/// room now that was not there before.
pub(super) fn raise_limit() -> bool {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let is_raised = match (current, maximum) {
        (None, _) => false,
        (Some(current), Some(maximum)) => current < maximum,
        (Some(_), None) => true,
    };
    is_raised && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
}
