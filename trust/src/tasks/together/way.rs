//! What goes to another trustee and may not be lost, whatever ends meanwhile: by a request, else by the inbox of who it
//! is for.

#![allow(unsafe_code)]

use crate::ids::TrusteeId;
use crate::property::Header;
use crate::registry::{self, Message};
use crate::request::{LocalRequest, Serving};
use crate::runtime::worker::{self, Worker};

/// What is on its way.
pub(super) trait Way: Send + 'static {
    /// To whom.
    fn to(&self) -> Option<TrusteeId>;
    /// There.
    fn arrive(self, worker: &Worker);
    /// Who it was for is gone.
    fn lost(self);
}

/// By a request. It is dropped where the trustee takes it no more, or this worker ends before it was sent.
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

/// By the inbox. It is dropped where the worker is gone.
struct Brought<W: Way>(Option<W>);

impl<W: Way> Drop for Brought<W> {
    fn drop(&mut self) {
        if let Some(way) = self.0.take() {
            way.lost();
        }
    }
}

/// Has it arrive by a worker for which this one had no slot up to its end.
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
    // If that takes no more, it is dropped.
    drop(peer.send(Message::Run(Box::new(run))));
}
