//! Messages between a machine and its launcher: any packet is a message or refused, and a message that was read is
//! written again in the same way.
#![no_main]

use gossamer::control::{MAX_TEXT_BYTES, Message};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(message) = Message::decode(input)
        && !is_too_long(&message)
    {
        assert_eq!(Message::decode(&message.encode()).unwrap(), message);
    }
});

/// Whether a message has a reason that is cut when it is written.
fn is_too_long(message: &Message) -> bool {
    matches!(message, Message::Failed { reason } | Message::Lost { reason, .. } | Message::End { reason }
        if reason.len() > MAX_TEXT_BYTES)
}
