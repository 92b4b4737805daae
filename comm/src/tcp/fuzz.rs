//! Frames of data connections, real and with random changes: none causes a panic or a store outside the
//! region. Each test here handles one input; `crate::fuzz` describes the sources of inputs.

use super::frame::{Event, Intake, Question, head, share_write_head};
use crate::fuzz::inputs::{Random, Script, Target, mutate};
use crate::memory::Region;
use crate::{SHARE_UNIT_BYTES, ShareId};
use rand::Rng;

pub(super) const REGION_BYTES: usize = 4096;
/// The share that frames name beside the region; half of it is committed.
const SHARE: ShareId = ShareId(1);
const SHARE_BYTES: usize = 2 * SHARE_UNIT_BYTES;

fn region_with_share() -> Region {
    let region = Region::anonymous(REGION_BYTES).unwrap();
    region.shares().open(SHARE, SHARE_BYTES, |_| Ok(())).unwrap();
    region.shares().get(SHARE).unwrap().commit(0..SHARE_UNIT_BYTES, |_| Ok(())).unwrap();
    region
}

/// Returns frames for the share, as a machine would send them.
fn share_frames(random: Random<'_>) -> Vec<u8> {
    let words = random.random_range(1..40);
    let (offset, bytes) = (random.random_range(0..=SHARE_BYTES / 8 - words) * 8, words * 8);
    match random.random_range(0..3) {
        0 => [&share_write_head(SHARE, offset, bytes)[..], &vec![0xab; bytes]].concat(),
        1 => Question::Part { share: SHARE, offset, bytes }.to_bytes().to_vec(),
        _ => Question::Map { share: SHARE, first: offset, count: words }.to_bytes().to_vec(),
    }
}

/// Returns some frames as a machine would send them, and executes them on `expected` too; also returns the
/// park words of the wakes.
pub(super) fn real_frames(random: Random<'_>, expected: &Region) -> (Vec<u8>, Vec<usize>) {
    let (mut wire, mut wakes) = (Vec::new(), Vec::new());
    for _ in 0..random.random_range(1..6) {
        if random.random_bool(0.3) {
            let offset = random.random_range(0..REGION_BYTES / 4) * 4;
            wire.extend(head(offset, 0));
            wakes.push(offset);
        } else {
            let words = random.random_range(1..40);
            let offset = random.random_range(0..=REGION_BYTES / 8 - words) * 8;
            let body: Vec<u8> = (0..words * 8).map(|_| random.random()).collect();
            expected.publish(offset, &body).unwrap();
            wire.extend(head(offset, body.len()));
            wire.extend(body);
        }
    }
    (wire, wakes)
}

/// Takes a fuzzer's input as bytes of a connection, and as changes to real frames.
pub fn frames() -> Target {
    let region = region_with_share();
    let mut mutated = mutated_frames();
    Box::new(move |input| {
        let pieces = 1 + usize::from(input.first().copied().unwrap_or_default());
        takes_or_refuses(input.chunks(pieces), &region);
        mutated(&mut Script(input));
    })
}

/// Returns a test that says whether a piece was refused.
fn mutated_frames() -> impl FnMut(Random<'_>) -> bool {
    let (region, scrap) = (region_with_share(), Region::anonymous(REGION_BYTES).unwrap());
    move |random| {
        let (mut wire, _) = real_frames(random, &scrap);
        for _ in 0..random.random_range(0..3) {
            wire.extend(share_frames(random));
        }
        let mutated = mutate(&wire, random);
        takes_or_refuses(mutated.chunks(random.random_range(1..200)), &region)
    }
}

fn takes_or_refuses<'a>(pieces: impl Iterator<Item = &'a [u8]>, region: &Region) -> bool {
    let mut intake = Intake::default();
    for piece in pieces {
        let taken = intake.take(piece, region, &mut |event| {
            let is_fine = match event {
                Event::Wake(offset) => region.word32(offset).is_ok(),
                Event::Question(Question::Part { share, offset, bytes }) => {
                    region.shares().get(share).is_some_and(|share| share.check(offset, bytes).is_ok())
                }
                Event::Question(Question::Map { count, .. }) => count <= crate::share::ASKED_WORDS,
                Event::Heartbeat => true,
            };
            assert!(is_fine, "{event:?} is outside");
            Ok(())
        });
        if let Err(violation) = taken {
            assert!(!violation.to_string().is_empty());
            return true;
        }
        let (offset, left_bytes) = intake.progress();
        let most = REGION_BYTES.max(SHARE_BYTES);
        assert!(left_bytes <= most && offset <= most);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;

    #[test]
    fn mutated_frames_stay_within_the_region() {
        let mut violations: u64 = 0;
        let mut body = mutated_frames();
        fuzz::run("tcp frames", |random| violations += u64::from(body(random)));
        assert!(violations > 0, "no mutation hit a head, so nothing was tested");
    }

    /// The fuzz target holds for input of all kinds.
    #[test]
    fn the_target_takes_everything() {
        let mut frames = frames();
        for input in [&[][..], &[0], &[0xff; 3000], &[7, 0, 0, 0, 0, 0, 0, 0], &head(8, 16)] {
            frames(input);
        }
    }
}
