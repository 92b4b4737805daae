//! The program's fabric on this machine, for shares (`link.rs`). A program that runs as one process has none: one of a
//! single machine is made for it.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use comm::shm::{self, ShmFabric};
use comm::{Error, Fabric, MachineId, WORD_BYTES};

use crate::bootstrap::HeapBytes;

static HEAP_BYTES: OnceLock<Option<HeapBytes>> = OnceLock::new();
static FABRIC: OnceLock<Weak<dyn Fabric>> = OnceLock::new();
/// Fabric of a program that is one process.
static ALONE: OnceLock<Result<Arc<ShmFabric>, String>> = OnceLock::new();

/// Records the program's fabric and the limit of its heaps on this host.
pub(crate) fn note(fabric: &Arc<dyn Fabric>, heap: Option<HeapBytes>) {
    let _ = FABRIC.set(Arc::downgrade(fabric)); // a process runs one program
    let _ = HEAP_BYTES.set(heap);
}

/// Returns the limit of the heaps of the program's machines on this host together, if its `rack.yaml` gives one.
pub(crate) fn heap_bytes() -> Option<u64> {
    HEAP_BYTES.get().copied().flatten().map(HeapBytes::get)
}

/// Calls `f` with the fabric.
pub(crate) fn with<R>(f: impl FnOnce(&dyn Fabric) -> Result<R, Error>) -> Result<R, Error> {
    if let Some(fabric) = FABRIC.get() {
        let ended = || Error::Bootstrap { reason: "the program ends: its machines have parted".into() };
        return f(&*fabric.upgrade().ok_or_else(ended)?);
    }
    match ALONE.get_or_init(|| alone().map(Arc::new).map_err(|error| error.to_string())) {
        Ok(fabric) => f(&**fabric),
        Err(problem) => Err(Error::Bootstrap { reason: problem.clone() }),
    }
}

fn alone() -> Result<ShmFabric, Error> {
    ShmFabric::open(shm::create(1)?.bootstrap(MachineId(0))?, WORD_BYTES, Duration::from_secs(1))
}
