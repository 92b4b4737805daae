//! Notifications after a pool has changed: to waiting clients, to futures, to the caller that waits for the first
//! files.
//!
//! Invariant: no notification is sent while a core is borrowed, because the receiver may call the core.

use std::cell::RefCell;
use std::sync::Arc;

use trust::{Error, Promise, Trust};

use super::client::{self, Ear, News, Why};
use super::core::Core;
use super::future;

/// Changes the pool with this number, if it exists, and notifies everyone concerned. On its trustee's thread.
pub(super) fn update(number: u64, change: impl FnOnce(&mut Core)) {
    let told = with_core(number, |core| {
        change(core);
        core.told()
    });
    if let Some(told) = told {
        told.tell();
    }
}

fn with_core<R>(number: u64, f: impl FnOnce(&mut Core) -> R) -> Option<R> {
    let core = Core::find(number)?;
    let outcome = f(&mut core.borrow_mut());
    Some(outcome)
}

/// Notifies a client's thread. `then` is called with whether that thread still exists.
pub(super) fn tell_ear(ear: &Trust<Ear>, number: u64, news: News, then: impl FnOnce(Result<(), Error>) + 'static) {
    ear.call().apply(move |_| client::hear(number, news)).then(then);
}

/// Notifies a client's thread of durable groups, and forgets it if it is gone.
fn tell_durable(number: u64, durable: u64, client: u64, ear: &Trust<Ear>) {
    tell_ear(ear, number, News::Durable(durable), move |heard| forget_gone(number, client, heard));
}

fn forget_gone(number: u64, client: u64, heard: Result<(), Error>) {
    if heard.is_err() {
        with_core(number, |core| core.clients.remove(client));
    }
}

/// Registers a client with its pool. Now and then checks whether all clients still exist, as threads end without
/// notice.
pub(crate) fn introduce(core: &RefCell<Core>, client: u64, ear: Trust<Ear>) {
    let (number, durable, asked) = {
        let mut core = core.borrow_mut();
        let asked = core.register_client(client, ear);
        (core.number(), core.durable, asked)
    };
    asked.into_iter().for_each(|(client, ear)| tell_durable(number, durable, client, &ear));
}

/// Pending notifications.
pub(super) struct Told {
    number: u64,
    durable: u64,
    lost: Option<String>,
    ears: Vec<(u64, Arc<Trust<Ear>>)>,
    futures: Vec<u64>,
    created: Option<Promise<Option<String>>>,
}

impl Core {
    fn told(&mut self) -> Told {
        let limit = if self.lost.is_some() { u64::MAX } else { self.durable };
        let mut told = Told {
            number: self.number(),
            durable: self.durable,
            lost: self.lost.clone(),
            ears: self.clients.take(limit),
            futures: Vec::new(),
            created: self.creating.take_if(|_| self.is_created || self.lost.is_some()),
        };
        while let Some(&(_, future)) = self.futures.front().filter(|(mark, _)| *mark <= limit) {
            self.futures.pop_front();
            told.futures.push(future);
        }
        told
    }
}

impl Told {
    fn tell(self) {
        if let Some(promise) = self.created {
            promise.keep_with(self.lost.clone());
        }
        let why = self.lost.clone().map(Why::Lost);
        for future in &self.futures {
            future::settle(*future, why.as_ref());
        }
        for (client, ear) in self.ears {
            let (number, durable) = (self.number, self.durable);
            match &self.lost {
                Some(cause) => ear
                    .call()
                    .with((number, durable, cause.clone()))
                    .apply(client::hear_lost)
                    .then(move |heard| forget_gone(number, client, heard)),
                None => tell_durable(number, durable, client, &ear),
            }
        }
    }

    /// Notifies these futures that the pool is gone.
    pub(super) fn gone(futures: impl Iterator<Item = u64>) {
        futures.for_each(|future| future::settle(future, Some(&Why::Gone)));
    }
}
