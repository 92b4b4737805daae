//! The parts of libibverbs' C interface in use, as they lie in memory (rdma-core's `infiniband/verbs.h`,
//! whose layout is a stable interface since version 1.1).
//!
//! Here: layouts and numbers, without behaviour. Not here: the functions (`ffi`), their use (`mod.rs`).
//! Structs that the library allocates are declared only in part, from their beginning; they are never made or
//! copied here. The numbers are those that a C compiler gives for the header, on 64-bit Linux: `header`
//! checks them, where there is a compiler. Constants have the header's names without `IBV_`. The stub of the
//! tests (`tests/verbs-stub`) is compiled from this very file.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;

/// `struct ibv_device`: only pointed at.
#[repr(C)]
pub struct Device {
    _opaque: [u8; 0],
}

/// `struct ibv_pd`: only pointed at.
#[repr(C)]
pub struct Pd {
    _opaque: [u8; 0],
}

/// `struct ibv_cq`: only its context is read.
#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
}

/// `struct ibv_context_ops`: the calls of the fast path go through it, as the header's inline functions do.
#[repr(C)]
pub struct ContextOps {
    _before_poll: [*mut c_void; 11],
    pub poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
    _before_post: [*mut c_void; 12],
    pub post_send: Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    _after_post: [*mut c_void; 5],
}

/// `struct ibv_context`, up to the descriptor of its asynchronous events.
#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
}

/// `struct ibv_comp_channel`, up to its descriptor.
#[repr(C)]
pub struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
}

/// `struct ibv_mr`.
#[repr(C)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct ibv_qp`, up to its number.
#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
}

