//! System calls on descriptors and paths: the memory that each reads and writes. All other arguments are numbers, and
//! mean the same on machine 0.

use std::ffi::c_int;

/// Number of bytes at a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Bytes(usize),
    /// Elements of this size, as many as an argument says.
    Times(usize, usize),
    /// A set of descriptors (`fd_set`) below this argument.
    Set(usize),
}

use Length::{Bytes, Set, Times};

/// Memory of a call. The first number is the argument that points there; null pointers stay null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A string that ends with a zero.
    Text(usize),
    In(usize, Length),
    Out(usize, Length),
    InOut(usize, Length),
    /// Elements that the call fills: its result is their number, and the length that there is room for.
    Filled(usize, Length),
    /// Bytes that the call fills, as many as the 32 bits at the other argument say.
    Sized(usize, usize),
    /// List of buffers (`iovec`), as many as the other argument says, that are read or filled.
    Gather(usize, usize),
    Scatter(usize, usize),
    /// Message with buffers (`msghdr`) that is sent or received.
    Sent(usize),
    Received(usize),
    /// List of messages (`mmsghdr`), as many as the other argument says.
    AllSent(usize, usize),
    AllReceived(usize, usize),
    /// Set of signals, which are those of the program's threads: left out.
    Mask(usize),
}

use Part::{AllReceived, AllSent, Filled, Gather, In, InOut, Mask, Out, Received, Scatter, Sent, Sized, Text};

const STAT: Length = Bytes(size_of::<libc::stat>());
const STATFS: Length = Bytes(size_of::<libc::statfs>());
const TIME: Length = Bytes(size_of::<libc::timespec>());
const TIMES: Length = Bytes(2 * size_of::<libc::timespec>());
const TIMER: Length = Bytes(size_of::<libc::itimerspec>());
const INT: Length = Bytes(4);
const INTS: Length = Bytes(8);
const OFFSET: Length = Bytes(8);
const EVENT: usize = size_of::<libc::epoll_event>();

const fn bytes(argument: usize) -> Length {
    Times(argument, 1)
}

macro_rules! calls {
    ($($number:ident $parts:expr;)*) => { &[$((libc::$number, &$parts)),*] };
}

type Calls = &'static [(i64, &'static [Part])];

