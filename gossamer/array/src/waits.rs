//! Panics of calls that may not wait, at the line of the call.

use crate::post;

/// The closures in which a chunk is in use, as messages name them.
const CLOSURES: &str = "the closure of a `modify`, `combine` or `update`, or an operator,";

/// Is a closure running that has elements of an array, or an operator?
fn is_in_closure() -> bool {
    post::parts().iter().any(|part| part.has_closure())
}

/// Refuses a call that would have to fetch its chunk, in a context where nothing may wait.
#[cold]
#[track_caller]
pub(crate) fn may_not_fetch(call: &str) -> ! {
    if is_in_closure() {
        panic!(
            "`{call}` of an array has to fetch a chunk, and nothing may wait in here: {CLOSURES} is running. Fetch \
             what it needs before that \
             call (`view`, `get`, `copy_to`), or use `try_get` or `update_then` in it"
        );
    }
    panic!(
        "`{call}` of an array has to fetch a chunk, and nothing may wait here, inside a delegated closure or a \
         callback: `launch` the closure \
         (it then runs in a fiber and may wait), use `try_get` or `update_then`, or fetch what it needs before"
    )
}

/// Refuses a call that always waits, in a context where nothing may wait.
///
/// # Panics
/// Inside delegated closures and callbacks.
#[track_caller]
pub(crate) fn may_wait(call: &str) {
    if !trust::may_wait() {
        may_not_wait(call);
    }
}

#[cold]
#[track_caller]
fn may_not_wait(call: &str) -> ! {
    if is_in_closure() {
        panic!(
            "`{call}` of an array waits, and nothing may wait in here: {CLOSURES} is running. Call it before that \
             call or after it, or use \
             `try_get` or `update_then` in the closure"
        );
    }
    panic!(
        "`{call}` of an array waits, and nothing may wait here, inside a delegated closure or a callback: `launch` \
         the closure (it then runs in a \
         fiber and may wait), or use `try_get` or `update_then`"
    )
}

/// Refuses a call for a chunk that a closure has.
#[cold]
#[track_caller]
pub(crate) fn refuse_in_use(call: &str) -> ! {
    panic!(
        "`{call}`: this chunk of the array is in use by {CLOSURES} that is running: use what the closure was \
         given, or call `{call}` before it \
         or after it"
    )
}
