//! Settings with which a program starts, and their defaults. The start itself is in `start`.

use std::time::Duration;

use gossamer_ways::ways::Limits;

use crate::rendezvous::RendezvousError;
use crate::rendezvous::variables::{Get, number, text};

/// Default stack size of a fiber. Only touched pages cost memory.
const STACK_BYTES: usize = 1 << 20;

/// Variables that take precedence over the program's own settings, as `gossamer-launch run --pin`, `--spin`,
/// `--survives` and `--machine-ways` set them.
const PIN: &str = "GOSSAMER_PIN";
const SPIN: &str = "GOSSAMER_SPIN_US";
const SURVIVES: &str = "GOSSAMER_SURVIVES";
const MACHINE_WAYS: &str = "GOSSAMER_MACHINE_WAYS";
/// The same, without an option of the launcher.
const DIRECT_WAYS: &str = "GOSSAMER_DIRECT_WAYS";

/// Start of a program with other settings than those of [`main`](crate::main). All machines run the same program, so
/// all have the same settings.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) stack_bytes: usize,
    pub(crate) pin: Option<bool>,
    pub(crate) spin: Option<Duration>,
    /// Whether each machine has a page server's worker (`page_server.rs`).
    pub(crate) has_page_servers: bool,
    /// Number of machines that may be lost.
    pub(crate) survives: u16,
    /// Whether machines have ways in place of the rings of pairs of workers; by the rule if it is not set.
    pub(crate) machine_ways: Option<bool>,
    /// Most direct ways of a worker, beside machine ways.
    pub(crate) direct_ways: u16,
}

/// Returns a start with the default settings; [`Builder::main`] starts the program.
///
/// ```
/// fn gsm_main() {
///     let deep = gossamer::spawn(|| {
///         let large = std::hint::black_box([1u8; 2 << 20]);
///         large.iter().map(|one| u64::from(*one)).sum::<u64>()
///     });
///     assert_eq!(deep.join().unwrap(), 2 << 20);
/// }
///
/// gossamer::builder().stack_bytes(8 << 20).main(gsm_main, 2);
/// ```
pub fn builder() -> Builder {
    Builder {
        stack_bytes: STACK_BYTES,
        pin: None,
        spin: None,
        has_page_servers: false,
        survives: 0,
        machine_ways: None,
        direct_ways: Limits::DEFAULT.rings as u16,
    }
}

impl Builder {
    /// Lets the program go on without up to so many machines, one by one or at once; none unless set, and then each
    /// loss ends all. The loss of one more ends the program, and so do those of machine 0 and of the launcher, and
    /// every loss before `gsm_main` begins. `gossamer-launch run --survives` takes precedence.
    ///
    /// Requests to a lost machine fail: with [`Error::Gone`](crate::Error::Gone) if they have not run, with
    /// [`Error::Lost`](crate::Error::Lost) if they may have. docs/surviving.md has the outcome of each call.
    ///
    /// Under `gossamer-launch run`, over `shm` and `tcp`. Arrays with a part on a lost machine are poisoned, and new
    /// ones are made on the machines that are left; objects of the heap there are lost; regions are refused.
    ///
    /// ```
    /// fn gsm_main() {
    ///     let votes: Vec<_> = gossamer::rack().places().map(|place| gossamer::entrust_on(place, 0u64)).collect();
    ///     for votes in &votes {
    ///         match votes.call().apply(|votes| *votes += 1).wait() {
    ///             Ok(()) => {}
    ///             Err(gossamer::Error::Gone { .. }) => println!("has not run"),
    ///             Err(gossamer::Error::Lost { machine }) => println!("may have run: machine {machine} was lost"),
    ///             Err(other) => panic!("{other}"),
    ///         }
    ///     }
    /// }
    ///
    /// gossamer::builder().survives(1).main(gsm_main, 2);
    /// ```
    pub fn survives(mut self, machines: u16) -> Self {
        self.survives = machines;
        self
    }

    /// Sets the bytes of each fiber's stack, `gsm_main`'s included, rounded up to pages; 1 MiB unless set. Only touched
    /// pages cost memory. A fiber that overflows its stack ends the process with a message that names it.
    ///
    /// Example: at [`builder`].
    pub fn stack_bytes(mut self, stack_bytes: usize) -> Self {
        self.stack_bytes = stack_bytes;
        self
    }

