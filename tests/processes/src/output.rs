//! Output of a process, collected while it runs: a thread for each stream appends what comes and wakes those that wait.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Standard output or standard error of a process.
#[derive(Debug)]
pub struct OutputStream {
    outputs: Arc<Outputs>,
    index: usize,
    limit: Duration,
}

/// Both streams: a message about one shows the other, too.
#[derive(Debug, Default)]
struct Outputs {
    collected: Mutex<[Collected; 2]>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Collected {
    bytes: Vec<u8>,
    is_over: bool,
}

impl Outputs {
    fn lock(&self) -> MutexGuard<'_, [Collected; 2]> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects standard output and standard error, if they are pipes.
pub(crate) fn collect(
    stdout: Option<impl Read + Send + 'static>,
    stderr: Option<impl Read + Send + 'static>,
    limit: Duration,
) -> [OutputStream; 2] {
    let outputs = Arc::default();
    let [first, second] = [0, 1].map(|index| OutputStream { outputs: Arc::clone(&outputs), index, limit });
    first.collect(stdout);
    second.collect(stderr);
    [first, second]
}

impl OutputStream {
    fn collect(&self, source: Option<impl Read + Send + 'static>) {
        let (outputs, index) = (Arc::clone(&self.outputs), self.index);
        let Some(mut source) = source else {
            outputs.lock()[index].is_over = true;
            return;
        };
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                let count = source.read(&mut buffer).unwrap_or(0);
                let collected = &mut outputs.lock()[index];
                collected.bytes.extend_from_slice(&buffer[..count]);
                collected.is_over = count == 0;
                outputs.changed.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
    }

    /// Returns the text so far.
    #[must_use]
    pub fn text(&self) -> String {
        self.outputs.lock()[self.index].text()
    }

    /// Waits until it has this text; returns all so far.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        self.find(text, |all| all.contains(text).then(|| all.to_owned()))
    }

    /// Waits for a line with these words; returns the rest of it.
    #[track_caller]
    pub fn line(&self, words: &str) -> String {
        self.find(words, |all| Some(all.split_once(words)?.1.split_once('\n')?.0.to_owned()))
    }

    /// Waits until `find` finds something in the text so far, and returns that. `what` names it where it does not come.
    #[track_caller]
    pub fn find<T>(&self, what: &str, mut find: impl FnMut(&str) -> Option<T>) -> T {
        let start = Instant::now();
        let mut both = self.outputs.lock();
        loop {
            let collected = &both[self.index];
            if let Some(found) = find(&String::from_utf8_lossy(&collected.bytes)) {
                return found;
            }
            let left = self.limit.saturating_sub(start.elapsed());
            if collected.is_over || left.is_zero() {
                break;
            }
            both = self.outputs.changed.wait_timeout(both, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let end = if both[self.index].is_over { "at its end".to_owned() } else { format!("after {:?}", self.limit) };
        drop(both);
        panic!("no {what:?} in {} {end}\n{}", ["stdout", "stderr"][self.index], self.both());
    }

    /// Waits for its end; returns all of it.
    #[track_caller]
    pub(crate) fn whole(&self) -> String {
        let (both, _) = self
            .outputs
            .changed
            .wait_timeout_while(self.outputs.lock(), self.limit, |both| !both[self.index].is_over)
            .unwrap_or_else(PoisonError::into_inner);
        let (text, is_over) = (both[self.index].text(), both[self.index].is_over);
        drop(both);
        assert!(is_over, "another process holds the streams of an ended one open\n{}", self.both());
        text
    }

    /// Both streams so far, for messages.
    pub(crate) fn both(&self) -> String {
        let both = self.outputs.lock();
        format!("--- stdout\n{}\n--- stderr\n{}", both[0].text(), both[1].text())
    }

    #[cfg(test)]
    pub(crate) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }
}

impl Collected {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}
