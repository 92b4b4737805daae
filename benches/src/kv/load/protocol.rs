//! Requests and replies of memcached's text protocol, as far as a load needs them: `get` and `set` of one key. Every
//! value tells its key and which write it is of.

use crate::prelude::*;

/// Bytes of a key, in text.
pub const KEY_BYTES: usize = 8;
/// Bytes of the shortest value: its key, and the number of its write.
pub const VALUE_BYTES_MIN: usize = 16;
const VALUE_BYTES_MAX: usize = (1 << 20) - 512;
const FILLER: u8 = b'.';

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

/// The parts of requests and replies that are always the same, for one length of values.
#[derive(Clone, Debug)]
pub struct Format {
    value_bytes: usize,
    /// Between the key of a `set` or of a found value and the value.
    before_value: Vec<u8>,
    /// Behind the 16 bytes that identify a value.
    filler: Vec<u8>,
}

const FOUND: &[u8] = b"VALUE ";
const END_OF_VALUE: &[u8] = b"\r\nEND\r\n";
const MISS: &[u8] = b"END\r\n";
const STORED: &[u8] = b"STORED\r\n";

impl Format {
    /// Of values of so many bytes.
    pub fn of(value_bytes: usize) -> Result<Self> {
        ensure!(
            (VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value_bytes),
            "--value-bytes {value_bytes}: {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} are possible"
        );
        Ok(Self {
            value_bytes,
            before_value: format!(" 0 {value_bytes}\r\n").into_bytes(),
            filler: vec![FILLER; value_bytes - VALUE_BYTES_MIN],
        })
    }

    /// Appends a request.
    #[inline]
    pub fn write(&self, operation: &Operation, version: u32, to: &mut Vec<u8>) {
        let key = key_of(operation.object);
        match operation.step {
            Step::Read => {
                to.extend_from_slice(b"get ");
                to.extend_from_slice(&key);
            }
            Step::Write => {
                to.extend_from_slice(b"set ");
                to.extend_from_slice(&key);
                // A `set` also says when the item expires: never.
                to.extend_from_slice(b" 0");
                to.extend_from_slice(&self.before_value);
                to.extend_from_slice(&key);
                to.extend_from_slice(&hexadecimal(version));
                to.extend_from_slice(&self.filler);
            }
        }
        to.extend_from_slice(b"\r\n");
    }

    /// Reads the reply at the front of `bytes`: how long it is and whether the key was not there; `None` if it has not
    /// come whole.
    #[inline]
    pub fn read(&self, operation: &Operation, bytes: &[u8]) -> Result<Option<(usize, bool)>> {
        if operation.step == Step::Write {
            return expect(bytes, STORED).map(|is_whole| is_whole.then_some((STORED.len(), false)));
        }
        let whole = FOUND.len() + KEY_BYTES + self.before_value.len() + self.value_bytes + END_OF_VALUE.len();
        if bytes.len() < whole || !bytes.starts_with(FOUND) {
            if bytes.starts_with(FOUND) || FOUND.starts_with(bytes) {
                return Ok(None);
            }
            if operation.may_miss {
                return expect(bytes, MISS).map(|is_whole| is_whole.then_some((MISS.len(), true)));
            }
            bail!("the key of object {} is missing or refused: {:?}", operation.object, line(bytes));
        }
        let key = key_of(operation.object);
        let (head, rest) = bytes[FOUND.len()..whole].split_at(KEY_BYTES);
        let (before, rest) = rest.split_at(self.before_value.len());
        let (value, end) = rest.split_at(self.value_bytes);
        let is_right = head == key
            && before == self.before_value
            && value[..KEY_BYTES] == key
            && value[KEY_BYTES..VALUE_BYTES_MIN].iter().all(u8::is_ascii_hexdigit)
            && value[VALUE_BYTES_MIN..] == self.filler
            && end == END_OF_VALUE;
        ensure!(
            is_right,
            "a value that is not one of this key, or torn: {:?}",
            String::from_utf8_lossy(&bytes[..whole])
        );
        Ok(Some((whole, false)))
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

    fn found(format: &Format, object: u32) -> Vec<u8> {
        let key = String::from_utf8(key_of(object).to_vec()).unwrap();
        let filler = String::from_utf8(format.filler.clone()).unwrap();
        format!("VALUE {key} 0 {}\r\n{key}0000002a{filler}\r\nEND\r\n", format.value_bytes).into_bytes()
    }

    #[test]
    fn requests_are_as_the_protocol_has_them() {
        let (format, mut bytes) = (Format::of(20).unwrap(), Vec::new());
        format.write(&operation(Step::Write, false), 42, &mut bytes);
        format.write(&operation(Step::Read, false), 0, &mut bytes);
        let key = String::from_utf8(key_of(7).to_vec()).unwrap();
        let wanted = format!("set {key} 0 0 20\r\n{key}0000002a....\r\nget {key}\r\n");
        assert_eq!(String::from_utf8(bytes).unwrap(), wanted);
    }

    #[test]
    fn replies_are_taken_when_they_are_whole_wherever_they_are_cut() {
        let format = Format::of(40).unwrap();
        let cases = [
            (operation(Step::Read, true), found(&format, 7), false),
            (operation(Step::Write, false), b"STORED\r\n".to_vec(), false),
            (operation(Step::Read, true), b"END\r\n".to_vec(), true),
        ];
        for (operation, reply, is_miss) in cases {
            for cut in 0..reply.len() {
                assert_eq!(format.read(&operation, &reply[..cut]).unwrap(), None, "{operation:?} after {cut} bytes");
            }
            let more = [reply.as_slice(), b"STORED\r\n"].concat();
            assert_eq!(format.read(&operation, &more).unwrap(), Some((reply.len(), is_miss)));
        }
    }

    #[test]
    fn wrong_replies_are_found() {
        let format = Format::of(16).unwrap();
        let (read, write) = (operation(Step::Read, false), operation(Step::Write, false));
        let mut torn = found(&format, 7);
        torn[30] = b'?';
        for (operation, reply) in [
            (read, found(&format, 8)),
            (read, torn),
            (read, found(&Format::of(17).unwrap(), 7)),
            (read, b"END\r\n".to_vec()),
            (read, b"SERVER_ERROR out of memory\r\n".to_vec()),
            (write, b"NOT_STORED\r\n".to_vec()),
            (write, b"ERROR\r\n".to_vec()),
        ] {
            assert!(format.read(&operation, &reply).is_err(), "{:?}", String::from_utf8_lossy(&reply));
        }
        assert!(Format::of(15).unwrap_err().to_string().contains("--value-bytes 15"));
    }
}
