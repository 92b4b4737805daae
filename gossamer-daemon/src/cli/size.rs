//! Sizes and times in readable form.

use std::time::Duration;

/// Writes a size: `1.5 GiB`, `12 KiB`, `7 B`.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, "B");
    for larger in units {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" || value >= 10.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// Says that the kernel has killed processes of a program for want of memory: it has had its limit in bytes, or else
/// its host had none left.
pub(crate) fn out_of_memory(limit: Option<u64>) -> String {
    match limit {
        Some(limit) => {
            let limit = bytes(limit);
            format!("out of memory: the program may take {limit} there (`--memory`, or `memory` in rack.yaml)")
        }
        None => "out of memory: the host had none left".to_owned(),
    }
}

/// Writes a time: `3 s`, `12 min`, `5 h`, `2 d`.
pub(super) fn seconds(count: u64) -> String {
    match count {
        0..120 => format!("{count} s"),
        120..7200 => format!("{} min", count / 60),
        7200..172_800 => format!("{} h", count / 3600),
        _ => format!("{} d", count / 86_400),
    }
}

/// Far longer than any program runs, and still a valid time for every clock.
const LONGEST: Duration = Duration::from_secs(3650 * 86_400);

/// Reads a time: `90s`, `10m`, `1h30m`, `2d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: a number and s, m, h or d, as in 90s, 10m, 1h30m, at most 3650d");
    let mut sum = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = rest.split_at(digits);
        let mut after = unit.chars();
        let seconds = match after.next() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86_400,
            _ => return Err(wrong()),
        };
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds)).ok_or_else(wrong)?;
        sum = sum.checked_add(Duration::from_secs(part)).ok_or_else(wrong)?;
        rest = after.as_str();
    }
    if sum.is_zero() || sum > LONGEST { Err(wrong()) } else { Ok(sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("0h1s", 1)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in
            ["", "10", "0s", "m", "-1s", "1.5h", "10 m", "1h30", "3651d", "99999999999999999999s", "9999999999999999d"]
        {
            assert!(parse_duration(text).unwrap_err().contains("1h30m"), "{text}");
        }
    }

    #[test]
    fn sizes_and_times_are_short() {
        for (count, text) in [(7, "7 B"), (1536, "1.5 KiB"), (12 << 10, "12 KiB"), (3 << 40, "3.0 TiB")] {
            assert_eq!(bytes(count), text);
        }
        for (count, text) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")] {
            assert_eq!(seconds(count), text);
        }
    }
}
