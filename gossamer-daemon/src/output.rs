//! Passes on the machines' stdout and stderr line by line with the machine's name.
//!
//! One thread for each of the two streams reads that stream of all machines, and alone writes to the launcher's. They
//! are threads of their own because the reader of the launcher's output may be slow or paused (a pager), and watching
//! the machines must go on meanwhile.
//!
//! Invariants: each write is a sequence of whole lines, but for the end of an unfinished one; without a prefix the
//! bytes are the machine's and no others; nothing that a machine wrote before it ended is lost; a failed
//! stream of the launcher closes that stream of all machines, so that they see the same as without a launcher, and the
//! launcher hears the cause ([`Unwritten`]) before they do.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub use crate::outcome::Unwritten;
use crate::panics;
use crate::signals::Signals;
use crate::wire::Stream;

const CHUNK_BYTES: usize = 64 * 1024;
/// A longer line is passed on in pieces of this length; with a prefix each is a line.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// One stream of one machine, to be passed on.
pub struct Source {
    stream: File,
    lines: Lines,
}

impl Source {
    /// Makes a source; `stream` is the reading end of a pipe, `prefix` goes before each line.
    pub fn new(stream: impl Into<OwnedFd>, prefix: &str) -> Source {
        Source { stream: File::from(stream.into()), lines: Lines::new(prefix) }
    }
}

/// Returns the streams of this process that are pipes (or the like) without a reader.
pub fn closed() -> Vec<Unwritten> {
    let is_closed = |fd: BorrowedFd<'_>| {
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())]; // errors are reported unasked
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::ERR)
    };
    let streams = [(Stream::Out, rustix::stdio::stdout()), (Stream::Err, rustix::stdio::stderr())];
    let closed = streams.into_iter().filter(|(_, fd)| is_closed(*fd));
    closed.map(|(stream, _)| Unwritten { stream, error: Errno::PIPE.into() }).collect()
}

/// The two running threads.
pub struct Forwarding {
    stop: PipeWriter,    // dropped: the machines are gone, pass on the rest and end
    running: PipeReader, // end of file: both threads have ended
    unwritten: mpsc::Receiver<Unwritten>,
    failed: PipeReader,   // readable: something is in `unwritten`, or was
    _failing: PipeWriter, // held: without a writer `failed` would be at its end, which is readable for ever
}

impl Forwarding {
    /// Starts passing on the machines' output.
    pub fn start(stdout: Vec<Source>, stderr: Vec<Source>) -> io::Result<Forwarding> {
        let (stopped, stop) = io::pipe()?;
        let (running, alive) = io::pipe()?;
        let (failed, tell) = io::pipe()?;
        rustix::fs::fcntl_setfl(&failed, rustix::fs::OFlags::NONBLOCK)?;
        let (say, unwritten) = mpsc::channel();
        let (to_stdout, to_stderr) = Target::standard();
        for (stream, mut sources, target) in [(Stream::Out, stdout, to_stdout), (Stream::Err, stderr, to_stderr)] {
            let (stopped, alive, mut tell, say) =
                (stopped.try_clone()?, alive.try_clone()?, tell.try_clone()?, say.clone());
            let forward = move || {
                if let Err(error) = forward(&mut sources, &target, stopped) {
                    let _ = say.send(Unwritten { stream, error: error.into() }); // the launcher has ended
                    let _ = tell.write(&[0]); // as above
                }
                drop(sources); // closes the pipes, after the cause is reported
                drop(alive);
            };
            panics::spawn(stream.name(), forward)?;
        }
        Ok(Forwarding { stop, running, unwritten, failed, _failing: tell })
    }

    /// Returns a descriptor that is readable when [`Forwarding::unwritten`] has something to return.
    pub fn failed(&self) -> BorrowedFd<'_> {
        self.failed.as_fd()
    }

    /// Returns the streams that have failed since the last call.
    pub fn unwritten(&self) -> Vec<Unwritten> {
        let _ = (&self.failed).read(&mut [0; 8]); // nothing there
        self.unwritten.try_iter().collect()
    }

    /// To be called when all machines are gone: waits until all their output is passed on, or until a signal comes;
    /// returns the streams that have failed meanwhile.
    pub fn finish(self, signals: &Signals) -> Vec<Unwritten> {
        drop(self.stop);
        loop {
            let mut fds: Vec<PollFd<'_>> =
                signals.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            fds.push(PollFd::new(&self.running, PollFlags::IN));
            match poll(&mut fds, None) {
                Err(Errno::INTR) => {}
                _ => return self.unwritten.try_iter().collect(),
            }
        }
    }
}

fn same_file(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> bool {
    match (rustix::fs::fstat(a), rustix::fs::fstat(b)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

fn forward(sources: &mut Vec<Source>, target: &Target, stopped: PipeReader) -> Result<(), Errno> {
    let mut chunk = vec![0u8; CHUNK_BYTES];
    let mut out = Vec::new();
    let mut stopping = false;
    while !sources.is_empty() {
        let ready = wait(sources, &stopped, &mut stopping)?;
        if stopping && ready.is_empty() {
            break; // the machines are gone; a leftover process may still hold the pipes
        }
        for index in ready.into_iter().rev() {
            let source = &mut sources[index];
            match source.stream.read(&mut chunk) {
                Ok(0) => {
                    source.lines.end(&mut out);
                    sources.remove(index);
                }
                Ok(bytes) => source.lines.push(&chunk[..bytes], &mut out),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => drop(sources.remove(index)),
            }
            target.write(&out)?;
            out.clear();
        }
    }
    sources.iter_mut().for_each(|source| source.lines.end(&mut out));
    target.write(&out)
}

/// Waits for input; returns the indices of the sources that have some, in rising order.
fn wait(sources: &[Source], stopped: &PipeReader, stopping: &mut bool) -> Result<Vec<usize>, Errno> {
    let mut fds: Vec<PollFd<'_>> = sources.iter().map(|source| PollFd::new(&source.stream, PollFlags::IN)).collect();
    if !*stopping {
        fds.push(PollFd::new(stopped, PollFlags::IN));
    }
    let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut fds, if *stopping { Some(&no_time) } else { None }) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error),
    }
    let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    if !*stopping && ready(&fds[sources.len()]) {
        *stopping = true;
    }
    let mut indices: Vec<usize> = (0..sources.len()).collect();
    indices.retain(|index| ready(&fds[*index]));
    Ok(indices)
}

