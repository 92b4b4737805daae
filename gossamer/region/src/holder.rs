//! What one machine has of a region: which pages, and how. A state machine without I/O: faults and messages in,
//! messages and calls of [`Pages`] out.
//!
//! Invariants
//! - S1 Bytes of a page are told to be there for another machine only after this machine's threads can no longer write
//!   it, or no longer have it (ST1.3).
//! - S2 There is one ask under way for a page at most. Who faults on it meanwhile is woken when it is there.
//! - S3 Each fault leads to an ask whose answer wakes it, or wakes it at once.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::home::Out;
use crate::message::{Access, Grant, Message, State};
use crate::page::{BLOCK_PAGES, Homes, Run};

/// The pages themselves.
pub(crate) trait Pages {
    /// Makes pages accessible in this state, with the bytes that they have here, and wakes who waits for them. Pages
    /// that are so already stay so.
    fn install(&mut self, run: Run, state: State);
    /// Makes pages that nobody has touched accessible to read and write, all zeros, and wakes who waits for them.
    fn install_zeros(&mut self, run: Run);
    /// As `install`, of pages that are to be so already. False, and nobody is woken: where pages cannot be installed to
    /// be read only, and the system has taken one out of the address space.
    fn install_again(&mut self, run: Run, state: State) -> bool;
    /// Makes pages that are Shared here writable, and wakes who waits for that.
    fn unprotect(&mut self, run: Run);
    /// From here on no thread writes these pages without a fault.
    fn protect(&mut self, run: Run);
    /// From here on no thread reads or writes these pages without a fault.
    fn unmap(&mut self, run: Run);
    /// Gets the bytes of pages that `from` has. Whether they are there at once; else `Holder::fetched` is to be called.
    fn fetch(&mut self, run: Run, from: u16, state: State) -> bool;
}

/// Runs that may be under way for more to be asked for before anybody faults on it.
const ASKED_BEFOREHAND: usize = 16;
/// Runs that are asked for beforehand at a fault that goes on with a stream of the longest runs, to read: they come
/// while the thread computes. As many as the stream has had, within these bounds.
const AHEAD: u32 = 4;
const AHEAD_MAX: u32 = 16;
/// To write, where nobody has touched the pages: one run for so many that the stream has had, and at most so many. They
/// are this machine's from then on, and who writes them elsewhere takes them one by one: so what a stream asks for in
/// vain is little beside what it wrote.
const HAD_OF_NEW: u32 = 4;
const NEW_MAX: u32 = 4;
/// Streams of faults, page after page, that are seen at the same time.
const STREAMS: usize = 8;

/// Who faults on this page next goes on with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Stream {
    first: u32,
    next: u32,
    /// Pages of its last run.
    count: u32,
    /// Runs that were last asked for beforehand.
    ahead: u32,
    /// Whether its last run had been touched by nobody.
    is_new: bool,
}

impl Stream {
    /// Runs that are to be asked for beforehand when it goes on at `page`.
    fn ahead(&self, page: u32, write: bool) -> u32 {
        let had = page.saturating_sub(self.first) / BLOCK_PAGES;
        match write {
            _ if self.count < BLOCK_PAGES => 0,
            false => had.clamp(AHEAD, AHEAD_MAX),
            true if self.is_new => (had / HAD_OF_NEW).min(NEW_MAX),
            true => 0,
        }
    }

    /// Whether this run was asked for by it, the last or one of those before.
    fn has_asked(&self, run: Run) -> bool {
        let end = run.first + run.count;
        self.count > 0 && end <= self.next && self.next <= end + self.ahead * BLOCK_PAGES
    }
}

/// What one machine has of one region.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    homes: Homes,
    machines: u16,
    states: Vec<State>,
    /// What is asked for, by its first page.
    asked: BTreeMap<u32, Run>,
    /// What is to be asked for beforehand, when there is less under way.
    prefetched: VecDeque<Range<u32>>,
    streams: [Stream; STREAMS],
    /// The stream that is given up for a new one.
    oldest: usize,
    /// Longest run that is asked for.
    longest: u32,
    /// Whether pages can come to be read only. If not, nobody else has them then.
    can_share: bool,
}

