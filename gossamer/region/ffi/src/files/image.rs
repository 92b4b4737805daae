//! A system call on its way: its arguments, and the memory that it reads and writes. The caller's machine
//! [`encodes`](encode) it, machine 0 [`executes`](Request::execute) it with own buffers, and the caller's machine
//! [`stores`](Pending::store) the bytes that the call has written.
//!
//! Long buffers in memory that all machines share do not travel with the call: their addresses mean the same on machine
//! 0, to which their pages come.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_int;
use std::io::Error;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::calls::{Length, Part};
use crate::table;

/// Most bytes of a buffer that travel with a call, if its pages can come.
const TRAVELS: usize = 256 << 10;
/// Most bytes of buffers that travel with a call; a call with more transfers these.
const TRAVELS_ALONE: usize = 16 << 20;
/// The kernel's limits of buffers in a list, of a path with its end, and of options and control data.
const LIST_MAX: u64 = 1024;
const PATH_MAX: usize = 4096;
const AUXILIARY_MAX: u64 = 1 << 20;
/// Sizes of an `iovec` and of a message, alone and in a list.
const VECTOR: usize = 16;
const MESSAGE: usize = 56;
const LISTED_MESSAGE: usize = 64;

/// Part of a piece that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Back {
    Nothing,
    All,
    /// As many elements of this size as the call's result says, in the order of pieces.
    Share(usize),
}

/// Memory of a call, in one piece.
#[derive(Debug, Serialize, Deserialize)]
struct Piece {
    /// Bytes that the call reads; none for one that it only writes.
    bytes: ByteBuf,
    length: usize,
    back: Back,
}

/// Place of a pointer to a piece.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Place {
    Argument(usize),
    /// At a byte of another piece.
    Within(usize, usize),
}

/// A call, as it travels.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) number: i64,
    pub(super) arguments: [u64; 6],
    pieces: Vec<Piece>,
    links: Vec<(Place, usize)>,
}

/// Result of a call, negative for an error, and the bytes that come back, by piece.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) result: i64,
    backs: Vec<ByteBuf>,
}

/// Addresses of a call's pieces at its caller.
#[derive(Debug)]
pub(super) struct Pending {
    homes: Vec<u64>,
}

type Errno = c_int;

/// Copies bytes of this process; `EFAULT` if they are not there.
fn peek(address: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
    copy(bytes.as_mut_ptr().addr() as u64, address, bytes.len(), libc::SYS_process_vm_readv)
}

fn poke(address: u64, bytes: &[u8]) -> Result<usize, Errno> {
    copy(bytes.as_ptr().addr() as u64, address, bytes.len(), libc::SYS_process_vm_writev)
}

/// Copies memory that all machines share. Of other memory, has the kernel copy, which finds out whether the program's
/// address is one; of shared memory it would change pages that have gone to another machine meanwhile.
fn copy(own: u64, programs: u64, bytes: usize, call: i64) -> Result<usize, Errno> {
    if bytes == 0 {
        return Ok(0);
    }
    let is_shared = table::are_shared(programs as usize, bytes);
    let (own, programs) = ([own, bytes as u64], [programs, bytes as u64]);
    if is_shared {
        return copy_untested(own, programs, call);
    }
    // SAFETY: bytes of the caller; the program's, which it passed to a system call that reads or writes them.
    match unsafe {
        libc::syscall(call, crate::side::process(), &raw const own, 1_u64, &raw const programs, 1_u64, 0_u64)
    } {
        -1 => Err(match Error::last_os_error().raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS) => return copy_untested(own, programs, call),
            _ => libc::EFAULT,
        }),
        copied => Ok(copied as usize),
    }
}

