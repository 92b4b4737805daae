//! The threads that take cores from the workers: hog, noise, real-time thread. They are threads of the measured
//! process, with the same nice value in the same cgroup, so the scheduler treats them as it does those of another
//! program; and they end with the process, however it ends.

use super::conditions::{Condition, NOISE, NOISE_PERIOD, TURN, TURN_PERIOD};
use crate::machine;
use crate::prelude::*;
use crate::watch::{Split, Turns};
use core_affinity::CoreId;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// From the start of the real-time thread to its first turn.
const BEFORE_TURNS: Duration = Duration::from_millis(10);
/// Any real-time priority is above all ordinary threads.
const REAL_TIME_PRIORITY: u8 = 10;

/// The strangers of one run; they end when this is dropped.
#[derive(Debug)]
pub struct Strangers {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
    split: Split,
}

impl Strangers {
    /// Starts those of the condition; `round` says which core is taken first.
    pub fn start(condition: Condition, round: usize) -> Result<Self> {
        let cores = machine::cores();
        let mut strangers = Self { stop: Arc::default(), threads: Vec::new(), split: Split::Whole };
        match condition {
            Condition::HogPinned | Condition::HogFloatingWorkers => {
                let last = cores.len() - 1;
                let core = cores[last];
                strangers.add("hog", move |stop| hog(stop, Some(core)));
                if condition.pins() {
                    strangers.split = Split::Core(last);
                }
            }
            Condition::HogFloats => strangers.add("hog", |stop| hog(stop, None)),
            Condition::Noise => strangers.add("noise", noise),
            Condition::RealTime => {
                let start = Instant::now() + BEFORE_TURNS;
                let turns =
                    Turns { start, period: TURN_PERIOD, taken: TURN, first: round % cores.len(), cores: cores.len() };
                let (told, asked) = mpsc::channel();
                strangers.add("real-time", move |stop| {
                    let became = become_real_time();
                    let is_real_time = became.is_ok();
                    let _ = told.send(became);
                    if is_real_time {
                        take_turns(stop, &turns, &cores);
                    }
                });
                asked.recv()?.map_err(|why| anyhow!(why))?;
                strangers.split = Split::Turns(turns);
            }
            _ => {}
        }
        Ok(strangers)
    }

    /// How latencies are told apart beside them.
    pub fn split(&self) -> Split {
        self.split
    }

    fn add(&mut self, name: &str, body: impl FnOnce(&AtomicBool) + Send + 'static) {
        let stop = self.stop.clone();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || body(&stop));
        self.threads.push(thread.expect("a thread can be started"));
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn hog(stop: &AtomicBool, core: Option<CoreId>) {
    if let Some(core) = core {
        core_affinity::set_for_current(core);
    }
    while !stop.load(Ordering::Relaxed) {
        spin_loop();
    }
}

/// Sleeps until then; false if it is to end.
fn sleep_until(stop: &AtomicBool, at: Instant) -> bool {
    while !stop.load(Ordering::Relaxed) {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::park_timeout(left);
    }
    false
}

fn spin_until(at: Instant) {
    while Instant::now() < at {
        spin_loop();
    }
}

fn noise(stop: &AtomicBool) {
    let mut next = Instant::now();
    while sleep_until(stop, next) {
        spin_until(Instant::now() + NOISE);
        next = Instant::now().max(next + NOISE_PERIOD);
    }
}

/// Makes this thread one of real-time priority.
fn become_real_time() -> Result<(), String> {
    let priority = REAL_TIME_PRIORITY.try_into().map(ThreadPriority::Crossplatform);
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    priority
        .map_err(|error| error.to_string())
        .and_then(|priority| {
            set_thread_priority_and_policy(thread_native_id(), priority, policy).map_err(|error| error.to_string())
        })
        .map_err(|error| format!("SCHED_FIFO is not allowed (it needs CAP_SYS_NICE): {error}"))
}

/// Whether a thread of this process may have real-time priority, else why not.
pub fn can_be_real_time() -> Result<(), String> {
    thread::spawn(become_real_time).join().unwrap_or_else(|_| Err("the thread that tried it panicked".to_owned()))
}

fn take_turns(stop: &AtomicBool, turns: &Turns, cores: &[CoreId]) {
    for turn in 0.. {
        // It goes there before its turn, so that it begins in time.
        core_affinity::set_for_current(cores[turns.core(turn)]);
        let begin = turns.start + turns.period * turn;
        if !sleep_until(stop, begin) {
            return;
        }
        spin_until(begin + turns.taken);
    }
}

/// The time for which a thread waits for its core while another one of the same priority spins there: the median of two
/// such threads in a tenth of a second on the last core.
pub fn time_slice() -> Duration {
    const LASTS: Duration = Duration::from_millis(100);
    const SHORTEST: Duration = Duration::from_micros(100);
    let both_there = Arc::new(Barrier::new(2));
    let watch = |core: CoreId, both_there: Arc<Barrier>| {
        core_affinity::set_for_current(core);
        both_there.wait();
        let (begun, mut last, mut gaps) = (Instant::now(), Instant::now(), Vec::new());
        while last - begun < LASTS {
            let now = Instant::now();
            if now - last > SHORTEST {
                gaps.push((now - last).as_secs_f64());
            }
            last = now;
        }
        gaps
    };
    let Some(&core) = machine::cores().last() else { return Duration::ZERO };
    let threads = [(); 2].map(|()| {
        let both_there = both_there.clone();
        thread::spawn(move || watch(core, both_there))
    });
    let gaps: Vec<f64> = threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect();
    Duration::from_secs_f64(median(&gaps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_end_when_they_are_dropped() {
        for condition in [Condition::Quiet, Condition::HogPinned, Condition::HogFloats, Condition::Noise] {
            let strangers = Strangers::start(condition, 1).unwrap();
            let stop = Arc::downgrade(&strangers.stop);
            assert_eq!(strangers.threads.len(), usize::from(condition != Condition::Quiet));
            drop(strangers);
            assert_eq!(stop.strong_count(), 0, "{condition:?}: a thread is left");
        }
    }

    #[test]
    fn a_real_time_thread_starts_where_it_may() {
        let strangers = Strangers::start(Condition::RealTime, 1);
        assert_eq!(strangers.is_ok(), can_be_real_time().is_ok());
        if let Ok(strangers) = strangers {
            assert!(matches!(strangers.split(), Split::Turns(_)));
        }
    }

    #[test]
    fn two_that_spin_on_one_core_see_each_others_slices() {
        let slice = time_slice();
        assert!(slice > Duration::from_micros(100) && slice < Duration::from_millis(100), "{slice:?}");
    }
}
