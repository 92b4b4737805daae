//! Functions of libibverbs, found at run time, with the types of its header.
//!
//! Here: symbols, without behaviour. Not here: the structs (`layout`), the use of both (`mod.rs`).

#![allow(unsafe_code)]

pub use super::layout::*;

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Makes the table of functions, each looked up by its C name; the optional ones may be missing.
macro_rules! table {
    ({$($name:ident = $symbol:literal: $type:ty;)*} {$($late:ident = $late_symbol:literal: $late_type:ty;)*}) => {
        /// The functions of libibverbs, valid as long as the library stays loaded.
        pub struct Table { $(pub $name: $type,)* $(pub $late: Option<$late_type>,)* }

        /// Each function's C name, and its type as declared here.
        #[cfg(test)]
        pub const SIGNATURES: &[(&str, &str)] =
            &[$(($symbol, stringify!($type)),)* $(($late_symbol, stringify!($late_type)),)*];

        impl Table {
            /// Finds every function; the error names the missing one.
            ///
            /// # Safety
            /// `library` is libibverbs, with the interface of its header.
            pub unsafe fn find(library: &libloading::Library) -> Result<Table, libloading::Error> {
                // SAFETY: the types are those of the header, by the caller's promise; the table is kept
                // beside the library (`Verbs`), so no pointer outlives it.
                unsafe {
                    Ok(Table {
                        $($name: *library.get::<$type>($symbol)?,)*
                        $($late: library.get::<$late_type>($late_symbol).ok().map(|found| *found),)*
                    })
                }
            }
        }
    };
}

table! {{
    fork_init = "ibv_fork_init": unsafe extern "C" fn() -> c_int;
    get_device_list = "ibv_get_device_list": unsafe extern "C" fn(*mut c_int) -> *mut *mut Device;
    free_device_list = "ibv_free_device_list": unsafe extern "C" fn(*mut *mut Device);
    get_device_name = "ibv_get_device_name": unsafe extern "C" fn(*mut Device) -> *const c_char;
    open_device = "ibv_open_device": unsafe extern "C" fn(*mut Device) -> *mut Context;
    close_device = "ibv_close_device": unsafe extern "C" fn(*mut Context) -> c_int;
    query_device = "ibv_query_device": unsafe extern "C" fn(*mut Context, *mut DeviceAttr) -> c_int;
    query_port = "ibv_query_port": unsafe extern "C" fn(*mut Context, u8, *mut PortAttr) -> c_int;
    alloc_pd = "ibv_alloc_pd": unsafe extern "C" fn(*mut Context) -> *mut Pd;
    dealloc_pd = "ibv_dealloc_pd": unsafe extern "C" fn(*mut Pd) -> c_int;
    reg_mr = "ibv_reg_mr": unsafe extern "C" fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    dereg_mr = "ibv_dereg_mr": unsafe extern "C" fn(*mut Mr) -> c_int;
    create_channel = "ibv_create_comp_channel": unsafe extern "C" fn(*mut Context) -> *mut CompChannel;
    destroy_channel = "ibv_destroy_comp_channel": unsafe extern "C" fn(*mut CompChannel) -> c_int;
    create_cq = "ibv_create_cq":
        unsafe extern "C" fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    destroy_cq = "ibv_destroy_cq": unsafe extern "C" fn(*mut Cq) -> c_int;
    get_cq_event = "ibv_get_cq_event": unsafe extern "C" fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events = "ibv_ack_cq_events": unsafe extern "C" fn(*mut Cq, c_uint);
    create_qp = "ibv_create_qp": unsafe extern "C" fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    modify_qp = "ibv_modify_qp": unsafe extern "C" fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    destroy_qp = "ibv_destroy_qp": unsafe extern "C" fn(*mut Qp) -> c_int;
    get_async_event = "ibv_get_async_event": unsafe extern "C" fn(*mut Context, *mut AsyncEvent) -> c_int;
    ack_async_event = "ibv_ack_async_event": unsafe extern "C" fn(*mut AsyncEvent);
} {
    // Since rdma-core 40.
    in_order = "ibv_query_qp_data_in_order": unsafe extern "C" fn(*mut Qp, c_uint, u32) -> c_int;
}}
