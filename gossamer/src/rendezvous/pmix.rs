//! PMIx, a C library that process managers provide (Open MPI's `mpirun`, Slurm's `--mpi=pmix`): loaded at run time, so
//! other programs do not need it. Eight of its functions, by its header, version 2 to 5 of the library.
#![allow(unsafe_code)] // functions of C

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};

use super::pmi::KEY;
use super::{Limit, REPORT_INTERVAL, RendezvousError, end_with_starter};
use crate::complain::complain;

const LIBRARY: &str = "libpmix.so.2";
const SPACE_BYTES: usize = 256;
const RANK_WILDCARD: u32 = u32::MAX - 1;
const GLOBAL: u8 = 3;
const STRING: u16 = 3;
const UINT32: u16 = 14;
/// `PMIX_ERR_LOST_CONNECTION`, and its value before version 4: the process manager of this host has gone.
const LOST_CONNECTION: [c_int; 2] = [-61, -101];
const EVENT_ACTION_COMPLETE: c_int = -334;
const JOB_SIZE: &CStr = c"pmix.job.size";

/// `pmix_proc_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    space: [c_char; SPACE_BYTES],
    rank: u32,
}

/// `pmix_value_t`: the kind of a value, and a union of which a pointer and a number are used. The union has at most 24
/// bytes; the rest is reserve.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    kind: u16,
    data: Data,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Data {
    string: *const c_char,
    number: u32,
    _room: [u64; 6],
}

const _: () = assert!(std::mem::size_of::<Process>() == 260);
const _: () = assert!(std::mem::offset_of!(Value, data) == 8);

type Init = unsafe extern "C" fn(*mut Process, *mut c_void, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *const Process, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Process, usize, *const c_void, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Process, *const c_char, *const c_void, usize, *mut *mut Value) -> c_int;

/// `pmix_event_notification_cbfunc_fn_t`
type EventHandled = unsafe extern "C" fn(c_int, *mut c_void, usize, *const c_void, *mut c_void, *mut c_void);
/// `pmix_notification_fn_t`
type EventHandler = unsafe extern "C" fn(
    usize,
    c_int,
    *const Process,
    *mut c_void,
    usize,
    *mut c_void,
    usize,
    Option<EventHandled>,
    *mut c_void,
);
type RegisterEventHandler =
    unsafe extern "C" fn(*const c_int, usize, *mut c_void, usize, EventHandler, *const c_void, *mut c_void) -> c_int;

/// Whether this process has said goodbye: that ends the connection as well.
static IS_FINALIZED: Mutex<bool> = Mutex::new(false);

/// Handler that the library calls when the process manager of this host has gone.
unsafe extern "C" fn on_lost_connection(
    _handler: usize,
    _status: c_int,
    _source: *const Process,
    _info: *mut c_void,
    _infos: usize,
    _results: *mut c_void,
    _result_count: usize,
    handled: Option<EventHandled>,
    data: *mut c_void,
) {
    if !*IS_FINALIZED.lock().unwrap_or_else(PoisonError::into_inner) {
        end_with_starter();
    }
    if let Some(handled) = handled {
        let none = std::ptr::null_mut();
        // SAFETY: [pmix-interface]: the library waits for this call, with the data that it passed, and takes no
        // results.
        unsafe { handled(EVENT_ACTION_COMPLETE, none, 0, std::ptr::null(), none, data) };
    }
}

/// The library's functions, valid while the process lives: the library is never unloaded.
#[derive(Clone, Copy)]
struct Functions {
    finalize: Finalize,
    abort: Abort,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    register: RegisterEventHandler,
}

/// This process, as the process manager knows it.
pub(super) struct Pmix {
    functions: Functions,
    own: Process,
}

