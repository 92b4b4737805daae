//! The end of this machine when it cannot go on, or is told to end: the launcher is told why, and the process ends at
//! once. All machines of a program share one fate; ending the others is the launcher's part.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::control::{Control, Message};

/// Exit status when this machine cannot go on (`EX_SOFTWARE` of sysexits.h).
const FAILURE_STATUS: i32 = 70;
/// Exit status of a program whose `gsm_main` panicked, as of any Rust program.
pub(crate) const PANIC_STATUS: u8 = 101;

struct Fate {
    control: Arc<Control>,
    /// This machine has said that the program is over: what the launcher says no longer matters.
    is_over: AtomicBool,
}

static FATE: OnceLock<Fate> = OnceLock::new();

/// Ends the process with this cause, and with it the program.
pub(crate) fn end(cause: &str) -> ! {
    eprintln!("gossamer: {cause}");
    if let Some(fate) = FATE.get() {
        // If the launcher has gone there is nobody left to tell.
        let _ = fate.control.send(&Message::Failed { reason: cause.to_owned() });
    }
    std::process::exit(FAILURE_STATUS)
}

/// From here on the process ends when the launcher says so, or has gone.
pub(crate) fn share(control: Control) -> std::io::Result<Arc<Control>> {
    let control = Arc::new(control);
    let fate = Fate { control: Arc::clone(&control), is_over: AtomicBool::new(false) };
    if FATE.set(fate).is_err() {
        return Err(std::io::Error::other("the machine has a control channel already"));
    }
    let listener = Arc::clone(&control);
    thread::Builder::new().name("gossamer-control".to_owned()).spawn(move || listen(&listener))?;
    Ok(control)
}

/// Says that the program is over, with this exit status.
pub(crate) fn finish(control: &Control, status: u8) {
    if let Some(fate) = FATE.get() {
        // Relaxed: the launcher's answer comes after `send`, which orders more than any store.
        fate.is_over.store(true, Ordering::Relaxed);
    }
    if let Err(error) = control.send(&Message::Finished { status }) {
        eprintln!("gossamer: the launcher cannot be told of the end: {error}");
    }
}

fn listen(control: &Control) {
    let told = loop {
        match control.receive() {
            Ok(Some(Message::End { .. })) => break Ok(()),
            Ok(Some(_)) => {}
            Ok(None) => break Err("the launcher has gone".to_owned()),
            Err(error) => break Err(error.to_string()),
        }
    };
    if FATE.get().is_some_and(|fate| fate.is_over.load(Ordering::Relaxed)) {
        return;
    }
    match told {
        Ok(()) => std::process::exit(0),
        Err(cause) => end(&cause),
    }
}
