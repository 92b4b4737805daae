//! Valid contents of `rack.yaml`, and the errors for invalid ones.

use super::*;

const SMALL: &str = "key_file: k\nhosts:\n  - {name: a, address: 10.0.0.1}\n  - {name: b, address: 10.0.0.2}\n";

fn parse(text: &str) -> Result<RackConfig, ConfigError> {
    RackConfig::parse(text, Path::new("/somewhere/rack.yaml"))
}

#[track_caller]
fn refused(text: &str, words: &[&str]) {
    let message = parse(text).expect_err(text).to_string();
    assert!(message.starts_with("/somewhere/rack.yaml"), "{message}");
    for word in words {
        assert!(message.contains(word), "{word:?} is missing in: {message}");
    }
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn the_example_at_the_root_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rack.yaml");
    let config = RackConfig::read(&path).unwrap();
    let names: Vec<_> = config.hosts.iter().map(|host| host.name.as_str()).collect();
    // Names that no host has: a copy of these sources must reach no host by them.
    assert_eq!(names, ["alpha.example", "beta.example"]);
    assert!(config.hosts.iter().all(|host| host.address.starts_with("192.0.2.")));
    // The file claims to show the defaults.
    assert_eq!((config.limits, config.timeouts, config.port), (Limits::default(), Timeouts::default(), DEFAULT_PORT));
    assert_eq!(config.hosts[0].cores.as_ref().unwrap().numbers(), (2..=15).collect::<Vec<_>>());
    assert_eq!(config.hosts[0].rdma.as_ref().unwrap().mtu_bytes, Some(4096));
}

#[test]
fn what_is_read_has_a_bound_whatever_it_is() {
    let endless = RackConfig::read(Path::new("/dev/zero")).unwrap_err().to_string();
    assert!(endless.contains("more than 1048576 bytes"), "{endless}");
    assert!(RackConfig::read(Path::new("/")).unwrap_err().to_string().starts_with("cannot read /: "));
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, SMALL.as_bytes()).unwrap();
    drop(writer);
    let pipe = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    assert_eq!(RackConfig::read(Path::new(&pipe)).unwrap().hosts.len(), 2);
}

#[test]
fn little_is_enough() {
    let config = parse(SMALL).unwrap();
    assert_eq!((config.port_of(&config.hosts[0]), config.fabric), (7117, FabricChoice::Auto));
    assert_eq!(config.key_path(), Path::new("/somewhere/k"));
    assert_eq!(config.address_of(config.host("b").unwrap()).unwrap().to_string(), "10.0.0.2:7117");
    assert_eq!(config.own_host(Some("a")).unwrap().address, "10.0.0.1");
    let message = config.own_host(Some("c")).unwrap_err().to_string();
    assert!(message.contains("--host takes one of a, b"), "{message}");
}

#[test]
fn wrong_values_are_named_with_their_place() {
    refused(&SMALL.replace("address: 10.0.0.1", "adress: x"), &[":3:", "adress", "address"]);
    refused(&format!("{SMALL}fabrics: tcp\n"), &[":5:", "fabrics", "fabric"]);
    refused(&format!("{SMALL}fabric: ethernet\n"), &[":5:", "ethernet", "tcp"]);
    refused(&format!("{SMALL}heap: 8X\n"), &[":5", "heap: \"8X\" is no size", "write bytes, as in 512M, 8G"]);
    refused(&format!("{SMALL}heap: 1000\n"), &[":5", "heap: \"1000\"", "at least 1M"]);
    refused(&format!("{SMALL}heap: [1]\n"), &[":5", "heap: a number of bytes, or a text such as"]);
    refused(&SMALL.replace("10.0.0.1}", "10.0.0.1, heap: much}"), &[":3", "heap: \"much\""]);
    refused(&format!("{SMALL}port: 0\n"), &[":5", "port", "7117"]);
    refused(&format!("{SMALL}port: 70000\n"), &[":5:"]);
    refused(&format!("{SMALL}timeouts: {{silence_ms: 100}}\n"), &[":5", "silence_ms", "1500"]);
    refused(&format!("{SMALL}limits: {{programs: 0}}\n"), &[":5", "programs"]);
    refused(&format!("{SMALL}limits: {{tasks: 5}}\n"), &[":5", "limits.tasks", "at least 16, not 5"]);
    refused(&format!("{SMALL}limits: {{environment_bytes: 1048576}}\n"), &[":5", "environment_bytes", "786432"]);
    refused(&format!("{SMALL}limits: {{cache_bytes: 1000}}\n"), &["binary_bytes", "cache_bytes, 1000", "kept"]);
    refused(&SMALL.replace("name: b", "name: a"), &["two are named a"]);
    refused(&SMALL.replace("10.0.0.2", "10.0.0.1"), &[":4", "a and b", "10.0.0.1:7117"]);
    refused(&SMALL.replace("name: b", "name: 'b c'"), &["\"b c\"", "letters"]);
    refused("key_file: k\nhosts: []\n", &["from 1 to"]);
    refused("hosts:\n - {name: a, address: b}\n", &["key_file"]);
    refused("", &[]);
    refused("a: [", &[]);
    for cores in ["7-2", "x", "''", "[]", "5000", "-1"] {
        refused(&SMALL.replace("10.0.0.1}", &format!("10.0.0.1, cores: {cores}}}")), &[":3", "cores"]);
    }
    // As in docs/rdma.md.
    let mtu = "host a: rdma.mtu_bytes is 256, 512, 1024, 2048 or 4096, not 1500";
    refused(&SMALL.replace("10.0.0.1}", "10.0.0.1, rdma: {mtu_bytes: 1500}}"), &[mtu]);
    assert!(include_str!("../../../docs/rdma.md").contains(&format!("`{mtu}`")));
}

