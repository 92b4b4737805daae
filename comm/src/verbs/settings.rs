//! Settings for the use of RDMA; every one has a default that suits most racks.
//!
//! Here: the settings and their ranges. Not here: the choice of a device (`survey`), and docs/rdma.md, which
//! says when to change which.

use super::raw;
use crate::error::Error;

/// Placement of the flag of a write (its last word).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flag {
    /// The flag goes with the rest where the peer's device promises to place bytes in order, otherwise behind it.
    #[default]
    Auto,
    /// The flag goes with the rest, regardless of the device's promise.
    SameWrite,
    /// The flag goes in a separate write, behind the rest on the same queue pair.
    SecondWrite,
}

/// Settings of the verbs fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the device (`mlx5_0`); by default the first usable one.
    pub device: Option<String>,
    /// Port of it, from 1; by default the first that is up.
    pub port: Option<u8>,
    /// Index in the port's table of GIDs; by default the best of it: RoCE v2 before v1, IPv4 before IPv6.
    pub gid_index: Option<u8>,
    /// Bytes of a packet: 256, 512, 1024, 2048 or 4096; by default that of the port. The smaller of both ends counts.
    pub mtu: Option<u16>,
    /// Work requests that a queue pair holds, 8 to 16384.
    pub queue_depth: u32,
    /// One of this many work requests reports its completion, 1 to 1000, at least one in a quarter of the queue.
    pub signal_every: u32,
    /// Bytes a worker may have under way to one machine, 4 KiB to 64 MiB: registered memory, for each pair of
    /// a worker and a machine.
    pub staging_bytes: usize,
    /// Bytes up to which a write travels inside its request, as far as the device supports it.
    pub inline_bytes: u32,
    /// Exponent of the timeout of an acknowledgement: 4.096 µs times 2 to the power of this, 8 to 22.
    pub timeout: u8,
    /// Retransmissions of a lost packet, 1 to 6 (7 would mean for ever, and no death would be noticed).
    pub retries: u8,
    /// DSCP and ECN bits of RoCE packets.
    pub traffic_class: u8,
    /// InfiniBand service level, or RoCE priority, 0 to 15.
    pub service_level: u8,
    /// Placement of flags.
    pub flag: Flag,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            device: None,
            port: None,
            gid_index: None,
            mtu: None,
            queue_depth: 256,
            signal_every: 64,
            staging_bytes: 128 << 10,
            inline_bytes: 220,
            timeout: 14,
            retries: 6,
            traffic_class: 0,
            service_level: 0,
            flag: Flag::Auto,
        }
    }
}

impl Settings {
    /// Checks that every value is in its range.
    ///
    /// # Errors
    /// [`Error::Verbs`] names the value and its range.
    pub fn check(&self) -> Result<(), Error> {
        let range = |name: &str, value: usize, low: usize, high: usize| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(Error::verbs(format!("{name} is {value}: it may be {low} to {high}")))
            }
        };
        range("queue_depth", self.queue_depth as usize, 8, 16384)?;
        range("signal_every", self.signal_every as usize, 1, 1000)?;
        range("staging_bytes", self.staging_bytes, 4 << 10, 64 << 20)?;
        range("inline_bytes", self.inline_bytes as usize, 0, 1024)?;
        range("timeout", usize::from(self.timeout), 8, 22)?;
        range("retries", usize::from(self.retries), 1, 6)?;
        range("service_level", usize::from(self.service_level), 0, 15)?;
        if let Some(port) = self.port {
            range("port", usize::from(port), 1, 254)?;
        }
        self.mtu.map_or(Ok(0), mtu_number).map(drop)
    }
}

/// Returns the number of `enum ibv_mtu` for a length in bytes.
pub(super) fn mtu_number(bytes: u16) -> Result<u32, Error> {
    match bytes {
        256 => Ok(raw::MTU_256),
        512 => Ok(raw::MTU_512),
        1024 => Ok(raw::MTU_1024),
        2048 => Ok(raw::MTU_2048),
        4096 => Ok(raw::MTU_4096),
        other => Err(Error::verbs(format!("mtu is {other}: it may be 256, 512, 1024, 2048 or 4096"))),
    }
}

/// Returns the bytes for a number of `enum ibv_mtu`.
pub(super) fn mtu_bytes(number: u32) -> u32 {
    128 << number.min(raw::MTU_4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_in_range() {
        Settings::default().check().unwrap();
    }

    #[test]
    fn a_wrong_value_is_named_with_its_range() {
        for (said, change) in [
            ("queue_depth is 7: it may be 8 to 16384", (|s| s.queue_depth = 7) as fn(&mut Settings)),
            ("signal_every is 0: it may be 1 to 1000", |s| s.signal_every = 0),
            ("staging_bytes is 100: it may be 4096 to 67108864", |s| s.staging_bytes = 100),
            ("retries is 7: it may be 1 to 6", |s| s.retries = 7),
            ("timeout is 31: it may be 8 to 22", |s| s.timeout = 31),
            ("port is 0: it may be 1 to 254", |s| s.port = Some(0)),
            ("mtu is 1500: it may be 256, 512, 1024, 2048 or 4096", |s| s.mtu = Some(1500)),
            ("service_level is 16: it may be 0 to 15", |s| s.service_level = 16),
        ] {
            let refusal = refusal(change);
            assert!(refusal.ends_with(said), "{refusal}");
        }
    }

    #[test]
    fn mtu_numbers_double() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            assert_eq!(mtu_bytes(mtu_number(bytes).unwrap()), u32::from(bytes));
        }
    }
}
