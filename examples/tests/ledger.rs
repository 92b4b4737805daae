//! A durable trust outlives its machine: the example `ledger`, over each transport, and again on the same folder.

use std::process::Command;

use processes::run;

const LEDGER: &str = env!("CARGO_BIN_EXE_ledger");

#[test]
fn no_acknowledged_deposit_is_lost_with_its_machine() {
    let folder = tempfile::tempdir().unwrap();
    for fabric in ["shm", "tcp"] {
        let mut ledger = Command::new(LEDGER);
        ledger.arg(folder.path().join("ledger")).args(["--threads", "3", "--deposits", "20", "--fabric", fabric]);
        let ended = run(ledger);
        assert_eq!(ended.code(), Some(0), "{fabric}: {ended}");
        assert!(ended.stderr.contains("the others go on without machine 2"), "{fabric}: {ended}");
        assert!(ended.stdout.contains("opened again at m1w0; all are there"), "{fabric}: {ended}");
    }
}

#[test]
fn a_ledger_of_one_machine_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = Command::new(LEDGER);
    ledger.arg(folder.path().join("ledger")).args(["--local", "1"]);
    let ended = run(ledger);
    assert!(ended.code() == Some(1) && ended.stderr.contains("start several, with --local"), "{ended}");
}
