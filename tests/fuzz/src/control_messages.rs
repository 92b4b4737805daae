//! Messages between a machine and its launcher: any packet is a message or refused, and a message that was read is
//! written again in the same way.
#![no_main]

use gossamer::control::Message;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(message) = Message::decode(input)
        && !matches!(&message, Message::Failed { reason } | Message::Lost { reason, .. } | Message::End { reason } if reason.len() > gossamer::control::MAX_TEXT_BYTES)
    {
        assert_eq!(Message::decode(&message.encode()).unwrap(), message);
    }
});