#[test]
fn heaps_have_sizes() {
    for (text, bytes) in [("8G", 8u64 << 30), ("'512m'", 512 << 20), ("8589934592", 8 << 30)] {
        let config = parse(&format!("{SMALL}heap: {text}\n")).unwrap();
        assert_eq!(config.heap.unwrap().get(), bytes);
        let config = parse(&SMALL.replace("10.0.0.1}", &format!("10.0.0.1, heap: {text}}}"))).unwrap();
        assert_eq!((config.heap, config.hosts[0].heap.unwrap().get()), (None, bytes));
    }
}

#[test]
fn programs_have_a_memory_limit_on_each_host() {
    let of_a_host = SMALL.replace("10.0.0.1}", "10.0.0.1, memory: 512M}");
    let config = parse(&format!("{of_a_host}memory: 2G\n")).unwrap();
    let limits = [0, 1].map(|host: usize| config.memory_of(&config.hosts[host]).unwrap());
    assert_eq!(limits.map(MemoryBytes::get), [512 << 20, 2 << 30]);
    assert_eq!(limits.map(|limit| limit.to_string()), ["512 MiB", "2.0 GiB"]);
    let none = parse(SMALL).unwrap();
    assert_eq!(none.memory_of(&none.hosts[0]), None);
    refused(&format!("{SMALL}memory: much\n"), &[":5", "memory: \"much\" is no limit of memory: write bytes, as in"]);
    refused(&format!("{SMALL}memory: 1M\n"), &[":5", "at least 16M"]);
    refused(&format!("{SMALL}memory: [1]\n"), &[":5", "memory: a number of bytes, or a text such as"]);
}

#[test]
fn programs_have_a_range_of_ports() {
    let config = parse(&format!("{SMALL}ports: 7200-7299\n")).unwrap();
    assert_eq!(config.ports_of(&config.hosts[0]).unwrap().to_string(), "7200-7299");
    let config = parse(&SMALL.replace("10.0.0.1}", "10.0.0.1, ports: 7300}")).unwrap();
    assert_eq!(config.ports_of(&config.hosts[0]).unwrap().to_string(), "7300-7300");
    assert_eq!(config.ports_of(&config.hosts[1]), None);
    refused(&format!("{SMALL}ports: 7299-7200\n"), &[":5", "ports: \"7299-7200\" is no range", "as in 7200-7299"]);
    refused(&format!("{SMALL}ports: [1]\n"), &[":5", "ports: a range of ports, such as 7200-7299"]);
    refused(&format!("{SMALL}ports: 7100-7199\n"), &[":5", "7100-7199 has 7117 in it, the port of the daemon of a"]);
}

#[test]
fn cores_have_three_forms() {
    for (text, cores) in [("3", vec![3]), ("'0,2, 4-6'", vec![0, 2, 4, 5, 6]), ("[1, 0, 1]", vec![0, 1])] {
        let config = parse(&SMALL.replace("10.0.0.1}", &format!("10.0.0.1, cores: {text}}}"))).unwrap();
        assert_eq!(config.hosts[0].cores.as_ref().unwrap().numbers(), cores);
    }
}

#[test]
fn the_own_entry_is_found_by_address() {
    let text = SMALL.replace("10.0.0.2", "127.0.0.1").replace("10.0.0.1", "192.0.2.77");
    assert_eq!(parse(&text).unwrap().own_host(None).unwrap().name, "b");
    let both = SMALL.replace("10.0.0.1", "127.0.0.1").replace("10.0.0.2", "127.0.0.2");
    assert!(parse(&both).unwrap().own_host(None).unwrap_err().to_string().contains("several"));
    let none = SMALL.replace("10.0.0.1", "192.0.2.77").replace("10.0.0.2", "192.0.2.78");
    assert!(parse(&none).unwrap().own_host(None).unwrap_err().to_string().contains("--host NAME (a, b)"));
}

