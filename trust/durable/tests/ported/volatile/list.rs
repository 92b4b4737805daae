//! A linked list.

pub struct Node {
    key: u64,
    next: Option<Box<Node>>,
}

#[derive(Default)]
pub struct List {
    head: Option<Box<Node>>,
    len: u64,
}

impl List {
    pub fn push(&mut self, key: u64) {
        let next = self.head.take();
        self.head = Some(Box::new(Node { key, next }));
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

pub fn run() -> Vec<u64> {
    let mut list = List::default();
    for key in 0..10 {
        list.push(key * 7 % 10);
    }
    assert!(list.remove(3) && !list.remove(30));
    list.keys()
}