/// Calls of all processors.
const CALLS: Calls = calls! {
    SYS_read [Filled(1, bytes(2))];
    SYS_pread64 [Filled(1, bytes(2))];
    SYS_write [In(1, bytes(2))];
    SYS_pwrite64 [In(1, bytes(2))];
    SYS_readv [Scatter(1, 2)];
    SYS_preadv [Scatter(1, 2)];
    SYS_preadv2 [Scatter(1, 2)];
    SYS_writev [Gather(1, 2)];
    SYS_pwritev [Gather(1, 2)];
    SYS_pwritev2 [Gather(1, 2)];
    SYS_openat [Text(1)];
    SYS_openat2 [Text(1), In(2, bytes(3))];
    SYS_close [];
    SYS_close_range [];
    SYS_dup [];
    SYS_dup3 [];
    SYS_lseek [];
    SYS_fstat [Out(1, STAT)];
    SYS_newfstatat [Text(1), Out(2, STAT)];
    SYS_statx [Text(1), Out(4, Bytes(size_of::<libc::statx>()))];
    SYS_statfs [Text(0), Out(1, STATFS)];
    SYS_fstatfs [Out(1, STATFS)];
    SYS_faccessat [Text(1)];
    SYS_faccessat2 [Text(1)];
    SYS_readlinkat [Text(1), Filled(2, bytes(3))];
    SYS_getdents64 [Filled(1, bytes(2))];
    SYS_getcwd [Filled(0, bytes(1))];
    SYS_chdir [Text(0)];
    SYS_fchdir [];
    SYS_mkdirat [Text(1)];
    SYS_mknodat [Text(1)];
    SYS_unlinkat [Text(1)];
    SYS_renameat [Text(1), Text(3)];
    SYS_renameat2 [Text(1), Text(3)];
    SYS_linkat [Text(1), Text(3)];
    SYS_symlinkat [Text(0), Text(2)];
    SYS_fchmod [];
    SYS_fchmodat [Text(1)];
    SYS_fchown [];
    SYS_fchownat [Text(1)];
    SYS_truncate [Text(0)];
    SYS_ftruncate [];
    SYS_fallocate [];
    SYS_fadvise64 [];
    SYS_readahead [];
    SYS_fsync [];
    SYS_fdatasync [];
    SYS_sync [];
    SYS_syncfs [];
    SYS_sync_file_range [];
    SYS_flock [];
    SYS_utimensat [Text(1), In(2, TIMES)];
    SYS_getxattr [Text(0), Text(1), Filled(2, bytes(3))];
    SYS_lgetxattr [Text(0), Text(1), Filled(2, bytes(3))];
    SYS_fgetxattr [Text(1), Filled(2, bytes(3))];
    SYS_setxattr [Text(0), Text(1), In(2, bytes(3))];
    SYS_lsetxattr [Text(0), Text(1), In(2, bytes(3))];
    SYS_fsetxattr [Text(1), In(2, bytes(3))];
    SYS_listxattr [Text(0), Filled(1, bytes(2))];
    SYS_llistxattr [Text(0), Filled(1, bytes(2))];
    SYS_flistxattr [Filled(1, bytes(2))];
    SYS_removexattr [Text(0), Text(1)];
    SYS_lremovexattr [Text(0), Text(1)];
    SYS_fremovexattr [Text(1)];
    SYS_pipe2 [Out(0, INTS)];
    SYS_memfd_create [Text(0)];
    SYS_sendfile [InOut(2, OFFSET)];
    SYS_copy_file_range [InOut(1, OFFSET), InOut(3, OFFSET)];
    SYS_splice [InOut(1, OFFSET), InOut(3, OFFSET)];
    SYS_tee [];
    SYS_socket [];
    SYS_socketpair [Out(3, INTS)];
    SYS_bind [In(1, bytes(2))];
    SYS_connect [In(1, bytes(2))];
    SYS_listen [];
    SYS_accept [Sized(1, 2)];
    SYS_accept4 [Sized(1, 2)];
    SYS_getsockname [Sized(1, 2)];
    SYS_getpeername [Sized(1, 2)];
    SYS_setsockopt [In(3, bytes(4))];
    SYS_getsockopt [Sized(3, 4)];
    SYS_sendto [In(1, bytes(2)), In(4, bytes(5))];
    SYS_recvfrom [Filled(1, bytes(2)), Sized(4, 5)];
    SYS_sendmsg [Sent(1)];
    SYS_recvmsg [Received(1)];
    SYS_sendmmsg [AllSent(1, 2)];
    SYS_recvmmsg [AllReceived(1, 2), InOut(4, TIME)];
    SYS_shutdown [];
    SYS_ppoll [InOut(0, Times(1, 8)), InOut(2, TIME), Mask(3)];
    SYS_pselect6 [InOut(1, Set(0)), InOut(2, Set(0)), InOut(3, Set(0)), InOut(4, TIME), Mask(5)];
    SYS_epoll_create1 [];
    SYS_epoll_ctl [In(3, Bytes(EVENT))];
    SYS_epoll_pwait [Filled(1, Times(2, EVENT)), Mask(4)];
    SYS_epoll_pwait2 [Filled(1, Times(2, EVENT)), In(3, TIME), Mask(4)];
    SYS_eventfd2 [];
    SYS_timerfd_create [];
    SYS_timerfd_settime [In(2, TIMER), Out(3, TIMER)];
    SYS_timerfd_gettime [Out(1, TIMER)];
    SYS_signalfd4 [In(1, bytes(2))];
    SYS_inotify_init1 [];
    SYS_inotify_add_watch [Text(1)];
    SYS_inotify_rm_watch [];
    SYS_mq_open [Text(0), In(3, Bytes(size_of::<libc::mq_attr>()))];
    SYS_mq_unlink [Text(0)];
    SYS_mq_timedsend [In(1, bytes(2)), In(4, TIME)];
    SYS_mq_timedreceive [Filled(1, bytes(2)), Out(3, INT), In(4, TIME)];
    SYS_mq_getsetattr [In(1, Bytes(size_of::<libc::mq_attr>())), Out(2, Bytes(size_of::<libc::mq_attr>()))];
    SYS_wait4 [Out(1, INT), Out(3, Bytes(size_of::<libc::rusage>()))];
    SYS_waitid [Out(2, Bytes(size_of::<libc::siginfo_t>())), Out(4, Bytes(size_of::<libc::rusage>()))];
    SYS_pidfd_open [];
    SYS_pidfd_send_signal [In(2, Bytes(size_of::<libc::siginfo_t>()))];
};

/// Calls of processors that have had Linux for long.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: Calls = calls! {
    SYS_open [Text(0)];
    SYS_creat [Text(0)];
    SYS_dup2 [];
    SYS_stat [Text(0), Out(1, STAT)];
    SYS_lstat [Text(0), Out(1, STAT)];
    SYS_access [Text(0)];
    SYS_readlink [Text(0), Filled(1, bytes(2))];
    SYS_getdents [Filled(1, bytes(2))];
    SYS_mkdir [Text(0)];
    SYS_rmdir [Text(0)];
    SYS_mknod [Text(0)];
    SYS_unlink [Text(0)];
    SYS_rename [Text(0), Text(1)];
    SYS_link [Text(0), Text(1)];
    SYS_symlink [Text(0), Text(1)];
    SYS_chmod [Text(0)];
    SYS_chown [Text(0)];
    SYS_lchown [Text(0)];
    SYS_utime [Text(0), In(1, Bytes(16))];
    SYS_utimes [Text(0), In(1, TIMES)];
    SYS_futimesat [Text(1), In(2, TIMES)];
    SYS_pipe [Out(0, INTS)];
    SYS_poll [InOut(0, Times(1, 8))];
    SYS_select [InOut(1, Set(0)), InOut(2, Set(0)), InOut(3, Set(0)), InOut(4, TIME)];
    SYS_epoll_create [];
    SYS_epoll_wait [Filled(1, Times(2, EVENT))];
    SYS_eventfd [];
    SYS_signalfd [In(1, bytes(2))];
    SYS_inotify_init [];
};
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: Calls = &[];