impl Pmix {
    /// Introduces this process; also returns its rank, and the number of processes.
    pub(super) fn connect() -> Result<(Pmix, u16, u16), RendezvousError> {
        let cure = "install it (Debian: libpmix2), or use `srun --mpi=pmi2` or MPICH's mpiexec";
        let missing = |error: libloading::Error| RendezvousError::Pmix(format!("{LIBRARY}: {error}; {cure}"));
        // SAFETY: [pmix-interface]: the file of this name is the library of that interface; its constructors may run at
        // any time.
        let library = Box::leak(Box::new(unsafe { libloading::Library::new(LIBRARY) }.map_err(missing)?));
        // SAFETY: [pmix-interface]: the types are those of its header; the library is leaked, so no function outlives
        // it.
        let (init, functions) = unsafe {
            let functions = Functions {
                finalize: *library.get::<Finalize>(b"PMIx_Finalize\0").map_err(missing)?,
                abort: *library.get::<Abort>(b"PMIx_Abort\0").map_err(missing)?,
                put: *library.get::<Put>(b"PMIx_Put\0").map_err(missing)?,
                commit: *library.get::<Commit>(b"PMIx_Commit\0").map_err(missing)?,
                fence: *library.get::<Fence>(b"PMIx_Fence\0").map_err(missing)?,
                get: *library.get::<Get>(b"PMIx_Get\0").map_err(missing)?,
                register: *library.get::<RegisterEventHandler>(b"PMIx_Register_event_handler\0").map_err(missing)?,
            };
            (*library.get::<Init>(b"PMIx_Init\0").map_err(missing)?, functions)
        };
        let mut own = Process { space: [0; SPACE_BYTES], rank: 0 };
        // SAFETY: [pmix-interface]: it fills in the process, and is given no further information.
        well(unsafe { init(&raw mut own, std::ptr::null_mut(), 0) }, "PMIx_Init")?;
        let pmix = Pmix { functions, own };
        let value = pmix.get(RANK_WILDCARD, JOB_SIZE)?;
        // SAFETY: [pmix-interface]: the kind says that the number was written.
        let size = if value.kind == UINT32 { unsafe { value.data.number } } else { 0 };
        let in_range =
            |number: u32| u16::try_from(number).map_err(|_| RendezvousError::Pmix(format!("{number} processes")));
        if size == 0 {
            return Err(RendezvousError::Pmix("it does not say how many processes there are".to_owned()));
        }
        let (rank, size) = (in_range(own.rank)?, in_range(size)?);
        Ok((pmix, rank, size))
    }

    fn get(&self, rank: u32, key: &CStr) -> Result<Value, RendezvousError> {
        let from = Process { rank, ..self.own };
        let mut value: *mut Value = std::ptr::null_mut();
        // SAFETY: [pmix-interface]: process, key and the place for the pointer live through the call.
        let code = unsafe { (self.functions.get)(&raw const from, key.as_ptr(), std::ptr::null(), 0, &raw mut value) };
        well(code, "PMIx_Get")?;
        if value.is_null() {
            return Err(RendezvousError::Pmix("PMIx_Get gives nothing".to_owned()));
        }
        // SAFETY: [pmix-interface]: it succeeded, so this is a value of the library's, at least kind and the first 8
        // bytes of data. It is never freed: twice a process, a few bytes.
        unsafe {
            let kind = std::ptr::read(value.cast::<u16>());
            let first = std::ptr::read(value.cast::<u64>().add(1));
            Ok(Value { kind, data: Data { _room: [first, 0, 0, 0, 0, 0] } })
        }
    }

