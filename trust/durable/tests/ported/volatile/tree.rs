//! A binary search tree.

pub struct Node {
    key: u64,
    value: u64,
    children: [Option<Box<Node>>; 2],
}

#[derive(Default)]
pub struct Tree {
    root: Option<Box<Node>>,
}

impl Tree {
    pub fn insert(&mut self, key: u64, value: u64) {
        let mut place = &mut self.root;
        while let Some(node) = place {
            if node.key == key {
                node.value = value;
                return;
            }
            let side = usize::from(key > node.key);
            place = &mut node.children[side];
        }
        *place = Some(Box::new(Node { key, value, children: [None, None] }));
    }

    pub fn get(&self, key: u64) -> Option<u64> {
        let mut node = self.root.as_deref()?;
        while node.key != key {
            node = node.children[usize::from(key > node.key)].as_deref()?;
        }
        Some(node.value)
    }
}

pub fn run() -> Vec<Option<u64>> {
    let mut tree = Tree::default();
    for key in 0..10 {
        tree.insert(key * 7 % 10, key);
    }
    (0..12).map(|key| tree.get(key)).collect()
}
