//! Reasons why requests of another machine have no response: as text that can travel, and as part of an answer.
//!
//! An answer is the responses, one behind the other, and behind them, if there are any, the faults: the index of each
//! request in the batch, and the reason. The byte count of the faults travels beside the answer.

use serde::{Deserialize, Serialize};

use super::frame::Malformed;
use crate::buffer::Buffer;
use crate::config::{FAULT_TEXT_BYTES_MAX, REMOTE_MESSAGE_BYTES_MAX};
use crate::request::Fault;

/// Largest size of all faults of an answer: texts are cut where there are very many. A received size is checked against
/// it before memory is taken.
const FAULTS_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// Reason why a request of another machine has no response.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RemoteFault {
    kind: u8,
    text: String,
}

impl RemoteFault {
    /// Texts of absurd length are cut.
    pub(crate) fn new(fault: Fault) -> Self {
        Self::with_text_of(fault, FAULT_TEXT_BYTES_MAX)
    }

    fn with_text_of(fault: Fault, text_bytes_max: usize) -> Self {
        let (kind, mut text) = match fault {
            Fault::Panicked(payload) => (0, crate::error::panic_text(&*payload)),
            Fault::Poisoned(text) => (1, text),
            Fault::Gone => (2, String::new()),
            Fault::Codec(text) => (3, text),
            Fault::Refused(text) => (4, text),
            Fault::Deadlock(text) => (6, text),
            Fault::TooLarge(bytes, _) => (5, bytes.to_string()),
            Fault::Apart => (7, String::new()),
            Fault::Lost(machine) => (8, machine.to_string()),
            Fault::Closed => (9, String::new()),
        };
        text.truncate(text.floor_char_boundary(text_bytes_max));
        RemoteFault { kind, text }
    }

    pub(crate) fn into_fault(self) -> Fault {
        match self.kind {
            0 => Fault::Panicked(Box::new(self.text)),
            1 => Fault::Poisoned(self.text),
            2 => Fault::Gone,
            3 => Fault::Codec(self.text),
            5 => Fault::TooLarge(self.text.parse().unwrap_or(0), REMOTE_MESSAGE_BYTES_MAX),
            6 => Fault::Deadlock(self.text),
            7 => Fault::Apart,
            8 => Fault::Lost(self.text.parse().unwrap_or(u16::MAX)),
            9 => Fault::Closed,
            _ => Fault::Refused(self.text),
        }
    }
}

/// Puts the faults behind the responses; returns their bytes.
#[cold]
pub(super) fn append(answer: &mut Buffer, faults: Vec<(u32, Fault)>) -> u32 {
    let text_bytes_max = FAULT_TEXT_BYTES_MAX.min(FAULTS_BYTES_MAX / 2 / faults.len().max(1));
    let faults: Vec<(u32, RemoteFault)> =
        faults.into_iter().map(|(index, fault)| (index, RemoteFault::with_text_of(fault, text_bytes_max))).collect();
    // Numbers and plain text: they always serialise.
    let bytes = bincode::serde::encode_to_vec(&faults, bincode::config::standard()).unwrap_or_default();
    let responses = answer.len();
    answer.set_len(responses + bytes.len());
    answer.bytes_mut()[responses..].copy_from_slice(&bytes);
    bytes.len() as u32
}

