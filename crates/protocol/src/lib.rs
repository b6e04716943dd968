//! Room `protocol`: the redundancy protocol as machines without clock, entropy, threads or sockets.
//!
//! [`Node`] is the machine a driver calls. It installs configurations, checks every frame's epoch, and hands events to
//! the role that a list has given this node: [`StreamOwner`] at a data position, [`ParityMember`] at a parity position.
//! Clients' commands come in through the router.

mod asked;
mod commands;
mod context;
mod dialect;
mod disk_log;
mod filler;
mod interface;
mod lists;
mod log_assist;
mod mark;
mod materialiser;
mod node;
mod pace;
mod parameters;
mod parity_member;
mod parity_table;
mod redis;
mod ring;
mod router;
mod scrub;
mod session;
mod slot_map;
mod source;
mod stash;
mod stream_owner;
mod takeovers;

pub use interface::{Channel, Ends, Event, FrameBuf, HaltReason, Identity, LinkId, Out, Port, Proposal, ReplyBuf};
pub use lists::{Halted, List, Role};
pub use mark::Mark;
pub use node::{Figures, Node, Opinions};
pub use parameters::{ClientLimits, LogAssist, Mutant, Parameters, Reads};
pub use paritas_store::Policy;
pub use parity_member::{Log, ParityMember};
pub use ring::{Record, Ring};
pub use session::PROTOCOL_VERSION;
pub use stream_owner::{Member, Phase, StreamOwner};

/// The log of a log node, and what it wants of the disk.
pub use paritas_paritylog as paritylog;
/// A part of a shard's memory that is to be made a huge page.
pub use paritas_store::HugeRange;
