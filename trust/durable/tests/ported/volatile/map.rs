//! A hash map: chains of entries.

pub struct Entry {
    key: u64,
    value: u64,
    next: Option<Box<Entry>>,
}

pub struct Map {
    chains: [Option<Box<Entry>>; 8],
}

impl Map {
    pub fn new() -> Self {
        Map { chains: [const { None }; 8] }
    }

    pub fn insert(&mut self, key: u64, value: u64) {
        let chain = &mut self.chains[key as usize % 8];
        let next = chain.take();
        *chain = Some(Box::new(Entry { key, value, next }));
    }

    pub fn get(&self, key: u64) -> u64 {
        let chain = self.chains[key as usize % 8].as_deref();
        let mut entries = std::iter::successors(chain, |entry| entry.next.as_deref());
        entries.find(|entry| entry.key == key).map_or(u64::MAX, |entry| entry.value)
    }
}

pub fn run() -> Vec<u64> {
    let mut map = Map::new();
    (0..20).for_each(|key| map.insert(key, key * key));
    (0..22).map(|key| map.get(key)).collect()
}
