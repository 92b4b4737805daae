//! Check of `layout` and `ffi` against rdma-core's header: a C program prints its sizes, offsets and
//! constants, and declares its functions again with the types declared here.
//!
//! Needs a C compiler and `infiniband/verbs.h` (Debian's libibverbs-dev), found by the compiler or in the folder
//! that `GOSSAMER_VERBS_INCLUDE` names; without them it is SKIPPED.

use super::ffi::SIGNATURES;
use super::layout::*;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

/// Folder with `infiniband/verbs.h` and its includes, where the compiler does not find them.
const INCLUDE_VARIABLE: &str = "GOSSAMER_VERBS_INCLUDE";

/// A number that the header has too.
struct Number {
    /// Its name here: `Struct`, `Struct.field` or `CONSTANT`.
    name: String,
    /// Its expression in C.
    c: String,
    here: i64,
}

/// Numbers of structs: each with its name in the header; with its size, where `layout` has the whole struct;
/// and its fields, with their names in the header where those differ.
macro_rules! structs {
    ($($name:ident = $c:literal $($whole:ident)? { $($field:ident $(= $c_field:literal)?),* })*) => {{
        let mut numbers = Vec::new();
        $(
            structs!(@size numbers $name $c $($whole)?);
            $(
                let c_field = [$($c_field,)? stringify!($field)][0];
                let name = concat!(stringify!($name), ".", stringify!($field));
                let number = |what: &str, c: String, here: usize| Number { name: format!("{what} of \
                    {name}"), c, here: here as i64 };
                numbers.push(number("offset", format!("offsetof(struct {}, \
                                                       {c_field})", $c), offset_of!($name, $field)));
                let here = size_of_field(|whole: &$name| &whole.$field);
                numbers.push(number("size", format!("sizeof(((struct {} *)0)->{c_field})", $c), here));
            )*
        )*
        numbers
    }};
    (@size $numbers:ident $name:ident $c:literal whole) => {
        for (what, here) in [("sizeof", size_of::<$name>()), ("_Alignof", align_of::<$name>())] {
            let (name, c) = (format!("{what} {}", stringify!($name)), format!("{what}(struct {})", $c));
            $numbers.push(Number { name, c, here: here as i64 });
        }
    };
    (@size $numbers:ident $name:ident $c:literal) => {};
}

/// Numbers of constants, which have the header's names without `IBV_`.
macro_rules! constants {
    ($($name:ident)*) => {
        [$((stringify!($name), i64::from($name))),*].map(|(name, here)| {
            Number { name: name.to_owned(), c: format!("IBV_{name}"), here }
        })
    };
}

fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

