//! Directory of pages: the holders of each, and their states. A state machine without I/O: messages in, messages out.
//!
//! Invariants
//! - [single-writer] A page is Modified on one machine and Invalid on all others, or Shared on some, or untouched.
//! - [busy-until-done] A requested page is busy until the requester says `Done`; later requests wait in order. So at
//!   most one change is under way for a page, and the directory entry is true whenever the page is not busy.
//! - Bytes come from a holder that was told to yield, after all others have confirmed that they dropped the page.
//!
//! `search.rs` tries all orders of messages.

use std::collections::{BTreeMap, VecDeque};

use zerocopy::FromZeros;

use crate::message::{Access, Grant, Message};
use crate::page::{Homes, Run, zeroed};

/// Most machines a region can span: the bits of a word.
pub(crate) const MACHINES_MAX: u16 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, FromZeros)]
struct Entry {
    /// Holders, a bit each; 0: the page is untouched.
    holders: u64,
    /// The holder that gives its bytes away.
    owner: u16,
    is_modified: bool,
    is_busy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Ask {
    from: u16,
    run: Run,
    access: Access,
}

/// Work that a request needs, the same for all pages of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Transfer {
    Nothing,
    Zeros,
    /// The requester can read the page; these machines drop it.
    Upgrade {
        drop: u64,
    },
    /// These machines drop it, then `owner` yields it.
    Fetch {
        drop: u64,
        owner: u16,
    },
}

impl Transfer {
    fn drop(self) -> u64 {
        match self {
            Transfer::Upgrade { drop } | Transfer::Fetch { drop, .. } => drop,
            Transfer::Nothing | Transfer::Zeros => 0,
        }
    }
}

/// A change under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Change {
    ask: Ask,
    transfer: Transfer,
    /// Machines that have not yet confirmed the drop.
    awaited: u64,
}

/// Messages to machines.
pub(crate) type Out = Vec<(u16, Message)>;

/// One machine's part of the directory of a region.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Home {
    homes: Homes,
    machines: u16,
    entries: Vec<Entry>,
    /// Changes under way, by first page of the run.
    changes: BTreeMap<u32, Change>,
    /// Waiting requests by page, in order of arrival.
    waiting: BTreeMap<u32, VecDeque<Ask>>,
}

fn bit(machine: u16) -> u64 {
    1 << machine
}

fn machines_of(bits: u64) -> impl Iterator<Item = u16> {
    (0..MACHINES_MAX).filter(move |machine| bits & bit(*machine) != 0)
}

