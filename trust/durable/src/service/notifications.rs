//! Notifications after a pool has changed: to waiting clients, to futures, to the caller that waits for the first
//! files.
//!
//! Invariant: no notification is sent while a core is borrowed, because the receiver may call the core.

use std::cell::RefCell;
use std::sync::Arc;

use trust::{Error, Promise, Trust};

use super::client::{self, Notification, Subscriber, Why};
use super::core::Core;
use super::future;

/// Changes the pool with this number, if it exists, and notifies everyone concerned. On its trustee's thread.
pub(super) fn update(number: u64, change: impl FnOnce(&mut Core)) {
    let notifications = with_core(number, |core| {
        change(core);
        core.notifications()
    });
    if let Some(notifications) = notifications {
        notifications.send();
    }
}

fn with_core<R>(number: u64, f: impl FnOnce(&mut Core) -> R) -> Option<R> {
    let core = Core::find(number)?;
    let outcome = f(&mut core.borrow_mut());
    Some(outcome)
}

/// Notifies a client's thread. `then` is called with whether that thread still exists.
pub(super) fn notify(
    subscriber: &Trust<Subscriber>,
    number: u64,
    notification: Notification,
    then: impl FnOnce(Result<(), Error>) + 'static,
) {
    subscriber.call().apply(move |_| client::receive(number, notification)).then(then);
}

/// Notifies a client's thread of durable groups, and forgets it if it is gone.
fn notify_durable(number: u64, durable: u64, client: u64, subscriber: &Trust<Subscriber>) {
    notify(subscriber, number, Notification::Durable(durable), move |delivered| forget_gone(number, client, delivered));
}

fn forget_gone(number: u64, client: u64, delivered: Result<(), Error>) {
    if delivered.is_err() {
        with_core(number, |core| core.clients.remove(client));
    }
}

/// Registers a client with its pool. Now and then checks whether all clients still exist, as threads end without
/// notice.
pub(crate) fn introduce(core: &RefCell<Core>, client: u64, subscriber: Trust<Subscriber>) {
    let (number, durable, asked) = {
        let mut core = core.borrow_mut();
        let asked = core.register_client(client, subscriber);
        (core.number(), core.durable, asked)
    };
    asked.into_iter().for_each(|(client, subscriber)| notify_durable(number, durable, client, &subscriber));
}

/// Pending notifications.
pub(super) struct Notifications {
    number: u64,
    durable: u64,
    lost: Option<String>,
    subscribers: Vec<(u64, Arc<Trust<Subscriber>>)>,
    futures: Vec<u64>,
    created: Option<Promise<Option<String>>>,
}

impl Core {
    fn notifications(&mut self) -> Notifications {
        let limit = if self.lost.is_some() { u64::MAX } else { self.durable };
        let mut notifications = Notifications {
            number: self.number(),
            durable: self.durable,
            lost: self.lost.clone(),
            subscribers: self.clients.take(limit),
            futures: Vec::new(),
            created: self.creating.take_if(|_| self.is_created || self.lost.is_some()),
        };
        while let Some(&(_, future)) = self.futures.front().filter(|(mark, _)| *mark <= limit) {
            self.futures.pop_front();
            notifications.futures.push(future);
        }
        notifications
    }
}

impl Notifications {
    fn send(self) {
        if let Some(promise) = self.created {
            promise.keep_with(self.lost.clone());
        }
        let why = self.lost.clone().map(Why::Lost);
        for future in &self.futures {
            future::settle(*future, why.as_ref());
        }
        for (client, subscriber) in self.subscribers {
            let (number, durable) = (self.number, self.durable);
            match &self.lost {
                Some(cause) => subscriber
                    .call()
                    .with((number, durable, cause.clone()))
                    .apply(client::receive_lost)
                    .then(move |delivered| forget_gone(number, client, delivered)),
                None => notify_durable(number, durable, client, &subscriber),
            }
        }
    }

    /// Notifies these futures that the pool is gone.
    pub(super) fn gone(futures: impl Iterator<Item = u64>) {
        futures.for_each(|future| future::settle(future, Some(&Why::Gone)));
    }
}
