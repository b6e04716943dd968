//! Crate `control`: decides the members of the cluster and the holder of each position, by pure rules over a store with
//! compare-and-swap (P10). It uses no clock, entropy, sockets or HTTP.

mod adopt;
mod agent;
mod check;
mod coordinator;
mod fence;
mod layout;
pub mod message;
mod mutant;
mod plan;
mod record;
pub mod rights;
mod rules;
pub mod status;
pub mod store;
#[cfg(any(test, feature = "suite"))]
pub mod store_suite;

pub use adopt::{Adoption, Progress};
pub use agent::{Agent, AgentEvent, AgentOut, ENDS_MAX, HEARTBEAT};
pub use check::{check_transition, is_decodable};
pub use coordinator::{Coordinator, CoordinatorEvent, CoordinatorOut, Ending, Note, SILENT_MAX};
pub use layout::Layout;
pub use mutant::Mutant;
pub use plan::{
    ClusterPlan, DOMAIN_BYTES_MAX, LEASE_PARTS, LostPolicy, NODES_MAX, POSITIONS_MAX, PlanError, PlannedNode,
    check_record,
};
pub use record::{OpenError, RECORD_FORMAT};