/// Copies memory of which the system does not say whether it is there: a wrong address ends the program.
fn copy_untested([own, bytes]: [u64; 2], [programs, _]: [u64; 2], call: i64) -> Result<usize, Errno> {
    let (own, programs) = (own as usize, programs as usize);
    let (from, to) = if call == libc::SYS_process_vm_readv { (programs, own) } else { (own, programs) };
    let (from, to) = (std::ptr::with_exposed_provenance::<u8>(from), std::ptr::with_exposed_provenance_mut::<u8>(to));
    // SAFETY: as in `copy`.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes as usize) };
    Ok(bytes as usize)
}

fn peek_all(address: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    match peek(address, &mut bytes)? {
        read if read == length => Ok(bytes),
        _ => Err(libc::EFAULT),
    }
}

/// Reads a string with its zero.
fn peek_text(address: u64) -> Result<Vec<u8>, Errno> {
    const PAGE: u64 = crate::PAGE_BYTES as u64;
    let mut text: Vec<u8> = vec![];
    while text.len() < PATH_MAX {
        let at = address.wrapping_add(text.len() as u64);
        // Not beyond the page: the next one may not be there.
        let piece = peek_all(at, ((PAGE - at % PAGE) as usize).min(PATH_MAX - text.len()))?;
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&piece[..=end]);
            return Ok(text);
        }
        text.extend_from_slice(&piece);
    }
    Err(libc::ENAMETOOLONG)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    u64::from_ne_bytes(*word.unwrap_or(&[0; 8]))
}

struct Encoder<'a> {
    request: Request,
    pending: Pending,
    /// Bytes of buffers that may still travel.
    left: usize,
    is_shared: &'a dyn Fn(u64, usize) -> bool,
}

/// Makes a request of a call whose memory consists of these parts. `is_shared` says which memory all machines share.
pub(super) fn encode(
    number: i64,
    arguments: [u64; 6],
    parts: &[Part],
    is_shared: &dyn Fn(u64, usize) -> bool,
) -> Result<(Request, Pending), Errno> {
    let request = Request { number, arguments, pieces: vec![], links: vec![] };
    let mut encoder = Encoder { request, pending: Pending { homes: vec![] }, left: TRAVELS_ALONE, is_shared };
    for part in parts {
        encoder.part(*part)?;
    }
    Ok((encoder.request, encoder.pending))
}

