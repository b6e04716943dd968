//! Crate `large`: values too large for one object of the store, as pure functions and machines.
//!
//! A large value is a *body*, cut into units of one chunk each, and a short *tail* that stays in the object. The units
//! lie outside of the stripes, at positions of the key's stripe list, in *parts*: data blocks, parity blocks and whole
//! copies. Which parts there are is the value's [`Class`]; where they lie is its [`Placement`]. The object in the store
//! has a [`Record`] of all that in its header. Parts never change once they are written: a new value gets new parts.
//!
//! - [`Class`]: redundancy of one value: copies, erasure coding, or copies laid out for later coding (EOR).
//! - [`ClassRules`]: which class a new value gets, by its key and length.
//! - [`Hotness`], [`Heat`]: which values are hot, and the classes of hot and cold values.
//! - [`Layout`]: how a body is cut into units, rows and blocks.
//! - [`Placement`]: which part is at which position of a stripe list.
//! - [`Record`]: what an object's header says about its parts (`docs/formats/large.md`).
//! - [`Writer`], [`Reader`]: the machines that make parts from bytes, and bytes from parts.
//! - [`Ledger`]: which groups of parts are alive, at the owner of their stream. [`Keeper`]: the parts that one position
//!   holds. [`Sender`], [`Acceptance`]: one value on its way to the holders, who has its bytes and who names it.
//!   `docs/decisions/2026-11-25-parts-of-large-values.md` has their rules.
//! - [`Transition`]: what is read, written and kept when a value gets another class (ElasticMem §4.2).
//! - [`model`]: the latency model of online erasure coding (§III, Equations 1 to 8).

mod acceptance;
mod class;
mod class_rules;
mod fingerprint;
mod hotness;
mod keeper;
mod layout;
mod ledger;
pub mod model;
mod placement;
mod reader;
mod record;
mod sender;
mod transition;
mod writer;

pub use acceptance::{Acceptance, Holder, Tell, UploadFailed};
pub use class::{BLOCKS_MAX, Class, ClassError};
pub use class_rules::ClassRules;
pub use fingerprint::{FINGERPRINT_BYTES, Fingerprint, FingerprintKey, Folding, belong_together};
pub use hotness::{Heat, Hotness, HotnessSetting, Wanted};
pub use keeper::{Fetch, Keeper, PartId, Put, Stored, Units, WHOLE_PART};
pub use layout::{Layout, TAIL_BYTES_MAX};
pub use ledger::{Alive, Ledger, NotAlive, Page};
pub use placement::{Content, Group, Part, Placement, PlacementError};
pub use reader::{ReadFailed, Reader, Request};
pub use record::{GroupId, PartName, RECORD_BYTES_MAX, Record};
pub use sender::{Ask, Opened, Outcome, Sender};
pub use transition::Transition;
pub use writer::{UNTAKEN_MAX, WriteFailed, Writer};
