//! The trustee's half of the way of one client of another machine, as `trust` uses it: a frame becomes a batch that
//! `trust` runs.
//!
//! Invariant: an operation that leaves here lies in this program's read-only data (`Image::operation_at`), and a request's
//! bytes lie inside the batch's buffer.

use trust::TrusteeId;
use trust::link::{Answer, Item, Operation, Requests, Source};

use super::answer;
use super::frame;
use super::image::Image;
use super::pair::TrusteeHalf;
use super::slot::Violation;
use super::wiring::Ends;

/// See the file's documentation.
pub(super) struct FarSource {
    half: TrusteeHalf,
    client: TrusteeId,
    image: &'static Image,
    ends: Ends,
}

impl FarSource {
    pub(super) fn new(half: TrusteeHalf, client: TrusteeId, image: &'static Image, ends: Ends) -> FarSource {
        FarSource { half, client, image, ends }
    }

    fn try_receive(&mut self) -> Result<Option<Requests>, Violation> {
        let Some((buffer, head)) = self.half.receive()? else { return Ok(None) };
        let items = frame::decode::<&'static Operation>(&buffer, &head, |position| self.image.operation_at(position))?;
        // A frame is shorter than 4 GiB (`pair`).
        let item = |item: frame::Item<&'static Operation>| Item {
            operation: item.operation,
            property: item.property,
            start: item.start as u32,
            len: item.len as u32,
        };
        Ok(Some(Requests { items: items.into_iter().map(item).collect(), buffer }))
    }

    fn try_answer(&mut self, answer: Answer) -> Result<(), Violation> {
        let (data, faults) = answer::encode(answer.bytes, &answer.faults)?;
        self.half.answer(data, faults)
    }
}

impl Source for FarSource {
    fn client(&self) -> TrusteeId {
        self.client
    }

    fn receive(&mut self) -> Option<Requests> {
        let received = self.try_receive();
        received.unwrap_or_else(|violation| self.ends.end("a request of", &violation))
    }

    fn answer(&mut self, answer: Answer) {
        let answered = self.try_answer(answer);
        answered.unwrap_or_else(|violation| self.ends.end("an answer to", &violation));
    }

    fn has_batch(&self) -> bool {
        self.half.has_news()
    }
}
