//! Completion channel, completion queues and queue pairs.
//!
//! Here: making, connecting, posting, polling. Not here: the meaning of completions (`lane`, `io_thread`).
//! Invariants: those of `mod.rs`.

use super::{Device, ProtectionDomain, created, ffi, refused};
use crate::error::Error;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Completions taken in one call.
const TAKEN_AT_ONCE: usize = 16;

/// Channel on which completion queues announce completions.
pub(crate) struct CompletionChannel {
    device: Arc<Device>,
    channel: NonNull<ffi::CompChannel>,
}

// SAFETY: [verbs-lock-inside].
unsafe impl Send for CompletionChannel {}
// SAFETY: [verbs-lock-inside].
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<CompletionChannel>, Error> {
        // SAFETY: the context is open.
        let channel = unsafe { (device.verbs.table.create_channel)(device.context.as_ptr()) };
        let channel = created(channel, || format!("no completion channel on {}", device.name()))?;
        let channel = CompletionChannel { device: Arc::clone(device), channel };
        // Reads of it must not wait.
        rustix::io::ioctl_fionbio(channel.as_fd(), true).map_err(Error::system("making a completion channel"))?;
        Ok(Arc::new(channel))
    }

    /// Takes one announcement, if there is one; never waits.
    pub(crate) fn take(&self) -> bool {
        let mut queue: *mut ffi::Cq = std::ptr::null_mut();
        let mut context: *mut c_void = std::ptr::null_mut();
        let table = &self.device.verbs.table;
        // SAFETY: the channel lives; the function fills both pointers when it returns 0.
        unsafe {
            let is_taken = (table.get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut context) == 0;
            if is_taken {
                // Each is acknowledged once: a queue cannot be destroyed before that.
                (table.ack_cq_events)(queue, 1);
            }
            is_taken
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the library keeps it open as long as the channel [destroy-in-order].
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: [destroy-in-order].
        unsafe { (self.device.verbs.table.destroy_channel)(self.channel.as_ptr()) };
    }
}

/// A finished work request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    /// Number of the request.
    pub(crate) id: u64,
    /// One of `enum ibv_wc_status`; `WC_SUCCESS` on success.
    pub(crate) status: u32,
    /// The queue pair it belongs to.
    pub(crate) queue_pair: u32,
    /// Number carried by a received message, if it is one.
    pub(crate) received: Option<u32>,
}

/// Queue of finished work requests.
pub(crate) struct CompletionQueue {
    device: Arc<Device>,
    queue: NonNull<ffi::Cq>,
    _channel: Option<Arc<CompletionChannel>>,
}

// SAFETY: [verbs-lock-inside].
unsafe impl Send for CompletionQueue {}
// SAFETY: [verbs-lock-inside].
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Makes a queue with room for `entries`, which announces on `channel` if there is one.
    pub(crate) fn new(
        device: &Arc<Device>,
        entries: u32,
        channel: Option<Arc<CompletionChannel>>,
    ) -> Result<Arc<CompletionQueue>, Error> {
        let announced = channel.as_ref().map_or(std::ptr::null_mut(), |channel| channel.channel.as_ptr());
        let count = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: context and channel live, and are kept below [destroy-in-order].
        let queue = unsafe {
            let (create, context) = (device.verbs.table.create_cq, device.context.as_ptr());
            create(context, count, std::ptr::null_mut(), announced, 0)
        };
        let queue = created(queue, || format!("no completion queue of {entries} entries on {}", device.name()))?;
        Ok(Arc::new(CompletionQueue { device: Arc::clone(device), queue, _channel: channel }))
    }

    /// Passes each available completion to `take`; never waits.
    pub(crate) fn poll(&self, take: &mut dyn FnMut(Completion)) -> Result<(), Error> {
        let mut found = [ffi::Wc::default(); TAKEN_AT_ONCE];
        loop {
            // SAFETY: the queue lives, so does its context; the array has room for the requested number.
            let count = unsafe {
                let poll = (*self.device.context.as_ptr()).ops.poll_cq;
                poll.map_or(-1, |poll| poll(self.queue.as_ptr(), TAKEN_AT_ONCE as c_int, found.as_mut_ptr()))
            };
            let count = usize::try_from(count)
                .map_err(|_| Error::verbs(format!("the completions of {} cannot be polled", self.device.name())))?;
            for wc in found.iter().take(count) {
                let is_received = wc.status == ffi::WC_SUCCESS && wc.opcode & ffi::WC_RECV != 0;
                let received = is_received.then(|| u32::from_be(wc.imm_data));
                take(Completion { id: wc.wr_id, status: wc.status, queue_pair: wc.qp_num, received });
            }
            if count < TAKEN_AT_ONCE {
                return Ok(());
            }
        }
    }

    /// Has the next completion announced. Earlier completions must be polled for after this.
    pub(crate) fn arm(&self) -> Result<(), Error> {
        // SAFETY: the queue lives, so does its context.
        let code = unsafe {
            let notify = (*self.device.context.as_ptr()).ops.req_notify_cq;
            notify.map_or(libc_einval(), |notify| notify(self.queue.as_ptr(), 0))
        };
        refused(code, || format!("the completions of {} cannot be announced", self.device.name()))
    }
}

