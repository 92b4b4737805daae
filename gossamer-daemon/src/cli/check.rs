//! `gossamer-launch check`: whether each host is ready for programs, and reaches the others at their ports.

use std::collections::BTreeSet;
use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::ask::{Ask, Status, code, column, fabrics};
use super::console::{plain, print};
use super::key::LACKS_NEW_KEY;
use crate::config::{Host, RackConfig};
use crate::daemon::BOTH_KEYS;
use crate::rack::ask::{ask, paths, remarks};
use crate::wire::{Path, Request};

/// A host with all that is to be reported of it.
struct Checked {
    status: Status,
    /// Its paths to the other hosts that are up.
    paths: Vec<Path>,
    remarks: Vec<String>,
}

/// Asks the hosts, then lets those that are up try the paths between them.
pub(super) fn main(asked: &Ask) -> io::Result<ExitCode> {
    let (rack, keys, hosts) = match asked.whom() {
        Ok(whom) => whom,
        Err(code) => return Ok(code),
    };
    let statuses: Vec<Status> = ask(&rack, &hosts, &keys, &Request::Status).into_iter().map(Status::of).collect();
    let is_up = |host: &&Host| statuses.iter().any(|status| status.name == host.name && status.host.is_ok());
    let up: Vec<Host> = hosts.iter().filter(is_up).cloned().collect();
    let mut tried = if up.len() > 1 { paths(&rack, &up, &keys) } else { Vec::new() };
    let checked = statuses.into_iter().map(|status| {
        let mut all = match &status.host {
            Ok((hello, host)) => remarks(&rack, hello, status.clocks_apart, host),
            Err(error) => vec![error.reason.clone()],
        };
        if status.has_old_key {
            all.push(LACKS_NEW_KEY.to_owned());
        }
        // Here `key finish` is done.
        if keys.old().is_none() {
            let both = all.iter_mut().filter(|remark| *remark == BOTH_KEYS);
            both.for_each(|remark| "it takes the old key as well, still: copy the key file to it".clone_into(remark));
        }
        let found = tried.iter().position(|(name, _)| *name == status.name).map(|place| tried.swap_remove(place).1);
        let paths = found.unwrap_or(Ok(Vec::new())).unwrap_or_else(|reason| {
            all.push(format!("its paths to the other hosts were not tried: {reason}"));
            Vec::new()
        });
        all.extend(paths.iter().map(|path| path.trouble.clone()).filter(|trouble| !trouble.is_empty()));
        Checked { status, paths, remarks: all }
    });
    let checked: Vec<Checked> = checked.collect();
    let is_well = checked.iter().all(|host| host.remarks.is_empty());
    if asked.json {
        let hosts: Vec<Value> = checked.iter().map(Checked::to_json).collect();
        print(&json!({"rack": rack.name, "ok": is_well, "hosts": hosts}).to_string())?;
    } else {
        show(&rack, &checked)?;
    }
    Ok(code(is_well))
}

fn show(rack: &RackConfig, checked: &[Checked]) -> io::Result<()> {
    let width = column(checked.iter().map(|host| &host.status));
    print(&format!("{}: valid, {} hosts", rack.path.display(), rack.hosts.len()))?;
    let mut told = BTreeSet::new();
    for Checked { status, remarks, .. } in checked {
        let address = &status.address;
        match &status.host {
            Ok((hello, host)) => print(&format!(
                "{:<width$}{:<8}{address}, {} cores, {:.1} ms, programs run as {}, {}",
                status.name,
                if remarks.is_empty() { "ok" } else { "WARNING" },
                hello.cores,
                status.took_ms,
                plain(&host.user),
                plain(&fabrics(host, &mut told))
            ))?,
            Err(_) => print(&format!("{:<width$}FAILED  {address}", status.name))?,
        }
        for remark in remarks {
            print(&format!("{:<width$}        {}", "", plain(remark)))?;
        }
    }
    Ok(())
}

impl Checked {
    fn to_json(&self) -> Value {
        let mut host = self.status.to_json();
        (host["remarks"], host["paths"]) = (json!(self.remarks), json!(self.paths));
        host
    }
}