impl Home {
    /// Creates the part for a region of `pages` pages.
    pub(crate) fn new(homes: Homes, machines: u16, pages: u32) -> Home {
        let last = Run::block_end(pages.saturating_sub(1)) - 1;
        let entries = zeroed(homes.index(last, machines) + 1);
        Home { homes, machines, entries, changes: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    fn entry(&mut self, page: u32) -> &mut Entry {
        &mut self.entries[self.homes.index(page, self.machines)]
    }

    /// Handles a message to this home.
    pub(crate) fn receive(&mut self, from: u16, message: Message, out: &mut Out) {
        match message {
            Message::Ask { run, access } => self.ask(Ask { from, run, access }, out),
            Message::Dropped { run } => self.dropped(from, run, out),
            Message::Done { run } => self.done(run, out),
            _ => unreachable!("{message:?} is not for a home"),
        }
    }

    fn ask(&mut self, ask: Ask, out: &mut Out) {
        if self.entry(ask.run.first).is_busy {
            self.waiting.entry(ask.run.first).or_default().push_back(ask);
        } else {
            self.begin(ask, out);
        }
    }

    /// Returns the work that a request for this page needs; the page is not busy.
    fn transfer(&mut self, page: u32, from: u16, access: Access) -> Transfer {
        let Entry { holders, owner, is_modified, .. } = *self.entry(page);
        if holders == 0 {
            return Transfer::Zeros;
        }
        if access == Access::New {
            return Transfer::Nothing;
        }
        let has = holders & bit(from) != 0;
        match (has, access.is_exclusive()) {
            (true, false) => Transfer::Nothing,
            (true, true) if is_modified => Transfer::Nothing,
            (true, true) => Transfer::Upgrade { drop: holders & !bit(from) },
            (false, false) => Transfer::Fetch { drop: 0, owner },
            (false, true) => Transfer::Fetch { drop: holders & !bit(owner), owner },
        }
    }

    /// Begins a request for a page that is not busy, for as many pages of its run as need the same work. A write
    /// request takes from another writer only the first page, which is needed.
    fn begin(&mut self, ask: Ask, out: &mut Out) {
        let Ask { from, run, access } = ask;
        let transfer = self.transfer(run.first, from, access);
        let mut count = 1;
        while count < run.count && transfer != Transfer::Nothing {
            let page = run.first + count;
            let entry = *self.entry(page);
            let is_taken = access == Access::Write && entry.is_modified;
            if entry.is_busy || is_taken || self.transfer(page, from, access) != transfer {
                break;
            }
            count += 1;
        }
        let run = Run { first: run.first, count };
        run.pages().for_each(|page| self.entry(page).is_busy = true);
        let change = Change { ask: Ask { from, run, access }, transfer, awaited: transfer.drop() };
        self.changes.insert(run.first, change);
        out.extend(machines_of(transfer.drop()).map(|machine| (machine, Message::Drop { run })));
        if transfer.drop() == 0 {
            Home::proceed(change, out);
        }
    }

    fn dropped(&mut self, from: u16, run: Run, out: &mut Out) {
        let Some(change) = self.changes.get_mut(&run.first) else { return };
        change.awaited &= !bit(from);
        if change.awaited == 0 {
            Home::proceed(*change, out);
        }
    }

    /// Continues a change once all drops are confirmed.
    fn proceed(Change { ask, transfer, .. }: Change, out: &mut Out) {
        let Ask { from, run, access } = ask;
        let granted = |grant| (from, Message::Granted { run, grant });
        out.push(match transfer {
            Transfer::Nothing => granted(Grant::Nothing),
            Transfer::Zeros => granted(Grant::Zeros),
            Transfer::Upgrade { .. } => granted(Grant::Upgrade),
            Transfer::Fetch { owner, .. } => (owner, Message::Yield { run, to: from, keep: !access.is_exclusive() }),
        });
    }

    fn done(&mut self, run: Run, out: &mut Out) {
        let Some(Change { ask, transfer, .. }) = self.changes.remove(&run.first) else { return };
        for page in ask.run.pages() {
            let entry = self.entry(page);
            entry.is_busy = false;
            match transfer {
                Transfer::Nothing => {}
                Transfer::Fetch { .. } if !ask.access.is_exclusive() => {
                    entry.holders |= bit(ask.from);
                    entry.is_modified = false;
                }
                Transfer::Zeros | Transfer::Upgrade { .. } | Transfer::Fetch { .. } => {
                    (entry.holders, entry.owner, entry.is_modified) = (bit(ask.from), ask.from, true);
                }
            }
        }
        for page in ask.run.pages() {
            while !self.entry(page).is_busy
                && let Some(next) = self.next_waiting(page)
            {
                self.begin(next, out);
            }
        }
    }

    fn next_waiting(&mut self, page: u32) -> Option<Ask> {
        let waiting = self.waiting.get_mut(&page)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&page);
        }
        next
    }

    /// Describes the directory's knowledge of a page, and the machine it waits for, in words.
    pub(crate) fn describe(&self, page: u32) -> String {
        let entry = self.entries[self.homes.index(page, self.machines)];
        let holders: Vec<String> = machines_of(entry.holders).map(|machine| machine.to_string()).collect();
        let state = if entry.is_modified { "modified" } else { "shared" };
        let mut text = match holders.is_empty() {
            true => "untouched".to_owned(),
            false => format!("{state} on machine {}", holders.join(", ")),
        };
        if let Some(change) = self.changes.values().find(|change| change.ask.run.pages().contains(&page)) {
            let awaited: Vec<String> = machines_of(change.awaited).map(|machine| machine.to_string()).collect();
            text += &match (awaited.is_empty(), change.transfer) {
                (false, _) => format!(", machine {} is to drop it", awaited.join(", ")),
                (true, Transfer::Fetch { owner, .. }) => {
                    format!(", machine {owner} is to give it to machine {}", change.ask.from)
                }
                (true, _) => format!(", machine {} is to take it", change.ask.from),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Run = Run { first: 3, count: 1 };

    fn ask(home: &mut Home, from: u16, access: Access) {
        home.receive(from, Message::Ask { run: PAGE, access }, &mut Out::new());
    }

    #[test]
    fn a_fault_that_takes_long_is_told_with_who_is_awaited() {
        let mut home = Home::new(Homes::At(0), 4, 64);
        let done = |home: &mut Home| home.receive(0, Message::Done { run: PAGE }, &mut Out::new());
        assert_eq!(home.describe(3), "untouched");
        ask(&mut home, 1, Access::Write);
        assert_eq!(home.describe(3), "untouched, machine 1 is to take it");
        done(&mut home);
        assert_eq!(home.describe(3), "modified on machine 1");
        ask(&mut home, 2, Access::Read);
        assert_eq!(home.describe(3), "modified on machine 1, machine 1 is to give it to machine 2");
        done(&mut home);
        assert_eq!(home.describe(3), "shared on machine 1, 2");
        ask(&mut home, 3, Access::Write);
        assert_eq!(home.describe(3), "shared on machine 1, 2, machine 2 is to drop it");
        home.receive(2, Message::Dropped { run: PAGE }, &mut Out::new());
        assert_eq!(home.describe(3), "shared on machine 1, 2, machine 1 is to give it to machine 3");
        assert_eq!(home.describe(4), "untouched");
    }
}