/// Calls on descriptors that pin memory or start threads of the kernel on it: refused.
const REFUSED: &[(i64, &str)] = &[
    // The child has the filter of the thread, and its parent is not the process that waits for children.
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_vfork, "vfork"),
    (libc::SYS_io_uring_setup, "io_uring_setup"),
    (libc::SYS_io_setup, "io_setup"),
    (libc::SYS_vmsplice, "vmsplice"),
    (libc::SYS_process_madvise, "process_madvise"),
    (libc::SYS_userfaultfd, "userfaultfd"),
    (libc::SYS_fanotify_init, "fanotify_init"),
    (libc::SYS_open_by_handle_at, "open_by_handle_at"),
    (libc::SYS_name_to_handle_at, "name_to_handle_at"),
    (libc::SYS_mq_notify, "mq_notify"),
];

/// Returns the numbers of all calls that threads of other machines than 0 do not do themselves.
pub(crate) fn numbers() -> impl Iterator<Item = i64> {
    let known = CALLS.iter().chain(OLD_CALLS).map(|(number, _)| *number);
    known
        .chain([libc::SYS_fcntl, libc::SYS_ioctl, libc::SYS_kill, libc::SYS_mmap])
        .chain(REFUSED.iter().map(|(number, _)| *number))
}

/// Returns the name of a call that is refused.
pub(super) fn refused(number: i64) -> Option<&'static str> {
    REFUSED.iter().find(|(refused, _)| *refused == number).map(|(_, name)| *name)
}

/// Returns the memory of a call with these arguments. `None`: unknown.
pub(super) fn parts(number: i64, arguments: &[u64; 6]) -> Option<Vec<Part>> {
    match number {
        libc::SYS_fcntl => Some(of_fcntl(arguments[1])),
        libc::SYS_ioctl => of_ioctl(arguments[1]),
        libc::SYS_kill => Some(vec![]),
        _ => {
            let found = CALLS.iter().chain(OLD_CALLS).find(|(known, _)| *known == number);
            found.map(|(_, parts)| parts.to_vec())
        }
    }
}

fn of_fcntl(command: u64) -> Vec<Part> {
    const LOCK: Length = Bytes(size_of::<libc::flock>());
    const F_GETOWN_EX: c_int = 16;
    const F_SETOWN_EX: c_int = 15;
    const F_GET_RW_HINT: c_int = 1035;
    const F_SET_FILE_RW_HINT: c_int = 1038;
    match command as c_int {
        libc::F_GETLK | libc::F_OFD_GETLK => vec![InOut(2, LOCK)],
        libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => vec![In(2, LOCK)],
        F_GETOWN_EX => vec![Out(2, INTS)],
        F_SETOWN_EX => vec![In(2, INTS)],
        F_GET_RW_HINT..=F_SET_FILE_RW_HINT => vec![InOut(2, OFFSET)],
        _ => vec![],
    }
}

/// Most requests tell by their number how many bytes they read and write; the oldest do not.
fn of_ioctl(request: u64) -> Option<Vec<Part>> {
    /// The kernel's `termios`, which is shorter than the C library's.
    const TERMIOS: Length = Bytes(36);
    const WRITES: u64 = 1;
    const READS: u64 = 2;
    let request = request & 0xffff_ffff;
    Some(match request {
        libc::TCGETS => vec![Out(2, TERMIOS)],
        libc::TCSETS | libc::TCSETSW | libc::TCSETSF => vec![In(2, TERMIOS)],
        libc::TIOCGWINSZ => vec![Out(2, INTS)],
        libc::TIOCSWINSZ => vec![In(2, INTS)],
        libc::FIONREAD | libc::TIOCOUTQ | libc::TIOCGPGRP | libc::TIOCMGET => vec![Out(2, INT)],
        libc::FIONBIO | libc::FIOASYNC | libc::TIOCSPGRP | libc::TIOCMSET => vec![In(2, INT)],
        libc::FIOCLEX
        | libc::FIONCLEX
        | libc::TCSBRK
        | libc::TCXONC
        | libc::TCFLSH
        | libc::TIOCSCTTY
        | libc::TIOCNOTTY
        | libc::TIOCEXCL
        | libc::TIOCNXCL
        | libc::FICLONE => vec![],
        // Of a network interface, by its name; lists of them have pointers.
        0x8912 => return None,
        0x8910..=0x8970 => vec![InOut(2, Bytes(40))],
        _ => {
            let (direction, length) = (request >> 30, Bytes((request >> 16) as usize & 0x3fff));
            match direction {
                0 => return None,
                WRITES => vec![In(2, length)],
                READS => vec![Out(2, length)],
                _ => vec![InOut(2, length)],
            }
        }
    })
}
