//! Programs on a rack of hosts: a daemon on each, a launcher on one, faults on all. Run by `cargo dev rack`, as root.
//!
//! Hosts are network namespaces (`network`), so they have addresses, links and ports of their own; they share processes
//! and files, and the tests use those to inspect them.

mod ends;
mod faults;
mod flows;
mod losses;
mod meetings;
mod network;
mod newcomer;
mod ports;
mod rack;
mod refusals;
mod regions;
mod slow;
mod strangers;

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use network::Network;

/// Long enough for a connection within one machine, even a busy one.
const CONNECT_LIMIT: Duration = limits::HANG;

#[test]
fn hosts_reach_one_another() {
    let network = Network::new(3);
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let (from, to) = (&network.hosts[from], &network.hosts[to]);
        let listener = to.namespace.inside(|| TcpListener::bind((to.address, 7117)).unwrap());
        let address = listener.local_addr().unwrap();
        from.namespace.inside(|| TcpStream::connect_timeout(&address, CONNECT_LIMIT).unwrap());
    }
}

#[test]
fn a_host_that_is_cut_off_hears_nothing_until_it_is_restored() {
    let network = Network::new(2);
    let (first, second) = (&network.hosts[0], &network.hosts[1]);
    let listener = second.namespace.inside(|| TcpListener::bind((second.address, 7117)).unwrap());
    let address = listener.local_addr().unwrap();
    network.cut(1);
    let refused = first.namespace.inside(|| TcpStream::connect_timeout(&address, Duration::from_millis(50)));
    assert!(
        matches!(refused.as_ref().map_err(|error| error.kind()), Err(ErrorKind::TimedOut | ErrorKind::HostUnreachable)),
        "{refused:?}"
    );
    network.restore(1);
    first.namespace.inside(|| TcpStream::connect_timeout(&address, CONNECT_LIMIT).unwrap());
}
