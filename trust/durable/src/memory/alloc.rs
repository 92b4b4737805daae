//! Allocator of a pool. Its state is volatile: a slot is allocated if the root reaches it, and opening a pool finds
//! these slots by walking.
//!
//! Pages of 4 KiB. A page has slots of one size class, up to half a page, with a bit each; a larger value takes a run
//! of pages. Nothing here touches the pool's memory itself.
//!
//! Invariant: a slot has one owner at a time. A freed slot can be allocated again at once, so a caller that may have to
//! revert the freeing (a transaction) defers it.

use std::collections::{BTreeMap, BTreeSet};

use super::copy::LINE;

pub(crate) const PAGE: usize = 4096;

/// Sizes of slots that share a page. Slots of a multiple of 64 bytes share no line with others.
const SIZES: [usize; 21] =
    [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 1344, 2048];
const SMALL: usize = SIZES[SIZES.len() - 1];
/// The largest alignment of a persistent value.
pub(crate) const ALIGN: usize = 16;

/// Size class for sizes in units of 16 bytes.
const CLASSES: [u8; SMALL / 16 + 1] = {
    let mut classes = [0; SMALL / 16 + 1];
    let (mut units, mut class) = (0, 0);
    while units < classes.len() {
        if units * 16 > SIZES[class] {
            class += 1;
        }
        classes[units] = class as u8;
        units += 1;
    }
    classes
};

fn class_of(bytes: usize) -> usize {
    usize::from(CLASSES[bytes.div_ceil(16)])
}

/// Use of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Free,
    /// Slots of this class.
    Rooms(u8),
    /// The first page of a run of this many.
    Run(u32),
    /// A later page of a run, or a reserved page.
    Within,
}

#[derive(Clone)]
struct Page {
    kind: Kind,
    /// Is it in the list of pages of its class with free slots?
    is_listed: bool,
    taken: u16,
    bits: [u64; 4],
}

const UNUSED: Page = Page { kind: Kind::Free, is_listed: false, taken: 0, bits: [0; 4] };

impl Page {
    fn is_allocated(&self, room: usize) -> bool {
        self.bits[room / 64] & (1 << (room % 64)) != 0
    }

    fn first_free(&self, rooms: usize) -> Option<usize> {
        let word = self.bits.iter().position(|&word| word != u64::MAX)?;
        let room = word * 64 + self.bits[word].trailing_ones() as usize;
        (room < rooms).then_some(room)
    }
}

/// Free runs of pages, with neighbours merged.
#[derive(Default)]
struct Runs {
    by_start: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
}

impl Runs {
    fn put(&mut self, mut start: u32, mut pages: u32) {
        if let Some((&before, &length)) = self.by_start.range(..start).next_back()
            && before + length == start
        {
            self.remove(before, length);
            (start, pages) = (before, length + pages);
        }
        if let Some((&after, &length)) = self.by_start.range(start..).next()
            && start + pages == after
        {
            self.remove(after, length);
            pages += length;
        }
        self.by_start.insert(start, pages);
        self.by_length.insert((pages, start));
    }

    fn remove(&mut self, start: u32, pages: u32) {
        self.by_start.remove(&start);
        self.by_length.remove(&(pages, start));
    }

    /// Takes the shortest run that is long enough.
    fn take(&mut self, pages: u32) -> Option<u32> {
        let &(length, start) = self.by_length.range((pages, 0)..).next()?;
        self.remove(start, length);
        if length > pages {
            self.by_start.insert(start + pages, length - pages);
            self.by_length.insert((length - pages, start + pages));
        }
        Some(start)
    }
}

/// Reason why a slot that the root reaches is not valid.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Misplaced {
    Outside,
    Misaligned,
    Overlap,
}

/// See the file's documentation.
pub(crate) struct Alloc {
    pages: Vec<Page>,
    limit_pages: usize,
    free: Runs,
    /// Pages with free slots of each class. May also name pages that have none any more.
    listed: [Vec<u32>; SIZES.len()],
    /// One page of each class with all slots free, kept so that a value allocated and freed in turn does not set up
    /// and tear down a page each time.
    kept: [Option<u32>; SIZES.len()],
    allocated_bytes: usize,
}

