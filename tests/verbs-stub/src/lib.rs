//! A library with the functions that `comm::verbs` takes from libibverbs, without a device: a write goes straight into
//! the memory of the peer's process, on the same host, by the kernel (`/proc/PID/mem`).
//!
//! It has two uses. `cargo dev rdma counts` counts the instructions of the fabric itself, and leaves out those of this
//! library; and tests name a host's limits by variables: `VERBS_STUB_DEVICES=0`, `VERBS_STUB_LOCKABLE` (bytes that can
//! be registered at a time), `VERBS_STUB_COMPLETIONS` and `VERBS_STUB_QUEUE_PAIRS` (the device's limits),
//! `VERBS_STUB_STATE` (of the port), `VERBS_STUB_IN_ORDER` (whether it says that it places bytes in order, which it
//! does).
//!
//! Here: the functions that `comm` looks up. Not here: queues and their requests (`queue`). The key of memory is the
//! number of its process, so nothing has to be looked up between processes. Nothing is checked: the caller is trusted
//! to be `comm`, which has the layouts (`layout`) by the very same file.

#![allow(unsafe_code, reason = "its callers are C or speak like it")]

#[allow(dead_code, missing_docs, reason = "`comm` uses all of it")]
#[path = "../../../comm/src/verbs/raw/layout.rs"]
mod layout;
mod queue;

use layout::{Context, Device, DeviceAttr, Mr, Pd, PortAttr};
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::ptr::null_mut;

/// Differences from a good device that a test wants.
fn knob(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// # Safety
/// As its namesake in libibverbs, in this and all functions below.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// One device, which is only pointed at.
static DEVICE: u64 = 0;

/// # Safety
/// `count` can be written.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut Device {
    let devices = knob("VERBS_STUB_DEVICES", 1).min(1);
    // SAFETY: the caller's promise.
    unsafe { *count = devices as c_int };
    let list: Box<[*mut Device; 2]> = Box::new([(&raw const DEVICE).cast_mut().cast(), null_mut()]);
    Box::into_raw(list).cast()
}

/// # Safety
/// `list` is one of `ibv_get_device_list`.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut Device) {
    // SAFETY: made there, freed once.
    drop(unsafe { Box::from_raw(list.cast::<[*mut Device; 2]>()) });
}

/// # Safety
/// None is needed.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(_device: *mut Device) -> *const c_char {
    c"stub0".as_ptr()
}

/// # Safety
/// None is needed.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut Device) -> *mut Context {
    // Readable when the other end writes, which it never does.
    let Ok((events, silent)) = std::os::unix::net::UnixDatagram::pair() else { return null_mut() };
    std::mem::forget(silent);
    // SAFETY: the struct is made of pointers, functions that may be missing, and numbers: all may be 0.
    let mut context: Box<Context> = Box::new(unsafe { MaybeUninit::zeroed().assume_init() });
    context.device = device;
    context.async_fd = OwnedFd::from(events).into_raw_fd();
    context.ops.poll_cq = Some(queue::poll);
    context.ops.req_notify_cq = Some(queue::arm);
    context.ops.post_send = Some(queue::post_send);
    context.ops.post_recv = Some(queue::post_receive);
    Box::into_raw(context)
}

/// # Safety
/// `context` is open, and nothing of it is left.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut Context) -> c_int {
    // SAFETY: made by `ibv_open_device`, closed once.
    drop(unsafe { Box::from_raw(context) });
    0
}

/// # Safety
/// `attr` can be written.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(_context: *mut Context, attr: *mut DeviceAttr) -> c_int {
    let mut limits = DeviceAttr::EMPTY;
    limits.max_qp = knob("VERBS_STUB_QUEUE_PAIRS", 1000) as c_int;
    limits.max_qp_wr = 16384;
    limits.max_cqe = knob("VERBS_STUB_COMPLETIONS", 1 << 22) as c_int;
    (limits.max_qp_rd_atom, limits.max_qp_init_rd_atom) = (16, 16);
    limits.phys_port_cnt = 1;
    // SAFETY: the caller's promise.
    unsafe { *attr = limits };
    0
}

/// # Safety
/// `attr` can be written.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(_context: *mut Context, _port: u8, attr: *mut PortAttr) -> c_int {
    let mut port = PortAttr::EMPTY;
    port.state = knob("VERBS_STUB_STATE", u64::from(layout::PORT_ACTIVE)) as u32;
    // InfiniBand, with a number as address, so no table of addresses is looked for.
    (port.link_layer, port.lid) = (1, 1);
    (port.active_mtu, port.max_msg_sz) = (layout::MTU_4096, 1 << 30);
    // SAFETY: the caller's promise.
    unsafe { *attr = port };
    0
}

/// # Safety
/// None is needed.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut Context) -> *mut Pd {
    context.cast()
}

/// # Safety
/// None is needed.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(_pd: *mut Pd) -> c_int {
    0
}

/// # Safety
/// `pd` is one of `ibv_alloc_pd`.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(pd: *mut Pd, addr: *mut c_void, length: usize, _access: c_int) -> *mut Mr {
    if length as u64 > knob("VERBS_STUB_LOCKABLE", u64::MAX) {
        return null_mut(); // the error number is the one before
    }
    queue::note(|| format!("registered {length}"));
    Box::into_raw(Box::new(Mr { context: pd.cast(), pd, addr, length, handle: 0, lkey: 0, rkey: std::process::id() }))
}

/// # Safety
/// `memory` is one of `ibv_reg_mr`, given up once.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(memory: *mut Mr) -> c_int {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(memory) });
    0
}
