//! Questions to a machine of a watched program.

use std::time::Duration;

/// Question to a machine. The contents of the answer's bytes are in `view`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Counters of the machine. The viewer keeps asking for the next seconds.
    Sample,
    /// The waits of all fibers ([`trust::dump`]).
    Dump,
    /// A trace of all workers for so long, at most [`Look::TRACE_MAX`].
    Trace(Duration),
}

const SAMPLE: u8 = 0;
const DUMP: u8 = 1;
const TRACE: u8 = 2;

impl Look {
    /// Longest trace.
    pub const TRACE_MAX: Duration = Duration::from_secs(600);

    /// Encodes the question.
    ///
    /// ```
    /// use gossamer::control::Look;
    /// let look = Look::Trace(std::time::Duration::from_millis(1500));
    /// assert_eq!(Look::from_bytes(&look.to_bytes()), Some(look));
    /// assert_eq!(Look::from_bytes(b"anything"), None);
    /// ```
    #[must_use]
    pub fn to_bytes(self) -> [u8; 5] {
        let (kind, ms) = match self {
            Look::Sample => (SAMPLE, 0),
            Look::Dump => (DUMP, 0),
            Look::Trace(time) => (TRACE, u32::try_from(time.min(Look::TRACE_MAX).as_millis()).unwrap_or(u32::MAX)),
        };
        let [a, b, c, d] = ms.to_le_bytes();
        [kind, a, b, c, d]
    }

    /// Decodes a question.
    ///
    /// Example: at [`Look::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Look> {
        let [kind, ms @ ..] = <[u8; 5]>::try_from(bytes).ok()?;
        let time = Duration::from_millis(u32::from_le_bytes(ms).into());
        match kind {
            SAMPLE => Some(Look::Sample),
            DUMP => Some(Look::Dump),
            TRACE if time <= Look::TRACE_MAX => Some(Look::Trace(time)),
            _ => None,
        }
    }
}
