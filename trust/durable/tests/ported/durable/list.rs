//! A linked list.

use trust_durable::{Durable, PBox, Persist, Tx};

#[derive(Persist)]
#[repr(C)]
pub struct Node<'p> {
    key: u64,
    next: Option<PBox<'p, Node<'p>>>,
}

#[derive(Default, Persist)]
#[repr(C)]
pub struct List<'p> {
    head: Option<PBox<'p, Node<'p>>>,
    len: u64,
}

impl<'p> List<'p> {
    pub fn push(&mut self, key: u64, tx: &Tx<'p>) {
        let next = self.head.take();
        self.head = Some(PBox::new(Node { key, next }, tx));
        self.len += 1;
    }

    pub fn remove(&mut self, key: u64) -> bool {
        let mut place = &mut self.head;
        while place.as_ref().is_some_and(|node| node.key != key) {
            place = &mut place.as_mut().unwrap().next;
        }
        let Some(mut node) = place.take() else { return false };
        *place = node.next.take();
        self.len -= 1;
        true
    }

    pub fn keys(&self) -> Vec<u64> {
        std::iter::successors(self.head.as_deref(), |node| node.next.as_deref()).map(|node| node.key).collect()
    }
}

pub fn run(pool: &trust::Threadpool, folder: &std::path::Path) -> Vec<u64> {
    let list = Durable::<List>::open(pool.trustees()[0], folder, |_| List::default()).unwrap();
    for key in 0..10 {
        list.apply(move |list, tx| list.push(key * 7 % 10, tx));
    }
    assert!(list.apply(|list, _| list.remove(3) && !list.remove(30)));
    list.apply_with(|list, _, ()| list.keys(), ())
}
