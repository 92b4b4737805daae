//! Durable trusts on a rack: opened at a place, used from every machine by their handles. The machines of these tests
//! share a file system.

use std::fs;
use std::path::PathBuf;

use trust_durable::{Durable, Error, PVec};

use super::ground::{JoinOutcome, effort, is_rack, places, remote, text};

const ACCOUNTS: usize = 16;
const MONEY: u64 = 1000;

/// The same on every machine: no name can travel in a closure.
fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("suite-durable-{}-{name}", gossamer::rack().machines()[0].process))
}

type Bank = Durable<PVec<'static, u64>>;

fn open() -> Bank {
    Durable::<PVec<u64>>::open(gossamer::local_trustee(), folder("bank"), |tx| PVec::of([MONEY; ACCOUNTS], tx)).unwrap()
}

fn transfer(bank: &Bank, number: u64) {
    bank.apply(move |accounts, _| {
        let (from, to) = (number as usize % ACCOUNTS, (number as usize * 7 + 3) % ACCOUNTS);
        if accounts[from] > 0 {
            accounts[from] -= 1;
            accounts[to] += 1;
        }
    });
}

pub fn a_durable_trust_serves_every_machine() {
    let _ = fs::remove_dir_all(folder("bank"));
    let transfers = effort(100);
    let mut before = [MONEY; ACCOUNTS];
    for _ in 0..2 {
        // The second time with the data that the first one left.
        let bank = gossamer::spawn_on(remote(), open).join().or_its_panic();
        assert_eq!(bank.apply(|accounts, _| <[u64; ACCOUNTS]>::try_from(&accounts[..]).unwrap()), before);
        let fibers: Vec<_> = places()
            .into_iter()
            .zip(0u64..)
            .map(|(place, salt)| {
                let bank = bank.clone();
                gossamer::spawn_on(place, move || {
                    (0..transfers).for_each(|n| transfer(&bank, n * 31 + salt));
                    // Posted and held back here, written before `sync` returns.
                    bank.apply_then(|accounts, _| accounts.swap(0, 1), |()| ());
                    bank.sync().unwrap_or_else(|error| panic!("{error}"));
                    let panicked = bank
                        .call()
                        .apply(|accounts, _| {
                            accounts[0] = 0;
                            panic!("no bank for this")
                        })
                        .wait();
                    match panicked {
                        Err(Error::Panicked { panic, .. }) => assert!(panic.contains("no bank for this"), "{panic}"),
                        Ok(()) => panic!("it panicked"),
                        Err(other) => panic!("{other}"),
                    }
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap_or_else(|panic| panic!("{}", text(&*panic)));
        }
        before = bank.apply(|accounts, _| <[u64; ACCOUNTS]>::try_from(&accounts[..]).unwrap());
        assert_eq!(before.iter().sum::<u64>(), ACCOUNTS as u64 * MONEY, "half a transfer: {before:?}");
        assert_ne!(before, [MONEY; ACCOUNTS]);
        assert!(bank.stats().unwrap_or_else(|error| panic!("{error}")).undone >= places().len() as u64);
        bank.close().unwrap_or_else(|error| panic!("{error}"));
    }
    fs::remove_dir_all(folder("bank")).unwrap();
}

pub fn a_durable_trust_is_opened_on_its_trustees_machine() {
    if !is_rack() {
        return;
    }
    let refused = Durable::<PVec<u64>>::open(remote().trustee(), folder("elsewhere"), |_| PVec::new());
    assert!(matches!(refused, Err(Error::OtherMachine)), "{refused:?}");
    assert!(!folder("elsewhere").exists(), "nothing is made");
}
