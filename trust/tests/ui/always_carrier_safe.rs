//! What a carrier brings is run as what it says it is: to write one is a promise (`trust::link`).
#![forbid(unsafe_code)]
use trust::TrusteeId;
use trust::link::{Buffer, Carrier, Operation};
struct Mine;
impl Carrier for Mine {
    fn peers(&self) -> &[TrusteeId] {
        &[]
    }
    fn room_bytes(&self) -> usize {
        4096
    }
    fn position(&self, _: &'static Operation) -> u64 {
        0
    }
    fn operation_at(&self, _: u64) -> Option<&'static Operation> {
        None
    }
    fn can_send(&mut self, _: usize) -> bool {
        true
    }
    fn send(&mut self, _: usize, _: &mut Buffer, _: u32) {}
    fn receive_answer(&mut self, _: usize, _: &mut Buffer) -> Option<u32> {
        None
    }
    fn find_requests(&self, _: usize) -> Option<usize> {
        None
    }
    fn receive_requests(&mut self, _: usize, _: &mut Buffer) -> Option<u32> {
        None
    }
    fn answer(&mut self, _: usize, _: &mut Buffer, _: u32) {}
    fn turn(&mut self) {}
    fn flush(&mut self) {}
    fn has_work(&self) -> bool {
        false
    }
    fn end(&self, _: usize, _: &str) -> ! {
        panic!()
    }
}
fn main() {
    trust::link::attach(Some(Box::new(Mine)), None);
}
