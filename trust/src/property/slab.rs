//! Memory of properties. Each trustee has pages of its own, so no cache line holds properties of two trustees, and
//! small properties of a type lie close together.
//!
//! A page is aligned to its size, so a property's address tells its page, and the page tells the property's type. A
//! page goes back to the allocator when its last property has gone and another page of the type has room, or its
//! trustee has ended; so it may outlive its trustee, and keeps the trustee's `PropertySlab` alive as long.
//!
//! Invariants:
//! - [page-lock] A page has a share of its `PropertySlab`, whose lock guards all fields of the page that change.
//! - [page-listed] A page is in the list of its type exactly while it has a free slot, at the place recorded in it.
//! - [slot-owner] A slot is given out once until it is given back.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::header::{Header, PropertyType};
use crate::config::ADDRESS_BITS;

/// Bytes of a page, and its alignment.
const PAGE_BYTES: usize = 16 << 10;
/// The largest slot, and the strictest alignment of one.
pub(crate) const SLOT_BYTES_MAX: usize = 1 << 10;
const LINE_BYTES: usize = 64;
/// Lines at which the first properties of pages may lie.
const FIRST_LINES: u32 = 128;
/// Of 2^64: its multiples are spread evenly.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// The pages of one trustee's properties.
#[derive(Default)]
pub(crate) struct PropertySlab(Mutex<State>);

#[derive(Default)]
struct State {
    /// Pages with room, by type.
    open: HashMap<*const PropertyType, Vec<*mut Page>>,
    /// Properties that other threads have made, and which the trustee does not know yet. Another machine may send
    /// requests for one before the entrusting thread's own message arrives.
    announced: HashSet<*mut Header>,
    /// The trustee has ended.
    closed: bool,
    /// Number of pages.
    pages: u64,
}

// SAFETY: the pages belong to the state, by [page-lock] and [page-listed]; no thread is special to them.
unsafe impl Send for State {}

/// The beginning of a page; its slots follow. It is only ever borrowed shared: other threads read `kind` and `slab`
/// while the one with the lock changes the rest.
struct Page {
    kind: &'static PropertyType,
    slab: Arc<PropertySlab>,
    /// Slots that were given back, linked through their first word.
    free: Cell<*mut u8>,
    /// The next slot that has never been given out, if there is one: up to the end of the page, then from its first one
    /// on.
    fresh: Cell<*mut u8>,
    /// Slots that have never been given out.
    unused: Cell<u32>,
    used: Cell<u32>,
    place: Cell<u32>,
}

impl Page {
    const LAYOUT: Layout = match Layout::from_size_align(PAGE_BYTES, PAGE_BYTES) {
        Ok(layout) => layout,
        Err(_) => panic!("page layout"),
    };

    fn new(slab: &Arc<PropertySlab>, kind: &'static PropertyType) -> *mut Page {
        // SAFETY: the layout has a size.
        let page = unsafe { alloc(Self::LAYOUT) };
        if page.is_null() {
            handle_alloc_error(Self::LAYOUT);
        }
        assert!(page.addr() >> ADDRESS_BITS == 0, "this platform's addresses are longer than 48 bits");
        let fresh = Cell::new(page.wrapping_add(first_slot(kind.slot)));
        let slab = Arc::clone(slab);
        let free = Cell::new(ptr::null_mut());
        let (unused, used, place) = (Cell::new(slots_of_page(kind.slot) as u32), Cell::new(0), Cell::new(0));
        // SAFETY: the memory is that of a page, which is larger than its beginning, and aligned to more.
        unsafe { page.cast::<Page>().write(Page { kind, slab, free, fresh, unused, used, place }) };
        page.cast()
    }

    /// Has the first slot that is given out be another one in each page. Else the first properties of many trustees
    /// would lie in one set of the cache, for all pages are aligned alike. It helps for slots of up to 256 bytes; slots
    /// of [`allocate_run`](PropertySlab::allocate_run) stay in order. Of a page without properties.
    fn begin_elsewhere(&self) {
        let slots_of_line = (LINE_BYTES / self.kind.slot_bytes()).max(1);
        let page = ptr::from_ref(self).addr() / PAGE_BYTES;
        let line = (page as u64).wrapping_mul(GOLDEN_RATIO) >> (u64::BITS - FIRST_LINES.ilog2());
        let slot = line as usize * slots_of_line % self.unused.get() as usize;
        self.fresh.set(self.fresh.get().wrapping_add(slot * self.kind.slot_bytes()));
    }

