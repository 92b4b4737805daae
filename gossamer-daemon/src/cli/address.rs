//! The address of a view, and its token. Other users of this host can read the arguments of a process, so the token
//! comes from a file, a variable or standard input; a token given in the arguments is removed from them.

use comm::deadline::deadline_after;
use comm::descriptors::cure;
use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gossamer::view::server;

use super::complain;

/// Variable with the token of the view that is asked.
pub(super) const TOKEN_VARIABLE: &str = "GOSSAMER_VIEW_TOKEN";
/// Stands for standard input in place of a file or an address.
pub(super) const STDIN: &str = "-";

/// Longest time for an answer, beyond the time that was asked for.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// Longest accepted answer.
const BYTES_MAX: u64 = 1 << 30;

/// The address of a view.
pub(super) struct Address {
    host: String,
    /// Path with the token, and a slash at the end.
    path: String,
}

/// Splits into host and path; the path loses its slashes at the end.
fn split(text: &str) -> Result<(&str, &str), String> {
    let wrong = || format!("{text:?} is no address of a view: http://127.0.0.1:7118/TOKEN/ is one, as it was printed");
    let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong());
    }
    Ok((host, path.trim_end_matches('/')))
}

impl Address {
    /// Address from `text`, or from the first line of standard input for `-`. The token may be in `file`; `-` is
    /// standard input there, too.
    ///
    /// # Errors
    /// A text with the cure.
    pub(super) fn find(text: &str, file: Option<&Path>) -> Result<Address, String> {
        if text == STDIN {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map_err(|error| format!("standard input: {error}"))?;
            return Address::new(line.trim(), || token(file));
        }
        let (host, path) = split(text)?;
        let (before, last) = path.rsplit_once('/').unwrap_or(("", path));
        if server::is_token(last) {
            if file.is_some() {
                return Err("--token-file, and a token in the address: one of them".to_owned());
            }
            let slash = if before.is_empty() { "" } else { "/" };
            hide(text, &format!("http://{host}/{before}{slash}"), last);
        }
        Address::new(text, || token(file))
    }

    /// Calls `token` where the address has none.
    fn new(text: &str, token: impl FnOnce() -> Result<Option<String>, String>) -> Result<Address, String> {
        let (host, path) = split(text)?;
        let host = host.to_owned();
        let last = path.rsplit('/').next().unwrap_or_default();
        let token = if server::is_token(last) { None } else { token()? };
        let path = match (path, token) {
            ("", None) => {
                return Err(format!(
                    "{text} has no token: it is in the address that was printed; or name it by --token-file FILE, or \
                     set {TOKEN_VARIABLE}"
                ));
            }
            ("", Some(token)) => format!("/{token}/"),
            (path, None) => format!("/{path}/"),
            (path, Some(token)) => format!("/{path}/{token}/"),
        };
        Ok(Address { host, path })
    }

    /// Returns the host of the view, for messages.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Fetches `what` from the view.
    pub(super) fn get(&self, what: &str, limit: Duration) -> Result<Vec<u8>, String> {
        self.request("GET", what, limit)
    }

    /// Sends a request without a body, and returns the answer's.
    pub(super) fn request(&self, method: &str, what: &str, limit: Duration) -> Result<Vec<u8>, String> {
        let host = &self.host;
        let failed = |error: io::Error| format!("{host}: {error}{}", cure(&error));
        let mut stream = connect(host).map_err(failed)?;
        stream.set_write_timeout(Some(LIMIT)).map_err(failed)?;
        let path = &self.path;
        let request = format!("{method} {path}{what} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let end = deadline_after(limit);
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            stream.set_read_timeout(Some(left)).map_err(failed)?;
            match stream.read(&mut buffer).map_err(failed)? {
                0 => break,
                _ if bytes.len() as u64 > BYTES_MAX || Instant::now() >= end => {
                    return Err(format!("{host} does not come to an end"));
                }
                count => bytes.extend_from_slice(&buffer[..count]),
            }
        }
        let head_bytes =
            bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(|| format!("{host} is no view"))?;
        let head = String::from_utf8_lossy(&bytes[..head_bytes]).into_owned();
        match head.split_whitespace().nth(1) {
            Some("200") => Ok(bytes.split_off(head_bytes + 4)),
            Some("403") => Err(format!("{host} refuses: is the address as it was printed, with its token?")),
            Some("503") => Err(format!("{host} serves too many others: try again")),
            status => Err(format!("{host} answers {}", status.unwrap_or("nothing that is HTTP"))),
        }
    }
}

