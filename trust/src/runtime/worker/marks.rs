//! Marks of a worker, in one byte: one look at the end of a call is enough.

use std::cell::Cell;

/// There may be something deferred or unreferenced.
const AFTERMATH: u8 = 1;
/// The worker has announced that it has no work of its own.
const QUIET: u8 = 2;

/// The marks of one worker.
#[derive(Default)]
pub(crate) struct Marks(Cell<u8>);

impl Marks {
    /// Is there any?
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.0.get() != 0
    }

    /// May there be something deferred or unreferenced?
    #[inline(always)]
    pub(crate) fn has_aftermath(&self) -> bool {
        self.0.get() & AFTERMATH != 0
    }

    #[inline(always)]
    pub(crate) fn set_aftermath(&self, is_set: bool) {
        self.set(AFTERMATH, is_set);
    }

    /// Has the worker announced that it has no work of its own?
    #[inline(always)]
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.get() & QUIET != 0
    }

    pub(crate) fn set_quiet(&self, is_set: bool) {
        self.set(QUIET, is_set);
    }

    #[inline(always)]
    fn set(&self, mark: u8, is_set: bool) {
        let others = self.0.get() & !mark;
        self.0.set(if is_set { others | mark } else { others });
    }
}