impl Alloc {
    /// Makes the allocator of a pool with `reserved` pages at the start that are never allocated, and an initial limit
    /// of `limit` bytes.
    pub(crate) fn new(limit: usize, reserved: usize) -> Alloc {
        let pages = vec![Page { kind: Kind::Within, ..UNUSED }; reserved];
        Alloc {
            pages,
            limit_pages: limit / PAGE,
            free: Runs::default(),
            listed: [const { Vec::new() }; SIZES.len()],
            kept: [None; SIZES.len()],
            allocated_bytes: 0,
        }
    }

    /// Returns the size of the slot for a value of `bytes`.
    pub(crate) fn room_bytes(bytes: usize) -> usize {
        if bytes <= SMALL { SIZES[class_of(bytes)] } else { bytes.next_multiple_of(PAGE) }
    }

    /// Returns the end of the last slot ever allocated, in bytes from the start of the pool.
    pub(crate) fn high_water(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// Sets the limit to `limit` bytes.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit_pages = limit / PAGE;
    }

    fn pages_of(bytes: usize) -> usize {
        if bytes > SMALL { bytes.div_ceil(PAGE) } else { 1 }
    }

    /// Returns the limit that lets `bytes` be allocated behind everything that was ever allocated.
    pub(crate) fn limit_to_take(&self, bytes: usize) -> Option<usize> {
        (self.pages.len() + Self::pages_of(bytes)).checked_mul(PAGE)
    }

    /// Returns the limit that lets a value of `bytes` at `at` be [claimed](Self::claim).
    pub(crate) fn limit_to_claim(at: u64, bytes: usize) -> Option<usize> {
        (usize::try_from(at).ok()? / PAGE).checked_add(Self::pages_of(bytes))?.checked_mul(PAGE)
    }

