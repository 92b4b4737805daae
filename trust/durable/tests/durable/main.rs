//! Durable trusts as a program uses them: on a real folder, with threads.

mod attempts;
mod calls;
mod ends;
mod faults;
mod futures;
mod locks;
mod migrations;
mod moved;
mod pools;
mod snapshots;
mod thread_ends;
mod traced;

use std::path::Path;

use trust::Threadpool;
use trust_durable::{Durable, Error, PBox, PVec, Persist};

#[derive(Persist)]
#[repr(C)]
struct Transfer {
    from: u32,
    to: u32,
    amount: u64,
}

#[derive(Persist)]
#[repr(C)]
struct Bank<'p> {
    accounts: PVec<'p, u64>,
    last: Option<PBox<'p, Transfer>>,
}

fn open(pool: &Threadpool, folder: &Path) -> Result<Durable<Bank<'static>>, Error> {
    Durable::<Bank>::open(pool.trustees()[0], folder, |tx| Bank { accounts: PVec::of([100, 0], tx), last: None })
}

fn accounts(bank: &Durable<Bank<'static>>) -> (u64, u64) {
    let both = bank.apply(|bank, _| [bank.accounts[0], bank.accounts[1]]);
    both.into()
}