    /// Takes a slot. Not of a full page, and with the lock held [page-lock].
    fn take(&self) -> *mut u8 {
        self.used.set(self.used.get() + 1);
        let free = self.free.get();
        if !free.is_null() {
            // SAFETY: a slot that was given back holds the link.
            self.free.set(unsafe { free.cast::<*mut u8>().read() });
            return free;
        }
        let (slot, bytes) = (self.fresh.get(), self.kind.slot_bytes());
        let has_next = slot.addr() % PAGE_BYTES + 2 * bytes <= PAGE_BYTES;
        self.fresh.set(match has_next {
            true => slot.wrapping_add(bytes),
            false => slot.map_addr(|address| address - address % PAGE_BYTES + first_slot(self.kind.slot)),
        });
        self.unused.set(self.unused.get() - 1);
        slot
    }

    /// The page of a property.
    fn of(property: *mut Header) -> *mut Page {
        property.map_addr(|address| address & !(PAGE_BYTES - 1)).cast()
    }

    fn is_full(&self) -> bool {
        self.free.get().is_null() && self.unused.get() == 0
    }
}

/// Offset of the first slot of a page.
const fn first_slot(slot: Layout) -> usize {
    size_of::<Page>().next_multiple_of(if slot.align() > LINE_BYTES { slot.align() } else { LINE_BYTES })
}

/// Slots of a page.
pub(super) const fn slots_of_page(slot: Layout) -> usize {
    (PAGE_BYTES - first_slot(slot)) / slot.size()
}

impl PropertySlab {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for a property of this type.
    pub(crate) fn allocate(self: &Arc<Self>, kind: &'static PropertyType) -> *mut Header {
        let mut state = self.lock();
        let open = state.open.get(&ptr::from_ref(kind)).and_then(|open| open.last().copied());
        let at = open.unwrap_or_else(|| {
            let page = state.new_page(self, kind);
            // SAFETY: just made, and the lock is held [page-lock].
            unsafe { (*page).begin_elsewhere() };
            state.list(page);
            page
        });
        // SAFETY: pages in the list live, and the lock is held [page-lock].
        let page = unsafe { &*at };
        let slot = page.take();
        if page.is_full() {
            // The last of its list.
            state.open.get_mut(&ptr::from_ref(kind)).and_then(Vec::pop);
        }
        slot.cast()
    }

    /// Takes room for this many properties of this type, in new pages. Returns the first slot of each page; the others
    /// follow it, [`slots_of_page`] in each page.
    pub(crate) fn allocate_run(self: &Arc<Self>, kind: &'static PropertyType, count: usize) -> Box<[*mut u8]> {
        let mut state = self.lock();
        let slots_max = slots_of_page(kind.slot);
        let starts = (0..count).step_by(slots_max).map(|start| {
            let at = state.new_page(self, kind);
            // SAFETY: new, and the lock is held [page-lock].
            let page = unsafe { &*at };
            let (first, used) = (page.fresh.get(), slots_max.min(count - start));
            page.fresh.set(first.wrapping_add(used * kind.slot_bytes()));
            page.unused.set((slots_max - used) as u32);
            page.used.set(used as u32);
            if !page.is_full() {
                state.list(at);
            }
            first
        });
        starts.collect()
    }

