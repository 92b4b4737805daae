//! Operations in a transaction by Corundum itself, as `benches/src/durable/basics.rs` measures ours: whole transactions
//! of a thousand.
//!
//!     basics FILE    nanoseconds an operation, in the order of `basics.rs`: [..]

use std::time::Instant;

use corundum::default::*;
use corundum::open_flags::*;

type P = Allocator;

/// Operations of a transaction.
const OPS: usize = 1000;
/// Transactions of a figure.
const TRANSACTIONS: u32 = 50;
const EMPTY: u32 = 100_000;

type Places<T> = PVec<PRefCell<Option<T>>>;

struct Root {
    /// Of a line each.
    lines: PVec<Pbox<PRefCell<[u64; 8]>>>,
    small: Places<Pbox<u64>>,
    large: Places<Pbox<[u64; 512]>>,
    counted: Places<Prc<u64>>,
    clones: Places<Prc<u64>>,
}

fn places<T: PSafe>(j: &Journal) -> Places<T> {
    let mut places = PVec::with_capacity(OPS, j);
    (0..OPS).for_each(|_| places.push(PRefCell::new(None), j));
    places
}

impl RootObj<P> for Root {
    fn init(j: &Journal) -> Self {
        let mut lines = PVec::with_capacity(OPS, j);
        (0..OPS).for_each(|_| lines.push(Pbox::new(PRefCell::new([0; 8]), j), j));
        Root { lines, small: places(j), large: places(j), counted: places(j), clones: places(j) }
    }
}

/// Makes `before` and then `work` a transaction each, again and again; nanoseconds of each of the operations in `work`.
fn timed(root: &Root, before: fn(&Root, &Journal), work: fn(&Root, &Journal)) -> f64 {
    let mut elapsed = 0.0;
    for _ in 0..TRANSACTIONS {
        P::transaction(|j| before(root, j)).expect("a transaction");
        let began = Instant::now();
        P::transaction(|j| work(root, j)).expect("a transaction");
        elapsed += began.elapsed().as_secs_f64();
    }
    elapsed / f64::from(TRANSACTIONS) / OPS as f64 * 1e9
}

fn clear<T: PSafe>(places: &Places<T>, j: &Journal) {
    places.iter().for_each(|place| *place.borrow_mut(j) = None);
}

fn fill<T: PSafe>(places: &Places<T>, j: &Journal, make: impl Fn() -> T) {
    places.iter().for_each(|place| *place.borrow_mut(j) = Some(make()));
}

fn change(root: &Root, j: &Journal, turns: usize) {
    let mut lines: Vec<_> = root.lines.iter().map(|line| line.borrow_mut(j)).collect();
    (0..turns).for_each(|turn| lines.iter_mut().for_each(|line| line[turn % 2] += 1));
}

fn main() {
    let file = std::env::args().nth(1).expect("usage: basics FILE");
    let root = P::open::<Root>(&file, O_CF | O_1GB).expect("a pool");
    let root: &Root = &root;
    let first = timed(root, |_, _| (), |root, j| change(root, j, 1));
    let again = timed(root, |_, _| (), |root, j| change(root, j, 9));
    let clear_small = |root: &Root, j: &Journal| clear(&root.small, j);
    let fill_small = |root: &Root, j: &Journal| fill(&root.small, j, || Pbox::new(7, j));
    let (small, dropped) = (timed(root, clear_small, fill_small), timed(root, fill_small, clear_small));
    let large = timed(root, |root, j| clear(&root.large, j), |root, j| fill(&root.large, j, || Pbox::new([7; 512], j)));
    let counted = timed(root, |root, j| clear(&root.counted, j), |root, j| fill(&root.counted, j, || Prc::new(7, j)));
    let cloned = timed(
        root,
        |root, j| clear(&root.clones, j),
        |root, j| {
            for (place, counted) in root.clones.iter().zip(root.counted.iter()) {
                *place.borrow_mut(j) = counted.borrow().as_ref().map(|counted| counted.pclone(j));
            }
        },
    );
    let began = Instant::now();
    (0..EMPTY).for_each(|_| P::transaction(|_| ()).expect("a transaction"));
    let empty = began.elapsed().as_secs_f64() / f64::from(EMPTY) * 1e9;
    let sum: u64 = root.lines.iter().map(|line| line.borrow()[0]).sum();
    assert_eq!(sum, OPS as u64 * u64::from(TRANSACTIONS) * 6, "the changes");
    println!("{:?}", [first, ((again - first) / 8.0).max(0.0), small, dropped, large, counted, cloned, empty]);
}
