//! One request over HTTP/1.1, and its answer: only the parts that the view needs. Each connection serves one request.
//!
//! Invariants: a head is at most [`HEAD_BYTES_MAX`] long and must come within [`TIME_LIMIT`], at any speed; an answer
//! must be taken within the same time.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use trust::link::deadline_after;

/// Longest head of a request.
pub(super) const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time in which a request, and an answer, must pass.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(5);
const HEADERS_MAX: usize = 64;

/// Parsed head of a request.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// Returns a header by its name, if it is there once; an error if it is there more often.
    pub(super) fn header(&self, name: &str) -> Result<Option<&str>, Status> {
        let mut found = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        match (found.next(), found.next()) {
            (first, None) => Ok(first.map(|(_, value)| value.as_str())),
            _ => Err(Status::BAD),
        }
    }
}

/// Status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(pub(super) u16, pub(super) &'static str);

impl Status {
    pub(super) const OK: Status = Status(200, "OK");
    pub(super) const BAD: Status = Status(400, "Bad Request");
    pub(super) const FORBIDDEN: Status = Status(403, "Forbidden");
    pub(super) const NOT_FOUND: Status = Status(404, "Not Found");
    pub(super) const METHOD: Status = Status(405, "Method Not Allowed");
    pub(super) const SLOW: Status = Status(408, "Request Timeout");
    pub(super) const LARGE: Status = Status(431, "Request Header Fields Too Large");
    pub(super) const BUSY: Status = Status(503, "Service Unavailable");
}

/// Answer to a request.
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) content_type: &'static str,
    pub(super) policy: Option<String>,
    pub(super) body: Vec<u8>,
}

impl From<Status> for Answer {
    fn from(status: Status) -> Answer {
        let body = format!("{} {}\n", status.0, status.1).into_bytes();
        Answer { status, content_type: "text/plain; charset=utf-8", policy: None, body }
    }
}

/// Reads the head of a request. `Err(None)` if the connection is of no more use.
pub(super) fn read(stream: &mut TcpStream) -> Result<Request, Option<Status>> {
    let end = deadline_after(TIME_LIMIT);
    let mut bytes = Vec::with_capacity(1024);
    let mut buffer = [0; 2048];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Some(Status::SLOW));
        }
        stream.set_read_timeout(Some(left)).map_err(|_| None)?;
        match stream.read(&mut buffer) {
            Ok(0) => return Err(None),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => return Err(None),
        }
        if let Some(request) = parse(&bytes).map_err(Some)? {
            return Ok(request);
        }
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(Some(Status::LARGE));
        }
    }
}

/// Parses the request in these bytes; `None` if it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<Request>, Status> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(length)) if length > HEAD_BYTES_MAX => Err(Status::LARGE),
        Ok(httparse::Status::Complete(_)) => {
            let text = |value: &[u8]| std::str::from_utf8(value).map(str::to_owned).map_err(|_| Status::BAD);
            let header = |header: &httparse::Header<'_>| Ok((header.name.to_owned(), text(header.value)?));
            Ok(Some(Request {
                method: parsed.method.unwrap_or_default().to_owned(),
                path: parsed.path.unwrap_or_default().to_owned(),
                headers: parsed.headers.iter().map(header).collect::<Result<_, _>>()?,
            }))
        }
        Err(httparse::Error::TooManyHeaders) => Err(Status::LARGE),
        Err(_) => Err(Status::BAD),
    }
}

/// Writes an answer. A client that does not take it in time gets no more of it.
pub(super) fn write(stream: &mut TcpStream, answer: &Answer) -> io::Result<()> {
    let Answer { status: Status(code, reason), content_type, policy, body } = answer;
    let policy = policy.as_deref().unwrap_or("default-src 'none'; frame-ancestors 'none'");
    let allow = if *code == Status::METHOD.0 { "Allow: GET\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {code} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n{allow}\
         Cache-Control: no-store\r\nContent-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\r\n",
        body.len()
    );
    let end = deadline_after(TIME_LIMIT);
    let bytes = [head.as_bytes(), body].concat();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_taken_whole_or_refused() {
        let whole = "GET /x HTTP/1.1\r\nHost: a\r\nAccept: b\r\n\r\n";
        for cut in 0..whole.len() {
            assert!(matches!(parse(&whole.as_bytes()[..cut]), Ok(None)), "{cut}");
        }
        let request = parse(whole.as_bytes()).unwrap().unwrap();
        assert_eq!(
            (request.method.as_str(), request.path.as_str(), request.header("HOST")),
            ("GET", "/x", Ok(Some("a")))
        );
        assert_eq!(request.header("cookie"), Ok(None));
        let twice = parse(b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n").unwrap().unwrap();
        assert_eq!(twice.header("host"), Err(Status::BAD));
        let many = "a: b\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(parse(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()).unwrap_err(), Status::LARGE);
        for wrong in [&b"\x00\x01\x02\r\n\r\n"[..], b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", b"GET\r\n\r\n"] {
            assert_eq!(parse(wrong).unwrap_err(), Status::BAD);
        }
    }
}
