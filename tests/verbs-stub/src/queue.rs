//! Completion channel, completion queues, queue pairs.
//!
//! Here: a request is done at once, in the order of the chain, so its completion can be polled when the post returns.
//! The last word of a write is stored after the rest. A message without bytes (a wake message) is a datagram to the
//! socket that the peer's process has as its completion channel; each process has one, with one queue.

use super::knob;
use super::layout::{
    CompChannel, Context, Cq, Pd, Qp, QpAttr, QpInitAttr, RecvWr, SEND_SIGNALED, SendWr, WR_RDMA_READ, WR_RDMA_WRITE,
    Wc,
};
use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

const RETRY_EXCEEDED: c_uint = 12;
const MASK_DEST_QPN: c_int = 1 << 20;

#[repr(C)]
struct Channel {
    base: CompChannel,
    socket: UnixDatagram,
    queue: AtomicPtr<Queue>,
}

#[repr(C)]
struct Queue {
    base: Cq,
    done: Mutex<VecDeque<Wc>>,
    /// Whether the next completion is announced on the channel.
    is_armed: AtomicBool,
    channel: *mut Channel,
}

#[repr(C)]
struct Pair {
    base: Qp,
    peer: AtomicU32,
    /// The peer's process, known since the first write.
    process: AtomicU32,
    /// The memory of the peer's process, once it was written to.
    memory: Mutex<Option<File>>,
}

static SENDER: LazyLock<io::Result<UnixDatagram>> = LazyLock::new(UnixDatagram::unbound);

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the address at which a process takes wake messages and announcements.
fn address(process: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("verbs-stub-{process}"))
}

fn send(process: u32, queue_pair: u32, immediate: u32) -> io::Result<()> {
    let message = [queue_pair.to_ne_bytes(), immediate.to_ne_bytes()].concat();
    let sender = SENDER.as_ref().map_err(|error| io::Error::from(error.kind()))?;
    sender.send_to_addr(&message, &address(process)?).map(drop)
}

/// # Safety
/// As its namesake in libibverbs, in this and all functions below.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut Context) -> *mut CompChannel {
    let socket = address(std::process::id()).and_then(|address| UnixDatagram::bind_addr(&address));
    let Ok(socket) = socket else { return null_mut() };
    let base = CompChannel { context, fd: socket.as_raw_fd() };
    Box::into_raw(Box::new(Channel { base, socket, queue: AtomicPtr::new(null_mut()) })).cast()
}

/// # Safety
/// `channel` is one of `ibv_create_comp_channel`, given up once.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut CompChannel) -> c_int {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
    0
}

/// # Safety
/// `channel` lives.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut Context,
    _entries: c_int,
    _user: *mut c_void,
    channel: *mut CompChannel,
    _vector: c_int,
) -> *mut Cq {
    let channel = channel.cast::<Channel>();
    let (done, is_armed) = (Mutex::default(), AtomicBool::new(false));
    let queue = Box::into_raw(Box::new(Queue { base: Cq { context }, done, is_armed, channel }));
    if !channel.is_null() {
        // SAFETY: the caller's promise. Release, pairs with the Acquire in `ibv_get_cq_event`.
        unsafe { (*channel).queue.store(queue, Ordering::Release) };
    }
    queue.cast()
}

/// # Safety
/// `queue` is one of `ibv_create_cq`, given up once.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(queue: *mut Cq) -> c_int {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(queue.cast::<Queue>()) });
    0
}

