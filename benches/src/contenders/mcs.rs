//! `synctools::mcs::MCSLock`, the MCS lock of the thesis (2.6.1).

use synctools::mcs::{MCSLock, MCSNode};

use super::counter::{Counter, increment};
use crate::contender::Kind;

/// A counter under an MCS queue lock.
pub struct McsCounter(MCSLock<u64>);

impl Counter for McsCounter {
    const NAME: &'static str = "mcs";
    const KIND: Kind = Kind::Lock;
    type Local = MCSNode<u64>;

    fn zero() -> Self {
        Self(MCSLock::new(0))
    }

    #[inline(always)]
    fn fetch_add<const PAUSE: bool>(&self, node: &mut MCSNode<u64>) -> u64 {
        increment::<PAUSE>(&mut self.0.lock(node))
    }

    fn value(&mut self) -> u64 {
        *self.0.lock(&mut MCSNode::new())
    }
}
