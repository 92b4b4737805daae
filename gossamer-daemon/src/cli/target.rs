//! Which program is watched: one on a rack, by its number, or one whose view is served somewhere, by its address.

use comm::deadline::deadline_after;
use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use gossamer::control::Look;
use gossamer::view::source::{Answer, dump_text};
use gossamer::view::{Snapshot, Snapshots, Source, chrome};

use super::ask::Ask;
use super::complain;
use crate::outcome::{FAILURE_STATUS, USAGE_STATUS};
use crate::rack::ask::ask;
use crate::rack::look::OnRack;
use crate::wire::{ProgramId, Reply, Request};

/// How long machines may take for a dump, and to send a trace.
const LIMIT: Duration = Duration::from_secs(3);
const TRACE_LIMIT: Duration = Duration::from_secs(20);
/// How long an address may take to answer, beyond what was asked for.
const WEB_LIMIT: Duration = Duration::from_secs(10);
/// The longest answer that is taken from an address.
const WEB_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, Args)]
pub(super) struct Target {
    #[command(flatten)]
    pub(super) ask: Ask,

    /// The program, as `gossamer-launch ps` names it, or the address of its view (http://..) [default: the one that runs]
    program: Option<String>,
}

/// A program that is watched.
pub(super) enum Watched {
    Rack(Box<OnRack>, Snapshots),
    Web(Address),
}

/// The address of a view.
pub(super) struct Address {
    host: String,
    /// With the token, and a slash at the end.
    path: String,
}

impl Target {
    /// The program, or how to exit after the cause was told.
    pub(super) fn find(&self) -> Result<Watched, ExitCode> {
        let wrong = |cause: &dyn Display, status: u8| {
            complain(cause);
            ExitCode::from(status)
        };
        if let Some(text) = self.program.as_ref().filter(|text| text.contains("://")) {
            return Address::parse(text).map(Watched::Web).map_err(|cause| wrong(&cause, USAGE_STATUS));
        }
        let named = self.program.as_ref().map(|text| text.parse::<ProgramId>()).transpose();
        let named = named.map_err(|cause| wrong(&cause, USAGE_STATUS))?;
        let (rack, key, hosts) = self.ask.whom()?;
        let program = match named {
            Some(program) => program,
            None => {
                let answers = ask(&rack, &hosts, &key, &Request::Status);
                let mut found = Vec::new();
                for answer in answers {
                    match answer.outcome {
                        Ok((_, Reply::Status(status))) => {
                            found.extend(status.programs.into_iter().map(|program| program.id));
                        }
                        Ok(_) => {}
                        Err(error) => complain(format_args!("host {}: {}", answer.host, error.reason)),
                    }
                }
                found.sort();
                found.dedup();
                let parsed = found.first().and_then(|id| id.parse().ok());
                match (parsed, found.len()) {
                    (Some(program), 1) => program,
                    (_, 0) => return Err(wrong(&"no program runs on the hosts that answer", FAILURE_STATUS)),
                    _ => {
                        return Err(wrong(
                            &format!("several programs run, name one: {}", found.join(", ")),
                            USAGE_STATUS,
                        ));
                    }
                }
            }
        };
        Ok(Watched::Rack(Box::new(OnRack { rack, hosts, key, program }), Snapshots::default()))
    }
}

impl Watched {
    /// How the program is now.
    pub(super) fn snapshot(&self) -> Result<Snapshot, String> {
        match self {
            Watched::Rack(source, snapshots) => {
                let snapshot = snapshots.take(&**source, Duration::ZERO);
                match snapshot.machines.is_empty() {
                    true if snapshot.alerts.is_empty() => Err("no machine answers".to_owned()),
                    true => Err(snapshot.alerts.join("; ")),
                    false => Ok(snapshot),
                }
            }
            Watched::Web(address) => {
                let body = address.get("sample.json", WEB_LIMIT)?;
                let snapshot: Snapshot =
                    serde_json::from_slice(&body).map_err(|error| format!("{} is no view: {error}", address.host))?;
                if snapshot.machines.is_empty() { Err("no machine answers".to_owned()) } else { Ok(snapshot) }
            }
        }
    }

    /// What all fibers wait for, and what is missing.
    pub(super) fn dump(&self) -> Result<(String, Vec<String>), String> {
        match self {
            Watched::Rack(source, _) => {
                let Answer { machines, troubles } = source.look(Look::Dump, LIMIT);
                let answer = Answer { machines, troubles };
                Ok((dump_text(&answer), answer.troubles))
            }
            Watched::Web(address) => {
                let body = address.get("dump", WEB_LIMIT)?;
                Ok((String::from_utf8_lossy(&body).into_owned(), Vec::new()))
            }
        }
    }

    /// A trace as Chrome's JSON, and what is missing.
    pub(super) fn trace(&self, time: Duration) -> Result<(String, Vec<String>), String> {
        match self {
            Watched::Rack(source, _) => Ok(chrome::of_answer(&source.look(Look::Trace(time), TRACE_LIMIT))),
            Watched::Web(address) => {
                let what = format!("trace.json?seconds={}", time.as_secs_f64());
                let body = address.get(&what, time.saturating_add(TRACE_LIMIT))?;
                Ok((String::from_utf8_lossy(&body).into_owned(), Vec::new()))
            }
        }
    }
}

impl Address {
    fn parse(text: &str) -> Result<Address, String> {
        let wrong =
            || format!("{text:?} is no address of a view: http://127.0.0.1:7118/TOKEN/ is one, as it was printed");
        let (host, path) = text.strip_prefix("http://").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || path.trim_end_matches('/').is_empty() || !is_plain {
            return Err(wrong());
        }
        Ok(Address { host: host.to_owned(), path: format!("/{}/", path.trim_end_matches('/')) })
    }

    /// What is there.
    fn get(&self, what: &str, limit: Duration) -> Result<Vec<u8>, String> {
        let host = &self.host;
        let failed = |error: std::io::Error| format!("{host}: {error}");
        let with_port =
            if host.parse::<SocketAddr>().is_ok() || host.contains(':') { host.clone() } else { format!("{host}:80") };
        let place =
            with_port.to_socket_addrs().map_err(failed)?.next().ok_or_else(|| format!("{host} has no address"))?;
        let mut stream = TcpStream::connect_timeout(&place, WEB_LIMIT).map_err(failed)?;
        stream.set_write_timeout(Some(WEB_LIMIT)).map_err(failed)?;
        let request = format!("GET {}{what} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n", self.path);
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let end = deadline_after(limit);
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            stream.set_read_timeout(Some(left)).map_err(failed)?;
            match stream.read(&mut buffer).map_err(failed)? {
                0 => break,
                _ if bytes.len() as u64 > WEB_BYTES_MAX || Instant::now() >= end => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_views() {
        let parsed = |text| Address::parse(text).map(|address| (address.host, address.path)).ok();
        assert_eq!(parsed("http://127.0.0.1:7118/abc/"), Some(("127.0.0.1:7118".into(), "/abc/".into())));
        assert_eq!(parsed("http://[::1]:7118/abc"), Some(("[::1]:7118".into(), "/abc/".into())));
        for wrong in
            ["http://127.0.0.1:7118/", "http://127.0.0.1:7118", "https://a/b/", "http:///x/", "http://a/b\r\nX: y/"]
        {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
