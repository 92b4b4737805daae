//! Why a program cannot start on this machine. What can go wrong with a request is [`crate::Error`].

use crate::bootstrap::{BootstrapError, FabricChoice};

/// What can go wrong between the start of the process and that of `gsm_main`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error("the fabric {fabric} cannot join these machines yet: use shm, on one host")]
    NoFabric { fabric: FabricChoice },
    #[error("the machines cannot be connected: {0}")]
    Fabric(#[from] comm::Error),
    #[error("the program's own headers cannot be read: {0}")]
    Image(std::io::Error),
    #[error(
        "machine {machine} runs another program than machine {own}: {image} there, {own_image} here (build id/layout); \
         put the same file on every machine"
    )]
    OtherProgram { own: u16, own_image: String, machine: u16, image: String },
    #[error("machine {machine} runs a program with another version of gossamer; put the same file on every machine")]
    OtherVersion { machine: u16 },
    #[error(
        "machine {machine} takes itself for {theirs}, and was taken for {expected}: every machine must call \
         `gossamer::main` with the same number of threads"
    )]
    OtherLayout { machine: u16, theirs: String, expected: String },
    #[error("machine {machine} did not say hello: {cause}; see what it printed")]
    NoHello { machine: u16, cause: &'static str },
    #[error("{threads} workers for {machines} machines: give each machine at least one, and at most 65,534")]
    Threads { threads: usize, machines: u16 },
    #[error("the workers cannot be started: {0}")]
    Pool(#[from] trust::BuildError),
    #[error("a worker ended while it was connected to the others: {0}")]
    Worker(String),
    #[error("{0} threads used trusts before `gossamer::main`: call it first")]
    TooLate(usize),
    #[error("the launcher cannot be reached: {0}")]
    Control(#[from] crate::control::ControlError),
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}
