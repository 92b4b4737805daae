//! Safe interface of libibverbs: devices, protection domain, registered memory, completion queues and
//! channel, queue pairs. The only files of `verbs` with unsafe code are those of this folder.
//!
//! Here: the allowed order of calls, and lifetimes. Not here: layouts (`layout`) and symbols (`ffi`), the
//! writes (`link`), the choice of a device (`survey`).
//!
//! Invariants
//! - [destroy-in-order] An object of libibverbs is destroyed once, when its owner here is dropped, and each owner holds
//!   an `Arc` of the objects that its own depends on: queue pairs their queues and domain, queues their channel
//!   and context, memory its domain and the mapping. So the order is always right.
//! - [verbs-stay-loaded] The library stays loaded for the life of the process, so its functions stay where they are.
//! - [registered-memory] A device only reads and writes registered memory: regions, which this process only touches by
//!   atomics [atomics-only], and which stay mapped until they are no longer registered [destroy-in-order].
//! - [verbs-lock-inside] Several threads may use the objects at the same time: libibverbs locks inside.

#![allow(unsafe_code)]

mod ffi;
#[cfg(test)]
mod header;
mod layout;
mod queue;
mod work_requests;

pub(super) use layout::{
    MTU_256, MTU_512, MTU_1024, MTU_2048, MTU_4096, PORT_ACTIVE, PORT_ACTIVE_DEFER, PORT_ARMED, PORT_DOWN, PORT_INIT,
    WC_LOC_PROT_ERR, WC_LOC_QP_OP_ERR, WC_REM_ACCESS_ERR, WC_REM_INV_REQ_ERR, WC_REM_OP_ERR, WC_RETRY_EXC_ERR,
    WC_RNR_RETRY_EXC_ERR, WC_SUCCESS, WC_WR_FLUSH_ERR,
};
pub(super) use queue::{Completion, CompletionChannel, CompletionQueue, Path, QueuePair, QueueSizes};
pub(super) use work_requests::WorkRequests;

use crate::error::Error;
use crate::memory::{Region, WORD_BYTES, check_access};
use libloading::os::unix;
use std::ffi::{CStr, c_int};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// File name of the library.
const LIBRARY: &str = "libibverbs.so.1";

/// The loaded library.
pub(super) struct Verbs {
    table: ffi::Table,
    /// Never closed [verbs-stay-loaded].
    _library: libloading::Library,
}

impl Verbs {
    /// Loads libibverbs, once in the life of the process.
    pub(super) fn load() -> Result<&'static Verbs, Error> {
        static LOADED: OnceLock<Result<Verbs, String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| {
            let library = open().map_err(|error| {
                let cause = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
                format!(
                    "{cause}: install rdma-core's library, on Debian the packages libibverbs1 and ibverbs-providers"
                )
            })?;
            // SAFETY: `LIBRARY` names the library with the stable interface 1.1 or later.
            let table =
                unsafe { ffi::Table::find(&library) }.map_err(|error| format!("{LIBRARY} is too old: {error}"))?;
            // So that a program may start others while memory is pinned; new kernels need no help with that,
            // and a refusal only affects programs that fork without exec.
            // SAFETY: called once, before anything else of the library.
            unsafe { (table.fork_init)() };
            Ok(Verbs { table, _library: library })
        });
        loaded.as_ref().map_err(Error::verbs)
    }
}

/// Whether libibverbs is to call the C library's functions.
static CALLS_C_LIBRARY: AtomicBool = AtomicBool::new(false);

/// Has libibverbs call the C library's functions where the program, too, has some of these names. For programs whose
/// allocator the C library does not call, as it does otherwise: libibverbs frees what the C library has allocated.
pub fn call_c_library() {
    CALLS_C_LIBRARY.store(true, Ordering::Relaxed); // by the thread that starts the fabric's
}

fn open() -> Result<libloading::Library, libloading::Error> {
    // Sanitizers have such names too, and refuse programs that look past them.
    // SAFETY: only looked up, never used.
    let is_sanitized = || unsafe { unix::Library::this().get::<*const ()>(c"__sanitizer_print_stack_trace") }.is_ok();
    let is_deep = CALLS_C_LIBRARY.load(Ordering::Relaxed) && !is_sanitized();
    let deep = if is_deep { libc::RTLD_DEEPBIND } else { 0 };
    // SAFETY: libibverbs is an ordinary library: loading it runs only its own start-up.
    unsafe { unix::Library::open(Some(LIBRARY), libc::RTLD_NOW | libc::RTLD_LOCAL | deep) }.map(Into::into)
}