    /// Sets whether each worker is pinned to a core of its own, where there is a core for each. On unless set; off
    /// unless set under a CPU quota. `gossamer-launch run --pin` takes precedence.
    ///
    /// ```
    /// gossamer::builder().pin(false).main(|| assert_eq!(gossamer::entrust(4).apply(|n| *n), 4), 2);
    /// ```
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = Some(pin);
        self
    }

    /// Sets the longest time that an idle worker polls before it sleeps; 500 us unless set, zero unless set under a CPU
    /// quota, and always zero if there are more workers than cores. `gossamer-launch run --spin` takes precedence. See
    /// [`trust::Builder::spin`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// let sleeps_at_once = gossamer::builder().spin(Duration::ZERO);
    /// sleeps_at_once.main(|| assert_eq!(gossamer::entrust(4).apply(|n| *n), 4), 2);
    /// ```
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = Some(spin);
        self
    }

    /// Sets whether all workers of two machines share one *machine way*, or each pair of workers has rings of its own.
    /// Unless set, machines have ways where there are more than four of them and a pair would have one slot of 8 KiB:
    /// docs/scaling.md has the costs of both. `gossamer-launch run --machine-ways` takes precedence.
    ///
    /// ```
    /// gossamer::builder().machine_ways(true).main(|| assert_eq!(gossamer::entrust(4).apply(|n| *n), 4), 2);
    /// ```
    pub fn machine_ways(mut self, machine_ways: bool) -> Self {
        self.machine_ways = Some(machine_ways);
        self
    }

    /// Sets how many *direct ways* a worker has at most, where machines have ways: rings of its own with those workers
    /// of other machines with which it exchanges much. 64 unless set, in a rack of large machines less; 0 for none.
    /// They are made when needed, and cost no memory before; docs/scaling.md.
    ///
    /// ```
    /// let shared_alone = gossamer::builder().machine_ways(true).direct_ways(0);
    /// shared_alone.main(|| assert_eq!(gossamer::rack_stats().direct_ways, 0), 2);
    /// ```
    pub fn direct_ways(mut self, direct_ways: u16) -> Self {
        self.direct_ways = direct_ways;
        self
    }

    /// Returns the settings with those of the environment, which come first.
    ///
    /// # Errors
    /// [`RendezvousError::Variable`].
    pub(crate) fn with_environment(&self, get: Get<'_>) -> Result<Builder, RendezvousError> {
        let (pin, machine_ways) = (on_or_off(get, PIN)?, on_or_off(get, MACHINE_WAYS)?);
        let spin = number(get, SPIN, "a whole number of microseconds")?.map(Duration::from_micros);
        let survives = number(get, SURVIVES, "a number of machines")?.unwrap_or(self.survives);
        let direct_ways = number(get, DIRECT_WAYS, "a number of direct ways")?.unwrap_or(self.direct_ways);
        let (pin, machine_ways) = (pin.or(self.pin), machine_ways.or(self.machine_ways));
        Ok(Builder { pin, spin: spin.or(self.spin), survives, machine_ways, direct_ways, ..self.clone() })
    }
}

fn on_or_off(get: Get<'_>, name: &'static str) -> Result<Option<bool>, RendezvousError> {
    match text(get, name) {
        None => Ok(None),
        Some(value) if value == "on" => Ok(Some(true)),
        Some(value) if value == "off" => Ok(Some(false)),
        Some(value) => Err(RendezvousError::Variable { name, value, expected: "`on` or `off`" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn the_environment_takes_precedence() {
        let own = builder().pin(true).spin(Duration::from_micros(3));
        let with = |pin: Option<&str>, spin: Option<&str>| {
            let settings = own.with_environment(&|name| {
                let value = [(PIN, pin), (SPIN, spin)].into_iter().find(|(known, _)| *known == name);
                value?.1.map(OsString::from)
            })?;
            Ok::<_, RendezvousError>((settings.pin, settings.spin.map(|spin| spin.as_micros())))
        };
        assert_eq!(with(None, Some("")).unwrap(), (Some(true), Some(3)));
        assert_eq!(with(Some("off"), Some("0")).unwrap(), (Some(false), Some(0)));
        let refused = |pin, spin| with(pin, spin).unwrap_err().to_string();
        assert!(refused(Some("yes"), None).contains("GOSSAMER_PIN has the value \"yes\", but should be `on` or `off`"));
        let survives = |value: &str| {
            let settings = own.clone().survives(2);
            let settings = settings.with_environment(&|name| (name == SURVIVES).then(|| OsString::from(value)))?;
            Ok::<_, RendezvousError>(settings.survives)
        };
        assert_eq!((survives("").unwrap(), survives("0").unwrap(), survives("3").unwrap()), (2, 0, 3));
        assert!(survives("65536").unwrap_err().to_string().contains("GOSSAMER_SURVIVES has the value"));
        let machine_ways = |value: &str| {
            let settings = own.clone().machine_ways(true);
            let get = |name: &str| (name == MACHINE_WAYS).then(|| OsString::from(value));
            Ok::<_, RendezvousError>(settings.with_environment(&get)?.machine_ways)
        };
        assert_eq!((machine_ways("").unwrap(), machine_ways("off").unwrap()), (Some(true), Some(false)));
        let direct_ways = |value: &str| {
            let get = |name: &str| (name == DIRECT_WAYS).then(|| OsString::from(value));
            Ok::<_, RendezvousError>(own.clone().direct_ways(3).with_environment(&get)?.direct_ways)
        };
        assert_eq!((direct_ways("").unwrap(), direct_ways("0").unwrap()), (3, 0));
        assert!(direct_ways("many").unwrap_err().to_string().contains("GOSSAMER_DIRECT_WAYS has the value"));
        assert!(machine_ways("1").unwrap_err().to_string().contains("GOSSAMER_MACHINE_WAYS has the value"));
        for wrong in ["-1", "1.5", "2ms"] {
            assert!(refused(None, Some(wrong)).contains("GOSSAMER_SPIN_US has the value"), "{wrong}");
        }
    }
}
