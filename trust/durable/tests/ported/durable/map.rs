//! A hash map: chains of entries.

use trust_durable::{Durable, PBox, Persist, Tx};

#[derive(Persist)]
#[repr(C)]
pub struct Entry<'p> {
    key: u64,
    value: u64,
    next: Option<PBox<'p, Entry<'p>>>,
}

#[derive(Persist)]
#[repr(C)]
pub struct Map<'p> {
    chains: [Option<PBox<'p, Entry<'p>>>; 8],
}

impl<'p> Map<'p> {
    pub fn new() -> Self {
        Map { chains: [const { None }; 8] }
    }

    pub fn insert(&mut self, key: u64, value: u64, tx: &Tx<'p>) {
        let chain = &mut self.chains[key as usize % 8];
        let next = chain.take();
        *chain = Some(PBox::new(Entry { key, value, next }, tx));
    }

    pub fn get(&self, key: u64) -> u64 {
        let chain = self.chains[key as usize % 8].as_deref();
        let mut entries = std::iter::successors(chain, |entry| entry.next.as_deref());
        entries.find(|entry| entry.key == key).map_or(u64::MAX, |entry| entry.value)
    }
}

pub fn run(pool: &trust::Threadpool, folder: &std::path::Path) -> Vec<u64> {
    let map = Durable::<Map>::open(pool.trustees()[0], folder, |_| Map::new()).unwrap();
    (0..20).for_each(|key| map.apply(move |map, tx| map.insert(key, key * key, tx)));
    (0..22).map(|key| map.apply(move |map, _| map.get(key))).collect()
}
