//! `Bst`: a binary search tree that is not balanced.

use trust_durable::{PBox, Persist, Tx};

type Link<'p> = Option<PBox<'p, Node<'p>>>;

/// A map from numbers to numbers, one node an entry.
#[derive(Persist, Default)]
#[repr(C)]
pub struct Bst<'p> {
    root: Link<'p>,
    len: u64,
}

#[derive(Persist)]
#[repr(C)]
struct Node<'p> {
    key: u64,
    value: u64,
    left: Link<'p>,
    right: Link<'p>,
}

impl<'p> Bst<'p> {
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
        let mut link = &self.root;
        while let Some(node) = link {
            if node.key == key {
                return Some(node.value);
            }
            link = if key < node.key { &node.left } else { &node.right };
        }
        None
    }

    /// The link to the node of a key, or the empty one where it would go.
    fn link(&mut self, key: u64) -> &mut Link<'p> {
        let mut link = &mut self.root;
        loop {
            // Only looked at, so it is not saved, if the search ends here.
            match link.as_deref().map(|node| key.cmp(&node.key)) {
                None | Some(std::cmp::Ordering::Equal) => return link,
                Some(order) => match link.as_deref_mut() {
                    Some(node) if order.is_lt() => link = &mut node.left,
                    Some(node) => link = &mut node.right,
                    None => unreachable!("it was there"),
                },
            }
        }
    }

    /// Puts a value under a key; gives the value that was there.
    ///
    /// # Panics
    /// If the pool is full.
    pub fn insert(&mut self, key: u64, value: u64, tx: &Tx<'p>) -> Option<u64> {
        let link = self.link(key);
        if let Some(node) = link {
            return Some(std::mem::replace(&mut node.value, value));
        }
        *link = Some(PBox::new(Node { key, value, left: None, right: None }, tx));
        self.len += 1;
        None
    }

    /// Takes an entry out; gives its value.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        let link = self.link(key);
        let mut node = link.take()?;
        let value = node.value;
        *link = match (node.left.take(), node.right.take()) {
            (None, other) | (other, None) => other,
            (left, Some(mut right)) => {
                // The least of the greater ones takes its place.
                let least = take_least(&mut right);
                match least {
                    None => {
                        right.left = left;
                        Some(right)
                    }
                    Some(mut least) => {
                        (least.left, least.right) = (left, Some(right));
                        Some(least)
                    }
                }
            }
        };
        self.len -= 1;
        Some(value)
    }

    /// Its entries, in order.
    pub fn entries(&self) -> Vec<(u64, u64)> {
        let (mut entries, mut path, mut link) = (Vec::new(), Vec::new(), &self.root);
        loop {
            while let Some(node) = link {
                path.push(node);
                link = &node.left;
            }
            let Some(node) = path.pop() else { return entries };
            entries.push((node.key, node.value));
            link = &node.right;
        }
    }
}

/// The least node below this one, which takes its own place if it is the least.
fn take_least<'p>(top: &mut PBox<'p, Node<'p>>) -> Link<'p> {
    let mut parent = &mut **top;
    parent.left.as_ref()?;
    loop {
        if parent.left.as_deref().is_some_and(|left| left.left.is_none()) {
            let mut least = parent.left.take()?;
            parent.left = least.right.take();
            return Some(least);
        }
        parent = parent.left.as_deref_mut()?;
    }
}