/// Connects to the first address of a name at which somebody listens.
fn connect(host: &str) -> io::Result<TcpStream> {
    let mut failed = None;
    for address in resolve(host)? {
        match TcpStream::connect_timeout(&address, LIMIT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::other("it has no address")))
}

/// Looks up a host with or without a port; an address of IPv6 is in brackets, and may have the name of an interface.
fn resolve(host: &str) -> io::Result<Vec<SocketAddr>> {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().map_err(io::Error::other)?),
        _ => (host, 80),
    };
    let name = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    comm::descriptors::resolve(name, port)
}

/// Returns the token from outside the address, if there is one.
fn token(file: Option<&Path>) -> Result<Option<String>, String> {
    if let Some(file) = file {
        if file == Path::new(STDIN) {
            let mut text = String::new();
            io::stdin().lock().read_line(&mut text).map_err(|error| format!("standard input: {error}"))?;
            let token = text.trim();
            let wrong = || "standard input holds no token: 32 to 256 letters, digits, - and _ are one".to_owned();
            return server::is_token(token).then(|| Some(token.to_owned())).ok_or_else(wrong);
        }
        return server::read_token(file).map(Some);
    }
    let Some(token) = std::env::var_os(TOKEN_VARIABLE).filter(|token| !token.is_empty()) else { return Ok(None) };
    let token = token.into_string().ok().filter(|token| server::is_token(token));
    token
        .map(Some)
        .ok_or_else(|| format!("{TOKEN_VARIABLE} holds no token: 32 to 256 letters, digits, - and _ are one"))
}

/// Restarts this program with the token in a variable, which other users cannot read, instead of its arguments.
fn hide(text: &str, without: &str, token: &str) {
    complain(format_args!(
        "a token in the arguments can be read by others on this host while the program starts: --token-file FILE, \
         {TOKEN_VARIABLE}, or `-` and the address on standard input keep it to yourself"
    ));
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| "gossamer-launch".into());
    let change = |arg: OsString| if arg == text { without.into() } else { arg };
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).args(args.map(change)).env(TOKEN_VARIABLE, token);
    let error = command.exec(); // returns only on failure
    complain(format_args!("it stays there: {error}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn hosts_of_views_may_have_ports_brackets_and_interfaces() {
        for (host, is) in [
            ("127.0.0.1", "127.0.0.1:80"),
            ("127.0.0.1:7118", "127.0.0.1:7118"),
            ("[::1]", "[::1]:80"),
            ("[::1]:7118", "[::1]:7118"),
            ("[fe80::1%lo]:7118", "[fe80::1%1]:7118"),
        ] {
            let found: Vec<String> = resolve(host).unwrap().iter().map(|address| address.to_string()).collect();
            assert_eq!(found, [is], "{host}");
        }
        assert!(resolve("127.0.0.1:x").is_err());
    }

    #[test]
    fn addresses_of_views() {
        let parsed = |text: &str, token: Option<&str>| {
            Address::new(text, || Ok(token.map(str::to_owned))).map(|address| (address.host, address.path)).ok()
        };
        let at = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(parsed("http://127.0.0.1:7118/abc/", None), at("127.0.0.1:7118", "/abc/"));
        assert_eq!(parsed("http://[::1]:7118/abc", None), at("[::1]:7118", "/abc/"));
        let with_token = at("127.0.0.1:7118", &format!("/{TOKEN}/"));
        for text in ["http://127.0.0.1:7118", "http://127.0.0.1:7118/"] {
            assert_eq!(parsed(text, Some(TOKEN)), with_token);
            assert_eq!(parsed(text, None), None);
        }
        // A token in the address is used without asking elsewhere; below another path it may be asked for, too.
        assert_eq!(parsed(&format!("http://127.0.0.1:7118/{TOKEN}/"), Some("other")), with_token);
        assert_eq!(parsed("http://gate/rack", Some(TOKEN)), at("gate", &format!("/rack/{TOKEN}/")));
        for wrong in ["https://a/b/", "http:///x/", "http://a/b\r\nX: y/", "127.0.0.1:7118", ""] {
            assert_eq!(parsed(wrong, Some(TOKEN)), None, "{wrong}");
        }
    }
}