    /// Returns the bytes of all allocated slots.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.allocated_bytes
    }

    /// Allocates `bytes`; `None` if there is no space.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<u64> {
        if bytes > SMALL {
            let pages = u32::try_from(bytes.div_ceil(PAGE)).ok()?;
            let start = self.take_pages(pages)?;
            self.pages[start as usize].kind = Kind::Run(pages);
            self.pages[start as usize + 1..][..pages as usize - 1].iter_mut().for_each(|page| page.kind = Kind::Within);
            self.allocated_bytes += pages as usize * PAGE;
            return Some(u64::from(start) * PAGE as u64);
        }
        let class = class_of(bytes);
        let rooms = PAGE / SIZES[class];
        loop {
            let Some(&number) = self.listed[class].last() else {
                let number = self.take_pages(1)?;
                self.pages[number as usize] = Page { kind: Kind::Rooms(class as u8), is_listed: true, ..UNUSED };
                self.listed[class].push(number);
                continue;
            };
            let page = &mut self.pages[number as usize];
            let is_current = page.kind == Kind::Rooms(class as u8) && page.is_listed;
            let Some(room) = page.first_free(rooms).filter(|_| is_current) else {
                if is_current {
                    page.is_listed = false;
                }
                self.listed[class].pop();
                continue;
            };
            page.bits[room / 64] |= 1 << (room % 64);
            page.taken += 1;
            if self.kept[class] == Some(number) {
                self.kept[class] = None;
            }
            self.allocated_bytes += SIZES[class];
            return Some((number as usize * PAGE + room * SIZES[class]) as u64);
        }
    }

    fn take_pages(&mut self, pages: u32) -> Option<u32> {
        if let Some(start) = self.free.take(pages) {
            return Some(start);
        }
        let end = self.pages.len() + pages as usize;
        if end > self.limit_pages {
            return None;
        }
        let start = u32::try_from(self.pages.len()).ok()?;
        self.pages.resize(end, UNUSED);
        Some(start)
    }

    /// Frees a slot.
    ///
    /// # Panics
    /// If it is not allocated, or has another size: the caller's accounting is wrong.
    pub(crate) fn give(&mut self, at: u64, bytes: usize) {
        let number = at as usize / PAGE;
        if bytes > SMALL {
            let pages = bytes.div_ceil(PAGE);
            assert!(
                self.pages[number].kind == Kind::Run(pages as u32),
                "a run of pages was not taken as it is given back"
            );
            self.pages[number..][..pages].fill(UNUSED);
            self.allocated_bytes -= pages * PAGE;
            self.free.put(number as u32, pages as u32);
            return;
        }
        let class = class_of(bytes);
        let room = at as usize % PAGE / SIZES[class];
        let page = &mut self.pages[number];
        assert!(
            page.kind == Kind::Rooms(class as u8) && page.is_allocated(room),
            "a room was not taken as it is given back"
        );
        page.bits[room / 64] &= !(1 << (room % 64));
        page.taken -= 1;
        self.allocated_bytes -= SIZES[class];
        if page.taken == 0 && self.kept[class].is_some_and(|kept| kept != number as u32) {
            *page = UNUSED;
            self.free.put(number as u32, 1);
            return;
        }
        if page.taken == 0 {
            self.kept[class] = Some(number as u32);
        }
        if !page.is_listed {
            page.is_listed = true;
            self.listed[class].push(number as u32);
        }
    }

    /// Is any other slot in this line allocated than the one at `at`? For slots that share lines.
    pub(crate) fn is_line_shared(&self, line: usize, at: u64) -> bool {
        let page = &self.pages[line * LINE / PAGE];
        let Kind::Rooms(class) = page.kind else { return false };
        let size = SIZES[usize::from(class)];
        let start = line * LINE % PAGE;
        let own = at as usize % PAGE / size;
        let last = ((start + LINE - 1) / size).min(PAGE / size - 1);
        (start / size..=last).any(|room| room != own && page.is_allocated(room))
    }

    /// Allocates the slot of a value of `bytes` that the walk from the root has found.
    pub(crate) fn claim(&mut self, at: u64, bytes: usize) -> Result<(), Misplaced> {
        let at = usize::try_from(at).map_err(|_| Misplaced::Outside)?;
        let number = at / PAGE;
        let pages = Self::pages_of(bytes);
        if number.checked_add(pages).is_none_or(|end| end > self.limit_pages) {
            return Err(Misplaced::Outside);
        }
        if self.pages.len() < number + pages {
            self.pages.resize(number + pages, UNUSED);
        }
        if bytes > SMALL {
            if !at.is_multiple_of(PAGE) {
                return Err(Misplaced::Misaligned);
            }
            if self.pages[number..][..pages].iter().any(|page| page.kind != Kind::Free) {
                return Err(Misplaced::Overlap);
            }
            self.pages[number..][..pages].iter_mut().for_each(|page| page.kind = Kind::Within);
            self.pages[number].kind = Kind::Run(pages as u32);
            self.allocated_bytes += pages * PAGE;
            return Ok(());
        }
        let class = class_of(bytes);
        let (room, rest) = (at % PAGE / SIZES[class], at % PAGE % SIZES[class]);
        if rest != 0 || room >= PAGE / SIZES[class] {
            return Err(Misplaced::Misaligned);
        }
        let page = &mut self.pages[number];
        if page.kind == Kind::Free {
            page.kind = Kind::Rooms(class as u8);
        }
        if page.kind != Kind::Rooms(class as u8) || page.is_allocated(room) {
            return Err(Misplaced::Overlap);
        }
        page.bits[room / 64] |= 1 << (room % 64);
        page.taken += 1;
        self.allocated_bytes += SIZES[class];
        Ok(())
    }

    /// Frees everything that was not claimed; called after the last [`claim`](Self::claim).
    pub(crate) fn claimed(&mut self) {
        let mut run = None;
        for number in 0..=self.pages.len() {
            match self.pages.get_mut(number) {
                Some(page) if page.kind == Kind::Free => {
                    let _: &mut (usize, usize) = run.get_or_insert((number, 0));
                    run = run.map(|(start, pages)| (start, pages + 1));
                    continue;
                }
                Some(page) => {
                    if let Kind::Rooms(class) = page.kind
                        && usize::from(page.taken) < PAGE / SIZES[usize::from(class)]
                    {
                        page.is_listed = true;
                        self.listed[usize::from(class)].push(number as u32);
                    }
                }
                None => {}
            }
            if let Some((start, pages)) = run.take() {
                self.free.put(start as u32, pages as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests;
