//! A binary search tree.

use trust_durable::{Durable, PBox, Persist, Tx};

#[derive(Persist)]
#[repr(C)]
pub struct Node<'p> {
    key: u64,
    value: u64,
    children: [Option<PBox<'p, Node<'p>>>; 2],
}

#[derive(Default, Persist)]
#[repr(C)]
pub struct Tree<'p> {
    root: Option<PBox<'p, Node<'p>>>,
}

impl<'p> Tree<'p> {
    pub fn insert(&mut self, key: u64, value: u64, tx: &Tx<'p>) {
        let mut place = &mut self.root;
        while let Some(node) = place {
            if node.key == key {
                node.value = value;
                return;
            }
            let side = usize::from(key > node.key);
            place = &mut node.children[side];
        }
        *place = Some(PBox::new(Node { key, value, children: [None, None] }, tx));
    }

    pub fn get(&self, key: u64) -> Option<u64> {
        let mut node = self.root.as_deref()?;
        while node.key != key {
            node = node.children[usize::from(key > node.key)].as_deref()?;
        }
        Some(node.value)
    }
}

pub fn run(pool: &trust::Threadpool, folder: &std::path::Path) -> Vec<Option<u64>> {
    let tree = Durable::<Tree>::open(pool.trustees()[0], folder, |_| Tree::default()).unwrap();
    for key in 0..10 {
        tree.apply(move |tree, tx| tree.insert(key * 7 % 10, key, tx));
    }
    tree.apply_with(|tree, _, ()| (0..12).map(|key| tree.get(key)).collect(), ())
}