fn numbers() -> Vec<Number> {
    let mut numbers = structs! {
        Device = "ibv_device" {}
        Pd = "ibv_pd" {}
        Cq = "ibv_cq" { context }
        ContextOps = "ibv_context_ops" whole { poll_cq, req_notify_cq, post_send, post_recv }
        Context = "ibv_context" { device, ops, cmd_fd, async_fd }
        CompChannel = "ibv_comp_channel" { context, fd }
        Mr = "ibv_mr" whole { context, pd, addr, length, handle, lkey, rkey }
        Qp = "ibv_qp" { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num }
        DeviceAttr = "ibv_device_attr" whole {
            max_qp, max_qp_wr, max_cqe, max_qp_rd_atom, max_qp_init_rd_atom, phys_port_cnt
        }
        PortAttr = "ibv_port_attr" {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
            pkey_tbl_len, lid, sm_lid, link_layer, flags, port_cap_flags2
        }
        QpCap = "ibv_qp_cap" whole { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        QpInitAttr = "ibv_qp_init_attr" whole { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        GlobalRoute = "ibv_global_route" whole { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        AhAttr = "ibv_ah_attr" whole { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        QpAttr = "ibv_qp_attr" whole {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit
        }
        Sge = "ibv_sge" whole { addr, length, lkey }
        SendWr = "ibv_send_wr" whole {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, remote_addr = "wr.rdma.remote_addr",
            rkey = "wr.rdma.rkey"
        }
        RecvWr = "ibv_recv_wr" whole { wr_id, next, sg_list, num_sge }
        Wc = "ibv_wc" whole {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
            dlid_path_bits
        }
        AsyncEvent = "ibv_async_event" whole { element, event_type }
    };
    numbers.extend(constants! {
        PORT_DOWN PORT_INIT PORT_ARMED PORT_ACTIVE PORT_ACTIVE_DEFER LINK_LAYER_ETHERNET
        MTU_256 MTU_512 MTU_1024 MTU_2048 MTU_4096
        EVENT_CQ_ERR EVENT_QP_FATAL EVENT_QP_REQ_ERR EVENT_QP_ACCESS_ERR EVENT_DEVICE_FATAL
        WC_SUCCESS WC_LOC_QP_OP_ERR WC_LOC_PROT_ERR WC_WR_FLUSH_ERR WC_REM_INV_REQ_ERR WC_REM_ACCESS_ERR WC_REM_OP_ERR
        WC_RETRY_EXC_ERR WC_RNR_RETRY_EXC_ERR WC_RECV
        WR_RDMA_WRITE WR_RDMA_READ WR_SEND_WITH_IMM SEND_SIGNALED SEND_INLINE ACCESS_LOCAL_WRITE ACCESS_REMOTE_WRITE
        ACCESS_REMOTE_READ QPT_RC
        QPS_RESET QPS_INIT QPS_RTR QPS_RTS
        QP_STATE QP_ACCESS_FLAGS QP_PKEY_INDEX QP_PORT QP_AV QP_PATH_MTU QP_TIMEOUT QP_RETRY_CNT QP_RNR_RETRY QP_RQ_PSN
        QP_MAX_QP_RD_ATOMIC QP_MIN_RNR_TIMER QP_SQ_PSN QP_MAX_DEST_RD_ATOMIC QP_DEST_QPN
    });
    numbers
}

/// Returns the names that the source of `layout` declares, `Struct.field` and `CONSTANT`, except those that
/// the header lacks.
fn written_down() -> Vec<String> {
    let mut names = Vec::new();
    let mut current = "";
    for line in include_str!("layout.rs").lines() {
        let name_of = |rest: &'static str| rest.split_once(": ").map(|(name, _)| name);
        if let Some(rest) = line.strip_prefix("pub struct ") {
            current = rest.split(' ').next().unwrap_or_default();
        } else if let Some(name) = line.strip_prefix("    pub const ").and_then(name_of) {
            assert_eq!(name, "EMPTY", "an associated constant that is not compared");
        } else if let Some(name) = line.strip_prefix("    pub ").and_then(name_of) {
            names.push(format!("{current}.{name}"));
        } else if let Some(name) = line.strip_prefix("pub const ").and_then(name_of) {
            names.push(name.to_owned());
        }
    }
    // The unused part of the union: the struct's size is compared.
    names.retain(|name| name != "SendWr.rest");
    names
}

/// Returns a Rust type as C writes it; for a function type, `name` goes inside.
fn in_c(rust: &str, name: &str) -> String {
    let rust = rust.trim();
    if let Some(signature) = rust.strip_prefix("unsafe extern \"C\" fn(") {
        let (arguments, result) = signature.split_once(')').expect("a function");
        let result = result.trim().strip_prefix("->").map_or("void".to_owned(), |result| in_c(result, ""));
        let arguments: Vec<_> = arguments.split(',').map(|argument| in_c(argument, "")).collect();
        return format!("{result} {name}({})", arguments.join(", "));
    }
    if let Some(to) = rust.strip_prefix("*mut ") {
        return in_c(to, "") + " *";
    }
    if let Some(to) = rust.strip_prefix("*const ") {
        return format!("const {} *", in_c(to, ""));
    }
    match rust {
        "" => "void",
        "c_void" => "void",
        "c_char" => "char",
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "u8" => "uint8_t",
        "u32" => "uint32_t",
        "usize" => "size_t",
        "Device" => "struct ibv_device",
        "Context" => "struct ibv_context",
        "DeviceAttr" => "struct ibv_device_attr",
        // The header hides that the library fills only the part of the struct that existed in version 1.1.
        "PortAttr" => "struct _compat_ibv_port_attr",
        "Pd" => "struct ibv_pd",
        "Mr" => "struct ibv_mr",
        "Cq" => "struct ibv_cq",
        "CompChannel" => "struct ibv_comp_channel",
        "Qp" => "struct ibv_qp",
        "QpInitAttr" => "struct ibv_qp_init_attr",
        "QpAttr" => "struct ibv_qp_attr",
        "AsyncEvent" => "struct ibv_async_event",
        other => panic!("no name in C for {other}"),
    }
    .to_owned()
}

/// Returns the program that prints the header's numbers, one a line.
fn program(numbers: &[Number]) -> String {
    let mut text = "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n".to_owned();
    for (name, signature) in SIGNATURES {
        // Some are macros too. A second declaration of a function with another type is an error.
        text += &format!(
            "#undef {name}\nextern {};\n",
            in_c(&signature.split_whitespace().collect::<Vec<_>>().join(" "), name)
        );
    }
    text += "int main(void) {\n";
    numbers.iter().for_each(|number| text += &format!("    printf(\"%lld\\n\", (long long)({}));\n", number.c));
    text + "    return 0;\n}\n"
}

/// Runs the C compiler; returns its output if it fails.
fn compile(folder: &Path, text: &str) -> Result<(), String> {
    let (source, program) = (folder.join("header.c"), folder.join("header"));
    std::fs::write(&source, text).unwrap();
    let compiler = std::env::var("CC").unwrap_or("cc".to_owned());
    let mut command = Command::new(&compiler);
    command.args(["-std=c11", "-Werror", "-o"]).arg(program).arg(source);
    if let Some(include) = std::env::var_os(INCLUDE_VARIABLE) {
        command.arg("-I").arg(include);
    }
    let output = command.output().map_err(|error| format!("there is no C compiler ({compiler}: {error})"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn layouts_and_constants_are_those_of_the_header() {
    let numbers = numbers();
    for name in written_down() {
        let is_compared =
            numbers.iter().any(|number| number.name == name || number.name == format!("offset of {name}"));
        assert!(is_compared, "{name} is not compared with the header: add it to `numbers`");
    }
    let folder = tempfile::tempdir().unwrap();
    if let Err(error) = compile(folder.path(), "#include <infiniband/verbs.h>\nint main(void) { return 0; }\n") {
        assert!(
            std::env::var_os(INCLUDE_VARIABLE).is_none(),
            "{INCLUDE_VARIABLE} names no folder with the header: {error}"
        );
        println!("SKIPPED: no header of libibverbs (on Debian, libibverbs-dev and gcc): {error}");
        return;
    }
    compile(folder.path(), &program(&numbers)).unwrap_or_else(|error| panic!("other functions or names:\n{error}"));
    let output = Command::new(folder.path().join("header")).output().unwrap();
    let header: Vec<i64> = str::from_utf8(&output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(header.len(), numbers.len());
    let differs = numbers.iter().zip(header).filter(|(number, header)| number.here != *header);
    let differs: Vec<_> =
        differs.map(|(n, header)| format!("{}: {}, in the header {header}", n.name, n.here)).collect();
    assert!(differs.is_empty(), "{}", differs.join("\n"));
    println!("{} numbers and {} functions are those of the header", numbers.len(), SIGNATURES.len());
}
