//! Server of a program's view over HTTP: the page, its data, the metrics. It is read-only, but for `POST move`, which
//! asks a thread of a C program that was started with `--move` to go to another machine.
//!
//! Access: with the token, in the path or as a bearer, and for this very address. Requests that other sites cause in a
//! browser are refused (`Sec-Fetch-Site`, `Host`). Without a file with a token, only this host has access.
//!
//! Limits: 16 connections with the token, a thread each, and 16 that have not shown it yet (`server/visitors.rs`).
//! Limits of a request are in `http.rs`.

mod visitors;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::http::{self, Answer, Request, Status};
use super::page;
use super::snapshot::Snapshots;
use super::source::Source;
use super::text::{self, Format};
use crate::control::Look;
use visitors::{Visitor, Visitors};

/// Pause after an error that is not one connection's.
const PAUSE: Duration = Duration::from_millis(100);
const TOKEN_LETTERS_MIN: usize = 32;
const TOKEN_LETTERS_MAX: usize = 256;

/// Address and token of a view.
#[derive(Clone)]
pub struct Access {
    address: SocketAddr,
    token: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Access({}, ..)", self.address) // the token must not be printed
    }
}

impl Access {
    /// Sets the address (`127.0.0.1:7118`; port 0 takes a free one), with the token in this file, or with a new one.
    ///
    /// # Errors
    /// In words, with the cure: an invalid address, or one that others can reach without a file with a token; a file
    /// that cannot be read, that others may read, or that holds no token of 32 to 256 letters, digits, `-` and `_`.
    ///
    /// ```
    /// use gossamer::view::server::Access;
    /// assert!(Access::new("127.0.0.1:0", None).is_ok());
    /// assert!(Access::new("0.0.0.0:7118", None).err().unwrap().contains("token"));
    /// assert!(Access::new("localhost", None).is_err());
    /// ```
    pub fn new(address: &str, token_file: Option<&Path>) -> Result<Access, String> {
        let parsed =
            address.parse().map_err(|_| format!("{address:?} is no address: 127.0.0.1:7118 or [::1]:7118 is one"))?;
        let address: SocketAddr = parsed;
        let token = match token_file {
            Some(file) => read_token(file)?,
            None if address.ip().is_loopback() => {
                new_token().map_err(|error| format!("no token can be made: {error}"))?
            }
            None => {
                return Err(format!(
                    "{address} can be reached from other hosts: a file with a token is needed, of mode 0600 \
                     (`head -c 16 /dev/urandom | xxd -p > token`), or an address of this host alone (127.0.0.1)"
                ));
            }
        };
        Ok(Access { address, token })
    }
}