impl Holder {
    /// Of a region of so many pages.
    pub(crate) fn new(homes: Homes, machines: u16, pages: u32, can_share: bool) -> Holder {
        let states = vec![State::Invalid; pages as usize];
        let (streams, asked) = ([Stream::default(); STREAMS], BTreeMap::new());
        let prefetched = VecDeque::new();
        Holder { homes, machines, states, asked, prefetched, streams, oldest: 0, longest: BLOCK_PAGES, can_share }
    }

    /// That asks for so many pages at a time at most.
    pub(crate) fn with_runs_of(self, longest: u32) -> Holder {
        Holder { longest, ..self }
    }

    pub(crate) fn state(&self, page: u32) -> State {
        self.states[page as usize]
    }

    /// Whether a page is asked for.
    pub(crate) fn is_asked(&self, page: u32) -> bool {
        self.asked.contains_key(&page)
    }

    /// The machine that knows who has a page.
    pub(crate) fn home(&self, page: u32) -> u16 {
        self.homes.of(page, self.machines)
    }

    /// A thread of this machine stands still at this page. What it reports may be old: the page may be there by now, or
    /// the system has taken it out of the address space.
    pub(crate) fn fault(&mut self, page: u32, write: bool, pages: &mut impl Pages, out: &mut Out) {
        let state = self.state(page);
        let is_here = state == State::Modified || (state == State::Shared && !write);
        if is_here && pages.install_again(Run::one(page), state) {
            return;
        }
        if self.is_asked(page) {
            return; // S2
        }
        let stream = self.stream(page, write);
        let count = self.streams[stream].count;
        let access = if write { Access::Write } else { self.to_read() };
        let run = self.ask(Run { first: page, count }, access, out);
        let mut next = run.first + run.count;
        let ahead = self.streams[stream].ahead(page, write);
        for _ in 0..ahead {
            match self.ask_beforehand(next, write, out) {
                Some(run) => next = run.first + run.count,
                None => break,
            }
        }
        (self.streams[stream].next, self.streams[stream].ahead) = (next, ahead);
    }

    /// Asks for a run that nobody waits for, to read it, or to write it if nobody has touched it. None, if its first
    /// page is here or asked for.
    pub(crate) fn ask_beforehand(&mut self, first: u32, write: bool, out: &mut Out) -> Option<Run> {
        let is_wanted = (first as usize) < self.states.len() && self.state(first) == State::Invalid;
        if !is_wanted || self.is_asked(first) {
            return None;
        }
        let access = if write { Access::New } else { self.to_read() };
        Some(self.ask(Run { first, count: self.longest }, access, out))
    }

    fn to_read(&self) -> Access {
        if self.can_share { Access::Read } else { Access::Alone }
    }

    /// Asks for as much of this run as is like its first page. Returns that.
    fn ask(&mut self, run: Run, access: Access, out: &mut Out) -> Run {
        let state = self.state(run.first);
        let end = Run::block_end(run.first).min(run.first + run.count).min(self.states.len() as u32);
        let is_like = |page: &u32| self.state(*page) == state && !self.is_asked(*page);
        let count = (run.first..end).take_while(is_like).count() as u32;
        let run = Run { first: run.first, count: count.max(1) };
        self.asked.insert(run.first, run);
        out.push((self.home(run.first), Message::Ask { run, access }));
        run
    }

    /// Asks to read what of these pages is not here and not under way, a few runs at a time.
    pub(crate) fn prefetch(&mut self, pages: Range<u32>, out: &mut Out) {
        self.prefetched.push_back(pages.start..pages.end.min(self.states.len() as u32));
        self.go_on_prefetching(out);
    }

    fn go_on_prefetching(&mut self, out: &mut Out) {
        while self.asked.len() < ASKED_BEFOREHAND
            && let Some(pages) = self.prefetched.front_mut()
        {
            let Some(page) = pages.next() else {
                self.prefetched.pop_front();
                continue;
            };
            let end = Run::block_end(page).min(pages.end);
            if self.state(page) == State::Invalid && !self.is_asked(page) {
                let run = self.ask(Run { first: page, count: (end - page).min(self.longest) }, self.to_read(), out);
                if let Some(pages) = self.prefetched.front_mut() {
                    pages.start = run.first + run.count;
                }
            }
        }
    }

