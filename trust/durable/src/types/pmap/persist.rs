//! `PMap` as a value of a pool: dropping, description, and the check when the pool is opened.

#![allow(unsafe_code)]

use std::mem::{ManuallyDrop, needs_drop};

use super::{PLACES_MIN, PMap, Place};
use crate::layout::{Kind, Types};
use crate::memory::{Dropping, Memory};
use crate::persist::Persist;
use crate::tx;
use crate::walk::{Damage, Walk};

/// # Safety
/// As for `drop_values`: `count` places.
unsafe fn drop_entries<K: Persist, V: Persist>(memory: &Memory, at: u64, count: u64) {
    if K::DROP_WRITES || V::DROP_WRITES {
        memory.touch(memory.at(at), count as usize * size_of::<Place<K, V>>());
    }
    for index in 0..count as usize {
        // SAFETY: the caller's promise: a taken place has an entry, which is dropped once.
        unsafe {
            let place = memory.at(at).cast::<Place<K, V>>().add(index);
            if (*place).hash != 0 {
                ManuallyDrop::drop(&mut (*place).key);
                ManuallyDrop::drop(&mut (*place).value);
            }
        }
    }
}

impl<K: Persist, V: Persist> Drop for PMap<'_, K, V> {
    fn drop(&mut self) {
        if self.at == 0 {
            return;
        }
        self.give_room();
        if needs_drop::<K>() || needs_drop::<V>() {
            let dropping = Dropping { at: self.at, count: self.places, run: drop_entries::<K, V> };
            tx::with_memory(|memory| memory.drop_later(dropping));
        }
    }
}

impl<K: Persist, V: Persist> Default for PMap<'_, K, V> {
    fn default() -> Self {
        PMap::new()
    }
}

fn check_place<K: Persist, V: Persist>(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
    if walk.word(at)? == 0 {
        return Ok(());
    }
    K::check(at + std::mem::offset_of!(Place<K, V>, key) as u64, walk)?;
    V::check(at + std::mem::offset_of!(Place<K, V>, value) as u64, walk)
}

// SAFETY: `check` claims the table, counts its entries and schedules the check of each.
unsafe impl<'p, K: Persist, V: Persist> Persist for PMap<'p, K, V> {
    type At<'q> = PMap<'q, K::At<'q>, V::At<'q>>;
    const IS_PLAIN: bool = false;
    const DROP_WRITES: bool = false;

    fn describe(types: &mut Types) -> (String, Kind) {
        let of = vec![types.add::<K>(), types.add::<V>()];
        ("PMap".into(), Kind::Of(of))
    }

    fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
        let [to, len, places] = [walk.word(at)?, walk.word(at + 8)?, walk.word(at + 16)?];
        if to == 0 && len == 0 && places == 0 {
            return Ok(());
        }
        let bytes = usize::try_from(places).ok().and_then(|places| places.checked_mul(Self::BYTES));
        let fits = places.is_power_of_two() && places >= PLACES_MIN as u64 && len <= places / 4 * 3 && to != 0;
        let Some(bytes) = bytes.filter(|_| fits) else {
            return Err(walk.damage(at, "a PMap of an impossible size"));
        };
        walk.claim(at, to, bytes)?;
        let mut taken = 0;
        for place in (0..places).map(|index| to + index * Self::BYTES as u64) {
            match walk.word(place)? {
                0 => {}
                hash if hash & 1 == 1 => taken += 1,
                _ => return Err(walk.damage(place, "an entry of a PMap with an impossible hash")),
            }
        }
        if taken != len {
            return Err(walk.damage(at, "a PMap that has not as many entries as it says"));
        }
        if !(K::IS_PLAIN && V::IS_PLAIN) {
            walk.later_by(to, places, Self::BYTES, check_place::<K, V>);
        }
        Ok(())
    }
}
