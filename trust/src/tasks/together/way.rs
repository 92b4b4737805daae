//! Messages to another trustee that must not be lost even if threads end meanwhile: sent by a request, else through the
//! receiver's inbox.

#![allow(unsafe_code)]

use crate::ids::TrusteeId;
use crate::property::Header;
use crate::registry::{self, Message};
use crate::request::{LocalRequest, Serving};
use crate::runtime::worker::{self, Worker};

/// Message that must not be lost.
pub(super) trait Way: Send + 'static {
    /// Returns its receiver.
    fn to(&self) -> Option<TrusteeId>;
    /// Handles it at the receiver.
    fn arrive(self, worker: &Worker);
    /// Handles it where the receiver is gone.
    fn lost(self);
}

/// Message sent by a request. It is dropped if the trustee takes no more, or if this worker ends before it was sent.
pub(super) struct Sent<W: Way>(Option<W>);

impl<W: Way> Sent<W> {
    pub(super) fn new(way: W) -> Self {
        Sent(Some(way))
    }
}

impl<W: Way> LocalRequest for Sent<W> {
    unsafe fn run(mut self, _property: *mut Header, serving: &mut Serving) {
        if let Some(way) = self.0.take() {
            worker::with(|worker| way.arrive(worker));
        }
        serving.out.put(());
    }
}

impl<W: Way> Drop for Sent<W> {
    fn drop(&mut self) {
        if let Some(way) = self.0.take() {
            bring(way);
        }
    }
}

/// Message sent through the inbox. It is dropped if the worker is gone.
struct Brought<W: Way>(Option<W>);

impl<W: Way> Drop for Brought<W> {
    fn drop(&mut self) {
        if let Some(way) = self.0.take() {
            way.lost();
        }
    }
}

/// Delivers the message through the inbox of a worker for which this one had no slot until its end.
#[cold]
fn bring(way: impl Way) {
    let peer = way.to().and_then(registry::find);
    let mut brought = Brought(Some(way));
    let Some(peer) = peer else { return };
    let run = move || {
        if let Some(way) = brought.0.take() {
            worker::with(|worker| way.arrive(worker));
        }
    };
    // If that worker takes no more messages, it is dropped.
    drop(peer.send(Message::Run(Box::new(run))));
}