/// Attributes of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceLimits {
    pub(super) queue_pairs: usize,
    pub(super) work_requests: u32,
    pub(super) completions: u32,
    /// Reads of a queue pair at once: of peers that it serves, and of its own.
    pub(super) reads_served: u8,
    pub(super) reads_begun: u8,
    pub(super) ports: u8,
}

/// Attributes of a port.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortState {
    /// One of the `PORT_` constants.
    pub(super) state: u32,
    /// One of the `MTU_` constants: each doubles the one before.
    pub(super) mtu: u32,
    pub(super) lid: u16,
    pub(super) is_ethernet: bool,
    pub(super) message_bytes: u32,
    pub(super) gids: u32,
}

/// An event that the device reports on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A queue pair that failed, by its number, and why.
    QueuePair(u32, &'static str),
    /// A completion queue was too small, or broke.
    Completions,
    /// The device is gone.
    Device,
    /// Any event that needs no answer.
    Other,
}

/// An open device.
pub(super) struct Device {
    verbs: &'static Verbs,
    context: NonNull<ffi::Context>,
    name: String,
}

// SAFETY: [verbs-lock-inside].
unsafe impl Send for Device {}
// SAFETY: [verbs-lock-inside].
unsafe impl Sync for Device {}

/// Returns the names of the devices that libibverbs finds.
pub(super) fn devices() -> Result<Vec<String>, Error> {
    with_devices(|verbs, devices| Ok(devices.iter().map(|device| name_of(verbs, *device)).collect()))
}

