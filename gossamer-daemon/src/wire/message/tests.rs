//! Messages survive the wire; damaged ones are refused, without panic and without much memory.

use super::*;
use proptest::prelude::*;

fn start() -> Start {
    Start {
        program: ProgramId(0x00ab_cdef),
        owner: "ada@controller".into(),
        plan: "{}".into(),
        host: 1,
        executable: Carried { path: b"/bin/\xff".to_vec(), binary: Some(Binary { hash: [7; 32], bytes: 1 << 40 }) },
        library: Some(Carried { path: b"/lib/a.so".to_vec(), binary: None }),
        args: vec![b"-x".to_vec(), vec![]],
        env: vec![(b"A".to_vec(), b"1".to_vec())],
        folder: b"/tmp".to_vec(),
        options: r#"{"wait":true}"#.into(),
    }
}

fn hello() -> Hello {
    let text = |text: &str| text.to_owned();
    let (release, rack, host) = (text("gossamer-daemon 0.1.0"), text("r"), text("alpha"));
    Hello { release, rack, host, fingerprint: text("00ff"), cores: 4, is_drained: true, clock_ms: 1 }
}

/// Returns real bytes of each kind of message.
fn traffic() -> Vec<Vec<u8>> {
    let signal = Request::Signal { program: ProgramId(7), signal: 10, who: "ada".into() };
    let drain = Request::Drain { is_on: true, who: "ada".into() };
    let requests = [Request::Run(Box::new(start())), Request::Status, Request::Neighbour, signal, drain];
    let to_part = [
        ToPart::Beat,
        ToPart::Secret(SecretBytes([9; 32])),
        ToPart::Peer { machine: 3, endpoint: vec![1; 300] },
        ToPart::Grant { stream: Stream::Err, bytes: 70_000 },
        ToPart::Input(b"some input".to_vec()),
        ToPart::Signal(2),
        ToPart::End("because".into()),
    ];
    let from_part = [
        FromPart::Said { machine: 0, packet: vec![2; 100] },
        FromPart::OutOfMemory { machine: 1, limit_bytes: Some(2 << 30) },
        FromPart::Exited { machine: 1, status: 256 },
        FromPart::Output { machine: 2, stream: Stream::Out, bytes: vec![b'x'; PIECE_BYTES] },
        FromPart::NotStarted { reason: "reset".into(), is_program: true },
        FromPart::Done,
    ];
    let setup = Setup { start: start(), file: b"/x".to_vec(), library: Some(b"/y".to_vec()) };
    let replies = [
        Reply::Refused("no".into()),
        Reply::Logs(vec!["a".into(), "b".into()]),
        Reply::Accepted,
        Reply::Queued { before: 3, most: 2 },
        Reply::Probing { port: 7200, token: [3; 16] },
    ];
    let mut all = vec![hello().pack(), hello().to_bytes(), setup.to_bytes()];
    all.extend(requests.iter().map(Wire::to_bytes));
    all.extend(to_part.iter().map(Wire::to_bytes));
    all.extend(from_part.iter().map(Wire::to_bytes));
    all.extend(replies.iter().map(Wire::to_bytes));
    let written = Written { machine: 3, stream: Stream::Err, bytes: vec![b'y'; 100] };
    all.push(Reply::Output { pieces: vec![written; 3], is_cut: true }.to_bytes());
    let path = Path { to: "beta".into(), address: "192.0.2.2:7200".into(), trouble: String::new() };
    all.push(Reply::Paths(vec![path; 3]).to_bytes());
    all.push(Request::Paths { to: vec!["beta".into()] }.to_bytes());
    all.push(Request::Probe { is_last: true }.to_bytes());
    all.push(Reply::OutputEnd(vec![(3, 256)]).to_bytes());
    all.push(Request::Output { program: ProgramId(7), follow: true }.to_bytes());
    all
}

/// Decodes the bytes as each message type.
fn decode_all(bytes: &[u8]) {
    let _ = Hello::unpack(bytes);
    let _ = Hello::from_bytes(bytes);
    let _ = Request::from_bytes(bytes);
    let _ = Reply::from_bytes(bytes);
    let _ = ToPart::from_bytes(bytes);
    let _ = FromPart::from_bytes(bytes);
    let _ = Setup::from_bytes(bytes);
}

#[test]
fn messages_survive_the_wire() {
    let request = Request::Run(Box::new(start()));
    assert_eq!(Request::from_bytes(&request.to_bytes()).unwrap(), request);
    assert_eq!(Hello::unpack(&hello().pack()).unwrap(), hello());
    let output = FromPart::Output { machine: 9, stream: Stream::Err, bytes: vec![b'\n'; PIECE_BYTES] };
    let bytes = output.to_bytes();
    assert!(bytes.len() < PIECE_BYTES + 16, "{} bytes: each byte of output costs one", bytes.len());
    assert_eq!(FromPart::from_bytes(&bytes).unwrap(), output);
}

#[test]
fn damaged_messages_are_refused() {
    let mut long = FromPart::Done.to_bytes();
    long.push(0);
    assert!(FromPart::from_bytes(&long).unwrap_err().to_string().contains("1 of them are too many"));
    assert!(Request::from_bytes(&[]).is_err());
    assert!(Request::from_bytes(&vec![0; MAX_MESSAGE_BYTES + 1]).unwrap_err().to_string().contains("too long"));
    // A length of 2^60 in a message of a few bytes.
    let mut huge = vec![5u8, 253];
    huge.extend_from_slice(&(1u64 << 60).to_le_bytes());
    assert!(ToPart::from_bytes(&huge).is_err());
}

#[test]
fn another_version_is_named() {
    let mut bytes = hello().pack();
    bytes[4] = 99;
    let message = Hello::unpack(&bytes).unwrap_err().to_string();
    assert!(message.contains("version 99") && message.contains("gossamer-daemon 0.1.0"), "{message}");
    assert!(Hello::unpack(b"GET / HTTP/1.1\r\n\r\n").unwrap_err().to_string().contains("not the greeting"));
}

#[test]
fn programs_are_named_by_eight_digits() {
    assert_eq!(ProgramId(0xab).to_string(), "000000ab");
    assert_eq!("000000ab".parse(), Ok(ProgramId(0xab)));
    assert!("ab".parse::<ProgramId>().unwrap_err().contains("gossamer-launch ps"));
}

fn cases() -> u32 {
    std::env::var("GOSSAMER_FUZZ").ok().and_then(|count| count.parse().ok()).unwrap_or(2000)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    /// Real traffic with bytes changed, cut, doubled and put together.
    #[test]
    fn mutated_traffic_is_decoded_or_refused(
        which in any::<proptest::sample::Index>(),
        changes in prop::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..4u8), 0..8),
    ) {
        let traffic = traffic();
        let mut bytes = which.get(&traffic).clone();
        for (place, value, kind) in changes {
            if bytes.is_empty() {
                break;
            }
            let at = place.index(bytes.len());
            match kind {
                0 => bytes[at] = value,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, value),
                _ => bytes.extend_from_slice(place.get::<Vec<u8>>(&traffic)),
            }
        }
        decode_all(&bytes);
    }
}
