//! Secure connections over loopback: halves, refusals, limits of time and length, ends.

use super::*;
use std::net::TcpListener;

const TIMEOUT: Duration = limits::HANG;
const PURPOSE: &str = "test";

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (connected, listener.accept().unwrap().0)
}

/// Runs both sides of a handshake at once.
fn shake<A: Send, B>(connect: impl FnOnce(TcpStream) -> A + Send, accept: impl FnOnce(TcpStream) -> B) -> (A, B) {
    let (connected, accepted) = tcp_pair();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| connect(connected));
        let accepted = accept(accepted);
        (connecting.join().unwrap(), accepted)
    })
}

fn streams() -> (SecureStream, SecureStream) {
    let key = Key::generate().unwrap();
    let (a, b) = shake(
        |tcp| SecureStream::connect(tcp, &key, PURPOSE, TIMEOUT).unwrap(),
        |tcp| SecureStream::accept(tcp, &key, PURPOSE, TIMEOUT).unwrap(),
    );
    (a, b)
}

#[test]
fn halves_work_from_several_threads_at_once() {
    let (a, b) = streams();
    let messages = || (0..200_usize).map(|number| vec![number as u8; number * number]);
    std::thread::scope(|scope| {
        for (mut reader, mut writer) in [a.split(), b.split()] {
            scope.spawn(move || messages().for_each(|message| writer.send(&message).unwrap()));
            scope.spawn(move || {
                for expected in messages() {
                    assert!(reader.receive(40_000).unwrap().unwrap() == expected);
                }
            });
        }
    });
}

/// One side goes on with another socket to the same connection after each message, and within one.
#[test]
fn a_connection_goes_on_from_its_state() {
    let (a, b) = streams();
    let ((mut a_reader, mut a_writer), mut b) = (a.split(), b);
    for number in 0..20_u8 {
        let (tcp, states) = (b.tcp().try_clone().unwrap(), (b.reader.state(), b.writer.state()));
        drop(b);
        b = SecureStream::resume(tcp, &states.0, &states.1).unwrap();
        a_writer.send(&[number; 70_000]).unwrap();
        // It takes no more than has arrived.
        b.set_timeout(Some(Duration::ZERO)).unwrap();
        let message = loop {
            match b.receive(70_000) {
                Err(Error::TimedOut { .. }) => {
                    let (tcp, states) = (b.tcp().try_clone().unwrap(), (b.reader.state(), b.writer.state()));
                    b = SecureStream::resume(tcp, &states.0, &states.1).unwrap();
                    b.set_timeout(Some(Duration::ZERO)).unwrap();
                }
                received => break received.unwrap().unwrap(),
            }
        };
        assert!(message == [number; 70_000]);
        b.set_timeout(None).unwrap();
        b.send(&[number]).unwrap();
        assert_eq!(a_reader.receive(1).unwrap().unwrap(), [number]);
    }
    let tcp = b.tcp().try_clone().unwrap();
    assert!(matches!(SecureStream::resume(tcp, b"", b""), Err(Error::Cipher { .. })));
}

#[test]
fn wrong_keys_and_purposes_are_told_to_both_sides() {
    let (ours, theirs) = (Key::generate().unwrap(), Key::generate().unwrap());
    let (a, b) = shake(
        |tcp| SecureStream::connect(tcp, &ours, PURPOSE, TIMEOUT).err().unwrap(),
        |tcp| SecureStream::accept(tcp, &theirs, PURPOSE, TIMEOUT).err().unwrap(),
    );
    assert!(matches!((&a, &b), (Error::WrongKey { .. }, Error::WrongKey { .. })), "{a:?} {b:?}");
    let (a, b) = shake(
        |tcp| SecureStream::connect(tcp, &ours, "another", TIMEOUT).err().unwrap(),
        |tcp| SecureStream::accept(tcp, &ours, PURPOSE, TIMEOUT).err().unwrap(),
    );
    assert!(matches!((&a, &b), (Error::OtherPurpose { .. }, Error::OtherPurpose { .. })), "{a:?} {b:?}");
}

#[test]
fn both_keys_are_let_in_while_one_replaces_the_other() {
    let old = Key::generate().unwrap();
    let keys = Keys::from(old.clone()).rotated().unwrap();
    let connect = |key: &Key, keys: &Keys| -> Result<bool, Error> {
        let (connected, accepted) = shake(
            |tcp| SecureStream::connect(tcp, key, PURPOSE, TIMEOUT),
            |tcp| SecureStream::accept_any(tcp, keys, PURPOSE, TIMEOUT),
        );
        let (mut ours, (mut theirs, has_old)) = (connected?, accepted?);
        ours.send(b"a message")?;
        assert_eq!(theirs.receive(100)?.unwrap(), b"a message");
        Ok(has_old)
    };
    let is_refused = |connected: Result<bool, Error>| matches!(connected, Err(Error::WrongKey { .. }));
    assert_eq!([keys.current(), &old].map(|key| connect(key, &keys).unwrap()), [false, true]);
    assert!(is_refused(connect(&old, &keys.without_old())) && !connect(keys.current(), &keys.without_old()).unwrap());
    assert!(is_refused(connect(&Key::generate().unwrap(), &keys)));
}

