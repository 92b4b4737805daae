//! Messages to another trustee that must not be lost even if threads end meanwhile: sent by a request, else through the
//! receiver's inbox.

#![allow(unsafe_code)]

use crate::ids::TrusteeId;
use crate::property::Header;
use crate::registry::{self, Message};
use crate::request::{LocalRequest, Serving};
use crate::runtime::worker::{self, Worker};

/// Message that must not be lost.
pub(super) trait ReliableMessage: Send + 'static {
    /// Returns its receiver.
    fn to(&self) -> Option<TrusteeId>;
    /// Handles it at the receiver.
    fn arrive(self, worker: &Worker);
    /// Handles it where the receiver is gone.
    fn lost(self);
}

/// Message sent by a request. It is dropped if the trustee takes no more, or if this worker ends before it was sent.
pub(super) struct Sent<W: ReliableMessage>(Option<W>);

impl<W: ReliableMessage> Sent<W> {
    pub(super) fn new(message: W) -> Self {
        Sent(Some(message))
    }
}

impl<W: ReliableMessage> LocalRequest for Sent<W> {
    unsafe fn run(mut self, _property: *mut Header, serving: &mut Serving) {
        if let Some(message) = self.0.take() {
            worker::with(|worker| message.arrive(worker));
        }
        serving.out.put(());
    }
}

impl<W: ReliableMessage> Drop for Sent<W> {
    fn drop(&mut self) {
        if let Some(message) = self.0.take() {
            deliver(message);
        }
    }
}

/// Message sent through the inbox. It is dropped if the worker is gone.
struct InboxDelivery<W: ReliableMessage>(Option<W>);

impl<W: ReliableMessage> Drop for InboxDelivery<W> {
    fn drop(&mut self) {
        if let Some(message) = self.0.take() {
            message.lost();
        }
    }
}

/// Delivers the message through the inbox of a worker for which this one had no slot until its end.
#[cold]
fn deliver(message: impl ReliableMessage) {
    let peer = message.to().and_then(registry::find);
    let mut delivery = InboxDelivery(Some(message));
    let Some(peer) = peer else { return };
    let run = move || {
        if let Some(message) = delivery.0.take() {
            worker::with(|worker| message.arrive(worker));
        }
    };
    // If that worker takes no more messages, it is dropped.
    drop(peer.send(Message::Run(Box::new(run))));
}
