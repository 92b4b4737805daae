//! Tests of the bootstrap within one process: what the variables say, and which descriptors are believed. That a real
//! launcher, a wrapper and a grandchild see the right thing is tested in gossamer-daemon/tests/launch.rs.

use std::collections::HashMap;

use super::*;

type Environment = HashMap<&'static str, String>;

/// The variables for machine 1 of 3, and both ends of its control channel.
fn seat() -> (Environment, Control, Control) {
    let memory = shm::create(3).unwrap();
    let (machine, launcher) = Control::pair().unwrap();
    let seat = Seat { machine: 1, threads: Some(6), memory: &memory };
    let variables = seat.variables(&machine).unwrap();
    (variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(), machine, launcher)
}

/// Gives a descriptor up, as if an exec had brought it here.
fn inherit(control: Control) {
    rustix::io::fcntl_setfd(&control, FdFlags::empty()).unwrap();
    std::mem::forget(control);
}

fn read(environment: &Environment) -> Result<Option<Variables>, BootstrapError> {
    Variables::read(|name| environment.get(name).map(OsString::from))
}

#[test]
fn what_the_launcher_hands_out_arrives() {
    let (environment, machine, launcher) = seat();
    inherit(machine);
    let variables = read(&environment).unwrap().unwrap();
    assert_eq!((variables.machine, variables.machines, variables.threads), (1, 3, Some(6)));
    let control = variables.take_control(rustix::process::getppid()).unwrap().unwrap();
    assert_eq!(rustix::io::fcntl_getfd(&control).unwrap(), FdFlags::CLOEXEC);
    control.send(&crate::control::Message::Ready { pid: 7 }).unwrap();
    assert_eq!(launcher.receive().unwrap(), Some(crate::control::Message::Ready { pid: 7 }));

    let again = variables.take_control(None);
    assert!(matches!(again, Err(BootstrapError::Taken)), "{again:?}");
}

#[test]
fn a_missing_channel_tells_a_grandchild_from_a_broken_wrapper() {
    let (environment, machine, _launcher) = seat();
    drop(machine); // not open here
    let variables = read(&environment).unwrap().unwrap();
    assert!(variables.take_control(rustix::process::getppid()).unwrap().is_none());
    // The variables name this process as the launcher.
    match variables.take_control(Some(rustix::process::getpid())) {
        Err(error @ BootstrapError::Closed { .. }) => {
            let text = error.to_string();
            assert!(text.contains(&environment[CONTROL]) && text.contains("wrapper"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_descriptor_that_is_something_else_is_left_alone() {
    let (mut environment, _machine, _launcher) = seat();
    let file = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&file, FdFlags::empty()).unwrap();
    environment.insert(CONTROL, format!("{}:1:1", file.as_raw_fd()));
    assert!(read(&environment).unwrap().unwrap().take_control(None).unwrap().is_none());
    assert_eq!(rustix::io::fcntl_getfd(&file).unwrap(), FdFlags::empty());
}

#[test]
fn no_variables_mean_no_launcher() {
    assert!(read(&Environment::new()).unwrap().is_none());
    assert!(read(&Environment::from([(THREADS, "3".to_owned())])).unwrap().is_none());
}

#[test]
fn broken_variables_are_named_with_value_and_cure() {
    let (good, _machine, _launcher) = seat();
    assert!(read(&good).unwrap().is_some());
    for variable in [LAUNCHER, MACHINE, MACHINES, CONTROL] {
        let mut environment = good.clone();
        environment.remove(variable);
        let text = read(&environment).unwrap_err().to_string();
        assert!(text.contains(&format!("{variable} is missing")) && text.contains("unset"), "{text}");
    }
    let bad = [
        (LAUNCHER, "1"),
        (LAUNCHER, "x:1"),
        (LAUNCHER, "1:-4"),
        (LAUNCHER, "1:0"),
        (MACHINE, "3"),
        (MACHINE, "-1"),
        (MACHINE, ""),
        (MACHINES, "0"),
        (MACHINES, "70000"),
        (THREADS, "2"),
        (THREADS, "many"),
        (CONTROL, "4"),
        (CONTROL, "1:2:3"),
        (CONTROL, "4:2:3:4"),
    ];
    for (variable, value) in bad {
        let mut environment = good.clone();
        environment.insert(variable, value.to_owned());
        match read(&environment) {
            Err(error @ BootstrapError::Invalid { variable: named, .. }) => {
                assert_eq!(named, variable, "{variable}={value}: {error}");
                assert!(error.to_string().contains("unset"), "{error}");
            }
            other => panic!("{variable}={value}: {other:?}"),
        }
    }
    let mut environment = good.clone();
    environment.insert(LAUNCHER, "9:1".to_owned());
    let text = read(&environment).unwrap_err().to_string();
    assert!(text.contains("version 9") && text.contains("build both"), "{text}");
}
