//! Standard streams of a host's machines. Each has a thread that reads it and sends the bytes, as far as the launcher
//! has opened its window: a slow terminal slows the program and fills no memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::Outgoing;
use crate::panics;
use crate::wire::{FromPart, PIECE_BYTES, Stream, WINDOW_BYTES};

/// Gives a thread its pipe; dropped unused, it ends the thread.
pub type Handover = mpsc::SyncSender<OwnedFd>;

/// Flow control: bytes of a stream that may be sent, by all machines of the host together.
struct Window {
    state: Mutex<WindowState>,
    changed: Condvar,
}

#[derive(Default)]
struct WindowState {
    bytes: u32,
    is_closed: bool,
    waiting: usize,
}

impl Default for Window {
    fn default() -> Self {
        let state = WindowState { bytes: WINDOW_BYTES, ..WindowState::default() };
        Window { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl Window {
    /// Waits until the window is open, and takes at most `wanted` of it; `None` when nobody reads the stream any more.
    fn take(&self, wanted: usize) -> Option<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        let mut state = self
            .changed
            .wait_while(state, |state| state.bytes == 0 && !state.is_closed)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        if state.is_closed {
            return None;
        }
        let taken = state.bytes.min(u32::try_from(wanted).unwrap_or(u32::MAX));
        state.bytes -= taken;
        Some(taken as usize)
    }

    fn change(&self, change: impl FnOnce(&mut WindowState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// Output of all machines of the host.
#[derive(Default)]
pub struct Outputs {
    windows: [Arc<Window>; 2],
    open: Arc<AtomicUsize>,
}

impl Outputs {
    /// Starts a thread that passes on `machine`'s output from the pipe that it will be handed, and calls `ended` at the
    /// end.
    pub fn pass_on(
        &mut self,
        machine: u16,
        stream: Stream,
        outbox: mpsc::Sender<Outgoing>,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Handover> {
        let (window, open) = (Arc::clone(&self.windows[stream as usize]), Arc::clone(&self.open));
        let (hand_over, pipe) = mpsc::sync_channel::<OwnedFd>(1);
        let pass_on = move || {
            let Ok(pipe) = pipe.recv() else { return };
            read_all(machine, stream, File::from(pipe), &window, &outbox);
            drop(outbox);
            open.fetch_sub(1, Ordering::Release); // partner: the Acquire in `open`; the bytes read are in the outbox
            ended();
        };
        panics::spawn(format!("m{machine} {stream:?}"), pass_on)?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(hand_over)
    }

    /// Returns the number of open streams.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire) // partner: the Release at the end of `pass_on`
    }

    /// Returns whether a thread waits for the window to open.
    pub fn is_waiting(&self) -> bool {
        let waiting = |window: &Arc<Window>| window.state.lock().unwrap_or_else(PoisonError::into_inner).waiting > 0;
        self.windows.iter().any(waiting)
    }

    /// Opens the window by this many bytes.
    pub fn grant(&self, stream: Stream, bytes: u32) {
        let add = |state: &mut WindowState| state.bytes = state.bytes.saturating_add(bytes).min(WINDOW_BYTES);
        self.windows[stream as usize].change(add);
    }

    /// Closes a stream without a reader: the machines see that at their next write.
    pub fn close(&self, stream: Stream) {
        self.windows[stream as usize].change(|state| state.is_closed = true);
    }
}

fn read_all(machine: u16, stream: Stream, mut pipe: File, window: &Window, outbox: &mpsc::Sender<Outgoing>) {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let mut rest = match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) => &buffer[..bytes],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        while !rest.is_empty() {
            let Some(bytes) = window.take(rest.len()) else { return };
            let (piece, later) = rest.split_at(bytes);
            if outbox.send(FromPart::Output { machine, stream, bytes: piece.to_vec() }.into()).is_err() {
                return;
            }
            rest = later;
        }
    }
}

/// Starts the thread that writes machine 0's input into the pipe that it will be handed, and grants the launcher as
/// much again as it has written.
pub fn input(outbox: mpsc::Sender<Outgoing>) -> io::Result<(Handover, mpsc::Sender<Vec<u8>>)> {
    let (sender, pieces) = mpsc::channel::<Vec<u8>>();
    let (hand_over, pipe) = mpsc::sync_channel::<OwnedFd>(1);
    let write_all = move || {
        let Ok(pipe) = pipe.recv() else { return };
        let mut pipe = File::from(pipe);
        for piece in pieces {
            if pipe.write_all(&piece).is_err() {
                return; // machine 0 reads no more
            }
            let granted = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            if outbox.send(FromPart::GrantInput(granted).into()).is_err() {
                return;
            }
        }
    };
    panics::spawn("input", write_all)?;
    Ok((hand_over, sender))
}
