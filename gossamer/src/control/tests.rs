//! Messages survive the wire and damaged ones are refused; the channel without a reader, and without the other end.

use super::*;
use comm::secure::KEY_BYTES;
use std::time::Duration;

fn all() -> [Message; 17] {
    [
        Message::Endpoint { bytes: (0..=255).cycle().take(MAX_ENDPOINT_BYTES).collect() },
        Message::Secret { key: Key::from_bytes([7; KEY_BYTES]) },
        Message::Peer { machine: 0x1234, endpoint: vec![] },
        Message::Ready { pid: 0x1234_5678, slots_bytes: 1 << 40, survives: 2 },
        Message::Finished { status: 255 },
        Message::Failed { reason: "the fabric broke: größer".into() },
        Message::Lost { machine: 3, reason: "reset".into() },
        Message::Look { ask: 0x1234_5678, look: Look::Sample },
        Message::Look { ask: 0, look: Look::Trace(Look::TRACE_MAX) },
        Message::Seen { ask: 1, is_last: false, bytes: vec![7; MAX_SEEN_BYTES] },
        Message::Seen { ask: u32::MAX, is_last: true, bytes: Vec::new() },
        Message::Fence { epoch: 3, dead: vec![1, 0x1234] },
        Message::Fenced { epoch: 3 },
        Message::Settled { epoch: u32::MAX },
        Message::Beat { number: 1 << 60 },
        Message::Answer { beat: 1, has_begun: true },
        Message::End { reason: String::new() },
    ]
}

#[test]
fn messages_survive_the_wire() {
    let (machine, launcher) = Control::pair().unwrap();
    for message in all() {
        machine.send(&message).unwrap();
    }
    drop(machine);
    for message in all() {
        assert_eq!(launcher.receive().unwrap(), Some(message));
    }
    assert_eq!(launcher.receive().unwrap(), None);
    match launcher.send(&Message::End { reason: "late".into() }) {
        Err(ControlError::Socket(error)) => assert_eq!(error.kind(), io::ErrorKind::BrokenPipe),
        other => panic!("a send to nobody gave {other:?}"),
    }
}

#[test]
fn a_key_is_not_printed() {
    let text = format!("{:?}", Message::Secret { key: Key::from_bytes([77; KEY_BYTES]) });
    assert!(!text.contains("77"), "{text}");
}

#[test]
fn who_does_not_read_holds_nobody_up() {
    let (_machine, launcher) = Control::pair().unwrap();
    let message = Message::Peer { machine: 1, endpoint: vec![0; MAX_ENDPOINT_BYTES] };
    let full = (0..1_000_000).find_map(|_| launcher.try_send(&message).err());
    match full {
        Some(ControlError::Socket(error)) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        other => panic!("a channel without end: {other:?}"),
    }
}

#[test]
fn nothing_there_is_would_block() {
    let (_machine, launcher) = Control::pair().unwrap();
    match launcher.try_receive() {
        Err(ControlError::Socket(error)) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        other => panic!("an empty channel gave {other:?}"),
    }
}

#[test]
fn long_reasons_are_cut_at_a_character() {
    let reason = "ü".repeat(MAX_MESSAGE_BYTES);
    let packet = Message::Failed { reason: reason.clone() }.encode();
    assert!(packet.len() <= MAX_TEXT_BYTES + 5);
    match Message::decode(&packet).unwrap() {
        Message::Failed { reason: cut } => assert!(!cut.is_empty() && reason.starts_with(&cut)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn damaged_packets_are_errors() {
    for message in all() {
        let packet = message.encode();
        for len in 0..packet.len() {
            assert!(Message::decode(&packet[..len]).is_err(), "{len} of {} bytes", packet.len());
        }
        assert!(matches!(Message::decode(&[&packet[..], &[0]].concat()), Err(ControlError::Malformed { .. })));
        let mut other = packet.clone();
        other[0] = PROTOCOL_VERSION + 1;
        assert!(matches!(Message::decode(&other), Err(ControlError::Version(_))));
    }
    let packet = |message: &Message| [&[PROTOCOL_VERSION][..], &codec::encode(message)].concat();
    let bad = [
        vec![PROTOCOL_VERSION, 99],
        vec![PROTOCOL_VERSION; MAX_MESSAGE_BYTES + 1],
        packet(&Message::Endpoint { bytes: vec![0; MAX_ENDPOINT_BYTES + 1] }),
        packet(&Message::Peer { machine: 1, endpoint: vec![0; MAX_ENDPOINT_BYTES + 1] }),
        packet(&Message::Seen { ask: 1, is_last: true, bytes: vec![0; MAX_SEEN_BYTES + 1] }),
        packet(&Message::Look { ask: 1, look: Look::Trace(Look::TRACE_MAX + Duration::from_nanos(1)) }),
    ];
    for bad in bad {
        assert!(matches!(Message::decode(&bad), Err(ControlError::Malformed { .. })), "{bad:?}");
    }
    let mut no_text = Message::Failed { reason: "text".into() }.encode();
    no_text.splice(no_text.len() - 4.., [0xff, 0xfe, 0xff, 0xfe]);
    assert!(Message::decode(&no_text).is_err());
}