    /// The stream that a fault on this page goes on with, or begins (ST1.6). Who reads may leave out as many pages as
    /// came last: columns of a matrix whose rows are longer than a page, say. Who writes may not: others would lose
    /// pages that nobody here writes.
    fn stream(&mut self, page: u32, write: bool) -> usize {
        let goes_on = |stream: &Stream| stream.count > 0 && stream.next == page;
        let goes_on_behind =
            |stream: &Stream| !write && stream.count > 0 && stream.next < page && page - stream.next <= stream.count;
        let found = self.streams.iter().position(goes_on).or_else(|| self.streams.iter().position(goes_on_behind));
        if let Some(stream) = found {
            self.streams[stream].count = (self.streams[stream].count * 2).min(self.longest);
            return stream;
        }
        self.oldest = (self.oldest + 1) % STREAMS;
        self.streams[self.oldest] = Stream { first: page, count: 1, ..Stream::default() };
        self.oldest
    }

    /// A message to this holder.
    pub(crate) fn receive(&mut self, from: u16, message: Message, pages: &mut impl Pages, out: &mut Out) {
        match message {
            Message::Drop { run } => {
                pages.unmap(run);
                self.set(run, State::Invalid);
                out.push((from, Message::Dropped { run }));
            }
            Message::Yield { run, to, keep: true } => {
                if run.pages().any(|page| self.state(page) == State::Modified) {
                    pages.protect(run);
                }
                self.set(run, State::Shared);
                out.push((to, Message::Arrive { run, state: State::Shared }));
            }
            Message::Yield { run, to, keep: false } => {
                pages.unmap(run);
                self.set(run, State::Invalid);
                out.push((to, Message::Arrive { run, state: State::Modified }));
            }
            Message::Arrive { run, state } => {
                if pages.fetch(run, from, state) {
                    self.fetched(run, state, pages, out);
                }
            }
            Message::Granted { run, grant } => {
                match grant {
                    Grant::Nothing => {
                        let state = self.state(run.first);
                        if state == State::Invalid || !pages.install_again(run, state) {
                            pages.install(run, State::Invalid); // who waits faults again
                        }
                    }
                    Grant::Zeros => {
                        self.set(run, State::Modified);
                        pages.install_zeros(run);
                    }
                    Grant::Upgrade => {
                        self.set(run, State::Modified);
                        pages.unprotect(run);
                    }
                }
                self.done(run, grant == Grant::Zeros, out);
            }
            _ => unreachable!("{message:?} is not for a holder"),
        }
    }

    /// The bytes of these pages are here.
    pub(crate) fn fetched(&mut self, run: Run, state: State, pages: &mut impl Pages, out: &mut Out) {
        self.set(run, state);
        pages.install(run, state);
        self.done(run, false, out);
    }

    fn done(&mut self, run: Run, is_new: bool, out: &mut Out) {
        // Where it was only wanted if new, nothing has come.
        let end = if self.state(run.first) == State::Invalid { run.first } else { run.first + run.count };
        if let Some(asked) = self.asked.remove(&run.first)
            && let Some(stream) = self.streams.iter_mut().find(|stream| stream.has_asked(asked))
        {
            stream.is_new = is_new;
            if asked.first + asked.count > end {
                stream.next = end; // it goes on where less came than was asked for
            }
        }
        out.push((self.home(run.first), Message::Done { run }));
        self.go_on_prefetching(out);
    }