#[test]
fn claims_are_answered_or_refused() {
    let key = Key::generate().unwrap();
    let connect = |tcp| SecureStream::connect_claiming(tcp, &key, PURPOSE, b"host 7", TIMEOUT);
    let ((_, answer), _) = shake(
        |tcp| connect(tcp).unwrap(),
        |tcp| {
            let accepting = SecureStream::accept_claim(tcp, &key, PURPOSE, TIMEOUT).unwrap();
            assert_eq!(accepting.claim(), b"host 7");
            accepting.answer(b"welcome").unwrap()
        },
    );
    assert_eq!(answer, b"welcome");
    let (refused, ()) = shake(connect, |tcp| SecureStream::accept_claim(tcp, &key, PURPOSE, TIMEOUT).unwrap().refuse());
    assert!(matches!(refused, Err(Error::Unwanted { .. })));
}

/// Neither a recording of a handshake nor its first half alone is accepted.
#[test]
fn what_was_recorded_is_not_let_in() {
    let key = Key::generate().unwrap();
    let (initiator, first) = Initiator::new(&key, PURPOSE, b"").unwrap();
    let content = |message: &[u8]| handshake::first_message(message).unwrap().unwrap().0.to_vec();
    let (responder, _) = Responder::new(&key, PURPOSE, &content(&first)).unwrap();
    let (confirming, second) = responder.answer(b"").unwrap();
    let (_, _, third) = initiator.finish(&content(&second)).unwrap();
    assert!(confirming.confirm(&content(&third)).is_ok(), "the first time");
    for last in [third, first.clone(), second, vec![0, 0]] {
        let (connected, accepted) = tcp_pair();
        (&connected).write_all(&[first.as_slice(), &last].concat()).unwrap();
        let refused = SecureStream::accept(accepted, &key, PURPOSE, TIMEOUT).err();
        assert!(matches!(refused, Some(Error::WrongKey { .. })), "{refused:?}");
    }
}

#[test]
fn other_protocols_and_silence_end_in_time() {
    let key = Key::generate().unwrap();
    let (connected, accepted) = tcp_pair();
    (&connected).write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let refused = SecureStream::accept(accepted, &key, PURPOSE, TIMEOUT).err().unwrap();
    assert!(matches!(refused, Error::NotGossamer { .. }), "{refused:?}");

    let (silent, accepted) = tcp_pair();
    let refused = SecureStream::accept(accepted, &key, PURPOSE, Duration::from_millis(20)).err().unwrap();
    assert!(matches!(refused, Error::TimedOut { .. }), "{refused:?}");
    drop(silent);

    let (connected, accepted) = tcp_pair();
    drop(connected);
    let refused = SecureStream::accept(accepted, &key, PURPOSE, TIMEOUT).err().unwrap();
    assert!(matches!(refused, Error::Closed { .. }), "{refused:?}");
}

/// One byte now and then does not extend the time limit of the handshake.
#[test]
fn a_drip_does_not_stretch_the_limit() {
    let key = Key::generate().unwrap();
    let (connected, accepted) = tcp_pair();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Ends when the other side has given up and closed.
            while (&connected).write_all(&[1]).is_ok() {
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let refused = SecureStream::accept(accepted, &key, PURPOSE, Duration::from_millis(100)).err().unwrap();
        assert!(matches!(refused, Error::TimedOut { .. }), "{refused:?}");
    });
}

#[test]
fn a_receive_out_of_time_may_be_tried_again() {
    let (mut a, mut b) = streams();
    b.set_timeout(Some(Duration::from_millis(10))).unwrap();
    assert!(matches!(b.receive(100), Err(Error::TimedOut { .. })));
    // The first half of a message, then the rest.
    let mut sealed = Vec::new();
    a.writer.sealer.seal(b"in two parts", &mut sealed).unwrap();
    a.tcp().try_clone().unwrap().write_all(&sealed[..9]).unwrap();
    assert!(matches!(b.receive(100), Err(Error::TimedOut { .. })));
    a.tcp().try_clone().unwrap().write_all(&sealed[9..]).unwrap();
    b.set_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(b.receive(100).unwrap().unwrap(), b"in two parts");
}

#[test]
fn the_end_is_told_from_a_cut() {
    let (mut a, mut b) = streams();
    a.send(b"last").unwrap();
    drop(a);
    assert_eq!(b.receive(100).unwrap().unwrap(), b"last");
    assert!(b.receive(100).unwrap().is_none());

    let (mut a, mut b) = streams();
    let mut sealed = Vec::new();
    a.writer.sealer.seal(b"cut", &mut sealed).unwrap();
    a.tcp().try_clone().unwrap().write_all(&sealed[..5]).unwrap();
    drop(a);
    assert!(matches!(b.receive(100), Err(Error::Closed { .. })));
}

