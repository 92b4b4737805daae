//! Check for enough memory for an array. Made on each machine before anything is allocated, because the system kills a
//! program that touches more than there is.

use crate::Error;
use crate::frame::frame_bytes;
use crate::held;
use crate::settings::Settings;
use crate::shape::Shape;

/// Checks that each machine, with these numbers of workers, has the memory for its part.
///
/// # Errors
/// [`Error::Memory`] for the first machine with too little; [`Error::Lost`].
pub(crate) fn check(shape: &Shape, settings: &Settings, workers: &[usize]) -> Result<(), Error> {
    let mut first = 0;
    for (machine, &count) in workers.iter().enumerate() {
        if count == 0 {
            continue; // it has no part
        }
        let places = first..first + count;
        first += count;
        let bytes = places.fold(0u64, |sum, place| sum.saturating_add(needed(shape, settings, place)));
        let left = held::left_for(bytes, machine as u16, left)?;
        if bytes > left {
            return Err(Error::Memory { machine: machine as u16, bytes, left });
        }
    }
    Ok(())
}

/// Returns the bytes that a place needs: its elements, the table, the cache, which also holds accumulators.
pub(crate) fn needed(shape: &Shape, settings: &Settings, place: usize) -> u64 {
    let chunks = shape.chunks() as u64;
    let frame = frame_bytes(shape.chunk_bytes()) as u64;
    let home = (shape.owned_chunks(place).count as u64).saturating_mul(frame);
    // The cache of a small array never holds more than all of its chunks.
    let cache = (settings.cache_bytes as u64).min(chunks.saturating_mul(frame));
    home.saturating_add(chunks * 8).saturating_add(cache)
}

/// Returns the bytes that this machine has left: the least of the system's memory, the limits of its control groups and
/// its own limits.
pub(crate) fn left() -> u64 {
    trust::memory::left().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Split;

    #[test]
    fn needs_are_those_of_elements_tables_and_caches() {
        let shape = Shape::new(1 << 20, 8, &Split::Even, &[1, 1]).unwrap();
        let settings = Settings { cache_bytes: 1 << 20, ..Settings::default() };
        assert_eq!(needed(&shape, &settings, 0), 1024 * (4096 + 64) + 2048 * 8 + (1 << 20));
    }
}
