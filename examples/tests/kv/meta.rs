//! Meta commands: the replies are those of memcached, in one connection that goes on.

use super::servers::{Client, Server};

/// `|` stands for the end of a line. Each line is sent at once, and its replies end with that of `mn`.
const SCRIPT: &str = "\
mg
mg k
mg k v
mg k s v t f c k O123 q
ms k
ms k 2|hi
mg k
mg k v
mg k s v t f k O123
ms k 2 T100 F7|ho
mg k s v t f
ms h 1|x
mg h h t
mg h h l t
ms h 1|x
mg h h u
mg h h
mg h h
get h
ms k S2|hi
ms k abc|
ms k 3 q|abc
ms k 3 q ME|abc
ms k 3 ME|abc
ms z 3 MR|abc
ms z 3 MA|abc
mg z v t
ms z 2 MP O9 k|xx
ms z 2 MX|xx
ms z 2 Mset|xx
ms z 2 F9999999999|xx
ms z 2 Tx|xx
ms z 1 c|x
ms z 1 k b|x
ms z 1 Q|x
ms z 1 T1 T2|x
ms z 2|ab
ms z 2 MA|cd
ms z 2 MP k q|ef
ms z 2 Mr|gh
ms z 2 ma|gh
mg z v s
mg z T1 T1
mg z Z
mg z v v
mg z Tabc
mg z T30 t
mg z t
mg nope k O1
mg nope q
mg nope v k O1 q
mg nope N30 t v
mg nope N30 t v
mg nope t v
ms nope 3|abc
mg nope t v
md nope
md nope
md nope q
md nope k O5
ms d 2|hi
md d q
ms d 2|hi
md d I T30
mg d v t
mg d v t
ms d 2|hi
mg d v t
md d C1
md d I q k O7
mg d v
mg d v f
get d
md d X
md d Cx
md d
ma n
ma n N0 J10 v
ma n v
ma n D5 v
ma n MD v
ma n MD D100 v t
ma n M+ D7 v k O3
ma n M- v
ma n Md D2 v
ma n Mi v
ma n MX
ma n Dx
ma n Jx
ma n q
ma n T50 t v
mg n v t
ma nope2
ma nope2 q
ms t 3|abc
ma t
ma t q
ma n N60 C1
me none
me
ms aGVsbG8= 2 b|hi
mg aGVsbG8= b k v
mg hello v
mg !!! b v
ms aGVsbG8= 2 b k O1|ho
md aGVsbG8= b k
md aGVsbG8= b k
mg k Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
mg k Oxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
ms k -1|
ms k 2 T0|hix
ms r 1 T20|x
mg r R30 t v
mg r R30 t v
mg r R10 t
ms r 1 T20|x
mg r R10 t
ms e 1 T-1|x
mg e
mg r T-1 v
mg r
ms k 2 |hi
mg  k  v
mg k I
mg k C1
mg k M
mg k J
mg k D
mg k L1 P1
ms k 1 I C1|y
mg k v
mgx k
MG k
";

/// Numbers that differ from server to server, and times of now.
fn normal(line: &str) -> String {
    let word = |word: &str| match word.split_at_checked(1) {
        Some(("c", number)) if number.parse::<u64>().is_ok() => "c#".to_owned(),
        Some(("t", number)) => number.parse::<i64>().map_or(word.to_owned(), |left| {
            let near = [20, 30, 50, 100].into_iter().find(|whole| (0..15).contains(&(whole - left)));
            format!("t{}", near.unwrap_or(left))
        }),
        _ => word.to_owned(),
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn replies(client: &mut Client, request: &str) -> Vec<String> {
    client.send(format!("{}\r\nmn\r\n", request.replace('|', "\r\n")).as_bytes());
    let mut all = Vec::new();
    loop {
        match client.line() {
            line if line == "MN" => return all,
            line => all.push(normal(&line)),
        }
    }
}

fn compare(kv: &Server) {
    let Some(memcached) = Server::memcached() else { return };
    let (mut kv, mut memcached) = (kv.connect(0), memcached.connect(0));
    let long = [
        format!("mg {}", "k".repeat(251)),
        format!("mg {} k", "k".repeat(250)),
        format!("ms k 1048577|{}", "x".repeat(1_048_577)),
    ];
    for request in SCRIPT.lines().map(str::to_owned).chain(long) {
        let start: String = request.chars().take(80).collect();
        assert_eq!(replies(&mut kv, &request), replies(&mut memcached, &request), "{start:?}, kv first");
    }
}

#[test]
fn meta_commands_are_answered_as_by_memcached() {
    compare(&Server::kv("--threads 3", 1));
    compare(&Server::kv("--threads 2", 2));
}

/// The version number of a reply with one.
fn unique(client: &mut Client, request: &str) -> u64 {
    let line = client.ask(request);
    let word = line.split(' ').find_map(|word| word.strip_prefix('c')).unwrap_or_else(|| panic!("{line}"));
    word.parse().unwrap()
}

/// Commands that depend on unique numbers, and flags of later versions of memcached.
#[test]
fn meta_commands_compare_and_set() {
    let server = Server::kv("--threads 2", 1);
    let mut client = server.connect(0);
    let first = unique(&mut client, "ms k 1 c\r\na");
    let second = unique(&mut client, &format!("ms k 1 c C{first}\r\nb"));
    assert_eq!(client.ask(&format!("ms k 1 C{first}\r\nc")), "EX");
    assert_eq!(client.ask(&format!("ms k 1 ME C{second}\r\nc")), "NS");
    assert_eq!(client.ask(&format!("ms none 1 C{second}\r\nc")), "NF");
    // An older value stands in, and one client makes it anew.
    assert_eq!(client.ask(&format!("ms k 1 I C{first} T90\r\nd")), "HD");
    assert_eq!([client.ask("mg k v"), client.line()], ["VA 1 X W", "d"]);
    assert_eq!(client.ask("mg k"), "HD Z X");
    let third = unique(&mut client, "mg k c");
    assert_eq!(client.ask(&format!("md k C{first}")), "EX");
    assert_eq!(client.ask(&format!("md k I E7777 C{third}")), "HD");
    assert_eq!(unique(&mut client, "mg k c"), 7777);
    assert_eq!(client.ask("ms k 1 E8888 F3\r\ne"), "HD");
    assert_eq!(unique(&mut client, "mg k c"), 8888);
    assert_eq!(client.ask("md k x"), "HD");
    assert_eq!([client.ask("mg k v f s"), client.line()], ["VA 0 f0 s0", ""]);
    assert_eq!(client.ask("ms list 1 MA N60\r\na"), "HD");
    assert_eq!(client.ask("ms list 1 MA N60\r\nb"), "HD");
    assert_eq!([client.ask("mg list v"), client.line()], ["VA 2", "ab"]);
    assert!(client.ask("me list").starts_with("ME list exp="), "its times are of now");
    // Large values come in the order of the requests.
    let value = "v".repeat(300_000);
    assert_eq!(client.ask(&format!("ms large 300000\r\n{value}")), "HD");
    client.send(b"mg large v k\r\nmg list s\r\nmg large v\r\nmn\r\n");
    assert_eq!([client.line(), client.line()], ["VA 300000 klarge", &value]);
    assert_eq!([client.line(), client.line()], ["HD s2", "VA 300000"]);
    assert_eq!([client.line(), client.line()], [&value, "MN"]);
}