    /// Memory of its pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().pages * PAGE_BYTES as u64
    }

    /// Announces a property that another thread has made, and of which the trustee will hear.
    pub(crate) fn announce(&self, property: *mut Header) {
        self.lock().announced.insert(property);
    }

    /// Shows the properties that the trustee does not know yet.
    pub(crate) fn announced(&self, show: impl FnMut(*mut Header)) {
        self.lock().announced.iter().copied().for_each(show);
    }

    /// Removes the announcement: the trustee has heard of the property.
    pub(crate) fn arrived(&self, property: *mut Header) {
        self.lock().announced.remove(&property);
    }

    /// Is this the address of a property that the trustee does not know yet?
    pub(crate) fn is_announced(&self, property: *mut Header) -> bool {
        self.lock().announced.contains(&property)
    }

    /// Closes the slab: the trustee has ended, and no page is kept for later properties.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let pages: Vec<*mut Page> = state.open.values().flatten().copied().collect();
        // SAFETY: as in `allocate`.
        let empty = pages.into_iter().filter(|&page| unsafe { (*page).used.get() == 0 });
        // SAFETY: in the list and empty; the caller has a share of `self`, so these are not the last.
        empty.for_each(|page| drop(unsafe { state.remove(page) }));
    }
}

impl State {
    /// Makes a page, which is in no list yet.
    fn new_page(&mut self, slab: &Arc<PropertySlab>, kind: &'static PropertyType) -> *mut Page {
        self.pages += 1;
        Page::new(slab, kind)
    }

    /// Puts a page with room into the list of its type.
    fn list(&mut self, page: *mut Page) {
        // SAFETY: it lives, and the lock is held [page-lock].
        let (kind, place) = unsafe { ((*page).kind, &(*page).place) };
        let open = self.open.entry(kind).or_default();
        place.set(open.len() as u32);
        open.push(page);
    }

    /// Frees an empty page. The result is to be dropped after the lock has been released.
    ///
    /// # Safety
    /// The page is in the list of its type and has no property.
    unsafe fn remove(&mut self, page: *mut Page) -> Arc<PropertySlab> {
        // SAFETY: the caller's promise, [page-lock], [page-listed]; no other code knows the page.
        unsafe {
            if let Some(open) = self.open.get_mut(&ptr::from_ref((*page).kind)) {
                let place = (*page).place.get();
                open.swap_remove(place as usize);
                if let Some(&moved) = open.get(place as usize) {
                    (*moved).place.set(place);
                }
            }
            self.pages -= 1;
            let Page { slab, .. } = page.read();
            dealloc(page.cast(), Page::LAYOUT);
            slab
        }
    }
}

/// The type of a property.
///
/// # Safety
/// It is live.
pub(crate) unsafe fn kind_of(property: *mut Header) -> &'static PropertyType {
    // SAFETY: the page of a live property lives; this field never changes.
    unsafe { (*Page::of(property)).kind }
}

