//! Open loop: operations are due at a pace, whether or not earlier ones are answered, and their latency counts from
//! then.

use super::{Client, Connection, TIME_LIMIT};
use crate::latency::pace::Schedule;
use crate::prelude::*;
use mio::{Events, Token};
use std::io::ErrorKind;
use std::ops::Range;

/// How long a client sleeps at most between looking for replies: its sockets' poller counts in milliseconds, which is
/// too coarse.
const NAP: Duration = Duration::from_micros(50);

impl Client {
    /// Makes operations at the pace until the end of `counted`, in nanoseconds since now, and sees them through. Those
    /// that are due within it count.
    pub(super) fn run_paced(&mut self, hz: f64, seed: u64, counted: Range<u64>) -> Result<()> {
        let mut schedule = Schedule::new(hz, seed);
        let mut events = Events::with_capacity(256);
        self.start = self.clock.raw();
        let (mut due, mut next, mut last_reply) = (schedule.next_ns(), 0, 0);
        while due < counted.end || self.connections.iter().any(Connection::is_outstanding) {
            let now = self.now_ns();
            while due <= now && due < counted.end {
                let Some(operation) = self.source.next(due) else { break };
                self.connections[next].ask(operation);
                next = (next + 1) % self.connections.len();
                due = schedule.next_ns();
            }
            for connection in &mut self.connections {
                connection.send()?;
            }
            match self.poll.poll(&mut events, Some(Duration::ZERO)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other.context("looking for replies")?,
            }
            for event in &events {
                let Token(index) = event.token();
                if self.take(index, event.is_read_closed(), |began| counted.contains(&began))? > 0 {
                    last_reply = now;
                }
            }
            ensure!(now - last_reply < TIME_LIMIT.as_nanos() as u64, "the server has not answered for {TIME_LIMIT:?}");
            if events.is_empty() {
                let until_due = Duration::from_nanos(due.saturating_sub(self.now_ns()));
                thread::sleep(NAP.min(until_due));
            }
        }
        Ok(())
    }
}
