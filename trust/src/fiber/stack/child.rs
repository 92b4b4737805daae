//! Child processes for tests that end their process or need one of their own. Not the tests themselves.

use std::process::{Command, Output};

/// Exit status of a child whose body returned.
pub(crate) const FINISHED: i32 = 42;
const VARIABLE: &str = "TRUST_FIBER_TEST_CHILD";

/// Runs `body` in a process of its own: this test program again, with `path` (the test that calls this, with its
/// module path) as the only test.
pub(crate) fn in_child(path: &str, body: impl FnOnce()) -> Output {
    let (_crate, test) = path.split_once("::").expect("a path within a crate");
    if std::env::var(VARIABLE).is_ok_and(|child| child == test) {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: only this process writes no core file.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
        body();
        std::process::exit(FINISHED);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, test)
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(0), "{test} did not run in the child: is this its name?");
    output
}