/// Gives a property's room back.
///
/// # Safety
/// [`PropertySlab::allocate`] gave it out; it is no longer used.
pub(crate) unsafe fn free(property: *mut Header) {
    let at = Page::of(property);
    // SAFETY: the page lives as long as it has properties [page-lock]; once the lock is released others may end it.
    unsafe {
        // Kept until the lock has been released for good: another thread may free the page and its share meanwhile.
        let slab = Arc::clone(&(*at).slab);
        let mut state = slab.lock();
        let closed = state.closed;
        if !state.announced.is_empty() {
            state.announced.remove(&property);
        }
        let page = &*at;
        if page.is_full() {
            state.list(at);
        }
        property.cast::<*mut u8>().write(page.free.replace(property.cast()));
        page.used.set(page.used.get() - 1);
        let has_others = || state.open.get(&ptr::from_ref(page.kind)).is_some_and(|open| open.len() > 1);
        let is_spare = page.used.get() == 0 && (closed || has_others());
        let last = is_spare.then(|| state.remove(at));
        drop(state);
        drop(last);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::collections::HashSet;

    use super::*;
    use crate::property::{self, Property};

    fn pages(slab: &PropertySlab) -> usize {
        slab.lock().open.values().map(Vec::len).sum()
    }

    fn page_of(property: *mut Header) -> usize {
        Page::of(property).addr()
    }

    #[test]
    fn slots_are_used_again_and_pages_given_back() {
        let slab = Arc::new(PropertySlab::default());
        // Under miri just more than one page, of larger ones.
        const WORDS: usize = if cfg!(miri) { 15 } else { 1 };
        let count: u64 = if cfg!(miri) { 150 } else { 10_000 };
        let many: Vec<_> = (0..count).map(|n| Property::allocate(&slab, [n; WORDS])).collect();
        assert_eq!(many.iter().collect::<HashSet<_>>().len(), many.len());
        for (n, &property) in many.iter().enumerate() {
            // SAFETY: live, and used here alone.
            assert_eq!(unsafe { (*Property::<[u64; WORDS]>::value(property))[0] }, n as u64);
            assert_eq!(property.addr() % 16, 0, "header and value share a line");
        }
        let pages_used = many.iter().map(|&property| page_of(property)).collect::<HashSet<_>>().len();
        assert!((2..=10).contains(&pages_used), "{pages_used}");
        assert_eq!(slab.bytes(), (pages_used * PAGE_BYTES) as u64);
        // SAFETY: each is destroyed once.
        many.iter().for_each(|&property| unsafe { property::destroy(property) });
        assert_eq!(pages(&slab), 1, "one page is kept");
        assert_eq!(slab.bytes(), PAGE_BYTES as u64);
        let again = Property::allocate(&slab, [1u64; WORDS]);
        assert!(many.contains(&again));
        slab.close();
        assert_eq!(pages(&slab), 1, "a page with a property stays");
        // SAFETY: as above.
        unsafe { property::destroy(again) };
        assert_eq!((pages(&slab), Arc::strong_count(&slab)), (0, 1));
    }

    /// The caches that processors have today take 8 to 12 lines at addresses that are equal modulo 4096.
    #[test]
    fn first_properties_of_many_trustees_do_not_share_a_set_of_the_cache() {
        let slabs: Vec<_> = (0..64).map(|_| Arc::new(PropertySlab::default())).collect();
        let all: Vec<_> = slabs.iter().map(|slab| Property::allocate(slab, 1u64)).collect();
        let mut sets = [0; 4096 / LINE_BYTES];
        all.iter().for_each(|property| sets[property.addr() % 4096 / LINE_BYTES] += 1);
        assert!(sets.iter().all(|&lines| lines <= 8), "{sets:?}");
        // SAFETY: each is destroyed once.
        all.iter().for_each(|&property| unsafe { property::destroy(property) });
    }

    #[test]
    fn slots_of_two_trustees_and_two_types_are_apart() {
        let (one, two) = (Arc::new(PropertySlab::default()), Arc::new(PropertySlab::default()));
        let all =
            [Property::allocate(&one, 1u64), Property::allocate(&one, Box::new(2u64)), Property::allocate(&two, 3u64)];
        assert_eq!(all.iter().map(|&property| page_of(property)).collect::<HashSet<_>>().len(), 3);
        // A property outlives its trustee.
        one.close();
        two.close();
        drop((one, two));
        // SAFETY: each is destroyed once.
        all.iter().for_each(|&property| unsafe { property::destroy(property) });
    }

    #[test]
    fn slots_fit_every_size_and_alignment() {
        #[repr(align(4096))]
        struct Strict(u8);
        #[repr(align(256))]
        struct Line(u8);
        thread_local!(static DROPPED: Cell<u32> = const { Cell::new(0) });
        struct Large([u8; 100_000]);
        impl Drop for Large {
            fn drop(&mut self) {
                DROPPED.set(DROPPED.get() + 1);
            }
        }
        let slab = Arc::new(PropertySlab::default());
        for _ in 0..3 {
            let (strict, line) = (Property::allocate(&slab, Strict(1)), Property::allocate(&slab, Line(2)));
            let (large, nothing) = (Property::allocate(&slab, Large([3; 100_000])), Property::allocate(&slab, ()));
            // SAFETY: live, of these types, each destroyed once.
            unsafe {
                let strict_value = Property::<Strict>::value(strict);
                assert_eq!((ptr::from_ref(strict_value).addr() % 4096, strict_value.0), (0, 1));
                let line_value = Property::<Line>::value(line);
                assert_eq!((ptr::from_ref(line_value).addr() % 256, line_value.0), (0, 2));
                assert!(Property::<Large>::value(large).0.iter().step_by(999).all(|&byte| byte == 3));
                let () = Property::<()>::value(nothing);
                [strict, line, large, nothing].into_iter().for_each(|property| property::destroy(property));
            }
        }
        slab.close();
        assert_eq!(DROPPED.get(), 3);
    }
}