/// `struct ibv_device_attr`: the attributes of a device.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct DeviceAttr {
    _before_qp: [u8; 108],
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    _before_cqe: [u8; 16],
    pub max_cqe: c_int,
    _before_reads: [u8; 8],
    pub max_qp_rd_atom: c_int,
    _before_init_reads: [u8; 8],
    pub max_qp_init_rd_atom: c_int,
    _before_ports: [u8; 67],
    pub phys_port_cnt: u8,
    _after_ports: [u8; 4],
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PortAttr {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    _lmc_to_phys_state: [u8; 8],
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub cap: QpCap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

/// `struct ibv_global_route`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub struct GlobalRoute {
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AhAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpAttr {
    pub qp_state: c_uint,
    pub cur_qp_state: c_uint,
    pub path_mtu: c_uint,
    pub path_mig_state: c_uint,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_send_wr`, with the `rdma` member of its union.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    /// Immediate data, in network byte order.
    pub imm_data: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    pub rest: [u64; 9],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Immediate data, in network byte order.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// `struct ibv_async_event`.
#[repr(C)]
pub struct AsyncEvent {
    /// A pointer to the queue (pair) concerned, or a port number, by the type.
    pub element: u64,
    pub event_type: c_uint,
}

impl SendWr {
    pub const EMPTY: SendWr = SendWr {
        wr_id: 0,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode: 0,
        send_flags: 0,
        imm_data: 0,
        remote_addr: 0,
        rkey: 0,
        rest: [0; 9],
    };
}

impl DeviceAttr {
    pub const EMPTY: DeviceAttr = DeviceAttr {
        _before_qp: [0; 108],
        max_qp: 0,
        max_qp_wr: 0,
        _before_cqe: [0; 16],
        max_cqe: 0,
        _before_reads: [0; 8],
        max_qp_rd_atom: 0,
        _before_init_reads: [0; 8],
        max_qp_init_rd_atom: 0,
        _before_ports: [0; 67],
        phys_port_cnt: 0,
        _after_ports: [0; 4],
    };
}

impl PortAttr {
    pub const EMPTY: PortAttr = PortAttr {
        state: 0,
        max_mtu: 0,
        active_mtu: 0,
        gid_tbl_len: 0,
        port_cap_flags: 0,
        max_msg_sz: 0,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 0,
        lid: 0,
        sm_lid: 0,
        _lmc_to_phys_state: [0; 8],
        link_layer: 0,
        flags: 0,
        port_cap_flags2: 0,
    };
}

/// `enum ibv_port_state`.
pub const PORT_DOWN: c_uint = 1;
pub const PORT_INIT: c_uint = 2;
pub const PORT_ARMED: c_uint = 3;
pub const PORT_ACTIVE: c_uint = 4;
pub const PORT_ACTIVE_DEFER: c_uint = 5;
pub const LINK_LAYER_ETHERNET: u8 = 2;
/// `enum ibv_mtu`.
pub const MTU_256: c_uint = 1;
pub const MTU_512: c_uint = 2;
pub const MTU_1024: c_uint = 3;
pub const MTU_2048: c_uint = 4;
pub const MTU_4096: c_uint = 5;
/// `enum ibv_event_type`.
pub const EVENT_CQ_ERR: c_uint = 0;
pub const EVENT_QP_FATAL: c_uint = 1;
pub const EVENT_QP_REQ_ERR: c_uint = 2;
pub const EVENT_QP_ACCESS_ERR: c_uint = 3;
pub const EVENT_DEVICE_FATAL: c_uint = 8;
/// `enum ibv_wc_status`.
pub const WC_SUCCESS: c_uint = 0;
pub const WC_LOC_QP_OP_ERR: c_uint = 2;
pub const WC_LOC_PROT_ERR: c_uint = 4;
pub const WC_WR_FLUSH_ERR: c_uint = 5;
pub const WC_REM_INV_REQ_ERR: c_uint = 9;
pub const WC_REM_ACCESS_ERR: c_uint = 10;
pub const WC_REM_OP_ERR: c_uint = 11;
pub const WC_RETRY_EXC_ERR: c_uint = 12;
pub const WC_RNR_RETRY_EXC_ERR: c_uint = 13;
/// `enum ibv_wc_opcode`: the bit that all received messages have.
pub const WC_RECV: c_uint = 1 << 7;
pub const WR_RDMA_WRITE: c_uint = 0;
pub const WR_RDMA_READ: c_uint = 4;
pub const WR_SEND_WITH_IMM: c_uint = 3;
pub const SEND_SIGNALED: c_uint = 1 << 1;
pub const SEND_INLINE: c_uint = 1 << 3;
pub const ACCESS_LOCAL_WRITE: c_int = 1;
pub const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub const ACCESS_REMOTE_READ: c_int = 1 << 2;
pub const QPT_RC: c_uint = 2;
pub const QPS_RESET: c_uint = 0;
pub const QPS_INIT: c_uint = 1;
pub const QPS_RTR: c_uint = 2;
pub const QPS_RTS: c_uint = 3;
pub const QP_STATE: c_int = 1;
pub const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub const QP_PKEY_INDEX: c_int = 1 << 4;
pub const QP_PORT: c_int = 1 << 5;
pub const QP_AV: c_int = 1 << 7;
pub const QP_PATH_MTU: c_int = 1 << 8;
pub const QP_TIMEOUT: c_int = 1 << 9;
pub const QP_RETRY_CNT: c_int = 1 << 10;
pub const QP_RNR_RETRY: c_int = 1 << 11;
pub const QP_RQ_PSN: c_int = 1 << 12;
pub const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub const QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub const QP_SQ_PSN: c_int = 1 << 16;
pub const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub const QP_DEST_QPN: c_int = 1 << 20;

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<DeviceAttr>() == 232);
    assert!(offset_of!(DeviceAttr, max_qp) == 108 && offset_of!(DeviceAttr, max_qp_wr) == 112);
    assert!(offset_of!(DeviceAttr, max_cqe) == 132 && offset_of!(DeviceAttr, phys_port_cnt) == 227);
    assert!(offset_of!(DeviceAttr, max_qp_rd_atom) == 144 && offset_of!(DeviceAttr, max_qp_init_rd_atom) == 156);
    assert!(size_of::<PortAttr>() == 52);
    assert!(offset_of!(PortAttr, lid) == 34 && offset_of!(PortAttr, link_layer) == 46);
    assert!(size_of::<QpAttr>() == 144 && size_of::<QpInitAttr>() == 64);
    assert!(offset_of!(QpAttr, cap) == 36 && offset_of!(QpAttr, ah_attr) == 56);
    assert!(offset_of!(QpAttr, alt_ah_attr) == 88 && offset_of!(QpAttr, pkey_index) == 120);
    assert!(offset_of!(QpAttr, port_num) == 129 && offset_of!(QpAttr, timeout) == 130);
    assert!(offset_of!(QpAttr, rate_limit) == 136);
    assert!(offset_of!(QpInitAttr, cap) == 32 && offset_of!(QpInitAttr, qp_type) == 52);
    assert!(size_of::<AhAttr>() == 32 && size_of::<GlobalRoute>() == 24);
    assert!(offset_of!(AhAttr, dlid) == 24 && offset_of!(AhAttr, port_num) == 30);
    assert!(size_of::<SendWr>() == 128 && size_of::<RecvWr>() == 32);
    assert!(offset_of!(SendWr, opcode) == 28 && offset_of!(SendWr, send_flags) == 32);
    assert!(offset_of!(SendWr, imm_data) == 36 && offset_of!(SendWr, remote_addr) == 40);
    assert!(offset_of!(SendWr, rkey) == 48 && size_of::<Sge>() == 16);
    assert!(size_of::<Wc>() == 48);
    assert!(offset_of!(Wc, imm_data) == 24 && offset_of!(Wc, qp_num) == 28);
    assert!(size_of::<ContextOps>() == 256);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, poll_cq) == 96);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, req_notify_cq) == 104);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, post_send) == 208);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, post_recv) == 216);
    assert!(offset_of!(Context, cmd_fd) == 264 && offset_of!(Context, async_fd) == 268);
    assert!(offset_of!(CompChannel, fd) == 8 && offset_of!(Qp, qp_num) == 52);
    assert!(offset_of!(Mr, lkey) == 36 && offset_of!(Mr, rkey) == 40);
    assert!(size_of::<AsyncEvent>() == 16 && offset_of!(AsyncEvent, event_type) == 8);
    assert!(offset_of!(Cq, context) == 0);
};
