//! Bunches: objects that are stored together travel together.

use gossamer_heap::{self as heap, Bunch, ElementId};

use super::{at, is_far, objects_at, until_objects};
use crate::suite::ground::{effort, panics_with, places, remote, spots};

struct Node {
    value: u64,
    next: Option<ElementId<Node>>,
    name: ElementId<[u8; 5]>,
}

/// Its root: the begin of the list.
type List = Bunch<Option<ElementId<Node>>>;

fn list(nodes: u64) -> List {
    let mut list = Bunch::new(None);
    let mut view = list.write();
    for value in 0..nodes {
        let name = view.add([value as u8; 5]);
        let next = *view;
        *view = Some(view.add(Node { value, next, name }));
    }
    list
}

fn sum(list: &List) -> u64 {
    let (view, mut sum) = (list.read(), 0);
    let mut next = *view;
    while let Some(id) = next {
        let node = &view[id];
        assert_eq!(view[node.name], [node.value as u8; 5]);
        sum += node.value;
        next = node.next;
    }
    sum
}

/// One read copies or moves all of it; ids mean the same at each place, before and after.
pub fn heap_bunches_go_by_one_read() {
    let nodes = effort(1000);
    for place in spots() {
        let before = objects_at(place);
        let mut bunch = at(place, move || list(nodes));
        assert_eq!(bunch.place(), place);
        let far = u64::from(is_far(place));
        let fetched = heap::stats().fetches;
        assert_eq!(sum(&bunch), nodes * (nodes - 1) / 2);
        assert_eq!(heap::stats().fetches - fetched, far, "one read copies it");
        let mut view = bunch.write();
        assert_eq!(heap::stats().fetches - fetched, 2 * far, "one read moves it");
        // It grows at its present place, and again at the next one.
        for value in nodes..2 * nodes {
            let name = view.add([value as u8; 5]);
            let next = *view;
            *view = Some(view.add(Node { value, next, name }));
        }
        let first = view.unwrap();
        view[first].value = 0;
        assert_eq!(view.elements() as u64, 4 * nodes);
        bunch.move_here();
        let expected = 2 * nodes * (2 * nodes - 1) / 2 - (2 * nodes - 1);
        let all = places().into_iter().try_fold(bunch, |bunch, place| {
            at(place, move || {
                let value = bunch.read()[bunch.read().unwrap()].name;
                let is_same = bunch.read()[value] == [(2 * nodes - 1) as u8; 5];
                is_same.then_some(bunch)
            })
        });
        let bunch = all.expect("ids mean the same everywhere");
        let view = bunch.read();
        let mut values = 0;
        let mut next = *view;
        while let Some(id) = next {
            values += view[id].value;
            next = view[id].next;
        }
        assert_eq!(values, expected);
        drop(bunch);
        until_objects(place, before);
    }
}

/// An element id of another bunch finds an element of its type, or nothing.
pub fn heap_ids_of_other_bunches_find_nothing_else() {
    for place in spots() {
        let (mut one, mut other) = (Bunch::new(()), at(place, || Bunch::new(7u64)));
        let ids: [ElementId<u64>; 2] = std::array::from_fn(|i| one.write().add(i as u64));
        panics_with("an element id of another bunch: this one has 0 elements", || other.read()[ids[0]]);
        let mine = other.write().add([1u32; 3]);
        panics_with("element 0 of this one is no `u64`", || other.read()[ids[0]]);
        panics_with("none of number 1", || other.write()[ids[1]] = 5);
        assert_eq!((other.read()[mine], *other.read()), ([1; 3], 7));
        other.write().add(5u64);
        assert_eq!(other.read()[ids[1]], 5, "one of its type");
    }
}

/// A forgotten guard of it does no harm, also where it has grown.
pub fn heap_forgotten_views_do_no_harm() {
    let mut bunch = at(remote(), || list(10));
    std::mem::forget(bunch.read());
    let mut view = bunch.write();
    let id = view.add([1u8; 4000]);
    let _: &mut heap::ViewMut<'_, _> = Box::leak(Box::new(view));
    assert_eq!((sum(&bunch), bunch.read()[id]), (45, [1; 4000]));
}
