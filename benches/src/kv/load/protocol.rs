//! Requests and replies of memcached's text protocol, as far as a load needs them: `get` and `set` of one key. Every
//! value tells its key and which write it is of.

use crate::prelude::*;

/// Bytes of a key, in text.
const KEY_BYTES: usize = 8;
/// Bytes of a value: its key, and the number of its write.
pub const VALUE_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A value.
    Read,
    /// To store a value.
    Write,
}

/// One request, made or to be made.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub object: u32,
    pub step: Step,
    /// When the operation began, in nanoseconds since its client did.
    pub began: u64,
    /// Whether the key may not be there yet.
    pub may_miss: bool,
}

/// An operation that is complete.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    pub began: u64,
    /// The key was not there, as it may be.
    pub is_miss: bool,
}

const FOUND: &[u8] = b"VALUE ";
/// Between the key of a `set` or of a found value and the value: no flags, and its length.
const BEFORE_VALUE: &[u8] = b" 0 16\r\n";
const END_OF_VALUE: &[u8] = b"\r\nEND\r\n";
const MISS: &[u8] = b"END\r\n";
const STORED: &[u8] = b"STORED\r\n";

impl Operation {
    /// Appends the request; `version` is the number of a write.
    #[inline]
    pub fn write(&self, version: u32, to: &mut Vec<u8>) {
        let (key, number) = (key_of(self.object), hexadecimal(version));
        // A `set` also says when the item expires: never.
        let parts: &[&[u8]] = match self.step {
            Step::Read => &[b"get ", &key, b"\r\n"],
            Step::Write => &[b"set ", &key, b" 0", BEFORE_VALUE, &key, &number, b"\r\n"],
        };
        parts.iter().for_each(|part| to.extend_from_slice(part));
    }

    /// Reads the reply at the front of `bytes`: how long it is and whether the key was not there; `None` if it has not
    /// come whole.
    #[inline]
    pub fn read(&self, bytes: &[u8]) -> Result<Option<(usize, bool)>> {
        const WHOLE: usize = FOUND.len() + KEY_BYTES + BEFORE_VALUE.len() + VALUE_BYTES + END_OF_VALUE.len();
        if self.step == Step::Write {
            return expect(bytes, STORED).map(|is_whole| is_whole.then_some((STORED.len(), false)));
        }
        if bytes.len() < WHOLE || !bytes.starts_with(FOUND) {
            if bytes.starts_with(FOUND) || FOUND.starts_with(bytes) {
                return Ok(None);
            }
            if self.may_miss {
                return expect(bytes, MISS).map(|is_whole| is_whole.then_some((MISS.len(), true)));
            }
            bail!("the key of object {} is missing or refused: {:?}", self.object, line(bytes));
        }
        let key = key_of(self.object);
        let (head, rest) = bytes[FOUND.len()..WHOLE].split_at(KEY_BYTES);
        let (before, rest) = rest.split_at(BEFORE_VALUE.len());
        let (value, end) = rest.split_at(VALUE_BYTES);
        let is_right = head == key
            && before == BEFORE_VALUE
            && value[..KEY_BYTES] == key
            && value[KEY_BYTES..].iter().all(u8::is_ascii_hexdigit)
            && end == END_OF_VALUE;
        let text = String::from_utf8_lossy(&bytes[..WHOLE]);
        ensure!(is_right, "a value that is not one of this key, or torn: {text:?}");
        Ok(Some((WHOLE, false)))
    }
}

/// Is it all there? An error if it is something else.
fn expect(bytes: &[u8], reply: &[u8]) -> Result<bool> {
    let common = bytes.len().min(reply.len());
    ensure!(bytes[..common] == reply[..common], "a reply that the request cannot have: {:?}", line(bytes));
    Ok(common == reply.len())
}

fn line(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len()).min(200);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The key of an object, in text; neighbours are far apart.
#[inline(always)]
fn key_of(object: u32) -> [u8; KEY_BYTES] {
    hexadecimal((object ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b1))
}

#[inline(always)]
fn hexadecimal(number: u32) -> [u8; 8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|digit| DIGITS[(number >> (28 - 4 * digit)) as usize & 15])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(step: Step, may_miss: bool) -> Operation {
        Operation { object: 7, step, began: 0, may_miss }
    }

    fn found(object: u32) -> Vec<u8> {
        let key = String::from_utf8(key_of(object).to_vec()).unwrap();
        format!("VALUE {key} 0 16\r\n{key}0000002a\r\nEND\r\n").into_bytes()
    }

    #[test]
    fn requests_are_as_the_protocol_has_them() {
        let mut bytes = Vec::new();
        operation(Step::Write, false).write(42, &mut bytes);
        operation(Step::Read, false).write(0, &mut bytes);
        let key = String::from_utf8(key_of(7).to_vec()).unwrap();
        let wanted = format!("set {key} 0 0 16\r\n{key}0000002a\r\nget {key}\r\n");
        assert_eq!(String::from_utf8(bytes).unwrap(), wanted);
    }

    #[test]
    fn replies_are_taken_when_they_are_whole_wherever_they_are_cut() {
        let cases = [
            (operation(Step::Read, true), found(7), false),
            (operation(Step::Write, false), b"STORED\r\n".to_vec(), false),
            (operation(Step::Read, true), b"END\r\n".to_vec(), true),
        ];
        for (operation, reply, is_miss) in cases {
            for cut in 0..reply.len() {
                assert_eq!(operation.read(&reply[..cut]).unwrap(), None, "{operation:?} after {cut} bytes");
            }
            let more = [reply.as_slice(), b"STORED\r\n"].concat();
            assert_eq!(operation.read(&more).unwrap(), Some((reply.len(), is_miss)));
        }
    }

    #[test]
    fn wrong_replies_are_found() {
        let (read, write) = (operation(Step::Read, false), operation(Step::Write, false));
        let mut torn = found(7);
        torn[30] = b'?';
        for (operation, reply) in [
            (read, found(8)),
            (read, torn),
            (read, b"END\r\n".to_vec()),
            (read, b"SERVER_ERROR out of memory\r\n".to_vec()),
            (write, b"NOT_STORED\r\n".to_vec()),
            (write, b"ERROR\r\n".to_vec()),
        ] {
            assert!(operation.read(&reply).is_err(), "{:?}", String::from_utf8_lossy(&reply));
        }
    }
}