    fn set(&mut self, run: Run, state: State) {
        self.states[run.first as usize..(run.first + run.count) as usize].fill(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that are there at once.
    struct AtOnce;
    impl Pages for AtOnce {
        fn install(&mut self, _: Run, _: State) {}
        fn install_zeros(&mut self, _: Run) {}
        fn install_again(&mut self, _: Run, state: State) -> bool {
            state == State::Modified
        }
        fn unprotect(&mut self, _: Run) {}
        fn protect(&mut self, _: Run) {}
        fn unmap(&mut self, _: Run) {}
        fn fetch(&mut self, _: Run, _: u16, _: State) -> bool {
            true
        }
    }

    /// What is asked for at a fault on `page`, each of which is granted as far as `grant` says.
    fn all_asked(holder: &mut Holder, page: u32, grant: u32) -> Vec<u32> {
        let mut out = Out::new();
        holder.fault(page, false, &mut AtOnce, &mut out);
        let ask = |(_, message): &(u16, Message)| match message {
            Message::Ask { run, access: Access::Read } => *run,
            other => panic!("{other:?}"),
        };
        let runs: Vec<Run> = out.iter().map(ask).collect();
        for run in &runs {
            let got = Run { count: run.count.min(grant), ..*run };
            holder.receive(1, Message::Arrive { run: got, state: State::Shared }, &mut AtOnce, &mut out);
        }
        runs.iter().map(|run| run.count).collect()
    }

    /// As well, where one run is asked for.
    fn asked(holder: &mut Holder, page: u32, grant: u32) -> u32 {
        let all = all_asked(holder, page, grant);
        let [one] = all[..] else { panic!("{all:?}") };
        one
    }

    #[test]
    fn runs_double_to_a_block() {
        let mut holder = Holder::new(Homes::Spread, 2, 3000, true);
        let mut page = 0;
        let mut runs = vec![];
        while page < 63 {
            let run = asked(&mut holder, page, 64);
            assert!(page / 64 == (page + run - 1) / 64, "a run lies in one block");
            runs.push(run);
            page += run;
        }
        assert_eq!(runs, [1, 2, 4, 8, 16, 32]);
        assert_eq!(all_asked(&mut holder, 63, 64), [1, 64, 64, 64, 64], "four blocks beforehand");
        assert_eq!(all_asked(&mut holder, 320, 64), [64; 6], "then as many as there were");
        assert_eq!(all_asked(&mut holder, 704, 64), [64; 12]);
        assert_eq!(all_asked(&mut holder, 1472, 64), [64; 17], "sixteen at most");
        assert_eq!(all_asked(&mut holder, 2560, 64), [64, 64, 64, 64, 64, 64, 56], "to the end of the region");
    }

    /// What is asked for at a fault that writes `page`: of pages that are new, but those from `taken` on.
    fn asked_to_write(holder: &mut Holder, page: u32, taken: u32) -> Vec<(Access, u32)> {
        let mut out = Out::new();
        holder.fault(page, true, &mut AtOnce, &mut out);
        let mut asked = vec![];
        for (_, message) in std::mem::take(&mut out) {
            let Message::Ask { run, access } = message else { panic!("{message:?}") };
            asked.push((access, run.count));
            let message = match run.first >= taken {
                false => Message::Granted { run, grant: Grant::Zeros },
                true if access == Access::New => Message::Granted { run: Run::one(run.first), grant: Grant::Nothing },
                true => Message::Arrive { run, state: State::Modified },
            };
            holder.receive(1, message, &mut AtOnce, &mut out);
        }
        asked
    }

    #[test]
    fn new_pages_are_asked_for_beforehand_as_long_as_they_are() {
        let mut holder = Holder::new(Homes::Spread, 2, 3000, true);
        let (write, new) = ((Access::Write, 64), (Access::New, 64));
        let mut page = 0;
        while page < 256 {
            let asked = asked_to_write(&mut holder, page, 1000);
            assert!(matches!(asked[..], [(Access::Write, _)]), "{asked:?} at {page}");
            page += asked[0].1;
        }
        assert_eq!(asked_to_write(&mut holder, 256, 1000), [write, new], "a fourth of what there was");
        assert_eq!(asked_to_write(&mut holder, 384, 1000), [write, new]);
        assert_eq!(asked_to_write(&mut holder, 512, 600), [write, new, new], "the others are not new");
        assert_eq!(holder.state(575), State::Modified);
        assert_eq!(holder.state(640), State::Invalid);
        assert_eq!(asked_to_write(&mut holder, 640, 600), [write], "nor will be what follows");
        assert_eq!(asked_to_write(&mut holder, 704, 600), [write]);
    }

    #[test]
    fn a_stream_goes_on_where_less_came_of_what_was_asked_for_beforehand() {
        let mut holder = Holder::new(Homes::Spread, 2, 1000, true);
        for page in [0, 1, 3, 7, 15, 31] {
            asked(&mut holder, page, 64);
        }
        let mut out = Out::new();
        holder.fault(63, false, &mut AtOnce, &mut out);
        let runs = [(63, 1), (64, 64), (128, 64), (192, 2), (256, 64)];
        for (first, count) in runs {
            let run = Run { first, count };
            holder.receive(1, Message::Arrive { run, state: State::Shared }, &mut AtOnce, &mut out);
        }
        assert_eq!(all_asked(&mut holder, 194, 64), [62], "what is behind it is here");
    }

    #[test]
    fn a_stream_goes_on_behind_what_came() {
        let mut holder = Holder::new(Homes::Spread, 2, 1000, true);
        assert_eq!((asked(&mut holder, 0, 64), asked(&mut holder, 1, 64), asked(&mut holder, 3, 2)), (1, 2, 4));
        assert_eq!(asked(&mut holder, 5, 64), 8, "two of four pages came");
        assert_eq!(asked(&mut holder, 500, 64), 1, "another place is another stream");
        assert_eq!((asked(&mut holder, 13, 64), asked(&mut holder, 501, 64)), (16, 2), "both go on");
    }

    #[test]
    fn a_stream_of_reads_may_leave_pages_out_and_one_of_writes_may_not() {
        let mut holder = Holder::new(Homes::Spread, 2, 1000, true);
        let runs = [(0, 1), (2, 2), (6, 4), (14, 8)];
        for (page, count) in runs {
            assert_eq!(asked(&mut holder, page, 64), count, "as many are left out as came last");
        }
        assert_eq!(asked(&mut holder, 31, 64), 1, "these are too many");
        assert_eq!(asked(&mut holder, 32, 64), 2, "where a stream goes on as it is, no other one does");
        for page in [200, 202, 204] {
            assert_eq!(asked_to_write(&mut holder, page, 1000), [(Access::Write, 1)]);
        }
    }

    #[test]
    fn where_pages_cannot_be_shared_they_are_asked_for_alone() {
        let (mut holder, mut out) = (Holder::new(Homes::Spread, 2, 1000, false), Out::new());
        let asks = |out: &mut Out| matches!(std::mem::take(out)[..], [(_, Message::Ask { access: Access::Alone, .. })]);
        holder.fault(0, false, &mut AtOnce, &mut out);
        assert!(asks(&mut out));
        let run = Run::one(0);
        holder.receive(1, Message::Arrive { run, state: State::Modified }, &mut AtOnce, &mut Out::new());
        holder.fault(0, false, &mut AtOnce, &mut out);
        assert!(out.is_empty(), "it is here");
        // Another machine can: from here on it is shared. Where the system has taken it away meanwhile, it comes back
        // alone.
        holder.receive(0, Message::Yield { run, to: 1, keep: true }, &mut AtOnce, &mut Out::new());
        holder.fault(0, false, &mut AtOnce, &mut out);
        assert!(asks(&mut out));
    }

    #[test]
    fn prefetch_asks_for_what_is_missing_only() {
        let mut holder = Holder::new(Homes::Spread, 2, 1000, true);
        asked(&mut holder, 10, 1);
        let mut out = Out::new();
        holder.prefetch(0..130, &mut out);
        let runs: Vec<Run> = out
            .iter()
            .map(|(_, message)| match message {
                Message::Ask { run, access: Access::Read } => *run,
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [(0, 10), (11, 53), (64, 64), (128, 2)].map(|(first, count)| Run { first, count });
        assert_eq!(runs, expected);
        out.clear();
        holder.prefetch(130..1000, &mut out);
        let under_way: Vec<Run> = holder.asked.values().copied().collect();
        assert_eq!((under_way.len(), out.len()), (ASKED_BEFOREHAND, ASKED_BEFOREHAND - 4), "what is left waits");
        for run in under_way {
            holder.receive(1, Message::Arrive { run, state: State::Shared }, &mut AtOnce, &mut out);
        }
        let left: Vec<Run> = holder.asked.values().copied().collect();
        assert_eq!(left, [(896, 64), (960, 40)].map(|(first, count)| Run { first, count }));
    }
}