/// # Safety
/// `channel` lives, and the pointers can be written.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(channel: *mut CompChannel, queue: *mut *mut Cq, user: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let channel = unsafe { &*channel.cast::<Channel>() };
    let mut message = [0; 8];
    // Acquire, pairs with the Release in `ibv_create_cq`.
    let announced = channel.queue.load(Ordering::Acquire);
    if announced.is_null() || channel.socket.recv(&mut message).is_err() {
        return -1;
    }
    let [queue_pair, imm_data] = [0, 4].map(|at| u32::from_ne_bytes(*message[at..].first_chunk().unwrap_or(&[0; 4])));
    if queue_pair != 0 {
        let wc = Wc { opcode: 1 << 7, imm_data, qp_num: queue_pair, ..Wc::default() };
        // SAFETY: a channel's queue lives as long as events are taken.
        held(unsafe { &(*announced).done }).push_back(wc);
    }
    // SAFETY: the caller's promise.
    unsafe { (*queue, *user) = (announced.cast(), null_mut()) };
    0
}

/// # Safety
/// None is needed.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(_queue: *mut Cq, _count: c_uint) {}

/// # Safety
/// None is needed: there are none.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(_context: *mut Context, _event: *mut c_void) -> c_int {
    -1
}

/// # Safety
/// None is needed.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(_event: *mut c_void) {}

/// # Safety
/// `init` can be read.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut Pd, init: *mut QpInitAttr) -> *mut Qp {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    let init = unsafe { &*init };
    let base = Qp {
        context: pd.cast(),
        qp_context: null_mut(),
        pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: null_mut(),
        handle: 0,
        qp_num: number,
    };
    Box::into_raw(Box::new(Pair {
        base,
        peer: AtomicU32::new(0),
        process: AtomicU32::new(0),
        memory: Mutex::default(),
    }))
    .cast()
}

/// # Safety
/// `pair` lives, `attr` can be read.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(pair: *mut Qp, attr: *mut QpAttr, mask: c_int) -> c_int {
    if mask & MASK_DEST_QPN != 0 {
        // SAFETY: the caller's promise.
        unsafe { (*pair.cast::<Pair>()).peer.store((*attr).dest_qp_num, Ordering::Relaxed) };
    }
    0
}

/// # Safety
/// `pair` is one of `ibv_create_qp`, given up once.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(pair: *mut Qp) -> c_int {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(pair.cast::<Pair>()) });
    0
}

/// # Safety
/// None is needed.
// SAFETY: a name of libibverbs; this is loaded in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp_data_in_order(_pair: *mut Qp, _opcode: c_uint, _flags: u32) -> c_int {
    knob("VERBS_STUB_IN_ORDER", 0) as c_int
}

/// # Safety
/// `queue` lives, `into` has room for so many.
pub(super) unsafe extern "C" fn poll(queue: *mut Cq, room: c_int, into: *mut Wc) -> c_int {
    // SAFETY: the caller's promise.
    let mut done = held(unsafe { &(*queue.cast::<Queue>()).done });
    let count = done.len().min(room as usize);
    for (at, wc) in done.drain(..count).enumerate() {
        // SAFETY: there is room for it.
        unsafe { into.add(at).write(wc) };
    }
    count as c_int
}

/// # Safety
/// `queue` lives.
pub(super) unsafe extern "C" fn arm(queue: *mut Cq, _solicited: c_int) -> c_int {
    // SAFETY: the caller's promise. Relaxed: completions are taken under the queue's lock.
    unsafe { (*queue.cast::<Queue>()).is_armed.store(true, Ordering::Relaxed) };
    0
}

/// # Safety
/// None is needed: there is always room.
pub(super) unsafe extern "C" fn post_receive(_pair: *mut Qp, _first: *mut RecvWr, _bad: *mut *mut RecvWr) -> c_int {
    0
}

