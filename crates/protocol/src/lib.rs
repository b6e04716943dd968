//! Crate `protocol`: the redundancy protocol as machines without clock, entropy, threads or sockets.
//!
//! [`Replica`] is one node without its clients. It installs configurations, checks every frame's epoch, and hands
//! events to the role that a list has given this node: [`StreamOwner`] at a data position, [`ParityMember`] at a parity
//! position. A front end stands before it, and runs clients' commands on the owners by [`Access`].

mod asked;
mod bodies;
mod capability;
mod context;
mod disk_log;
mod interface;
mod lists;
mod log_assist;
mod mark;
mod pace;
mod parameters;
mod parity_member;
mod parts;
mod readers;
mod replica;
mod ring;
mod rules;
mod scrub;
mod session;
mod slot_map;
mod source_chunk;
mod stash;
mod stream_owner;
mod takeovers;
mod unit_requests;

pub use capability::Capability;
pub use context::{Context, Shared};
pub use interface::{
    Answer, Channel, Ends, Event, FrameBuf, HaltReason, Identity, LinkId, Out, Port, ProcessFigures, Proposal, ReplyBuf,
};
pub use lists::{Halted, List, Lists, Role};
pub use mark::Mark;
pub use parameters::{
    ClientCoding, ClientLimits, LogAssist, Parameters, Reads, Transactions, check_class_rules, check_hotness,
    check_large_from,
};
pub use paritas_large::{Class, ClassRules, Hotness, HotnessSetting, PartId};
pub use paritas_store::Policy;
pub use parity_member::{Log, ParityMember};
pub use parts::{PositionParts, StoredUnits, UnitRef};
pub use readers::{Readers, ValueRange};
pub use replica::{
    Figures, Fill, FrontMessage, Notice, Opinions, PeerCommand, Replica, ReplyBody, flip_bit, flip_bit_of_unit,
};
pub use ring::{Record, Ring};
pub use rules::{Fault, Rules, TakenAgain};
pub use scrub::ScrubCounts;
pub use session::PROTOCOL_VERSION;
pub use slot_map::{SlotMap, SlotOwner};
pub use stream_owner::{
    Access, Draft, Effect, FUNCTIONS_KEY, KEY_STEPS, LARGE_VALUE_BYTES_MAX, Located, Member, NotByClient, Phase, Piece,
    RandomKey, ReadLease, StagedSoFar, Stop, StreamOwner, Ticket, Uploaded, WriteRefusal, body_bytes, class_of,
    fits_one_delta,
};

pub use takeovers::Takeovers;

/// The log of a log node, and what it wants of the disk.
pub use paritas_large as large;
pub use paritas_paritylog as paritylog;
/// A part of a shard's memory that is to be made a huge page.
pub use paritas_store::HugeRange;