/// Runs `body` while the list of devices exists.
fn with_devices<R>(body: impl FnOnce(&'static Verbs, &[*mut ffi::Device]) -> Result<R, Error>) -> Result<R, Error> {
    let verbs = Verbs::load()?;
    let mut count: c_int = 0;
    // SAFETY: the function writes the count and returns an array of that length, or null.
    let list = unsafe { (verbs.table.get_device_list)(&raw mut count) };
    let Some(list) = NonNull::new(list) else {
        let error = io::Error::last_os_error();
        // ENOSYS: this kernel knows no RDMA at all, so there are no devices.
        return match error.kind() {
            io::ErrorKind::Unsupported => body(verbs, &[]),
            _ => Err(Error::verbs(format!("the RDMA devices cannot be listed: {error}"))),
        };
    };
    // SAFETY: as above; the array lives until it is freed below.
    let devices = unsafe { std::slice::from_raw_parts(list.as_ptr(), usize::try_from(count).unwrap_or(0)) };
    let result = body(verbs, devices);
    // SAFETY: made above, freed once; open devices keep the parts that they need.
    unsafe { (verbs.table.free_device_list)(list.as_ptr()) };
    result
}

fn name_of(verbs: &Verbs, device: *mut ffi::Device) -> String {
    // SAFETY: `device` is of the list, and its name is a C string that lives as long as the list.
    unsafe { CStr::from_ptr((verbs.table.get_device_name)(device)) }.to_string_lossy().into_owned()
}

impl Device {
    /// Opens the device of this name.
    pub(super) fn open(name: &str) -> Result<Arc<Device>, Error> {
        with_devices(|verbs, devices| {
            let found = devices.iter().copied().find(|device| name_of(verbs, *device) == name);
            let device = found.ok_or_else(|| Error::verbs(format!("there is no RDMA device {name}")))?;
            // SAFETY: `device` is of the list, which still exists.
            let context = NonNull::new(unsafe { (verbs.table.open_device)(device) });
            let context = context.ok_or_else(|| {
                let error = io::Error::last_os_error();
                Error::verbs(format!(
                    "the RDMA device {name} cannot be opened: {error}; this user needs access to \
                     /dev/infiniband/uverbs*"
                ))
            })?;
            let device = Device { verbs, context, name: name.to_owned() };
            // Later reads of events must not wait.
            rustix::io::ioctl_fionbio(device.events(), true).map_err(Error::system("opening an RDMA device"))?;
            Ok(Arc::new(device))
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn limits(&self) -> Result<DeviceLimits, Error> {
        let mut attr = ffi::DeviceAttr::EMPTY;
        // SAFETY: the context is open [destroy-in-order], the struct has the header's layout.
        let code = unsafe { (self.verbs.table.query_device)(self.context.as_ptr(), &raw mut attr) };
        refused(code, || format!("the RDMA device {} does not tell its limits", self.name))?;
        Ok(DeviceLimits {
            queue_pairs: usize::try_from(attr.max_qp).unwrap_or(0),
            work_requests: u32::try_from(attr.max_qp_wr).unwrap_or(0),
            completions: u32::try_from(attr.max_cqe).unwrap_or(0),
            reads_served: u8::try_from(attr.max_qp_rd_atom.max(0)).unwrap_or(u8::MAX),
            reads_begun: u8::try_from(attr.max_qp_init_rd_atom.max(0)).unwrap_or(u8::MAX),
            ports: attr.phys_port_cnt,
        })
    }

    pub(super) fn port(&self, port: u8) -> Result<PortState, Error> {
        let mut attr = ffi::PortAttr::EMPTY;
        // SAFETY: as in `limits`. The library fills the struct up to `flags`.
        let code = unsafe { (self.verbs.table.query_port)(self.context.as_ptr(), port, &raw mut attr) };
        refused(code, || format!("the RDMA device {} does not tell the state of port {port}", self.name))?;
        Ok(PortState {
            state: attr.state,
            mtu: attr.active_mtu,
            lid: attr.lid,
            is_ethernet: attr.link_layer == ffi::LINK_LAYER_ETHERNET,
            message_bytes: attr.max_msg_sz,
            gids: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
        })
    }

    /// Returns the descriptor that is readable when there is an event to take.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the library keeps it open as long as the context [destroy-in-order].
        unsafe { BorrowedFd::borrow_raw((*self.context.as_ptr()).async_fd) }
    }

    /// Returns the next event, if there is one; never waits.
    pub(super) fn next_event(&self) -> Option<Event> {
        let mut event = ffi::AsyncEvent { element: 0, event_type: 0 };
        // SAFETY: the context is open, the struct has the header's layout; the descriptor does not block.
        if unsafe { (self.verbs.table.get_async_event)(self.context.as_ptr(), &raw mut event) } != 0 {
            return None;
        }
        let queue_pair = |what| {
            let pointer = std::ptr::with_exposed_provenance::<ffi::Qp>(event.element as usize);
            // SAFETY: for these types the element is a queue pair of this context, and destroying one waits until
            // its events are acknowledged, which this one is not yet.
            Event::QueuePair(unsafe { (*pointer).qp_num }, what)
        };
        let said = match event.event_type {
            ffi::EVENT_CQ_ERR => Event::Completions,
            ffi::EVENT_QP_FATAL => queue_pair("the device reports a fatal error of the queue pair"),
            ffi::EVENT_QP_REQ_ERR => queue_pair("the device reports an invalid request from the peer"),
            ffi::EVENT_QP_ACCESS_ERR => {
                queue_pair("the device reports that the peer accessed memory it may not (wrong key or range)")
            }
            ffi::EVENT_DEVICE_FATAL => Event::Device,
            _ => Event::Other,
        };
        // SAFETY: taken above, acknowledged once.
        unsafe { (self.verbs.table.ack_async_event)(&raw mut event) };
        Some(said)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: [destroy-in-order]: the objects that depend on it are gone.
        unsafe { (self.verbs.table.close_device)(self.context.as_ptr()) };
    }
}

/// Protection domain: memory and queue pairs of one domain go together.
pub(super) struct ProtectionDomain {
    device: Arc<Device>,
    pd: NonNull<ffi::Pd>,
}

// SAFETY: [verbs-lock-inside].
unsafe impl Send for ProtectionDomain {}
// SAFETY: [verbs-lock-inside].
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(super) fn new(device: &Arc<Device>) -> Result<Arc<ProtectionDomain>, Error> {
        // SAFETY: the context is open.
        let pd = created(unsafe { (device.verbs.table.alloc_pd)(device.context.as_ptr()) }, || {
            format!("no protection domain on {}", device.name)
        })?;
        Ok(Arc::new(ProtectionDomain { device: Arc::clone(device), pd }))
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: [destroy-in-order].
        unsafe { (self.device.verbs.table.dealloc_pd)(self.pd.as_ptr()) };
    }
}

/// Permitted use of registered memory, beside the device's own reads for this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// None: writes begin here.
    Staging,
    /// The own machine's reads of peers land here.
    Landing,
    /// Peers write it.
    Written,
    /// Peers read it.
    Read,
    /// Peers write and read it.
    Shared,
}

impl Access {
    fn flags(self) -> c_int {
        match self {
            Access::Staging => 0,
            Access::Landing => ffi::ACCESS_LOCAL_WRITE,
            Access::Written => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_WRITE,
            // With local writes too, though the own device makes none: so that the device pins the region's
            // own pages, not the system's page of zeros.
            Access::Read => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_READ,
            Access::Shared => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_READ,
        }
    }
}

/// A region, or a part of one, that the device may read, and that peers may write and read by it if it was
/// registered so.
pub(super) struct MemoryRegion {
    /// Dropped by hand before the mapping.
    mr: NonNull<ffi::Mr>,
    domain: Arc<ProtectionDomain>,
    region: Arc<Region>,
    /// Its start in the region.
    start: usize,
}

// SAFETY: [verbs-lock-inside]; the mapping is touched by atomics only [atomics-only].
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers, and so pins, all of `region`.
    pub(super) fn register(
        domain: &Arc<ProtectionDomain>,
        region: Arc<Region>,
        access: Access,
    ) -> Result<Arc<MemoryRegion>, Error> {
        // All of it is about to be pinned. Network cards translate addresses by pages: fewer pages are faster.
        region.ask_for_huge_pages();
        let all = 0..region.bytes();
        MemoryRegion::register_part(domain, region, all, access)
    }

    /// Registers, and so pins, a part of `region`.
    pub(super) fn register_part(
        domain: &Arc<ProtectionDomain>,
        region: Arc<Region>,
        part: Range<usize>,
        access: Access,
    ) -> Result<Arc<MemoryRegion>, Error> {
        let verbs = domain.device.verbs;
        check_access(region.bytes(), part.start, part.len(), WORD_BYTES)?;
        let start = region.base().wrapping_add(part.start);
        // SAFETY: the domain exists; the part lies in the mapping (just checked, [mapping-stays]), which stays until
        // this is dropped [registered-memory].
        let mr = unsafe { (verbs.table.reg_mr)(domain.pd.as_ptr(), start.cast(), part.len(), access.flags()) };
        match NonNull::new(mr) {
            Some(mr) => Ok(Arc::new(MemoryRegion { mr, domain: Arc::clone(domain), region, start: part.start })),
            None => Err(not_registered(part.len(), &io::Error::last_os_error())),
        }
    }

    /// Returns the address of its first byte for peers.
    pub(super) fn address(&self) -> u64 {
        self.region.base().expose_provenance() as u64 + self.start as u64
    }

    pub(super) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: [destroy-in-order]: the object lives, and its keys do not change.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.mr.as_ptr()).rkey }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: [destroy-in-order]; the mapping is unmapped after this, when the fields are dropped.
        unsafe { (self.domain.device.verbs.table.dereg_mr)(self.mr.as_ptr()) };
    }
}

/// Returns the reason why memory could not be pinned, and the cure, which nearly always concerns the limit on
/// locked memory.
fn not_registered(bytes: usize, error: &io::Error) -> Error {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let reason = match limit {
        Some(limit) => format!(
            "{bytes} bytes cannot be registered with the RDMA device: {error}. The limit on locked memory is {limit} \
             bytes: raise it with `ulimit -l unlimited`, for good by `* - memlock unlimited` in \
             /etc/security/limits.conf, for a daemon by LimitMEMLOCK=infinity in its systemd unit"
        ),
        None => format!("{bytes} bytes cannot be registered with the RDMA device: {error}"),
    };
    Error::verbs(reason)
}

/// Turns a null pointer into the error that the library left in `errno`.
fn created<T>(pointer: *mut T, what: impl FnOnce() -> String) -> Result<NonNull<T>, Error> {
    let error = io::Error::last_os_error();
    NonNull::new(pointer).ok_or_else(|| Error::verbs(format!("{}: {error}", what())))
}

/// Turns an error number that a function returned into an error.
fn refused(code: c_int, what: impl FnOnce() -> String) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        code => Err(Error::verbs(format!("{}: {}", what(), io::Error::from_raw_os_error(code.abs())))),
    }
}
