//! Error of a worker that cannot be made.

use crate::fiber::stack::StackError;
use crate::registry::TooMany;

/// Reason why a worker was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotMade {
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    TooMany(#[from] TooMany),
}
