//! Id of a trustee: machine, index and generation in one number; and the machine number of this process in a rack
//! program.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

/// Id of a trustee: machine, index among the threads of the machine, and generation of that index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrusteeId(u64);

impl TrusteeId {
    pub(crate) fn new(machine: u16, index: u16, generation: u32) -> Self {
        TrusteeId((u64::from(machine) << 48) | (u64::from(index) << 32) | u64::from(generation))
    }
    /// Returns the machine (process) of a rack program; 0 in a program of one process.
    ///
    /// ```
    /// assert_eq!(trust::local_trustee().id().machine(), 0); // one process
    /// ```
    #[inline]
    pub fn machine(self) -> u16 {
        (self.0 >> 48) as u16
    }
    /// Id of no trustee; no [`from_bits`](Self::from_bits) returns it.
    pub(crate) const NOBODY: TrusteeId = TrusteeId(u64::MAX);
    /// Returns an id of this machine that no thread ever gets: requests to it fail, here and on other machines.
    pub(crate) fn vacant() -> Self {
        TrusteeId::new(machine(), u16::MAX, u32::MAX)
    }
    /// Returns the index among the threads of its machine. Reused after the thread has ended.
    ///
    /// ```
    /// let pool = trust::Threadpool::new(2);
    /// let indices: Vec<usize> = pool.trustees().iter().map(|trustee| trustee.id().index()).collect();
    /// assert_ne!(indices[0], indices[1]);
    /// ```
    #[inline(always)]
    pub fn index(self) -> usize {
        usize::from((self.0 >> 32) as u16)
    }
    /// Returns the whole id as one number.
    ///
    /// ```
    /// let id = trust::local_trustee().id();
    /// assert_eq!(trust::TrusteeId::from_bits(id.to_bits()), id);
    /// ```
    pub fn to_bits(self) -> u64 {
        self.0
    }
    /// Inverse of [`to_bits`](Self::to_bits). An id of no trustee is harmless: requests to it fail.
    ///
    /// ```
    /// use trust::{TrusteeId, TrusteeReference};
    /// let nobody = TrusteeReference::from_id(TrusteeId::from_bits(0xffff_0000_0000));
    /// assert!(!nobody.is_local());
    /// ```
    pub fn from_bits(bits: u64) -> Self {
        // `NOBODY` is the id that a worker without a trustee compares others with.
        TrusteeId(if bits == Self::NOBODY.0 { bits - 1 } else { bits })
    }
}

impl fmt::Debug for TrusteeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}w{}", self.machine(), self.index())?;
        if self.0 as u32 == 0 { Ok(()) } else { write!(f, ".{}", self.0 as u32) }
    }
}

static MACHINE: AtomicU16 = AtomicU16::new(0);
static IN_RACK: AtomicBool = AtomicBool::new(false);

/// Returns the machine of a rack program that this process is.
#[inline]
pub(crate) fn machine() -> u16 {
    MACHINE.load(Ordering::Relaxed)
}

/// Returns whether this process is one of several machines.
pub(crate) fn is_in_rack() -> bool {
    IN_RACK.load(Ordering::Relaxed)
}

/// Makes this process this machine of a rack program. Called before any of its threads has an id.
pub(crate) fn set_machine(machine: u16) {
    MACHINE.store(machine, Ordering::Relaxed);
    IN_RACK.store(true, Ordering::Relaxed);
}

/// Returns the id of the worker at this index of a machine's pool, if the pool was the first to have trustees there.
pub fn worker_id(machine: u16, index: u16) -> TrusteeId {
    TrusteeId::new(machine, index, 0)
}
