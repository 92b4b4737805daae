//! Requests of browsers, scrapers and strangers to a view.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;
use crate::view::sample::MachineSample;
use crate::view::source;

struct Fixed;

impl Source for Fixed {
    fn look(&self, _: Look, _: Duration) -> source::Answer {
        let sample = MachineSample { program: "<script>alert(1)</script>".into(), ..MachineSample::default() };
        source::Answer { machines: vec![(0, sample.to_bytes())], troubles: Vec::new() }
    }
}

fn server() -> (SocketAddr, String) {
    let access = Access::new("127.0.0.1:0", None).unwrap();
    let server = serve(&access, Arc::new(Fixed)).unwrap();
    let address = server.url().split('/').nth(2).unwrap().parse().unwrap();
    (address, access.token)
}

/// Sends this, and reads until the other side closes.
fn talk(address: SocketAddr, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(limits::HANG)).unwrap();
    let _ = stream.write_all(sent); // it may have been refused by now
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn get(address: SocketAddr, path: &str, more: &str) -> String {
    talk(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}\r\n").as_bytes())
}

#[test]
fn only_who_has_the_token_and_asks_for_this_address_may_look() {
    let (address, token) = server();
    let page = get(address, &format!("/{token}/"), "");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("</html>"), "{page}");
    assert!(
        page.contains("default-src 'none'") && page.contains("connect-src 'self'") && !page.contains("unsafe-inline")
    );
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert!(get(address, "/metrics", &bearer).contains("\r\n\r\n# TYPE gossamer_requests_sent_total counter"));
    assert!(
        get(address, &format!("/{token}/metrics"), "Accept: application/openmetrics-text\r\n").ends_with("# EOF\n")
    );
    assert!(
        get(address, &format!("/{token}/sample.json"), "Sec-Fetch-Site: same-origin\r\n").contains("\"alerts\":[]")
    );
    assert!(get(address, &format!("/{token}/nothing"), "").starts_with("HTTP/1.1 404 "));

    let wrong = "0".repeat(token.len());
    let refused = |answer: String| assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    refused(get(address, "/", ""));
    refused(get(address, "/metrics", ""));
    refused(get(address, &format!("/{wrong}/"), ""));
    refused(get(address, &format!("/{}/", &token[1..]), ""));
    refused(get(address, "/metrics", &format!("Authorization: Bearer {wrong}\r\n")));
    refused(get(address, &format!("/{token}/"), "Sec-Fetch-Site: cross-site\r\n"));
    refused(get(address, &format!("/{token}/"), "Sec-Fetch-Site: same-site\r\n"));
    for host in ["evil.example", "127.0.0.1", "127.0.0.1:1", &format!("evil.example:{}", address.port())] {
        refused(talk(address, format!("GET /{token}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()));
    }
    refused(talk(address, format!("GET /{token}/ HTTP/1.0\r\n\r\n").as_bytes()));
    let post = talk(address, format!("POST /{token}/ HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("Allow: GET"));
}

#[test]
fn long_heads_are_refused() {
    let (address, token) = server();
    let long = format!("GET /{token}/ HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "y".repeat(http::HEAD_BYTES_MAX));
    assert!(talk(address, long.as_bytes()).starts_with("HTTP/1.1 431 "));
    assert!(talk(address, b"\x16\x03\x01\x00\x01\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

/// The strangers send nothing, or too little, or do not take their refusal; and come again as soon as they are closed.
#[test]
fn slow_strangers_do_not_keep_out_who_has_the_token() {
    let (address, token) = server();
    let beginnings = [&b""[..], b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET /0/ HTTP/1.1\r\n\r\n"];
    let mut strangers = Vec::new();
    for number in 0..120 {
        let mut stranger = TcpStream::connect(address).unwrap();
        let _ = stranger.write_all(beginnings[number % 3]); // closed by now
        strangers.push(stranger);
        if number % 10 == 9 {
            let answer = get(address, &format!("/{token}/sample.json"), "");
            assert!(answer.starts_with("HTTP/1.1 200 "), "after {number}: {answer}");
        }
    }
    // The first were closed for the last: waiting holds no place.
    let mut text = Vec::new();
    strangers[0].set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(strangers[0].read_to_end(&mut text).unwrap_or(0), 0);
}

/// A client with the token that does not take its answer holds a place, and no more than there are.
#[test]
fn too_many_with_the_token_are_refused_for_a_while() {
    let visitors = Arc::new(visitors::Visitors::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let enter = || {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let visitor = visitors.enter(&stream, "127.0.0.1".parse().unwrap()).unwrap();
        (stream, visitor)
    };
    let mut known: Vec<_> = (0..visitors::CONNECTIONS_MAX).map(|_| enter()).collect();
    assert!(known.iter_mut().all(|(_, visitor)| visitor.make_known() && visitor.make_known()));
    let (_stream, mut one_more) = enter();
    assert!(!one_more.make_known());
    known.pop();
    assert!(one_more.make_known());
    // Unauthenticated connections are no reason to close authenticated ones, nor the other way round.
    let strangers: Vec<_> = (0..3 * visitors::CONNECTIONS_MAX).map(|_| enter()).collect();
    assert!(!enter().1.make_known());
    drop((known, strangers, one_more));
    assert!(enter().1.make_known());
}

#[test]
fn tokens_are_read_from_files_that_nobody_else_may_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("gossamer-token-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("token");
    let write = |text: &str, mode: u32| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        Access::new("0.0.0.0:0", Some(&file)).map(|access| access.token)
    };
    let token = "a".repeat(TOKEN_LETTERS_MIN);
    assert_eq!(write(&format!("{token}\n"), 0o600).unwrap(), token);
    assert!(write(&token, 0o644).unwrap_err().contains("chmod 600"));
    assert!(write("short", 0o600).unwrap_err().contains("holds no token"));
    assert!(write(&"a/b ".repeat(20), 0o600).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(Access::new("127.0.0.1:0", Some(&file)).is_err());
}
