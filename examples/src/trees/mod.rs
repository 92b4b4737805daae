//! Search trees on durable trusts, from numbers to numbers: those that Corundum is measured with (M. Hoseinzadeh, S.
//! Swanson, ASPLOS 2021). Their tests and benchmarks use them; a program would rather take a
//! [`PMap`](trust_durable::PMap), or one of these where it needs an order.

pub mod bplus;
pub mod bst;
