//! Room `control`: who belongs to the cluster and who holds what, decided by pure rules over a store with
//! compare-and-swap (PROTOCOL 10). No clock, entropy, sockets or HTTP.

pub mod store;
#[cfg(any(test, feature = "suite"))]
pub mod store_suite;
