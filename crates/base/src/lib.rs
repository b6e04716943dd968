//! Crate `base`: plain values that every other crate uses. No policy, no clock, no globals.

pub mod configuration;
pub mod database;
pub mod formats;
pub mod hash_slots;
mod id;
mod map;
pub mod one_slot;
mod part_state;
mod prng;
mod reader;
pub mod sections;
mod time;
mod turn_budget;
pub mod varint;
mod version;

pub use database::{ALL_DATABASES, DATABASES, HIDDEN_DATABASE};
pub use id::{ClusterId, ConnId, Epoch, Incarnation, ListId, NodeId, Position, StreamId, Stripe, Term};
pub use map::{FixedHasher, Map, Set, map, set};
pub use one_slot::OneSlot;
pub use part_state::PartState;
pub use prng::Prng;
pub use reader::Reader;
pub use sections::Sections;
pub use time::{Clock, Span, Time};
pub use turn_budget::TurnBudget;
pub use version::Version;

/// Number of hash slots of the key space, as in Redis Cluster.
pub const SLOT_COUNT: u16 = 16_384;
