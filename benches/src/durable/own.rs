//! The contender that it is all about: a map in a durable trust.

use super::puts::{Contender, KEYS, Ran, VALUE_BYTES, Work, key, value};
use crate::prelude::*;
use trust::Threadpool;
use trust_durable::{Durable, PMap};

type Map = Durable<PMap<'static, u64, [u8; VALUE_BYTES]>>;

/// Each put has a callback, which makes the next one; where only one is outstanding, it is a plain call.
pub struct Own;

fn open(pool: &Threadpool, folder: &Path) -> Result<Map> {
    let builder = Durable::<PMap<u64, [u8; VALUE_BYTES]>>::builder().limit(1 << 30);
    Ok(builder.open(pool.trustees()[0], folder, |tx| {
        let mut map = PMap::new();
        map.reserve(KEYS as usize, tx);
        map
    })?)
}

/// One client's puts until the time is over.
fn put(map: &Map, clients: u64, client: u64, end: Instant) -> Result<u64, trust_durable::Error> {
    let mut puts = 0;
    while Instant::now() < end {
        let number = puts + 1;
        let (key, value) = (key(clients, client, number), value(number));
        map.call().apply(move |map, tx| _ = map.insert(key, value, tx)).wait()?;
        puts = number;
    }
    Ok(puts)
}

/// Clients with a next put that the callback of the one before makes.
struct Callers {
    map: Map,
    end: Instant,
    /// The acknowledged puts of each.
    puts: RefCell<Vec<u64>>,
    under_way: Cell<u64>,
    error: RefCell<Option<trust_durable::Error>>,
}

impl Callers {
    fn put(self: &Rc<Self>, client: u64, number: u64) {
        let clients = self.puts.borrow().len() as u64;
        let (key, value) = (key(clients, client, number), value(number));
        let callers = Rc::clone(self);
        self.map.call().apply(move |map, tx| _ = map.insert(key, value, tx)).then(move |outcome| {
            match outcome {
                Ok(()) => callers.puts.borrow_mut()[client as usize] = number,
                Err(error) => _ = callers.error.borrow_mut().replace(error),
            }
            if callers.error.borrow().is_none() && Instant::now() < callers.end {
                callers.put(client, number + 1);
            } else {
                callers.under_way.set(callers.under_way.get() - 1);
            }
        });
    }
}

fn by_callbacks(map: &Map, clients: u64, end: Instant) -> Result<Vec<u64>> {
    let puts = RefCell::new(vec![0; clients as usize]);
    let callers =
        Rc::new(Callers { map: map.clone(), end, puts, under_way: Cell::new(clients), error: RefCell::default() });
    (0..clients).for_each(|client| callers.put(client, 1));
    while callers.under_way.get() > 0 {
        // After the callbacks of all that was called before.
        map.sync()?;
    }
    match callers.error.take() {
        Some(error) => Err(error.into()),
        None => Ok(callers.puts.take()),
    }
}

impl Contender for Own {
    fn name(&self) -> &str {
        super::OWN
    }

    fn run(&self, folder: &Path, work: Work) -> Result<Ran> {
        let pool = Threadpool::new(1);
        let map = open(&pool, folder)?;
        let clients = work.outstanding;
        let began = Instant::now();
        let end = began + work.time;
        let puts = if clients == 1 { vec![put(&map, 1, 0, end)?] } else { by_callbacks(&map, clients, end)? };
        let elapsed = began.elapsed();
        let stats = map.stats()?;
        map.close()?;
        let writing = Some(Duration::from_nanos(stats.sync_ns));
        Ok(Ran { puts, elapsed, groups: Some((stats.groups, stats.written_bytes)), writing })
    }

    fn read(&self, folder: &Path, keys: &[u64]) -> Result<Option<Vec<Option<u64>>>> {
        let pool = Threadpool::new(1);
        let map = open(&pool, folder)?;
        let find = |map: &mut PMap<'_, u64, [u8; VALUE_BYTES]>, _: &trust_durable::Tx<'_>, keys: Vec<u64>| {
            let number =
                |key| map.get(key).and_then(|value| value.first_chunk()).map(|bytes| u64::from_le_bytes(*bytes));
            keys.iter().map(number).collect::<Vec<_>>()
        };
        let found = map.apply_with(find, keys.to_vec());
        map.close()?;
        Ok(Some(found))
    }
}
