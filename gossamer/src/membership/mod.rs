//! Agreement on the machines that are lost, where a program outlives some of them. Pure: data in, steps out; no I/O, no
//! clock. The coordinator (in the launcher) alone decides that a machine is lost; members only report.
//!
//! ```text
//! member      -> coordinator   Lost{peer}          the pair of these two is broken
//! coordinator -> member        Fence{epoch, dead}  these machines are lost; each epoch has all those before it
//! member      -> coordinator   Fenced{epoch}       nothing that they send can arrive here any more
//! coordinator -> member        Settled{epoch}      calls to them may be answered
//! member      -> coordinator   Beat{number}        while it lives
//! coordinator -> member        Answer{number}      to the living only
//! ```
//!
//! Messages between the coordinator and one member arrive in order. A machine that is declared dead gets no message any
//! more; it may run on for a while (*zombie*), and everything that it sends is ignored.
//!
//! - *Settled after fences:* `Settled` is sent when every machine that is alive by the newest epoch has fenced that
//!   epoch. An older epoch is never settled on its own: one of its living machines may be a zombie by now that has not
//!   fenced, and could pass on data of a lost machine.
//! - *Settled after the end:* and when each lost machine has ended, or its lease is over.
//! - *Lease from sending:* a member's lease lasts for a fixed time from the *sending* of the last beat that was
//!   answered, and it ends itself then. The coordinator, which counts from its answer, always ends later; so a member
//!   that was stopped and finds old answers in its socket gains nothing by them.
//!
//! - [`coordinator`]: the decisions, epochs, and the end of the program if too many are lost
//! - [`member`]: one machine's part

mod coordinator;
mod member;
#[cfg(test)]
mod model;
#[cfg(test)]
mod search;

pub(crate) use coordinator::{Coordinator, CoordinatorStep, Timer};
pub(crate) use member::{Member, MemberStep};

/// Message of the coordinator to a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ToMember {
    /// These machines, in ascending order, are lost.
    Fence { epoch: u32, dead: Vec<u16> },
    /// Calls to the machines of this epoch may be answered.
    Settled { epoch: u32 },
    /// The beat of this number has come.
    Answer { beat: u64 },
}

/// Message of a member to the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ToCoordinator {
    /// The pair of this member and that machine is broken.
    Lost { peer: u16 },
    /// Nothing that the machines of this epoch send can arrive any more.
    Fenced { epoch: u32 },
    /// The member lives.
    Beat { number: u64 },
}

/// The other side sent a message that this protocol does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonsense;