/// # Safety
/// `pair` lives, and `first` begins a chain of requests with their sources.
pub(super) unsafe extern "C" fn post_send(pair: *mut Qp, first: *mut SendWr, _bad: *mut *mut SendWr) -> c_int {
    // SAFETY: the caller's promise.
    let pair = unsafe { &*pair.cast::<Pair>() };
    let mut next = first;
    let mut post = Post::default();
    // SAFETY: as above: null, or a request.
    while let Some(request) = unsafe { next.as_ref() } {
        next = request.next;
        // SAFETY: as above; wake messages have no source.
        unsafe { post.add(request) };
        // SAFETY: as above.
        let is_done = unsafe { carry_out(pair, request) }.is_ok();
        if !is_done || request.send_flags & SEND_SIGNALED != 0 {
            let status = if is_done { 0 } else { RETRY_EXCEEDED };
            let opcode = match request.opcode {
                WR_RDMA_WRITE => 1,
                WR_RDMA_READ => 2,
                _ => 0,
            };
            complete(pair, Wc { wr_id: request.wr_id, status, opcode, qp_num: pair.base.qp_num, ..Wc::default() });
        }
    }
    note(|| format!("post {} {} {} {}", post.writes, post.bytes, post.wake_messages, post.signed));
    0
}

/// A request of a chain.
#[derive(Default)]
struct Post {
    writes: u64,
    bytes: u64,
    wake_messages: u64,
    signed: u64,
}

impl Post {
    /// # Safety
    /// A write has a source.
    unsafe fn add(&mut self, request: &SendWr) {
        self.signed += u64::from(request.send_flags & SEND_SIGNALED != 0);
        if request.opcode == WR_RDMA_WRITE {
            self.writes += 1;
            // SAFETY: the caller's promise.
            self.bytes += u64::from(unsafe { (*request.sg_list).length });
        } else if request.opcode != WR_RDMA_READ {
            self.wake_messages += 1;
        }
    }
}

/// Writes a line to the file `VERBS_STUB_LOG`, if there is to be one, with the process and thread in front.
pub(super) fn note(line: impl FnOnce() -> String) {
    static LOG: LazyLock<Option<File>> = LazyLock::new(|| {
        let path = std::env::var_os("VERBS_STUB_LOG")?;
        File::options().create(true).append(true).open(path).ok()
    });
    if let Some(mut log) = LOG.as_ref() {
        let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
        let _ = log.write_all(format!("{} {}\n", thread.display(), line()).as_bytes());
    }
}

/// # Safety
/// The request's sources can be read.
unsafe fn carry_out(pair: &Pair, request: &SendWr) -> io::Result<()> {
    if request.opcode != WR_RDMA_WRITE && request.opcode != WR_RDMA_READ {
        // Nobody is woken before something was written on the same queue pair.
        return send(pair.process.load(Ordering::Relaxed), pair.peer.load(Ordering::Relaxed), request.imm_data);
    }
    let mut memory = held(&pair.memory);
    let memory = match &mut *memory {
        Some(memory) => memory,
        none => {
            pair.process.store(request.rkey, Ordering::Relaxed);
            none.insert(File::options().read(true).write(true).open(format!("/proc/{}/mem", request.rkey))?)
        }
    };
    if request.opcode == WR_RDMA_READ {
        // SAFETY: the caller's promise; nobody else uses the place before the read's completion is polled.
        let into = unsafe {
            let sge = &*request.sg_list;
            let start = std::ptr::with_exposed_provenance_mut::<u8>(sge.addr as usize);
            std::slice::from_raw_parts_mut(start, sge.length as usize)
        };
        return memory.read_exact_at(into, request.remote_addr);
    }
    // SAFETY: the caller's promise; nobody changes the source before the post is over.
    let source = unsafe {
        let sge = &*request.sg_list;
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(sge.addr as usize), sge.length as usize)
    };
    let (body, flag) = source.split_at(source.len().saturating_sub(8));
    memory.write_all_at(body, request.remote_addr)?;
    memory.write_all_at(flag, request.remote_addr + body.len() as u64)
}

fn complete(pair: &Pair, wc: Wc) {
    // SAFETY: a queue pair's queues outlive it.
    let queue = unsafe { &*pair.base.send_cq.cast::<Queue>() };
    held(&queue.done).push_back(wc);
    if !queue.channel.is_null() && queue.is_armed.swap(false, Ordering::Relaxed) {
        // Should it not arrive, then the channel is full of announcements.
        let _ = send(std::process::id(), 0, 0);
    }
}
