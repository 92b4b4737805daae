//! Free blocks of the heap that machines pass on: one whose threads free what others allocate gives them to machine 0,
//! and one that has none left fetches them there before it takes new memory.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gossamer::NoRef;

use crate::side;
use crate::table::{self, CLASSES, table};

/// Most blocks that travel together.
const BATCH: usize = 32;

/// Blocks of one class; zeros behind the last.
pub(crate) type Batch = [usize; BATCH];

/// On machine 0: free blocks by their class.
static POOL: Mutex<[Vec<usize>; CLASSES]> = Mutex::new([const { vec![] }; CLASSES]);

fn pool() -> MutexGuard<'static, [Vec<usize>; CLASSES]> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the calling thread may use the pool: it can send, and the heap is one for several machines.
pub(crate) fn is_there() -> bool {
    side::is_in_program() && !table::is_explicit() && side::machines() > 1
}

fn put_here(class: usize, blocks: Batch) {
    let mut pool = pool();
    pool[class].extend(blocks.into_iter().filter(|block| *block != 0));
    table().pooled[class].store(pool[class].len() as u32, Ordering::SeqCst);
}

fn take_here(class: usize) -> Batch {
    let mut pool = pool();
    let mut blocks = [0; BATCH];
    // Half, so that the others have some, too.
    let count = pool[class].len().div_ceil(2).min(BATCH);
    blocks.iter_mut().zip(pool[class].iter().rev()).take(count).for_each(|(to, block)| *to = *block);
    let left = pool[class].len() - count;
    pool[class].truncate(left);
    table().pooled[class].store(left as u32, Ordering::SeqCst);
    blocks
}

/// Calls `f` on machine 0.
fn at_first<R, F>(f: F) -> R
where
    R: NoRef + Send + 'static,
    F: FnOnce() -> R + NoRef + Send + 'static,
{
    if side::own_machine() == 0 { side::outside(f) } else { side::at(0, f) }
}

/// Passes blocks on.
pub(crate) fn give(class: usize, blocks: Batch) {
    at_first(move || put_here(class, blocks));
}

/// Returns blocks that others have passed on, if there are any.
pub(crate) fn fetch(class: usize) -> Option<Batch> {
    if !is_there() || table().pooled[class].load(Ordering::SeqCst) == 0 {
        return None;
    }
    Some(at_first(move || take_here(class))).filter(|blocks| blocks[0] != 0)
}

/// Moves some of these free blocks into a batch, if they are more than twice as many as a machine keeps.
pub(crate) fn surplus(free: &mut Vec<usize>, keeps: usize) -> Option<Batch> {
    let more = free.len().checked_sub(keeps).filter(|more| *more > keeps)?;
    let mut blocks = [0; BATCH];
    // The oldest: the others may still be here.
    let count = more.min(BATCH);
    blocks.iter_mut().zip(free.drain(..count)).for_each(|(to, block)| *to = block);
    Some(blocks)
}

#[cfg(test)]
mod tests {
    use super::{BATCH, surplus};

    #[test]
    fn a_machine_keeps_what_it_may() {
        let mut free: Vec<usize> = (1..=8).collect();
        assert_eq!(surplus(&mut free, 4), None);
        free.push(9);
        let blocks = surplus(&mut free, 4).unwrap();
        assert_eq!((&blocks[..6], free.as_slice()), (&[1, 2, 3, 4, 5, 0][..], &[6, 7, 8, 9][..]));
        let mut many: Vec<usize> = (1..=100).collect();
        assert_eq!(surplus(&mut many, 1).unwrap(), std::array::from_fn::<_, BATCH, _>(|at| at + 1));
    }
}
