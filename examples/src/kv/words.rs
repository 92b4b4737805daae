//! Words of a line, and numbers as memcached reads them, in lines and values.

use memchr::memchr;

/// Words, separated by spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Words<'a>(pub(super) &'a [u8]);

impl<'a> Words<'a> {
    /// All that is left.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|byte| *byte != b' ')?;
        let rest = &self.0[start..];
        let end = memchr(b' ', rest).unwrap_or(rest.len());
        self.0 = &rest[end..];
        Some(&rest[..end])
    }
}

/// The number that a text begins with, up to its end or a space.
pub fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let len = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(len);
    let ends = rest.first().is_none_or(|byte| byte.is_ascii_whitespace() || *byte == b'\x0b');
    if digits.is_empty() || !ends {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// A number of 32 bits with a sign. A longer one loses its upper bits, as with memcached 1.6.18.
pub fn signed(word: &[u8]) -> Option<i32> {
    let number = match word.strip_prefix(b"-") {
        Some(digits) if digits.first().is_some_and(u8::is_ascii_digit) => -i64::try_from(number(digits)?).ok()?,
        Some(_) => return None,
        None => i64::try_from(number(word)?).ok()?,
    };
    Some(number as i32)
}

/// The same without a sign.
pub fn unsigned(word: &[u8]) -> Option<u32> {
    number(word).map(|number| number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_memcached_reads_them() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b" +12 x"), Some(12));
        for no in [&b""[..], b"x", b"1x", b"-1", b"18446744073709551616", b"++1"] {
            assert_eq!(number(no), None, "{no:?}");
        }
    }
}
