//! The command line of `kv`: arguments and help. Nothing is done here.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Parser;
use serde::{Deserialize, Serialize};

/// A key-value store that speaks memcached's text protocol, its table entrusted to workers, on one host or across a
/// rack.
#[derive(Clone, PartialEq, Eq, Debug, Parser, Serialize, Deserialize)]
#[command(name = "kv", version, after_long_help = HELP)]
pub struct Options {
    /// The port to listen at; 0 lets the system choose one. Of several machines on a host the second has the next one,
    /// and so on
    #[arg(short, long, default_value_t = 11211)]
    pub port: u16,

    /// The address to listen at; 0.0.0.0 for all that the host has [default: 127.0.0.1; on a rack of several hosts that
    /// of each host in rack.yaml]
    #[arg(short, long, value_name = "ADDRESS")]
    pub listen: Option<IpAddr>,

    /// Memory for items on each machine, in MiB, at least 2 for each worker; when it is full, an item that was not
    /// used for long is evicted
    #[arg(short, long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: u32,

    /// Workers on all machines together; 0 for as many as there are cores
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub threads: usize,

    /// Number of processes to start on this host, each a machine of a rack
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    pub local: Option<u16>,

    /// Number of workers of each machine with the table and no connections; 0: all workers have both
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub dedicated: u16,

    /// Connections that each machine has at a time
    #[arg(short, long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,

    /// Keep the items in this folder of machine 0: answered changes are on disk, and are there when kv is started
    /// again. Nothing is evicted: when --memory is full, items are not stored
    #[arg(long, value_name = "FOLDER")]
    pub durable: Option<PathBuf>,

    /// With --durable: answer up to this many milliseconds before the change is on disk; a crash loses no more than
    /// that
    #[arg(long, value_name = "MS", requires = "durable", value_parser = clap::value_parser!(u64).range(1..))]
    pub within: Option<u64>,
}

const HELP: &str = "\
Examples:
  kv
      on this host alone, at 127.0.0.1:11211; try it: printf 'set k 0 0 5\\r\\nhello\\r\\nget k\\r\\nquit\\r\\n' | nc \
      127.0.0.1 11211
  kv --memory 1024 --port 4000 --listen 0.0.0.0
      1 GiB of items, for clients on other hosts. There is no password: let no stranger reach the port
  kv --local 2
      two processes of this host, at ports 11211 and 11212: one table, and each answers for all keys;
      `gossamer-launch run --local 2 kv` is the same
  kv --durable items --memory 1024
      items survive: STORED comes when the item is on disk. Many clients, or many requests of one, share each write;
      with --within 100 nobody waits for the disk, and a crash loses the last 100 ms at most
  gossamer-launch run --rack rack.yaml kv
      one on each host of a rack, each at the host's address in rack.yaml, port 11211: whoever reaches that, reaches \
      the table

Commands:
  get gets gat gats set add replace append prepend cas incr decr touch delete flush_all stats cache_memlimit version
  verbosity quit, and mg ms md ma me mn, as memcached 1.6 has them: keys of up to 250 bytes, items of up to 1 MiB.

It ends at SIGINT or SIGTERM: requests that have come are answered, then connections are closed.

Exit status:
  0  it was told to end
  1  it cannot start, or cannot listen
  2  the command line is wrong
  on several machines also those of gossamer-launch, when one of them dies";

impl Options {
    /// The arguments for a machine: those of this process, without the ones for the start.
    pub fn machine_args(&self) -> Vec<OsString> {
        let Options { port, listen, memory, threads, dedicated, connections, durable, within, local: _ } = self;
        let values = [
            ("--port", port.to_string()),
            ("--memory", memory.to_string()),
            ("--threads", threads.to_string()),
            ("--dedicated", dedicated.to_string()),
            ("--connections", connections.to_string()),
        ];
        let listen = listen.map(|address| ("--listen", address.to_string()));
        let within = within.map(|within| ("--within", within.to_string()));
        let texts = values.into_iter().chain(listen).chain(within).map(|(name, value)| (name, value.into()));
        let durable = durable.iter().map(|folder| ("--durable", folder.into()));
        texts.chain(durable).flat_map(|(name, value): (&str, OsString)| [name.into(), value]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_get_what_was_asked_for() {
        for line in
            ["kv -p 1 -l ::1 -m 2 -t 6 --dedicated 1 -c 9 --local 3", "kv --local 2", "kv --durable a --within 5"]
        {
            let options = Options::parse_from(line.split_whitespace());
            let machine = Options::parse_from([OsString::from("kv")].into_iter().chain(options.machine_args()));
            assert_eq!(machine, Options { local: None, ..options.clone() }, "{line}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }

    #[test]
    fn impossible_wishes_are_refused() {
        for line in [
            "--port 70000",
            "--memory 0",
            "--connections 0",
            "--listen x",
            "--dedicated -1",
            "--local 0",
            "a",
            "--within 5",
        ] {
            let parsed = Options::try_parse_from(format!("kv {line}").split_whitespace());
            assert_eq!(parsed.unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