fn libc_einval() -> c_int {
    rustix::io::Errno::INVAL.raw_os_error()
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: [destroy-in-order]; every announcement was acknowledged when it was taken.
        unsafe { (self.device.verbs.table.destroy_cq)(self.queue.as_ptr()) };
    }
}

/// Capacity of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueSizes {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    /// Bytes that may travel inside a request.
    pub(crate) inline_bytes: u32,
}

/// Path to a peer's queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    pub(crate) port: u8,
    pub(crate) gid_index: u8,
    /// Number of `enum ibv_mtu`.
    pub(crate) mtu: u32,
    pub(crate) peer_queue_pair: u32,
    pub(crate) peer_gid: [u8; 16],
    pub(crate) peer_lid: u16,
    pub(crate) is_global: bool,
    pub(crate) traffic_class: u8,
    pub(crate) service_level: u8,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    /// Reads at once: of the peer, which this device serves, and of its own.
    pub(crate) reads_served: u8,
    pub(crate) reads_begun: u8,
}

/// A reliable connected queue pair.
pub(crate) struct QueuePair {
    domain: Arc<ProtectionDomain>,
    queue: NonNull<ffi::Qp>,
    inline_bytes: u32,
    _sends: Arc<CompletionQueue>,
    _receives: Arc<CompletionQueue>,
}

