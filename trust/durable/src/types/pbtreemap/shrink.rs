//! Removal from a `PBTreeMap`: a node that has too few entries afterwards takes one from a neighbour, or is merged with
//! it.

use super::PBTreeMap;
use super::node::{LEAST, Node};
use super::path::Path;
use crate::persist::Persist;

impl<K: Persist, V: Persist> PBTreeMap<'_, K, V> {
    /// Removes the entry at the end of a path.
    pub(super) fn take(&mut self, mut path: Path<K, V>) -> (K, V) {
        let (node, index) = path.last();
        let taken = if node.level == 0 {
            let entry = node.remove(index);
            (entry.key, entry.value)
        } else {
            // The entry before it, the last one of a leaf, takes its place.
            path.extend(node.child(index), Node::len);
            let (leaf, len) = path.last();
            let before = leaf.remove(len - 1);
            node.replace(index, before.key, before.value)
        };
        self.len -= 1;
        self.refill(&path);
        taken
    }

    /// Refills the nodes of a path to a leaf that has lost an entry.
    fn refill(&mut self, path: &Path<K, V>) {
        for level in 0..self.height as usize {
            let (node, _) = path.step(level);
            if node.len() >= LEAST {
                return;
            }
            let (parent, index) = path.step(level + 1);
            let previous = (index > 0).then(|| parent.child(index - 1));
            let next = (index < parent.len()).then(|| parent.child(index + 1));
            match (previous, next) {
                (Some(previous), _) if previous.len() > LEAST => {
                    return node.borrow_from_previous(previous, parent, index - 1);
                }
                (_, Some(next)) if next.len() > LEAST => return node.borrow_from_next(next, parent, index),
                (Some(previous), _) => previous.merge_next(parent, index - 1),
                (None, _) => node.merge_next(parent, index),
            }
        }
        let Some(root) = self.root().filter(|root| root.len() == 0) else { return };
        (self.at, self.height) = if root.level == 0 { (0, 0) } else { (root.child(0).at, self.height - 1) };
        root.give();
    }
}