impl Encoder<'_> {
    fn part(&mut self, part: Part) -> Result<(), Errno> {
        match part {
            Part::Mask(at) => self.request.arguments[at] = 0,
            Part::Text(at) => {
                let address = self.request.arguments[at];
                if address != 0 {
                    let bytes = peek_text(address)?;
                    self.link(Place::Argument(at), address, bytes, None, Back::Nothing);
                }
            }
            Part::In(at, length) => self.argument(at, length, true, Back::Nothing)?,
            Part::Out(at, length) => self.argument(at, length, false, Back::All)?,
            Part::InOut(at, length) => self.argument(at, length, true, Back::All)?,
            Part::Filled(at, length) => {
                let element = if let Length::Times(_, element) = length { element } else { 1 };
                self.argument(at, length, false, Back::Share(element))?;
            }
            Part::Sized(at, length) => {
                let [address, of_length] = [at, length].map(|at| self.request.arguments[at]);
                if address != 0 && of_length != 0 {
                    let room = peek_all(of_length, 4)?;
                    let room = u64::from(u32::from_ne_bytes([room[0], room[1], room[2], room[3]]));
                    self.buffer(Place::Argument(at), address, room.min(AUXILIARY_MAX), true, Back::All)?;
                }
                self.argument(length, Length::Bytes(4), true, Back::All)?;
            }
            Part::Gather(at, count) => self.vectors_of_argument(at, count, Back::Nothing)?,
            Part::Scatter(at, count) => self.vectors_of_argument(at, count, Back::Share(1))?,
            Part::Sent(at) => self.messages(at, 1, MESSAGE, Back::Nothing)?,
            Part::Received(at) => self.messages(at, 1, MESSAGE, Back::Share(1))?,
            Part::AllSent(at, count) => {
                self.messages(at, self.request.arguments[count], LISTED_MESSAGE, Back::Nothing)?
            }
            Part::AllReceived(at, count) => {
                self.messages(at, self.request.arguments[count], LISTED_MESSAGE, Back::All)?;
            }
        }
        Ok(())
    }

    /// Adds a piece, and the pointer to it; returns its number. `length` is that of a piece that is only written.
    fn link(&mut self, place: Place, address: u64, bytes: Vec<u8>, length: Option<usize>, back: Back) -> usize {
        let length = length.unwrap_or(bytes.len());
        self.request.pieces.push(Piece { bytes: ByteBuf::from(bytes), length, back });
        self.pending.homes.push(address);
        let piece = self.request.pieces.len() - 1;
        self.request.links.push((place, piece));
        piece
    }

    fn argument(&mut self, at: usize, length: Length, is_read: bool, back: Back) -> Result<(), Errno> {
        let arguments = &mut self.request.arguments;
        let address = arguments[at];
        let bytes = match length {
            Length::Bytes(bytes) => bytes as u64,
            Length::Set(count) => (arguments[count] & 0xffff_ffff).min(LIST_MAX * 64).div_ceil(64) * 8,
            Length::Times(count, element) => {
                let bytes = arguments[count].saturating_mul(element as u64);
                let is_long = bytes > TRAVELS as u64 && (self.is_shared)(address, bytes as usize);
                if !is_long && bytes > self.left as u64 {
                    // As if the system had no room for more.
                    arguments[count] = (self.left / element) as u64;
                    (self.left / element * element) as u64
                } else {
                    bytes
                }
            }
        };
        self.buffer(Place::Argument(at), address, bytes, is_read, back)
    }

    /// Adds a buffer, unless it is empty or all machines have it.
    fn buffer(&mut self, place: Place, address: u64, bytes: u64, is_read: bool, back: Back) -> Result<(), Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| libc::EFAULT)?;
        if address == 0 || bytes == 0 || bytes > TRAVELS && (self.is_shared)(address, bytes) {
            return Ok(());
        }
        self.left = self.left.checked_sub(bytes).ok_or(libc::ENOBUFS)?;
        let read = if is_read { peek_all(address, bytes)? } else { vec![] };
        self.link(place, address, read, Some(bytes), back);
        Ok(())
    }

    fn vectors_of_argument(&mut self, at: usize, count: usize, back: Back) -> Result<(), Errno> {
        let (address, count) = (self.request.arguments[at], self.request.arguments[count]);
        self.vectors(Place::Argument(at), address, count, back, libc::EINVAL)
    }

    fn vectors(&mut self, place: Place, address: u64, count: u64, back: Back, too_many: Errno) -> Result<(), Errno> {
        if address == 0 || count == 0 {
            return Ok(());
        }
        if count > LIST_MAX {
            return Err(too_many);
        }
        let list = peek_all(address, count as usize * VECTOR)?;
        let piece = self.link(place, address, list.clone(), None, Back::Nothing);
        for at in (0..list.len()).step_by(VECTOR) {
            let (buffer, bytes) = (word(&list, at), word(&list, at + 8));
            self.buffer(Place::Within(piece, at), buffer, bytes, back != Back::Share(1), back)?;
        }
        Ok(())
    }

    /// Adds messages of this size each; `back` is that of their buffers.
    fn messages(&mut self, at: usize, count: u64, bytes: usize, back: Back) -> Result<(), Errno> {
        let address = self.request.arguments[at];
        if address == 0 || count == 0 {
            return Ok(());
        }
        let list = peek_all(address, count.min(LIST_MAX) as usize * bytes)?;
        let piece = self.link(Place::Argument(at), address, list.clone(), None, Back::All);
        let around = if back == Back::Nothing { Back::Nothing } else { Back::All };
        for at in (0..list.len()).step_by(bytes) {
            let of = |field: usize| word(&list, at + field);
            let (name, name_bytes) = (of(0), of(8) & 0xffff_ffff);
            let (control, control_bytes) = (of(32), of(40));
            self.buffer(Place::Within(piece, at), name, name_bytes.min(AUXILIARY_MAX), true, around)?;
            self.vectors(Place::Within(piece, at + 16), of(16), of(24), back, libc::EMSGSIZE)?;
            self.buffer(Place::Within(piece, at + 32), control, control_bytes.min(AUXILIARY_MAX), true, around)?;
        }
        Ok(())
    }
}

