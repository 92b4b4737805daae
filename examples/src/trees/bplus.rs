//! `BPlus`: a tree of wide nodes with all values in its leaves.
//!
//! Invariants: all leaves are equally deep; an inner node has one child more than keys, and the keys below child `n`
//! are less than key `n` and not less than key `n - 1`. A removed entry leaves its room in its leaf to the next one;
//! nodes are not joined.

use trust_durable::{PBox, Persist, Tx};

/// Keys of a node.
const WIDTH: usize = 16;

type Child<'p> = Option<PBox<'p, Node<'p>>>;

/// A map from numbers to numbers, with several entries a node.
#[derive(Persist, Default)]
#[repr(C)]
pub struct BPlus<'p> {
    root: Child<'p>,
    len: u64,
}

#[derive(Persist)]
#[repr(u8)]
enum Node<'p> {
    Leaf { len: u32, keys: [u64; WIDTH], values: [u64; WIDTH] },
    Inner { len: u32, keys: [u64; WIDTH], children: [Child<'p>; WIDTH + 1] },
}

/// Outcome of an insertion: a node that was split gives the key from which on the new one is.
enum Inserted<'p> {
    Replaced(u64),
    Added,
    Split(u64, PBox<'p, Node<'p>>),
}

/// Puts something at an index of the first `len`, of which there is room for one more.
fn put<T>(all: &mut [T], len: usize, index: usize, value: T) {
    all[len] = value;
    all[index..=len].rotate_right(1);
}

impl<'p> Node<'p> {
    fn insert(&mut self, key: u64, value: u64, tx: &Tx<'p>) -> Inserted<'p> {
        match self {
            Node::Leaf { len, keys, values } => {
                let count = *len as usize;
                let index = match keys[..count].binary_search(&key) {
                    Ok(index) => return Inserted::Replaced(std::mem::replace(&mut values[index], value)),
                    Err(index) => index,
                };
                if count < WIDTH {
                    put(keys, count, index, key);
                    put(values, count, index, value);
                    *len += 1;
                    return Inserted::Added;
                }
                let (mut more_keys, mut more_values) = ([0; WIDTH], [0; WIDTH]);
                let half = WIDTH / 2;
                more_keys[..half].copy_from_slice(&keys[half..]);
                more_values[..half].copy_from_slice(&values[half..]);
                *len = half as u32;
                let from = more_keys[0];
                let mut more = Node::Leaf { len: half as u32, keys: more_keys, values: more_values };
                let place = if key < from { self } else { &mut more };
                place.insert(key, value, tx);
                Inserted::Split(from, PBox::new(more, tx))
            }
            Node::Inner { len, keys, children } => {
                let count = *len as usize;
                let index = keys[..count].partition_point(|&other| other <= key);
                let Some(child) = &mut children[index] else { unreachable!("one child more than keys") };
                let (from, right) = match child.insert(key, value, tx) {
                    Inserted::Split(from, right) => (from, right),
                    done => return done,
                };
                if count < WIDTH {
                    put(keys, count, index, from);
                    put(children, count + 1, index + 1, Some(right));
                    *len += 1;
                    return Inserted::Added;
                }
                // The middle key goes up; of an odd number of keys with the new one, so both halves have room.
                let half = WIDTH / 2;
                let up = keys[half];
                let (mut more_keys, mut more_children) = ([0; WIDTH], [const { None }; WIDTH + 1]);
                let moved = WIDTH - half - 1;
                more_keys[..moved].copy_from_slice(&keys[half + 1..]);
                more_children[..=moved].swap_with_slice(&mut children[half + 1..]);
                *len = half as u32;
                let mut more = Node::Inner { len: moved as u32, keys: more_keys, children: more_children };
                if from < up {
                    self.put_child(half, index, from, right);
                } else {
                    more.put_child(moved, index - half - 1, from, right);
                }
                Inserted::Split(up, PBox::new(more, tx))
            }
        }
    }

    /// Puts a child behind that at `index`, into an inner node with room.
    fn put_child(&mut self, count: usize, index: usize, from: u64, right: PBox<'p, Node<'p>>) {
        if let Node::Inner { len, keys, children } = self {
            put(keys, count, index, from);
            put(children, count + 1, index + 1, Some(right));
            *len += 1;
        }
    }

    fn entries(&self, to: &mut Vec<(u64, u64)>) {
        match self {
            Node::Leaf { len, keys, values } => {
                to.extend(keys.iter().copied().zip(values.iter().copied()).take(*len as usize));
            }
            Node::Inner { children, .. } => children.iter().flatten().for_each(|child| child.entries(to)),
        }
    }
}

impl<'p> BPlus<'p> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Has it none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    pub fn get(&self, key: u64) -> Option<u64> {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Leaf { len, keys, values } => {
                    return keys[..*len as usize].binary_search(&key).ok().map(|index| values[index]);
                }
                Node::Inner { len, keys, children } => {
                    let index = keys[..*len as usize].partition_point(|&other| other <= key);
                    node = children[index].as_deref()?;
                }
            }
        }
    }

    /// Puts a value under a key; gives the value that was there.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn insert(&mut self, key: u64, value: u64, tx: &Tx<'p>) -> Option<u64> {
        let empty = || Node::Leaf { len: 0, keys: [0; WIDTH], values: [0; WIDTH] };
        let root = self.root.get_or_insert_with(|| PBox::new(empty(), tx));
        match root.insert(key, value, tx) {
            Inserted::Replaced(old) => return Some(old),
            Inserted::Added => {}
            Inserted::Split(from, right) => {
                let (mut keys, mut children) = ([0; WIDTH], [const { None }; WIDTH + 1]);
                keys[0] = from;
                children[0] = self.root.take();
                children[1] = Some(right);
                self.root = Some(PBox::new(Node::Inner { len: 1, keys, children }, tx));
            }
        }
        self.len += 1;
        None
    }

    /// Takes an entry out; gives its value.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        let mut node = self.root.as_deref_mut()?;
        loop {
            match node {
                Node::Leaf { len, keys, values } => {
                    let count = *len as usize;
                    let index = keys[..count].binary_search(&key).ok()?;
                    let value = values[index];
                    keys[index..count].rotate_left(1);
                    values[index..count].rotate_left(1);
                    (*len, self.len) = (*len - 1, self.len - 1);
                    return Some(value);
                }
                Node::Inner { len, keys, children } => {
                    let index = keys[..*len as usize].partition_point(|&other| other <= key);
                    node = children[index].as_deref_mut()?;
                }
            }
        }
    }

    /// Its entries, in order.
    pub fn entries(&self) -> Vec<(u64, u64)> {
        let mut entries = Vec::new();
        if let Some(root) = &self.root {
            root.entries(&mut entries);
        }
        entries
    }
}