// SAFETY: [verbs-lock-inside].
unsafe impl Send for QueuePair {}
// SAFETY: [verbs-lock-inside].
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Makes a queue pair, with less inline room than requested where the device has less.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        sends: &Arc<CompletionQueue>,
        receives: &Arc<CompletionQueue>,
        sizes: QueueSizes,
    ) -> Result<QueuePair, Error> {
        let mut inline_bytes = sizes.inline_bytes;
        loop {
            let mut init = ffi::QpInitAttr {
                qp_context: std::ptr::null_mut(),
                send_cq: sends.queue.as_ptr(),
                recv_cq: receives.queue.as_ptr(),
                srq: std::ptr::null_mut(),
                cap: ffi::QpCap {
                    max_send_wr: sizes.sends,
                    max_recv_wr: sizes.receives,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline_bytes,
                },
                qp_type: ffi::QPT_RC,
                sq_sig_all: 0,
            };
            let device = &domain.device;
            // SAFETY: domain and queues live, and are kept below [destroy-in-order]; the struct has the header's
            // layout.
            let queue = unsafe { (device.verbs.table.create_qp)(domain.pd.as_ptr(), &raw mut init) };
            if queue.is_null() && inline_bytes > 0 {
                inline_bytes /= 2;
                continue;
            }
            let queue = created(queue, || format!("no queue pair of {} requests on {}", sizes.sends, device.name()))?;
            let (domain, sends, receives) = (Arc::clone(domain), Arc::clone(sends), Arc::clone(receives));
            return Ok(QueuePair { domain, queue, inline_bytes, _sends: sends, _receives: receives });
        }
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: [destroy-in-order]: the object lives, and its number does not change.
        unsafe { (*self.queue.as_ptr()).qp_num }
    }

    pub(crate) fn inline_bytes(&self) -> usize {
        self.inline_bytes as usize
    }

    /// Returns whether the device promises to place the bytes of a write in the order of their addresses.
    pub(crate) fn places_in_order(&self) -> bool {
        let ask = self.domain.device.verbs.table.in_order;
        // SAFETY: [destroy-in-order]; the function only looks.
        ask.is_some_and(|ask| unsafe { ask(self.queue.as_ptr(), ffi::WR_RDMA_WRITE, 0) } == 1)
    }

    /// Resets it from any state, for a second attempt to connect.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        let mut attr = ffi::QpAttr { qp_state: ffi::QPS_RESET, ..ffi::QpAttr::default() };
        self.modify(&mut attr, ffi::QP_STATE, "reset")
    }

    /// Moves it from reset to "initialised": peers' writes and reads are allowed, and messages can be awaited.
    pub(crate) fn initialise(&self, port: u8) -> Result<(), Error> {
        let mut attr = ffi::QpAttr {
            qp_state: ffi::QPS_INIT,
            port_num: port,
            qp_access_flags: (ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_READ) as c_uint,
            ..ffi::QpAttr::default()
        };
        let mask = ffi::QP_STATE | ffi::QP_PKEY_INDEX | ffi::QP_PORT | ffi::QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask, "initialised")
    }

    /// Moves it from initialised to ready, along `path`.
    pub(crate) fn connect(&self, path: &Path) -> Result<(), Error> {
        let mut attr = ffi::QpAttr {
            qp_state: ffi::QPS_RTR,
            path_mtu: path.mtu,
            dest_qp_num: path.peer_queue_pair,
            max_dest_rd_atomic: path.reads_served,
            min_rnr_timer: 6, // 0.16 ms until a message that found no posted receive is sent again
            ah_attr: ffi::AhAttr {
                grh: ffi::GlobalRoute {
                    dgid: path.peer_gid,
                    sgid_index: path.gid_index,
                    hop_limit: 64,
                    traffic_class: path.traffic_class,
                    flow_label: 0,
                },
                dlid: path.peer_lid,
                sl: path.service_level,
                is_global: u8::from(path.is_global),
                port_num: path.port,
                ..ffi::AhAttr::default()
            },
            ..ffi::QpAttr::default()
        };
        let mask = ffi::QP_STATE
            | ffi::QP_AV
            | ffi::QP_PATH_MTU
            | ffi::QP_DEST_QPN
            | ffi::QP_RQ_PSN
            | ffi::QP_MAX_DEST_RD_ATOMIC
            | ffi::QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask, "made ready to receive (is the GID index right, the peer's network reachable?)")?;
        let mut attr = ffi::QpAttr {
            qp_state: ffi::QPS_RTS,
            timeout: path.timeout,
            retry_cnt: path.retries,
            rnr_retry: 7, // for ever: the peer's I/O thread posts receives again, and its death shows otherwise
            max_rd_atomic: path.reads_begun,
            ..ffi::QpAttr::default()
        };
        let mask = ffi::QP_STATE
            | ffi::QP_TIMEOUT
            | ffi::QP_RETRY_CNT
            | ffi::QP_RNR_RETRY
            | ffi::QP_SQ_PSN
            | ffi::QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, mask, "made ready to send")
    }

    fn modify(&self, attr: &mut ffi::QpAttr, mask: c_int, what: &str) -> Result<(), Error> {
        // SAFETY: [destroy-in-order]; the struct has the header's layout.
        let code = unsafe { (self.domain.device.verbs.table.modify_qp)(self.queue.as_ptr(), attr, mask) };
        refused(code, || format!("a queue pair on {} cannot be {what}", self.domain.device.name()))
    }

    /// Makes room for one more message without bytes.
    pub(crate) fn post_receive(&self) -> Result<(), Error> {
        let mut request =
            ffi::RecvWr { wr_id: 0, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 0 };
        let mut bad: *mut ffi::RecvWr = std::ptr::null_mut();
        // SAFETY: [destroy-in-order]; the request has no buffers, and is copied by the call.
        let code = unsafe {
            let post = (*self.domain.device.context.as_ptr()).ops.post_recv;
            post.map_or(libc_einval(), |post| post(self.queue.as_ptr(), &raw mut request, &raw mut bad))
        };
        refused(code, || format!("a queue pair on {} takes no receive requests", self.domain.device.name()))
    }

    /// Posts a chain.
    ///
    /// # Safety
    /// `first` begins a chain of requests that ends with null, each with sources in registered memory, all of
    /// which stays unchanged until this returns.
    pub(super) unsafe fn post_send(&self, first: *mut ffi::SendWr) -> Result<(), Error> {
        let mut bad: *mut ffi::SendWr = std::ptr::null_mut();
        // SAFETY: [destroy-in-order], and the caller's promise; the library copies requests before it returns.
        let code = unsafe {
            let post = (*self.domain.device.context.as_ptr()).ops.post_send;
            post.map_or(libc_einval(), |post| post(self.queue.as_ptr(), first, &raw mut bad))
        };
        refused(code, || format!("a queue pair on {} takes no more requests", self.domain.device.name()))
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: [destroy-in-order].
        unsafe { (self.domain.device.verbs.table.destroy_qp)(self.queue.as_ptr()) };
    }
}
