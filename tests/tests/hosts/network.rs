//! Hosts as network namespaces: each with an address of its own, joined by a bridge, with links that can be taken down.
//!
//! Here: namespaces, links. Not here: the processes on the hosts (`rack`).
//!
//! None of it has a name outside: a namespace is an open descriptor of this process and its processes, and is gone,
//! with its links, when both are. The network of the machine that runs the tests is not touched.
#![allow(unsafe_code)] // making a namespace

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

/// A host: a namespace with one link into the network.
#[derive(Debug)]
pub struct Host {
    pub namespace: Namespace,
    pub name: String,
    pub address: Ipv4Addr,
    /// The other end of its link, at the bridge.
    port: String,
}

/// Hosts around a bridge.
#[derive(Debug)]
pub struct Network {
    bridge: Namespace,
    pub hosts: Vec<Host>,
}

/// Packets that a host drops.
#[derive(Debug, Clone, Copy)]
pub enum Filter {
    /// Packets between these two ports, in either direction.
    Flow([u16; 2]),
    /// TCP packets of more bytes.
    LongerThan(u16),
    /// New connections to other ports than these, in the packet filter's form.
    OtherPorts(&'static str),
}

impl Namespace {
    fn new() -> Namespace {
        let make = || {
            // SAFETY: only this thread's view of its network changes, and it has no sockets; it ends after this.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("a network namespace (run as root)");
            File::open("/proc/thread-self/ns/net").unwrap()
        };
        let file = std::thread::spawn(make).join().unwrap();
        Namespace { fd: file.into() }
    }

    /// Runs `work` on a thread in this namespace, which its child processes inherit.
    pub fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Returns the processes that run in it.
    pub fn processes(&self) -> Vec<u32> {
        let own = File::from(self.fd.try_clone().unwrap()).metadata().unwrap().ino();
        let numbers = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            // Gone meanwhile, or without namespaces: not here.
            let namespace = std::fs::metadata(format!("/proc/{pid}/ns/net")).ok()?;
            (namespace.ino() == own).then_some(pid)
        });
        numbers.collect()
    }

    /// Changes its packet filter.
    fn nft(&self, rules: &str) {
        let output = self.inside(|| Command::new("nft").arg(rules).output().expect("nftables"));
        assert!(output.status.success(), "{rules}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn ip(&self, arguments: &str) {
        self.run("ip", arguments);
    }

    /// Runs a program of iproute2.
    fn run(&self, program: &str, arguments: &str) {
        let output = self.inside(|| Command::new(program).args(arguments.split(' ')).output().expect("iproute2"));
        assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Network {
    /// Makes hosts `h0`, `h1`, … with the addresses 10.77.0.1, 10.77.0.2, …
    pub fn new(hosts: u8) -> Network {
        let bridge = Namespace::new();
        bridge.ip("link add br0 type bridge");
        bridge.ip("link set br0 up");
        let host = |index| {
            let namespace = Namespace::new();
            let host = Host {
                name: format!("h{index}"),
                address: Ipv4Addr::new(10, 77, 0, index + 1),
                port: format!("port{index}"),
                namespace,
            };
            let (own, fd) = (std::process::id(), host.namespace.fd.as_raw_fd());
            bridge.ip(&format!("link add {} type veth peer name eth0 netns /proc/{own}/fd/{fd}", host.port));
            bridge.ip(&format!("link set {} master br0 up", host.port));
            host.namespace.ip(&format!("addr add {}/24 dev eth0", host.address));
            host.namespace.ip("link set eth0 up");
            host.namespace.ip("link set lo up");
            host
        };
        let hosts = (0..hosts).map(host).collect();
        Network { bridge, hosts }
    }

    /// Gives each host a second link, with the address fe80::77:1, fe80::77:2, … on `eth1`. The number of that
    /// interface differs from host to host.
    pub fn add_link_local(&self) {
        for (index, host) in self.hosts.iter().enumerate() {
            let (own, fd, number) = (std::process::id(), host.namespace.fd.as_raw_fd(), index + 1);
            host.namespace.ip(&format!("link add before{index} type veth peer name behind{index}"));
            (0..index).for_each(|other| {
                host.namespace.ip(&format!("link add other{other} type veth peer name peer{other}"));
            });
            self.bridge.ip(&format!("link add local{index} type veth peer name eth1 netns /proc/{own}/fd/{fd}"));
            self.bridge.ip(&format!("link set local{index} master br0 up"));
            host.namespace.ip("link set eth1 up");
            host.namespace.ip(&format!("addr add fe80::77:{number}/64 dev eth1 nodad"));
        }
    }

    /// Has a host make listeners of IPv6 for IPv6 alone, where they do not choose.
    pub fn separate_families(&self, host: usize) {
        self.hosts[host].namespace.run("sysctl", "-q -w net.ipv6.bindv6only=1");
    }

    /// Cuts a host off: its packets in both directions are dropped, as by a pulled cable.
    pub fn cut(&self, host: usize) {
        self.bridge.ip(&format!("link set {} down", self.hosts[host].port));
    }

    /// Limits the traffic to a host to this many bits a second.
    pub fn slow_down(&self, host: usize, bits: u64) {
        let port = &self.hosts[host].port;
        self.bridge.run("tc", &format!("qdisc add dev {port} root tbf rate {bits}bit burst 64kb latency 200ms"));
    }

    /// Has a host drop packets silently, as a firewall does; see [`Network::unfilter`].
    pub fn filter(&self, host: usize, filter: Filter) {
        let rule = match filter {
            Filter::Flow([a, b]) => format!("tcp sport {{ {a}, {b} }} tcp dport {{ {a}, {b} }} drop"),
            Filter::LongerThan(bytes) => format!("meta l4proto tcp meta length gt {bytes} drop"),
            Filter::OtherPorts(ports) => format!("tcp flags & (syn | ack) == syn tcp dport != {{ {ports} }} drop"),
        };
        let chain = "add chain ip test input { type filter hook input priority 0; }";
        let rules = format!("add table ip test\n{chain}\nadd rule ip test input {rule}\n");
        self.hosts[host].namespace.nft(&rules);
    }

    /// Removes the filter.
    pub fn unfilter(&self, host: usize) {
        self.hosts[host].namespace.nft("flush ruleset\n");
    }

    /// Separates two hosts, while all others reach both.
    pub fn part(&self, hosts: [usize; 2]) {
        for host in hosts {
            self.bridge.ip(&format!("link set {} type bridge_slave isolated on", self.hosts[host].port));
        }
    }

    /// Ends a cut.
    pub fn restore(&self, host: usize) {
        self.bridge.ip(&format!("link set {} up", self.hosts[host].port));
        // Their neighbour tables have noted meanwhile that the address is nobody's, and would keep that for a while.
        self.hosts.iter().for_each(|host| host.namespace.ip("neigh flush all"));
    }
}