    /// Exchanges machine 0's value: machine 0 gives it, all wait for one another, and the others get it.
    pub(super) fn exchange(&self, value: Option<&[u8]>, limit: &Limit) -> Result<Option<Vec<u8>>, RendezvousError> {
        let key = CString::new(KEY).expect("no zero in it");
        if let Some(value) = value {
            let text = CString::new(hex::encode(value)).expect("no zero in it");
            let mut value = Value { kind: STRING, data: Data { _room: [0; 6] } };
            value.data.string = text.as_ptr();
            // SAFETY: [pmix-interface]: key and value live through the call, which copies them.
            well(unsafe { (self.functions.put)(GLOBAL, key.as_ptr(), &raw mut value) }, "PMIx_Put")?;
            // SAFETY: [pmix-interface]: it takes nothing.
            well(unsafe { (self.functions.commit)() }, "PMIx_Commit")?;
        }
        self.fence(limit)?;
        if value.is_some() {
            return Ok(None);
        }
        let found = self.get(0, &key)?;
        // SAFETY: [pmix-interface]: the kind says that it is a C string, which is never freed.
        let text = (found.kind == STRING).then(|| unsafe { CStr::from_ptr(found.data.string) });
        let value = text.and_then(|text| hex::decode(text.to_bytes()).ok());
        value.map(Some).ok_or_else(|| RendezvousError::Pmix("machine 0 has not said where it is".to_owned()))
    }

    /// Waits for all others on a thread of its own, within the time limit of the start.
    fn fence(&self, limit: &Limit) -> Result<(), RendezvousError> {
        let (say, answer) = mpsc::channel();
        let (fence, all) = (self.functions.fence, Process { rank: RANK_WILDCARD, ..self.own });
        let wait = move || {
            // SAFETY: [pmix-interface]: the process lives through the call.
            let code = unsafe { fence(&raw const all, 1, std::ptr::null(), 0) };
            let _ = say.send(code); // the receiver may have stopped waiting
        };
        let thread = std::thread::Builder::new().name("gossamer-fence".to_owned()).spawn(wait);
        thread.map_err(RendezvousError::system("start a thread"))?;
        loop {
            match answer.recv_timeout(REPORT_INTERVAL.min(limit.left())) {
                Ok(code) => return well(code, "PMIx_Fence"),
                Err(RecvTimeoutError::Timeout) if limit.left().is_zero() => {
                    return Err(RendezvousError::Barrier(limit.timeout));
                }
                Err(RecvTimeoutError::Timeout) if self.own.rank == 0 => {
                    let waited = limit.start.elapsed().as_secs();
                    complain(format_args!("waiting for other tasks at PMIx' fence, {waited} s of {:?}", limit.timeout));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(RendezvousError::Pmix("PMIx_Fence has died".to_owned()));
                }
            }
        }
    }

    /// Makes this process end when the process manager of its host has gone.
    pub(super) fn watch(&self) {
        let (codes, none) = (LOST_CONNECTION, std::ptr::null_mut());
        // SAFETY: [pmix-interface]: the codes are copied, the handler is a function of this program, and without a
        // callback the library registers it before it returns. Before version 4 it returns nothing, so its result is
        // not read.
        let _ = unsafe {
            (self.functions.register)(
                codes.as_ptr(),
                codes.len(),
                none,
                0,
                on_lost_connection,
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Says goodbye: this process is about to end in order.
    pub(super) fn finalize(&self) {
        *IS_FINALIZED.lock().unwrap_or_else(PoisonError::into_inner) = true;
        // SAFETY: [pmix-interface]: it is given no further information. Its answer changes nothing: the process ends.
        let _ = unsafe { (self.functions.finalize)(std::ptr::null(), 0) };
    }

    /// Asks the process manager to end all processes.
    pub(super) fn abort(&self, status: u8, why: &str) {
        let why = CString::new(why.replace('\0', " ")).unwrap_or_default();
        // SAFETY: [pmix-interface]: the text lives through the call; no processes are named, which means all.
        let _ = unsafe { (self.functions.abort)(status.into(), why.as_ptr(), std::ptr::null(), 0) };
    }
}

fn well(code: c_int, call: &str) -> Result<(), RendezvousError> {
    if code == 0 { Ok(()) } else { Err(RendezvousError::Pmix(format!("{call} fails with {code}"))) }
}