#[test]
fn files_that_say_the_same_have_the_same_fingerprint() {
    let a = parse(SMALL).unwrap();
    let b = parse(&format!("# a comment\nport: 7117\n{}", SMALL.replace("key_file: k", "key_file: /x/k"))).unwrap();
    let c = parse(&format!("{SMALL}port: 7118\n")).unwrap();
    assert_eq!(a.fingerprint(), b.fingerprint());
    assert_ne!(a.fingerprint(), c.fingerprint());
}

/// Debian's `/etc/hosts` maps a host's own name to the loopback network: the daemon would be unreachable for others.
#[test]
fn addresses_that_no_other_host_reaches_are_told() {
    let rack = |addresses: &[&str]| {
        let host = |(number, address): (usize, &&str)| format!("  - {{name: h{number}, address: '{address}'}}\n");
        let hosts: String = addresses.iter().enumerate().map(host).collect();
        parse(&format!("key_file: k\nhosts:\n{hosts}")).unwrap()
    };
    let is_cut_off = |addresses: &[&str], found: &str| {
        let rack = rack(addresses);
        rack.why_cut_off_at(&rack.hosts[0], SocketAddr::new(found.parse().unwrap(), 7117))
    };
    for (addresses, found, words) in [
        (&["alpha", "beta"][..], "127.0.1.1", "alpha is 127.0.1.1 here"),
        (&["alpha", "192.0.2.2"], "127.0.0.1", "/etc/hosts"),
        (&["alpha"], "127.0.1.1", "give h0 the address in its network, in /somewhere/rack.yaml"),
        (&["alpha", "127.0.0.2"], "::1", "alpha is ::1 here"),
        (&["alpha", "beta"], "::ffff:127.0.1.1", "no other host reaches it"),
        (&["127.0.0.1", "192.0.2.2"], "127.0.0.1", "127.0.0.1 is an address that each host has for itself, and"),
        (&["localhost", "beta"], "127.0.0.1", "localhost is an address that each host has"),
    ] {
        let told = is_cut_off(addresses, found);
        assert!(told.as_ref().is_some_and(|told| told.contains(words)), "{addresses:?}, {found}: {told:?}");
    }
    for (addresses, found) in [
        (&["alpha", "beta"][..], "192.0.2.1"),
        (&["192.0.2.1", "127.0.0.1"], "192.0.2.1"),
        (&["127.0.0.1", "127.0.0.2"], "127.0.0.1"),
        (&["localhost"], "::1"),
        (&["a.localhost", "::1"], "127.0.0.1"),
    ] {
        assert_eq!(is_cut_off(addresses, found), None, "{addresses:?}, {found}");
    }
    let rack = rack(&["localhost", "192.0.2.2"]);
    assert!(rack.address_of(&rack.hosts[0]).unwrap().ip().is_loopback(), "where it has no other");
}

#[test]
fn places_are_printed_as_they_are_written() {
    let both = SMALL.replace("10.0.0.1", "'[fd00::1]:7118'").replace("10.0.0.2", "beta:7119");
    let rack = parse(&both).unwrap();
    let places: Vec<_> = rack.hosts.iter().map(|host| rack.place_of(host)).collect();
    assert_eq!(places, ["[fd00::1]:7118", "beta:7119"]);
    let same = SMALL.replace("10.0.0.1", "'[fd00::1]'").replace("10.0.0.2", "fd00::1");
    refused(&same, &["a and b have the same address and port, [fd00::1]:7117"]);
    for wrong in ["'[fd00::1'", "'[fd00::1]7'", "'[fd00::1]:x'", "beta:x", "beta:70000", "'beta:'", "'beta:1', port: 2"]
    {
        refused(&SMALL.replace("10.0.0.1", wrong), &[":3", "host a: ", "is no address: write ADDRESS or ADDRESS:PORT"]);
    }
    refused(&SMALL.replace("10.0.0.1", "beta:0"), &[":3", "must not be empty or 0"]);
}

#[test]
fn addresses_of_ipv6_may_have_brackets_and_scopes() {
    for (written, found) in [
        ("::1", "[::1]:7117"),
        ("'[::1]'", "[::1]:7117"),
        ("'[fe80::1%lo]'", "[fe80::1%1]:7117"),
        ("127.0.0.9", "127.0.0.9:7117"),
        ("127.0.0.9:7118", "127.0.0.9:7118"),
        ("'[::1]:7118'", "[::1]:7118"),
        ("'[fe80::1%lo]:7118'", "[fe80::1%1]:7118"),
        ("127.0.0.9:7118, port: 7118", "127.0.0.9:7118"),
    ] {
        let text = format!("key_file: k\nhosts:\n  - {{name: a, address: {written}}}\n");
        let rack = RackConfig::parse(&text, Path::new("rack.yaml")).unwrap();
        let addresses = rack.addresses_of(&rack.hosts[0]).unwrap();
        assert_eq!(addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), [found], "{written}");
        let is_loopback = addresses[0].ip().is_loopback();
        assert!(!is_loopback || rack.why_cut_off_at(&rack.hosts[0], addresses[0]).is_none(), "{written} is meant");
    }
}
