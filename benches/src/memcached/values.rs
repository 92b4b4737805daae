//! The values that the clients of a soak store: of all sizes, with every byte given by the key and the number of the
//! write, so that one that is of another key, torn or cut is found.

use crate::prelude::*;

/// Bytes in front: object and number of the write, in hexadecimal.
const HEAD_BYTES: usize = 16;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(object: u32, version: u32) -> u64 {
    let mixed = (u64::from(object) << 32 | u64::from(version)).wrapping_add(1).wrapping_mul(ODD);
    (mixed ^ (mixed >> 31)).wrapping_mul(ODD) ^ (mixed >> 17)
}

/// How long the value of a write is: mostly short, sometimes so long that memcached keeps it in several chunks.
pub fn length_of(object: u32, version: u32) -> usize {
    let draw = mixed(object, version);
    let longest = match draw % 10_000 {
        0..3 => 900_000,
        3..100 => 50_000,
        100..1000 => 5_000,
        _ => 400,
    };
    HEAD_BYTES + (draw >> 32) as usize % longest
}

/// The flags that go with it.
pub fn flags_of(version: u32) -> u32 {
    version & 0xffff
}

/// Appends the value of a write.
pub fn write(object: u32, version: u32, to: &mut Vec<u8>) {
    let end = to.len() + length_of(object, version);
    to.extend_from_slice(format!("{object:08x}{version:08x}").as_bytes());
    let mut block = mixed(object, version);
    while to.len() < end {
        let room = (end - to.len()).min(8);
        to.extend_from_slice(&block.to_ne_bytes()[..room]);
        block = block.wrapping_add(ODD);
    }
}

/// Which write of this object the value is of.
pub fn version_of(object: u32, flags: u32, value: &[u8], scratch: &mut Vec<u8>) -> Result<u32> {
    let head = value.get(..HEAD_BYTES).and_then(|head| std::str::from_utf8(head).ok());
    let version = head.and_then(|head| u32::from_str_radix(head.get(8..)?, 16).ok());
    let version = version.with_context(|| format!("a value of object {object} that has no head"))?;
    scratch.clear();
    write(object, version, scratch);
    ensure!(
        value == scratch && flags == flags_of(version),
        "object {object}, version {version}: another value, or torn: {} bytes, flags {flags}, begins {:?}",
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
        let (mut value, mut scratch) = (Vec::new(), Vec::new());
        for version in 1..2000 {
            value.clear();
            write(7, version, &mut value);
            assert_eq!(value.len(), length_of(7, version));
            let flags = flags_of(version);
            assert_eq!(version_of(7, flags, &value, &mut scratch).unwrap(), version);
            assert!(version_of(8, flags, &value, &mut scratch).is_err());
            assert!(version_of(7, flags + 1, &value, &mut scratch).is_err());
            assert!(version_of(7, flags, &value[..value.len() - 1], &mut scratch).is_err());
            let at = version as usize % value.len();
            value[at] ^= 1;
            assert!(version_of(7, flags, &value, &mut scratch).is_err());
        }
    }

    #[test]
    fn lengths_reach_from_short_to_chunked() {
        let lengths: Vec<_> = (0..100_000).map(|version| length_of(3, version)).collect();
        assert!(lengths.iter().filter(|length| **length < 416).count() > 85_000);
        assert!(lengths.iter().any(|length| *length > 600_000));
    }
}
