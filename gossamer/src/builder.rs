//! Settings with which a program starts, and their defaults. The start itself is in `start`.

use std::ffi::OsString;
use std::time::Duration;

use crate::error::StartError;

/// Default stack size of a fiber. Only touched pages cost memory.
const STACK_BYTES: usize = 1 << 20;

/// Variables that take precedence over the program's own settings, as `gossamer-launch run --pin` and `--spin` set
/// them.
const PIN: &str = "GOSSAMER_PIN";
const SPIN: &str = "GOSSAMER_SPIN_US";

/// Start of a program with other settings than those of [`main`](crate::main). All machines run the same program, so
/// all have the same settings.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) stack_bytes: usize,
    pub(crate) pin: Option<bool>,
    pub(crate) spin: Option<Duration>,
    /// Whether each machine has a page server's worker (`page_server.rs`).
    pub(crate) has_page_servers: bool,
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
    Builder { stack_bytes: STACK_BYTES, pin: None, spin: None, has_page_servers: false }
}

impl Builder {
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

    /// Returns the settings with those of the environment, which come first.
    ///
    /// # Errors
    /// [`StartError::Variable`].
    pub(crate) fn with_environment(
        &self,
        variable: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Builder, StartError> {
        let text = |name| variable(name).map(|value| value.to_string_lossy().into_owned());
        let wrong = |name, value, wanted| StartError::Variable { name, value, wanted };
        let mut settings = self.clone();
        if let Some(value) = text(PIN) {
            settings.pin = match value.as_str() {
                "on" => Some(true),
                "off" => Some(false),
                _ => return Err(wrong(PIN, value, "`on` or `off`")),
            };
        }
        if let Some(value) = text(SPIN) {
            let spin = value.parse().map(Duration::from_micros);
            settings.spin = Some(spin.map_err(|_| wrong(SPIN, value, "a whole number of microseconds"))?);
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_takes_precedence() {
        let own = builder().pin(true).spin(Duration::from_micros(3));
        let with = |pin: Option<&str>, spin: Option<&str>| {
            let settings = own.with_environment(|name| if name == PIN { pin } else { spin }.map(OsString::from))?;
            Ok::<_, StartError>((settings.pin, settings.spin.map(|spin| spin.as_micros())))
        };
        assert_eq!(with(None, None).unwrap(), (Some(true), Some(3)));
        assert_eq!(with(Some("off"), Some("0")).unwrap(), (Some(false), Some(0)));
        let refused = |pin, spin| with(pin, spin).unwrap_err().to_string();
        assert_eq!(refused(Some("yes"), None), "GOSSAMER_PIN is `yes`: give `on` or `off`, or leave it out");
        for wrong in ["", "-1", "1.5", "2ms"] {
            assert!(refused(None, Some(wrong)).starts_with("GOSSAMER_SPIN_US is `"), "{wrong}");
        }
    }
}
