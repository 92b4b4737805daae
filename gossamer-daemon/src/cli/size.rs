//! Sizes and times as people read them.

/// `1.5 GiB`, `12 KiB`, `7 B`.
pub(super) fn bytes(count: u64) -> String {
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

/// `3 s`, `12 min`, `5 h`, `2 d`.
pub(super) fn seconds(count: u64) -> String {
    match count {
        0..120 => format!("{count} s"),
        120..7200 => format!("{} min", count / 60),
        7200..172_800 => format!("{} h", count / 3600),
        _ => format!("{} d", count / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
