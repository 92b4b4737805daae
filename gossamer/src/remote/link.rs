//! The client's half of the way to one trustee of another machine, as `trust` uses it: pending requests become a frame.
//!
//! Invariant: no request leaves with the address of a function among its captures. `NoRef` keeps references, raw pointers
//! and function pointers out, but cannot name every higher-ranked function pointer; such a pointer would mean something
//! else on a machine where the program lies at another address. So captures are looked through, and the program ends
//! with a text that says so.

use trust::link::{Answer, Link, Outbox, Packed};

use super::answer;
use super::frame::{Entry, Frame};
use super::image::Image;
use super::pair::ClientHalf;
use super::slot::Violation;
use super::wiring::Ends;

/// See the file's documentation.
pub(super) struct FarLink {
    half: ClientHalf,
    frame: Frame,
    image: &'static Image,
    ends: Ends,
}

impl FarLink {
    pub(super) fn new(half: ClientHalf, image: &'static Image, ends: Ends) -> FarLink {
        FarLink { half, frame: Frame::default(), image, ends }
    }

    /// Fills the frame with as many requests as go together, and sends it.
    fn try_send(&mut self, outbox: &Outbox) -> Result<usize, Violation> {
        self.frame.clear();
        for place in 0..outbox.len() {
            let request = outbox.get(place);
            let entry = Entry {
                position: self.image.position(request.operation)?,
                is_fixed: request.operation.packed_bytes().is_some(),
                property: request.property,
                bytes: request.bytes,
            };
            if !self.frame.push(&entry) {
                break;
            }
            self.look_through(&request)?;
        }
        if self.frame.count > 0 {
            self.half.send(&mut self.frame)?;
        }
        Ok(usize::from(self.frame.count))
    }

    fn look_through(&self, request: &Packed<'_>) -> Result<(), Violation> {
        let captured = request.bytes.get(..request.operation.captured_bytes()).unwrap_or(request.bytes);
        match self.image.function_in(captured) {
            None => Ok(()),
            Some(address) => Err(Violation::new(format!(
                "a delegated closure has captured what is the address of a function here, {address:#x}: function \
                 pointers mean nothing on another machine; send a number and choose the function there"
            ))),
        }
    }

    fn try_receive(&mut self) -> Result<Option<Answer>, Violation> {
        let Some((data, count)) = self.half.receive()? else { return Ok(None) };
        let (bytes, faults) = answer::decode(data, count, self.frame.count)?;
        Ok(Some(Answer { bytes, faults }))
    }
}

impl Link for FarLink {
    fn send(&mut self, outbox: &Outbox) -> usize {
        if !self.half.is_idle() {
            return 0;
        }
        let sent = self.try_send(outbox);
        sent.unwrap_or_else(|violation| self.ends.end("a request to", &violation))
    }

    fn receive(&mut self) -> Option<Answer> {
        let received = self.try_receive();
        received.unwrap_or_else(|violation| self.ends.end("an answer of", &violation))
    }

    fn has_news(&self) -> bool {
        self.half.has_news()
    }
}
