//! Is there memory for an array? Asked on each machine before anything is taken, for what is touched beyond it ends in
//! the system's killing the program.

use crate::Error;
use crate::frame::frame_bytes;
use crate::held;
use crate::settings::Settings;
use crate::shape::Shape;

/// Has each machine, with these numbers of workers, the memory for its part?
///
/// # Errors
/// [`Error::Memory`] for the first that has not.
pub(crate) fn check(shape: &Shape, settings: &Settings, workers: &[usize]) -> Result<(), Error> {
    let mut first = 0;
    for (machine, &count) in workers.iter().enumerate() {
        let places = first..first + count;
        first += count;
        let bytes = places.fold(0u64, |sum, place| sum.saturating_add(needed(shape, settings, place)));
        let left = held::left_for(bytes, machine as u16, left);
        if bytes > left {
            return Err(Error::Memory { machine: machine as u16, bytes, left });
        }
    }
    Ok(())
}

/// Bytes that a place needs: its elements, the table, the cache, which holds what is combined too.
pub(crate) fn needed(shape: &Shape, settings: &Settings, place: usize) -> u64 {
    let chunks = shape.chunks() as u64;
    let frame = frame_bytes(shape.chunk_bytes()) as u64;
    let home = (shape.owned_chunks(place).count as u64).saturating_mul(frame);
    // Of a small array not even all is ever cached.
    let cache = (settings.cache_bytes as u64).min(chunks.saturating_mul(frame));
    home.saturating_add(chunks * 8).saturating_add(cache)
}

/// Bytes that this machine has left: the least that the system, the control groups of this process and its limits say.
fn left() -> u64 {
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