impl Pending {
    /// Writes the bytes that came back to the program; returns the call's result.
    pub(super) fn store(&self, answer: &Answer) -> i64 {
        for (home, bytes) in self.homes.iter().zip(&answer.backs) {
            match poke(*home, bytes) {
                Ok(written) if written == bytes.len() => {}
                _ => return -i64::from(libc::EFAULT),
            }
        }
        answer.result
    }
}

/// Memory of a piece on the executing machine, on pages of its own if it is long, as direct access to disks wants it.
struct Buffer {
    start: *mut u8,
    layout: Layout,
}

impl Buffer {
    fn new(piece: &Piece) -> Option<Buffer> {
        let align = if piece.length >= 512 { crate::PAGE_BYTES } else { 16 };
        let layout = Layout::from_size_align(piece.length.max(piece.bytes.len()).max(1), align).ok()?;
        // SAFETY: a layout of at least one byte.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: new memory, of at least that many bytes.
        unsafe { std::ptr::copy_nonoverlapping(piece.bytes.as_ptr(), start, piece.bytes.len()) };
        Some(Buffer { start, layout })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: this buffer's, all initialised; nothing else refers to it.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) }
    }

    /// Puts a word at a byte; returns the one before.
    fn swap(&mut self, at: usize, value: u64) -> u64 {
        let before = word(self.bytes(), at);
        if let Some(place) = self.bytes().get_mut(at..at.saturating_add(8)) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        before
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}

impl Answer {
    pub(super) fn of(result: i64) -> Answer {
        Answer { result, backs: vec![] }
    }

    pub(super) fn failed(errno: Errno) -> Answer {
        Answer::of(-i64::from(errno))
    }
}

impl Request {
    /// Does the call here. It may block.
    pub(super) fn execute(&self) -> Answer {
        let mut arguments = self.arguments;
        let Some(mut buffers) = self.pieces.iter().map(Buffer::new).collect::<Option<Vec<Buffer>>>() else {
            return Answer::failed(libc::EFAULT);
        };
        let mut before = vec![];
        for (place, to) in &self.links {
            let Some(address) = buffers.get(*to).map(|buffer| buffer.start.expose_provenance() as u64) else {
                return Answer::failed(libc::EFAULT);
            };
            match *place {
                Place::Argument(at) => arguments[at % 6] = address,
                Place::Within(piece, at) if piece < buffers.len() => {
                    before.push((piece, at, buffers[piece].swap(at, address)));
                }
                Place::Within(..) => return Answer::failed(libc::EFAULT),
            }
        }
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: a call of the program on descriptors or paths, with buffers as long as it takes.
        let result = match unsafe { libc::syscall(self.number, a, b, c, d, e, f) } {
            -1 => -i64::from(Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
            result => result,
        };
        // The program's pointers come back as they were.
        for (piece, at, pointer) in before {
            buffers[piece].swap(at, pointer);
        }
        Answer { result, backs: self.backs(result, &mut buffers) }
    }

    fn backs(&self, result: i64, buffers: &mut [Buffer]) -> Vec<ByteBuf> {
        let Ok(mut shared) = usize::try_from(result) else { return vec![] };
        let mut back = |(piece, buffer): (&Piece, &mut Buffer)| {
            let length = match piece.back {
                Back::Nothing => 0,
                Back::All => piece.length,
                Back::Share(element) => {
                    let length = shared.saturating_mul(element).min(piece.length);
                    shared -= length / element;
                    length
                }
            };
            ByteBuf::from(buffer.bytes()[..length].to_vec())
        };
        self.pieces.iter().zip(buffers).map(&mut back).collect()
    }
}
