//! Range of TCP ports for the machines of programs, as written in `rack.yaml` and `GOSSAMER_PORTS`: `7200-7299`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::number_or_text::number_or_text;

/// TCP ports from a first to a last one, both included. A firewall lets them through; machines listen at no others.
///
/// ```
/// use gossamer::bootstrap::PortRange;
/// let ports: PortRange = "7200-7299".parse().unwrap();
/// assert_eq!((ports.first(), ports.last(), ports.to_string().as_str()), (7200, 7299, "7200-7299"));
/// assert!("7299-7200".parse::<PortRange>().unwrap_err().contains("write the first and the last port"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Returns the first port. Example: at the [type](Self).
    #[must_use]
    pub fn first(self) -> u16 {
        self.first
    }

    /// Returns the last port. Example: at the [type](Self).
    #[must_use]
    pub fn last(self) -> u16 {
        self.last
    }

    /// Returns whether the port is in the range.
    ///
    /// ```
    /// let ports: gossamer::bootstrap::PortRange = "7200-7299".parse().unwrap();
    /// assert!(ports.contains(7299) && !ports.contains(7117));
    /// ```
    #[must_use]
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Calls `bind` with each port in turn until one is not taken; without a range once, with port 0 (any free port).
    ///
    /// # Errors
    /// The first error that `is_taken` does not accept, or, where all ports are taken, that of the last.
    ///
    /// ```
    /// use gossamer::bootstrap::PortRange;
    /// let bind = |port: u16| if port < 7202 { Err("taken") } else { Ok(port) };
    /// let walk = |ports: Option<PortRange>| PortRange::bind(ports, bind, |error| *error == "taken");
    /// assert_eq!(walk("7200-7205".parse().ok()), Ok(7202));
    /// assert_eq!(walk("7200-7201".parse().ok()), Err("taken"));
    /// assert_eq!(PortRange::bind(None, |port| Ok::<u16, ()>(port), |_| true), Ok(0));
    /// ```
    pub fn bind<T, E>(
        ports: Option<PortRange>,
        mut bind: impl FnMut(u16) -> Result<T, E>,
        is_taken: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let PortRange { first, last } = ports.unwrap_or(PortRange { first: 0, last: 0 });
        let mut outcome = bind(first);
        for port in first.saturating_add(1)..=last {
            match &outcome {
                Err(error) if is_taken(error) => outcome = bind(port),
                _ => break,
            }
        }
        outcome
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port != 0);
        let range = port(first).zip(port(last)).filter(|(first, last)| first <= last);
        let wrong = || format!("{text:?} is no range of ports: write the first and the last port, as in 7200-7299");
        range.map(|(first, last)| PortRange { first, last }).ok_or_else(wrong)
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or_text(deserializer, "ports", "a range of ports, such as 7200-7299")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_people_write_them() {
        let range = |text: &str| text.parse::<PortRange>().ok().map(|ports| (ports.first, ports.last));
        for (text, is) in [("7200-7299", (7200, 7299)), (" 1 - 65535 ", (1, 65535)), ("7200", (7200, 7200))] {
            assert_eq!(range(text), Some(is), "{text:?}");
        }
        for text in ["", "-", "7200-", "-7299", "0-9", "7299-7200", "7200-70000", "7200:7299", "7200-7210-7220", "a-b"]
        {
            let told = text.parse::<PortRange>().unwrap_err();
            assert!(told.contains(&format!("{text:?} is no range of ports")) && told.contains("7200-7299"), "{told}");
        }
    }

    #[test]
    fn the_range_travels_as_text() {
        let ports: PortRange = "7200-7299".parse().unwrap();
        let json = serde_json::to_string(&ports).unwrap();
        assert_eq!(json, "\"7200-7299\"");
        assert_eq!(serde_json::from_str::<PortRange>(&json).unwrap(), ports);
        assert_eq!(serde_json::from_str::<PortRange>("7200").unwrap().last, 7200);
    }

    #[test]
    fn each_port_of_the_range_is_tried_once_up_to_the_last_that_there_is() {
        let ports: PortRange = "65533-65535".parse().unwrap();
        let mut tried = Vec::new();
        let all_taken = PortRange::bind(
            Some(ports),
            |port| {
                tried.push(port);
                Err::<(), u16>(port)
            },
            |_| true,
        );
        assert_eq!((all_taken, tried), (Err(65535), vec![65533, 65534, 65535]));
        let refused = PortRange::bind(Some(ports), Err::<(), u16>, |_| false);
        assert_eq!(refused, Err(65533), "another port is no cure for another error");
    }
}
