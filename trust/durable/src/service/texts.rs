//! Texts of panics, which cannot travel in an answer: kept by id in the trustee's process, the last ones of all
//! pools.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

static TEXTS: Mutex<VecDeque<((u64, u64), String)>> = Mutex::new(VecDeque::new());
const TEXTS_MAX: usize = 1024;

/// Keeps the text of a panic.
pub(super) fn keep(pool: u64, text_id: u64, text: String) {
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if texts.len() == TEXTS_MAX {
        texts.pop_front();
    }
    texts.push_back(((pool, text_id), text));
}

/// Takes the text of a panic.
pub(crate) fn text(pool: u64, text_id: u64) -> Option<String> {
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let index = texts.iter().position(|(name, _)| *name == (pool, text_id))?;
    texts.remove(index).map(|(_, text)| text)
}