/// Takes the faults, which have this many bytes, off an answer to this many requests.
#[cold]
pub(super) fn split_off(answer: &mut Buffer, bytes: u32, requests: u32) -> Result<Vec<(u32, Fault)>, Malformed> {
    let responses = answer.len().checked_sub(bytes as usize).ok_or(Malformed("faults beyond their answer"))?;
    let format = bincode::config::standard().with_limit::<FAULTS_BYTES_MAX>();
    let told = &answer.bytes()[responses..];
    let (faults, used) = bincode::serde::decode_from_slice::<Vec<(u32, RemoteFault)>, _>(told, format)
        .map_err(|_| Malformed("faults that cannot be read"))?;
    let in_order = faults.windows(2).all(|two| two[0].0 < two[1].0);
    let in_range = faults.last().is_some_and(|(index, _)| *index < requests);
    if used != bytes as usize || !in_order || !in_range {
        return Err(Malformed("faults that do not fit their batch"));
    }
    answer.set_len(responses);
    Ok(faults.into_iter().map(|(index, fault)| (index, fault.into_fault())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> (Buffer, u32) {
        let mut buffer = Buffer::default();
        buffer.set_len(3);
        buffer.bytes_mut().copy_from_slice(&[1, 2, 3]);
        let faults = vec![(1, Fault::Refused("first".into())), (300, Fault::Poisoned("größer".into()))];
        let bytes = append(&mut buffer, faults);
        (buffer, bytes)
    }

    #[test]
    fn faults_come_off_as_they_were_put_on() {
        let (mut buffer, bytes) = answer();
        let faults = split_off(&mut buffer, bytes, 301).unwrap();
        assert_eq!(buffer.bytes(), [1, 2, 3]);
        assert!(
            matches!(&faults[..], [(1, Fault::Refused(a)), (300, Fault::Poisoned(b))] if a == "first" && b == "größer")
        );
        let (mut buffer, bytes) = answer();
        assert!(split_off(&mut buffer, bytes, 300).is_err(), "a fault beyond the batch");
        let (mut buffer, _) = answer();
        assert!(split_off(&mut buffer, 1000, 301).is_err(), "more than the answer");
    }

    #[test]
    fn each_kind_of_fault_comes_back_as_it_was() {
        let back = |fault| RemoteFault::new(fault).into_fault();
        let panicked = back(Fault::Panicked(Box::new("why")));
        assert!(
            matches!(panicked, Fault::Panicked(why) if why.downcast_ref::<String>().is_some_and(|why| why == "why"))
        );
        assert!(matches!(back(Fault::Poisoned("by".into())), Fault::Poisoned(by) if by == "by"));
        assert!(matches!(back(Fault::Gone), Fault::Gone));
        assert!(matches!(back(Fault::Closed), Fault::Closed));
        assert!(matches!(back(Fault::Codec("bad".into())), Fault::Codec(text) if text == "bad"));
        assert!(matches!(back(Fault::Refused("no".into())), Fault::Refused(text) if text == "no"));
        assert!(matches!(back(Fault::Deadlock("a, b".into())), Fault::Deadlock(text) if text == "a, b"));
        assert!(matches!(back(Fault::Apart), Fault::Apart));
        assert!(matches!(back(Fault::Lost(0x1234)), Fault::Lost(0x1234)));
        let too_large = back(Fault::TooLarge(1 << 40, 7));
        assert!(matches!(too_large, Fault::TooLarge(bytes, REMOTE_MESSAGE_BYTES_MAX) if bytes == 1 << 40));
    }

    /// Faults that only a broken peer would send.
    #[test]
    fn faults_that_do_not_fit_their_batch_are_refused() {
        let split = |indices: &[u32], behind: usize| {
            let mut buffer = Buffer::default();
            let bytes = append(&mut buffer, indices.iter().map(|&index| (index, Fault::Gone)).collect());
            buffer.set_len(bytes as usize + behind);
            split_off(&mut buffer, bytes + behind as u32, 4).map(|faults| faults.len())
        };
        assert!(matches!(split(&[0, 2, 3], 0), Ok(3)));
        for (indices, behind) in [(&[][..], 0), (&[4], 0), (&[0, 4], 0), (&[1, 0], 0), (&[2, 2], 0), (&[0, 1], 1)] {
            assert!(split(indices, behind).is_err(), "{indices:?} and {behind} bytes");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "ü".repeat(FAULT_TEXT_BYTES_MAX);
        match RemoteFault::new(Fault::Refused(text)).into_fault() {
            Fault::Refused(text) => assert_eq!(text.len(), FAULT_TEXT_BYTES_MAX),
            other => panic!("{other:?}"),
        }
    }

    /// A few faults keep their texts whole.
    #[test]
    fn the_texts_of_few_faults_are_not_cut() {
        let text = "x".repeat(FAULT_TEXT_BYTES_MAX);
        let mut buffer = Buffer::default();
        let bytes = append(&mut buffer, (0..30).map(|index| (index, Fault::Refused(text.clone()))).collect());
        let faults = split_off(&mut buffer, bytes, 30).unwrap();
        assert!(faults.iter().all(|(_, fault)| matches!(fault, Fault::Refused(back) if *back == text)));
    }

    #[test]
    fn very_many_faults_are_told_with_shorter_texts() {
        let count: u32 = if cfg!(miri) { 70 } else { 1000 };
        let fault = |index| (index, Fault::Refused("because ".repeat(2000)));
        let mut buffer = Buffer::default();
        let bytes = append(&mut buffer, (0..count).map(fault).collect());
        assert!((bytes as usize) < FAULTS_BYTES_MAX, "{bytes}");
        let faults = split_off(&mut buffer, bytes, count).unwrap();
        assert_eq!(faults.len(), count as usize);
        assert!(faults.iter().all(|(_, fault)| matches!(fault, Fault::Refused(text) if text.starts_with("because "))));
    }

    #[test]
    fn damaged_faults_are_refused_or_in_range() {
        let rounds = if cfg!(miri) { 20 } else { 30_000 };
        let mut random = fastrand::Rng::with_seed(7);
        let mut next = |below: usize| random.usize(..below);
        let mut refused = 0;
        let (whole, whole_bytes) = answer();
        for _ in 0..rounds {
            let (mut buffer, mut bytes) = (Buffer::default(), whole_bytes);
            buffer.set_len(whole.len());
            buffer.bytes_mut().copy_from_slice(whole.bytes());
            for _ in 0..1 + next(3) {
                let at = next(buffer.len());
                buffer.bytes_mut()[at] = next(256) as u8;
            }
            if next(2) == 0 {
                bytes = next(buffer.len() + 2) as u32;
            }
            match split_off(&mut buffer, bytes, 301) {
                Err(_) => refused += 1,
                Ok(faults) => assert!(faults.iter().all(|(index, _)| *index < 301) && buffer.len() <= whole.len()),
            }
        }
        assert!(refused > rounds / 4, "{refused}");
    }
}
