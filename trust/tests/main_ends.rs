//! The end of the main thread, which is that of the process, while it has a fiber in the middle of its code: by
//! returning from `main`, by `exit`, by a panic. A test without harness, for a harness has a `main` of its own: it runs
//! itself, in each of its roles.

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const ROLE: &str = "TRUST_TEST_ROLE";

/// Has a destructor, so that it is gone when the worker's thread-local is.
struct Named(Cell<&'static str>);

impl Drop for Named {
    fn drop(&mut self) {
        self.0.set("gone");
    }
}

thread_local!(static NAME: Named = const { Named(Cell::new("here")) });

/// A fiber that has borrowed a thread-local, and waits.
fn borrow_and_wait(time: Duration) -> trust::JoinHandle<&'static str> {
    let fiber = trust::spawn_named("reader", move || {
        NAME.with(|name| {
            trust::sleep(time);
            println!("the fiber finds its thread-local {}", name.0.get());
            name.0.get()
        })
    });
    trust::yield_now();
    fiber
}

fn play(role: &str) {
    let fiber = borrow_and_wait(Duration::from_millis(20));
    match role {
        "returns" => {}
        "exits" => std::process::exit(0),
        "panics" => panic!("on its own"),
        "exits in a fiber" => {
            let _: Result<(), _> = trust::spawn(|| std::process::exit(42)).join();
        }
        "joins" => assert_eq!(fiber.join().unwrap(), "here"),
        "finishes" => trust::finish(),
        role => panic!("there is no role `{role}`"),
    }
}

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return play(&role);
    }
    let aborts = [("returns", true), ("exits", true), ("panics", true)];
    for (role, aborts) in aborts.into_iter().chain([("exits in a fiber", false), ("joins", false), ("finishes", false)])
    {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.env(ROLE, role).stdin(Stdio::null()).output().unwrap();
        let (said, out) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        let seen = format!("`{role}`: {:?}\n{said}\n{out}", output.status);
        if aborts {
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{seen}");
            let texts = ["the thread `main` ends", "fiber 'reader' (main_ends::borrow_and_wait", "`trust::finish()`"];
            assert!(texts.iter().all(|text| said.contains(text)), "{seen}");
            assert!(out.is_empty(), "{seen}");
        } else {
            let status = if role == "exits in a fiber" { 42 } else { 0 };
            assert_eq!(output.status.code(), Some(status), "{seen}");
            // A sanitizer may have printed something.
            let complains = said.lines().any(|line| line.starts_with("trust:") || line.contains("panicked"));
            assert!(!complains && (status != 0 || out.contains("thread-local here")), "{seen}");
        }
        println!("test main_{} ... ok", role.replace(' ', "_"));
    }
}
