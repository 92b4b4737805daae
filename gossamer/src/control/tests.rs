//! Messages survive the wire and damaged ones are refused; the channel without a reader, and without the other end.

use super::*;
use comm::secure::KEY_BYTES;

fn all() -> [Message; 12] {
    [
        Message::Endpoint { bytes: (0..=255).cycle().take(MAX_ENDPOINT_BYTES).collect() },
        Message::Secret { key: Key::from_bytes([7; KEY_BYTES]) },
        Message::Peer { machine: 0x1234, endpoint: vec![] },
        Message::Ready { pid: 0x1234_5678, slots_bytes: 1 << 40 },
        Message::Finished { status: 255 },
        Message::Failed { reason: "the fabric broke: größer".into() },
        Message::Lost { machine: 3, reason: "reset".into() },
        Message::Look { ask: 0x1234_5678, look: Look::Sample },
        Message::Look { ask: 0, look: Look::Trace(Look::TRACE_MAX) },
        Message::Seen { ask: 1, is_last: false, bytes: vec![7; MAX_SEEN_BYTES] },
        Message::Seen { ask: u32::MAX, is_last: true, bytes: Vec::new() },
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
    assert!(packet.len() <= MAX_TEXT_BYTES + 2);
    match Message::decode(&packet).unwrap() {
        Message::Failed { reason: cut } => assert!(!cut.is_empty() && reason.starts_with(&cut)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn damaged_packets_are_errors() {
    for message in all() {
        let packet = message.encode();
        for len in 0..2 {
            assert!(Message::decode(&packet[..len]).is_err());
        }
        let mut other = packet.clone();
        other[0] = PROTOCOL_VERSION + 1;
        assert!(matches!(Message::decode(&other), Err(ControlError::Version(_))));
    }
    let v = PROTOCOL_VERSION;
    let too_long = vec![v; MAX_MESSAGE_BYTES + 1];
    let long_endpoint = [&[v, ENDPOINT][..], &[0; MAX_ENDPOINT_BYTES + 1]].concat();
    let bad: [&[u8]; 11] = [
        &[v, 0],
        &[v, 99],
        &[v, READY, 1],
        &[v, READY, 1, 2, 3, 4, 5],
        &[v, READY, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        &[v, FINISHED],
        &[v, SECRET, 1],
        &[v, PEER, 1],
        &[v, LOST],
        &long_endpoint,
        &too_long,
    ];
    for bad in bad {
        assert!(matches!(Message::decode(bad), Err(ControlError::Malformed { .. })), "{bad:?}");
    }
    assert!(Message::decode(&[v, FAILED, 0xff, 0xfe]).is_err());
}
