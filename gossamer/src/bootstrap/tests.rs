//! Tests of the bootstrap within one process: the values of the variables, and which descriptors are accepted. A test
//! with a real launcher, a wrapper and a grandchild is in gossamer-daemon/tests/launch.rs.

use std::collections::HashMap;
use std::os::fd::AsRawFd;

use super::*;

type Environment = HashMap<&'static str, String>;

/// The variables for machine 1 of 3, and both ends of its control channel.
fn launch() -> (Environment, Control, Control) {
    let memory = shm::create(3).unwrap();
    let (machine, launcher) = Control::pair().unwrap();
    let plan = Plan::local(3, FabricChoice::Shm, Some(6));
    let launch = LaunchDescriptor { machine: 1, plan: &plan, memory: Some(&memory) };
    (launch.variables(&machine).unwrap().into(), machine, launcher)
}

/// Gives up a descriptor, as if an exec had brought it here.
fn inherit(control: Control) {
    rustix::io::fcntl_setfd(&control, FdFlags::empty()).unwrap();
    std::mem::forget(control);
}

fn read(environment: &Environment) -> Result<Option<Variables>, BootstrapError> {
    Variables::read(|name| environment.get(name).map(OsString::from))
}

#[test]
fn what_the_launcher_hands_out_arrives() {
    let (environment, machine, launcher) = launch();
    inherit(machine);
    let variables = read(&environment).unwrap().unwrap();
    assert_eq!((variables.machine, variables.plan.clone()), (1, Plan::local(3, FabricChoice::Shm, Some(6))));
    let control = variables.take_control(rustix::process::getppid()).unwrap().unwrap();
    assert_eq!(rustix::io::fcntl_getfd(&control).unwrap(), FdFlags::CLOEXEC);
    control.send(&crate::control::Message::Ready { pid: 7, slots_bytes: 9, survives: 0 }).unwrap();
    assert_eq!(
        launcher.receive().unwrap(),
        Some(crate::control::Message::Ready { pid: 7, slots_bytes: 9, survives: 0 })
    );

    let again = variables.take_control(None);
    assert!(matches!(again, Err(BootstrapError::Taken)), "{again:?}");
}

#[test]
fn a_missing_channel_tells_a_grandchild_from_a_broken_wrapper() {
    let (environment, machine, _launcher) = launch();
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
    let (mut environment, _machine, _launcher) = launch();
    let file = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&file, FdFlags::empty()).unwrap();
    environment.insert(CONTROL, format!("{}:1:1", file.as_raw_fd()));
    assert!(read(&environment).unwrap().unwrap().take_control(None).unwrap().is_none());
    assert_eq!(rustix::io::fcntl_getfd(&file).unwrap(), FdFlags::empty());
}

#[test]
fn no_variables_mean_no_launcher() {
    assert!(read(&Environment::new()).unwrap().is_none());
}

#[test]
fn broken_variables_are_named_with_value_and_cure() {
    let (good, _machine, _launcher) = launch();
    assert!(read(&good).unwrap().is_some());
    for variable in [LAUNCHER, MACHINE, PLAN, CONTROL] {
        let mut environment = good.clone();
        environment.remove(variable);
        let text = read(&environment).unwrap_err().to_string();
        assert!(text.contains(&format!("{variable} is missing")) && text.contains("unset"), "{text}");
    }
    let (below, zero) = (format!("{PROTOCOL_VERSION}:-4"), format!("{PROTOCOL_VERSION}:0"));
    let bad = [
        (LAUNCHER, "1"),
        (LAUNCHER, "x:1"),
        (LAUNCHER, &below),
        (LAUNCHER, &zero),
        (MACHINE, "3"),
        (MACHINE, "-1"),
        (MACHINE, ""),
        (PLAN, ""),
        (PLAN, "{}"),
        (PLAN, r#"{"fabric":"string"}"#),
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

#[test]
fn a_plan_that_makes_no_sense_is_refused_on_both_sides() {
    let (mut environment, control, _launcher) = launch();
    let mut plan: Plan = serde_json::from_str(&environment[PLAN]).unwrap();
    plan.threads = Some(2);
    environment.insert(PLAN, serde_json::to_string(&plan).unwrap());
    let text = read(&environment).unwrap_err().to_string();
    assert!(text.contains("2 workers in all are not enough"), "{text}");

    let memory = shm::create(3).unwrap();
    let refused = |machine, plan: &Plan, memory: Option<&shm::Segments>| {
        let error = LaunchDescriptor { machine, plan, memory }.variables(&control).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    assert!(refused(0, &plan, Some(&memory)).contains("not enough"));
    plan.threads = None;
    assert!(refused(3, &plan, Some(&memory)).contains("no machine 3"));
    assert!(refused(0, &plan, None).contains("memory for 0 machines"));
    plan.hosts[0].name = "x".repeat(PLAN_BYTES_MAX);
    assert!(refused(0, &plan, Some(&memory)).contains("does not fit"));
}