fn new_token() -> Result<String, comm::Error> {
    let key = comm::secure::Key::generate()?;
    Ok(key.as_bytes()[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns whether this may be a token: 32 to 256 letters, digits, `-` and `_`.
#[must_use]
pub fn is_token(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    is_plain && (TOKEN_LETTERS_MIN..=TOKEN_LETTERS_MAX).contains(&text.len())
}

/// Reads the token in this file.
///
/// # Errors
/// In words, with the cure: a file that cannot be read, that others may read, or that holds no token.
pub fn read_token(file: &Path) -> Result<String, String> {
    use std::os::unix::fs::PermissionsExt;
    let name = file.display();
    let metadata = std::fs::metadata(file).map_err(|error| format!("the token's file {name}: {error}"))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(format!("the token's file {name} may be read by others: `chmod 600 {name}`"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| format!("the token's file {name}: {error}"))?;
    let token = text.trim();
    if !is_token(token) {
        return Err(format!("{name} holds no token: 32 to 256 letters, digits, - and _ are one"));
    }
    Ok(token.to_owned())
}

/// View that is served, while the process lives.
#[derive(Debug)]
pub struct Server {
    url: String,
}

impl Server {
    /// Returns the page's URL: it has the token, so only for those that may have access.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

struct Shared {
    address: SocketAddr,
    token: String,
    source: Arc<dyn Source>,
    snapshots: Snapshots,
    visitors: Arc<Visitors>,
}

/// Serves the view of a program.
///
/// # Errors
/// If the address cannot be taken, or no thread can be started.
pub fn serve(access: &Access, source: Arc<dyn Source>) -> io::Result<Server> {
    let listener = TcpListener::bind(access.address)?;
    let address = listener.local_addr()?;
    let url = format!("http://{address}/{}/", access.token);
    let token = access.token.clone();
    let (snapshots, visitors) = (Snapshots::default(), Arc::default());
    let shared = Arc::new(Shared { address, token, source, snapshots, visitors });
    thread::Builder::new().name("gossamer-http".to_owned()).spawn(move || accept_all(&listener, &shared))?;
    Ok(Server { url })
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) -> ! {
    loop {
        match listener.accept() {
            Ok((stream, peer)) => take(stream, peer.ip(), shared),
            Err(_) => thread::sleep(PAUSE), // no descriptors, or gone before it was there
        }
    }
}

fn take(mut stream: TcpStream, address: IpAddr, shared: &Arc<Shared>) {
    let Ok(mut visitor) = shared.visitors.enter(&stream, address) else { return }; // no descriptors: it is closed
    let shared = Arc::clone(shared);
    let serve = move || {
        let answer = match http::read(&mut stream) {
            Ok(request) => shared.answer(&request, &mut visitor).unwrap_or_else(Answer::from),
            Err(Some(status)) => status.into(),
            Err(None) => return,
        };
        if http::write(&mut stream, &answer).is_ok() {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    };
    // Without a thread the connection is closed.
    let _ = thread::Builder::new().name("gossamer-http".to_owned()).spawn(serve);
}

/// Reads the thread and the machine of a path that ends with `?thread=7&machine=2`.
fn parse_move(path: &str) -> Option<Look> {
    let (thread, machine) = path.split_once("?thread=")?.1.split_once("&machine=")?;
    Some(Look::Move { thread: thread.parse().ok()?, machine: machine.parse().ok()? })
}

impl Shared {
    /// Answers a request with the token; `visitor` is authenticated from then on.
    fn answer(&self, request: &Request, visitor: &mut Visitor) -> Result<Answer, Status> {
        let what = self.what(request)?;
        if !visitor.make_known() {
            return Err(Status::BUSY);
        }
        self.look(what, request)
    }

    /// Returns the requested path, if the request may have access.
    fn what<'r>(&self, request: &'r Request) -> Result<&'r str, Status> {
        if !["GET", "POST"].contains(&request.method.as_str()) {
            return Err(Status::METHOD);
        }
        if !request.header("host")?.is_some_and(|host| self.is_own(host)) {
            return Err(Status::FORBIDDEN);
        }
        if let Some(site) = request.header("sec-fetch-site")?
            && !["same-origin", "none"].contains(&site)
        {
            return Err(Status::FORBIDDEN);
        }
        let path = request.path.split('?').next().unwrap_or_default();
        let bearer = request.header("authorization")?.and_then(|value| value.strip_prefix("Bearer "));
        let in_path = path.strip_prefix('/').and_then(|rest| rest.split_once('/'));
        match (bearer, in_path) {
            (Some(token), _) if is_same(token.trim(), &self.token) => Ok(path.strip_prefix('/').unwrap_or(path)),
            (None, Some((token, rest))) if is_same(token, &self.token) => Ok(rest),
            _ => Err(Status::FORBIDDEN),
        }
    }

    fn look(&self, what: &str, request: &Request) -> Result<Answer, Status> {
        if (request.method == "POST") != (what == "move") {
            return Err(Status::METHOD);
        }
        let ok = |content_type, body| Answer { status: Status::OK, content_type, policy: None, body };
        match what {
            "" => Ok(Answer { policy: Some(page::policy()), ..ok("text/html; charset=utf-8", page::PAGE.into()) }),
            "sample.json" => {
                let snapshot = self.snapshots.take(&*self.source, self.source.sample_age());
                Ok(ok("application/json", serde_json::to_vec(&snapshot).unwrap_or_default()))
            }
            "metrics" => {
                let format = Format::of(request.header("accept")?.unwrap_or_default());
                let snapshot = self.snapshots.take(&*self.source, self.source.sample_age());
                Ok(ok(format.content_type(), text::render(&snapshot, format).into_bytes()))
            }
            "dump" => {
                // A machine waits a second for its threads, and then takes the stacks of those that have not answered.
                let answer = self.source.look(Look::Dump, super::snapshot::ANSWER_LIMIT * 5);
                Ok(ok("text/plain; charset=utf-8", super::source::dump_text(&answer).into_bytes()))
            }
            "trace.json" => {
                let seconds = request.path.split_once("?seconds=").and_then(|(_, seconds)| seconds.parse().ok());
                let time = Duration::try_from_secs_f64(seconds.unwrap_or(1.0)).map_err(|_| Status::BAD)?;
                let time = time.min(Look::TRACE_MAX);
                let answer = self.source.look(Look::Trace(time), super::snapshot::ANSWER_LIMIT * 10);
                Ok(ok("application/json", super::chrome::of_answer(&answer).0.into_bytes()))
            }
            "move" => {
                let look = parse_move(&request.path).ok_or(Status::BAD)?;
                let answer = self.source.look(look, super::source::MOVE_LIMIT);
                Ok(ok("text/plain; charset=utf-8", super::source::move_text(&answer).into_bytes()))
            }
            _ => Err(Status::NOT_FOUND),
        }
    }

    /// Returns whether this `Host` is the address that is served. A name of a foreign DNS zone that maps to it is not.
    fn is_own(&self, host: &str) -> bool {
        let port = self.address.port();
        let is_name = |name: &str| {
            host.eq_ignore_ascii_case(&format!("{name}:{port}")) || (port == 80 && host.eq_ignore_ascii_case(name))
        };
        let ip = self.address.ip();
        if ip.is_unspecified() {
            // Bound to all: any address, but no name.
            return host.parse::<SocketAddr>().is_ok_and(|asked| asked.port() == port)
                || (port == 80 && host.parse::<IpAddr>().is_ok());
        }
        let own = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
        is_name(&own) || (ip.is_loopback() && is_name("localhost"))
    }
}

/// Compares in a time that does not reveal where they differ.
fn is_same(given: &str, token: &str) -> bool {
    let differ = given.bytes().zip(token.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == token.len() && std::hint::black_box(differ) == 0
}

#[cfg(test)]
mod tests;
