//! Programs that are sent over slow links: any arrival of bytes counts as life, however long the whole takes.

use std::time::{Duration, Instant};

use crate::rack::Rack;

/// Length of the program: more than the system buffers of it for a slow link.
const BYTES: usize = 600_000;
/// `timeouts.silence_ms`, at its default on these racks.
const SILENCE: Duration = Duration::from_secs(3);
/// The same where the program gets there. The link loses packets, and on a busy host the pauses after which TCP sends
/// them again may add up to the default.
const LONG_SILENCE: Duration = Duration::from_secs(10);

/// Slower than 256 KiB in 5 s, which once had to arrive in one go.
#[test]
fn a_program_gets_over_a_slow_link() {
    for (bits, bytes) in [(300_000, BYTES), (400_000, 900_000)] {
        let rack = Rack::start_with(2, &format!("timeouts: {{ silence_ms: {} }}\n", LONG_SILENCE.as_millis()));
        rack.network.slow_down(1, bits);
        let start = Instant::now();
        let ended = rack.run_script(5, bytes).end();
        println!("{bits} bit/s: {} bytes in {:?}", bytes, start.elapsed());
        assert_eq!(ended.status.code(), Some(5), "{ended:#?}");
        assert!(ended.stderr.contains("exited with status 5"), "{ended:#?}");
        assert!(start.elapsed() > LONG_SILENCE, "the link was not slow");
        rack.assert_nothing_is_left();
    }
}

/// A link that accepts nothing any more, from the start or later: reported in time, with the cause.
#[test]
fn timed_a_program_that_gets_stuck_on_its_way_is_told() {
    for stuck_after in [Duration::ZERO, Duration::from_secs(4)] {
        let rack = Rack::start_with(2, "timeouts: { start_ms: 3000 }\n");
        rack.network.slow_down(1, 300_000);
        let launcher = rack.run_script(5, 4 * BYTES);
        rack.wait_for_arrivals(1);
        std::thread::sleep(stuck_after); // the time of the blow, nothing is waited for
        rack.network.cut(1);
        let start = Instant::now();
        let ended = launcher.end();
        println!("stuck: told after {:?}: {}", start.elapsed(), ended.stderr);
        assert_eq!(ended.status.code(), Some(70), "{ended:#?}");
        // Cut at once, the host's answer that it lacks the program may be under way yet.
        let sent = "of 2400000 bytes ";
        let words = ["host h1: the program cannot be sent: ", " for 3s: it hangs, or the link to it is cut", sent];
        let needed = if stuck_after.is_zero() { &words[..2] } else { &words[..] };
        assert!(needed.iter().all(|word| ended.stderr.contains(word)), "{ended:#?}");
        assert!(start.elapsed() < limits::bound(5 * SILENCE), "{:?}", start.elapsed());
        rack.network.restore(1);
        rack.assert_nothing_is_left();
    }
}