#[test]
fn a_long_message_is_refused_and_stays_so() {
    let (mut a, mut b) = streams();
    a.send(&[0; 1000]).unwrap();
    a.send(b"short").unwrap();
    for _ in 0..2 {
        assert!(matches!(b.receive(999), Err(Error::MessageTooLong { limit_bytes: 999, .. })));
    }
}

#[test]
fn a_writer_is_not_held_up_for_ever() {
    let (mut a, b) = streams();
    a.set_timeout(Some(Duration::from_millis(20))).unwrap();
    // More than the sockets hold, and the other side does not read.
    let sent = a.send(&vec![0; 64 << 20]);
    assert!(matches!(sent, Err(Error::TimedOut { .. })), "{sent:?}");
    assert!(matches!(a.send(b"more"), Err(Error::Closed { .. })));
    drop(b);
}

#[test]
fn a_reader_that_waits_is_woken_by_shutting_down() {
    let (a, _b) = streams();
    let (mut reader, writer) = a.split();
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || reader.receive(100));
        writer.shut_down();
        assert!(matches!(reading.join().unwrap(), Ok(None) | Err(Error::Closed { .. })));
    });
}

/// A message that takes long on a slow link, twice as long as the limit of silence.
#[test]
fn a_slow_message_is_waited_for_while_it_comes() {
    const SILENCE: Duration = Duration::from_secs(3);
    let (mut a, mut b) = streams();
    b.set_timeout(Some(SILENCE)).unwrap();
    let message = vec![7; 100_000];
    let mut sealed = Vec::new();
    a.writer.sealer.seal(&message, &mut sealed).unwrap();
    let mut tcp = a.tcp().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let pieces = 120;
            for piece in sealed.chunks(sealed.len().div_ceil(pieces)) {
                std::thread::sleep(2 * SILENCE / pieces as u32); // the pace of the link
                tcp.write_all(piece).unwrap();
            }
        });
        assert!(b.receive(100_000).unwrap().unwrap() == message);
    });
    // A message that stops halfway.
    sealed.clear();
    a.writer.sealer.seal(&message, &mut sealed).unwrap();
    a.tcp().try_clone().unwrap().write_all(&sealed[..50_000]).unwrap();
    let start = Instant::now();
    assert!(matches!(b.receive(100_000), Err(Error::TimedOut { .. })));
    assert!(start.elapsed() >= SILENCE);
}

/// A reader that takes a message slowly, and then stops. The bytes in the kernel drain for longer than the
/// limit of silence, so that a write waits for longer than that.
#[test]
fn who_takes_a_message_slowly_is_waited_for() {
    const SILENCE: Duration = Duration::from_secs(3);
    let (mut a, b) = streams();
    a.set_timeout(Some(SILENCE)).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(b.tcp(), 64 << 10).unwrap();
    let message = vec![7; 4 << 20];
    let is_sent = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 16 << 10];
            while !is_sent.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(40)); // the pace of the link
                b.tcp().read_exact(&mut buffer).unwrap();
            }
        });
        let sent = a.send(&message);
        is_sent.store(true, std::sync::atomic::Ordering::Relaxed);
        sent.unwrap();
    });
    let start = Instant::now();
    assert!(matches!(a.send(&message), Err(Error::TimedOut { .. })), "nobody takes anything");
    assert!(start.elapsed() >= SILENCE);
}

#[test]
fn memory_of_messages_is_kept_unless_they_are_large() {
    let (a, b) = streams();
    let ((mut reader, _), (_, mut writer)) = (a.split(), b.split());
    let kept = |writer: &SecureWriter| writer.sealed.capacity();
    writer.send(&[1; 1000]).unwrap();
    assert!(kept(&writer) >= 1000);
    for (capacity, stays) in [(4 * FRAME_BYTES_MAX, true), (4 * FRAME_BYTES_MAX + 1, false)] {
        writer.sealed = Vec::with_capacity(capacity);
        assert_eq!(kept(&writer), capacity);
        writer.send(&[2; 10]).unwrap();
        assert_eq!(kept(&writer), if stays { capacity } else { 0 });
    }
    for expected in [&[1; 1000][..], &[2; 10], &[2; 10]] {
        assert_eq!(reader.receive(1000).unwrap().unwrap(), expected);
    }
}

/// Bytes that a peer has not read when it closes are lost: that is no graceful end.
#[test]
fn a_connection_that_is_reset_is_an_error() {
    let (mut a, b) = streams();
    let address = a.tcp().peer_addr().unwrap().to_string();
    a.send(b"unread").unwrap();
    drop(b);
    let outcome = a.receive(100);
    assert!(matches!(&outcome, Err(Error::Closed { peer, .. }) if *peer == address), "{outcome:?}");
}

#[test]
fn the_longest_message_of_a_handshake_is_read() {
    let (connected, accepted) = tcp_pair();
    let longest = [&(MESSAGE_BYTES_MAX as u16).to_le_bytes()[..], &[7; MESSAGE_BYTES_MAX]].concat();
    (&connected).write_all(&longest).unwrap();
    let read = read_message(&accepted, "a peer", Instant::now().checked_add(TIMEOUT)).unwrap();
    assert!(read == longest[2..]);
}
