//! The values that the clients of a soak store: of all sizes, with every byte given by the key and the number of the
//! write, so that one that is of another key, torn or cut is found.

use crate::prelude::*;

/// Bytes in front: object and number of the write, in hexadecimal.
const HEAD_BYTES: usize = 16;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The value of a write: mostly short, sometimes so long that memcached keeps it in several chunks.
pub fn value_of(object: u32, version: u32) -> Vec<u8> {
    let mixed = (u64::from(object) << 32 | u64::from(version)).wrapping_add(1).wrapping_mul(ODD);
    let mut block = (mixed ^ (mixed >> 31)).wrapping_mul(ODD) ^ (mixed >> 17);
    let longest = match block % 10_000 {
        0..3 => 900_000,
        3..100 => 50_000,
        100..1000 => 5_000,
        _ => 400,
    };
    let end = HEAD_BYTES + (block >> 32) as usize % longest;
    let mut value = format!("{object:08x}{version:08x}").into_bytes();
    while value.len() < end {
        value.extend(block.to_ne_bytes());
        block = block.wrapping_add(ODD);
    }
    value.truncate(end);
    value
}

/// Which write of this object the value is of.
pub fn version_of(object: u32, value: &[u8]) -> Result<u32> {
    let head = value.get(..HEAD_BYTES).and_then(|head| std::str::from_utf8(head).ok());
    let version = head.and_then(|head| u32::from_str_radix(head.get(8..)?, 16).ok());
    let version = version.with_context(|| format!("a value of object {object} that has no head"))?;
    ensure!(
        value == value_of(object, version),
        "object {object}, version {version}: another value, or torn: {} bytes, begins {:?}",
        value.len(),
        String::from_utf8_lossy(&value[..HEAD_BYTES])
    );
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_known_by_every_byte() {
        for version in 1..2000 {
            let mut value = value_of(7, version);
            assert_eq!(version_of(7, &value).unwrap(), version);
            assert!(version_of(8, &value).is_err());
            assert!(version_of(7, &value[..value.len() - 1]).is_err());
            let at = version as usize % value.len();
            value[at] ^= 1;
            assert!(version_of(7, &value).is_err());
        }
    }

    #[test]
    fn lengths_reach_from_short_to_chunked() {
        let lengths: Vec<_> = (0..20_000).map(|version| value_of(3, version).len()).collect();
        assert!(lengths.iter().filter(|length| **length < 416).count() > 17_000);
        assert!(lengths.iter().any(|length| *length > 100_000));
    }
}
