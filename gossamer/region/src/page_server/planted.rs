//! Test of planted panics: of the thread that reads faults, and of the page server. A thread waits for a page at that
//! moment, on two real machines of one host; the program must end, with the panic as its cause.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use crate::Region;

/// Set in the machines that the test starts: the thread whose next fault panics.
const PLANTED: &str = "GOSSAMER_REGION_TEST_PLANTED";
const SELF: &str = "page_server::planted::a_panic_that_leaves_a_page_unserved_ends_the_program_and_is_named";
const SKIPPED: &str = "SKIPPED: regions";

/// Panics in a machine of the test, if this is the thread that shall.
pub(super) fn panic_on(thread: &str) {
    assert!(std::env::var(PLANTED).as_deref() != Ok(thread), "planted in {thread}");
}

fn touch_a_page() {
    match Region::new(1 << 20) {
        Ok(region) => region.span::<u64>(1 << 10).fill(7),
        Err(error) => println!("{SKIPPED}: {error}"),
    }
}

fn machine(index: u16, port: u16, key: &std::path::Path, planted: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", SELF, "--nocapture"])
        .env(PLANTED, planted)
        .env("GOSSAMER_MEET", format!("127.0.0.1:{port}"))
        .envs([("GOSSAMER_COUNT", "2"), ("GOSSAMER_INDEX", &index.to_string())])
        .env("GOSSAMER_KEY_FILE", key)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a process to end; kills one that hangs. Returns whether it ended by itself.
fn ends(child: &mut Child) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < limits::HANG {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

#[test]
fn a_panic_that_leaves_a_page_unserved_ends_the_program_and_is_named() {
    if std::env::var_os(PLANTED).is_some() {
        return crate::main(touch_a_page, 2);
    }
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    comm::secure::Key::generate().unwrap().write_new(&key).unwrap();
    let cases = [("faults", "the thread that reads page faults"), ("server", "the page server")];
    for (planted, whose) in cases {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut machines = [0, 1].map(|index| machine(index, port, &key, planted));
        let ended = machines.each_mut().map(ends);
        let (mut said, mut printed) = (String::new(), String::new());
        machines[0].stderr.take().unwrap().read_to_string(&mut said).unwrap();
        machines[0].stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        if printed.contains(SKIPPED) {
            return println!("{printed}");
        }
        assert_eq!(ended, [true; 2], "{said}");
        assert!(said.contains(&format!("gossamer: {whose} has panicked: planted in {planted}\n")), "{said}");
        assert!(!machines[0].wait().unwrap().success(), "{said}");
    }
}