/// A stream of the launcher.
pub struct Target {
    fd: BorrowedFd<'static>,
    lock: Arc<Mutex<()>>,
}

impl Target {
    /// Returns the targets for standard output and standard error.
    pub fn standard() -> (Target, Target) {
        let (to_stdout, to_stderr) = (rustix::stdio::stdout(), rustix::stdio::stderr());
        let lock = Arc::new(Mutex::new(()));
        // Two locks let stderr pass while stdout is stuck; one keeps lines whole where both are the same pipe.
        let other_lock = if same_file(to_stdout, to_stderr) { Arc::clone(&lock) } else { Arc::default() };
        (Target { fd: to_stdout, lock }, Target { fd: to_stderr, lock: other_lock })
    }

    /// Writes all bytes.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Errno> {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        write_all(self.fd, bytes)
    }
}

/// Writes all bytes, also to a stream that a process sharing it has made non-blocking.
pub fn write_all(stream: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match poll(&mut [PollFd::from_borrowed_fd(stream, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Cuts a stream of bytes into lines with a prefix. With an empty one, no byte is added: a machine's output may be no
/// text.
pub struct Lines {
    prefix: Vec<u8>,
    begun: Vec<u8>,
}

impl Lines {
    /// `prefix` goes before each line.
    pub fn new(prefix: &str) -> Lines {
        Lines { prefix: prefix.as_bytes().to_vec(), begun: Vec::new() }
    }

    /// Takes the next bytes; appends the completed lines to `out`.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            let room = MAX_LINE_BYTES - self.begun.len();
            let line = bytes.split_inclusive(|byte| *byte == b'\n').next().unwrap_or(bytes);
            let (piece, end, rest): (_, &[u8], _) = match line.strip_suffix(b"\n") {
                Some(text) if text.len() <= room => (text, b"\n", &bytes[line.len()..]),
                None if line.len() < room => {
                    self.begun.extend_from_slice(line);
                    return;
                }
                _ => (&bytes[..room], self.end_of_piece(), &bytes[room..]),
            };
            self.emit(piece, end, out);
            bytes = rest;
        }
    }

    /// Ends the stream: behind a prefix, an unfinished line becomes a whole one.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if !self.begun.is_empty() {
            self.emit(&[], self.end_of_piece(), out);
        }
    }

    /// The end of a line that the machine has not ended.
    fn end_of_piece(&self) -> &'static [u8] {
        if self.prefix.is_empty() { b"" } else { b"\n" }
    }

    fn emit(&mut self, rest: &[u8], end: &[u8], out: &mut Vec<u8>) {
        for part in [&self.prefix, &self.begun, rest, end] {
            out.extend_from_slice(part);
        }
        self.begun.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(prefix: &str, chunks: &[&[u8]]) -> Vec<u8> {
        let (mut lines, mut out) = (Lines::new(prefix), Vec::new());
        chunks.iter().for_each(|chunk| lines.push(chunk, &mut out));
        lines.end(&mut out);
        out
    }

    #[test]
    fn lines_are_whole_whatever_the_chunks() {
        let text = b"one\n\nthree \xff\xfe\nlast";
        let expected = b"m0 | one\nm0 | \nm0 | three \xff\xfe\nm0 | last\n".to_vec();
        for bytes in 1..=text.len() {
            let chunks: Vec<&[u8]> = text.chunks(bytes).collect();
            assert_eq!(cut("m0 | ", &chunks), expected, "chunks of {bytes}");
        }
        assert_eq!(cut("m0 | ", &[]), b"");
        assert_eq!(cut("", &[b"a\n", b"b"]), b"a\nb");
    }

    #[test]
    fn a_non_blocking_stream_gets_all_of_it() {
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
        let text = vec![b'x'; 300_000]; // more than a pipe holds
        let expected = text.clone();
        let writing = std::thread::spawn(move || write_all(writer.as_fd(), &text));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(writing.join().unwrap().is_ok() && read == expected);
    }

    #[test]
    fn nothing_comes_out_before_the_line_is_whole() {
        let (mut lines, mut out) = (Lines::new("p "), Vec::new());
        lines.push(b"begun", &mut out);
        assert!(out.is_empty());
        lines.push(b" and done\nnext", &mut out);
        assert_eq!(out, b"p begun and done\n");
    }

    #[test]
    fn a_line_without_end_is_cut_and_loses_nothing() {
        let long = vec![b'x'; 2 * MAX_LINE_BYTES + 10];
        for bytes in [1000, CHUNK_BYTES, MAX_LINE_BYTES, long.len()] {
            let chunks: Vec<&[u8]> = long.chunks(bytes).collect();
            let out = cut("p", &chunks);
            let lengths: Vec<usize> = out.split(|byte| *byte == b'\n').map(<[u8]>::len).collect();
            assert_eq!(lengths, [MAX_LINE_BYTES + 1, MAX_LINE_BYTES + 1, 11, 0], "chunks of {bytes}");
            assert!(cut("", &chunks) == long, "chunks of {bytes}");
        }
    }
}
