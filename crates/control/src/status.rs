//! The status report: what `paritas status` shows, filled from registrations, heartbeats and configurations.

use paritas_base::configuration::Duty;
use paritas_base::{ListId, NodeId, Position};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most kinds of memory that a shard may name.
pub const KINDS_MAX: usize = 32;
/// Most shards of a process.
pub const SHARDS_MAX: usize = 256;

/// Most halted roles that a shard names: a heartbeat has room for no more.
pub const HALTED_MAX: usize = 128;
/// Most peers whose acks a shard tells of: a heartbeat has room for more than any list has positions.
pub const ACKS_MAX: usize = 1024;
/// Longest reason of a halted role.
const REASON_BYTES_MAX: usize = 200;

/// What a shard tells with each heartbeat of its process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ShardProgress {
    /// Which shard of the process.
    pub shard: u16,
    /// Turns of its event loop. A shard whose count stands still for the suspicion time is stuck, so an idle one
    /// must turn once a heartbeat (P10.2b).
    pub turns: u64,
    /// Objects that it owns.
    pub objects: u64,
    /// Bytes of their keys and values.
    pub user_bytes: u64,
    /// Memory of all kinds together.
    pub memory_bytes: u64,
    /// Memory by kind.
    pub by_kind: Vec<(String, u64)>,
    /// Bytes rebuilt of what was to rebuild.
    pub rebuild_done_bytes: u64,
    /// Bytes to rebuild, those done too.
    pub rebuild_total_bytes: u64,
    /// What it looked for and found of wrong bytes.
    pub scrub: ScrubStatus,
    /// Roles that broke an invariant and have stopped, as long as the process lives (P3.5).
    pub halted: Vec<HaltedRole>,
    /// How late acks of each peer come, in microseconds, where something was measured of late (P10.2a).
    pub ack_us: Vec<(NodeId, u64)>,
    /// Of a log node.
    pub log: Option<LogStatus>,
}

/// How full a log node's disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogStatus {
    /// Parity chunks on it.
    pub chunks: u32,
    /// So many there can be.
    pub chunks_max: u32,
}

/// A role that broke an invariant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HaltedRole {
    /// In which list.
    pub list: ListId,
    /// The position it held when it stopped.
    pub position: Position,
    /// What was broken.
    pub reason: String,
}

impl HaltedRole {
    /// With as much of the reason as a heartbeat has room for.
    pub fn new(list: ListId, position: Position, mut reason: String) -> Self {
        while reason.len() > REASON_BYTES_MAX {
            reason.pop();
        }
        Self { list, position, reason }
    }
}

/// The cluster at a glance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// All nodes that ever registered or are planned, by id.
    pub nodes: Vec<NodeStatus>,
    /// All lists, by id.
    pub lists: Vec<ListStatus>,
    /// Slots that are being moved, or were last.
    pub slots: Option<SlotMove>,
    /// What is being rebuilt.
    pub rebuild: RebuildStatus,
    /// What the present lives of the nodes that answer looked for and found of wrong bytes.
    pub scrub: ScrubStatus,
    /// Memory of the nodes that answer.
    pub memory: MemoryStatus,
    /// Address of the coordinator, as the node or command that asked it reaches it: they fill it in, the coordinator
    /// leaves it empty.
    pub coordinator_address: String,
    /// What the coordinator waits for or cannot do, a sentence each, with the way out.
    pub coordinator: Vec<String>,
    /// The same for scripts.
    pub trouble: Trouble,
}

/// What keeps the coordinator from giving positions other holders, and what it waits for (P10.9 to P10.16).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Trouble {
    /// A node that has a configuration which is not in the history of the store: nothing is changed.
    pub behind: Option<NodeId>,
    /// Nodes that have not told yet what they have installed, while the coordinator waits for such.
    pub witnesses_missing: Vec<NodeId>,
    /// Stripe lists whose newest configuration is not sent yet, since too few nodes know of it.
    pub withheld: usize,
    /// Nodes that are not linked to the coordinator, where too few are: nobody is removed for silence until more are.
    pub unlinked: Vec<NodeId>,
    /// Nobody is removed for silence for so many milliseconds.
    pub grace_ms: Option<u64>,
    /// Nobody is removed for silence while so many failure domains are silent.
    pub silent_domains: Option<usize>,
    /// Nodes that the coordinator does not hear, and that have not certainly ended.
    pub silent: Vec<SilentNode>,
    /// Nodes that have ended, and whose next process is waited for.
    pub next_incarnations: Vec<NodeId>,
    /// Nodes that held something when the coordinator started, and that it has not heard yet.
    pub awaited: Vec<NodeId>,
    /// Lost lists.
    pub lost: Vec<ListId>,
}

/// A node that the coordinator does not hear.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SilentNode {
    /// Which.
    pub node: NodeId,
    /// What follows.
    pub verdict: Verdict,
    /// Peers that hear it.
    pub heard_by: Vec<NodeId>,
    /// Peers that do not.
    pub unheard_by: Vec<NodeId>,
    /// Peers that cannot say.
    pub unsure: Vec<NodeId>,
}

/// What follows from a node's silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its peers do not hear it either: it is replaced where its lists can be rebuilt without it.
    Suspect,
    /// A peer hears it: it keeps what it holds.
    Isolated,
    /// Too few peers say that they do not hear it, or nobody is removed for silence now.
    Undecided,
}

/// Slots on their way to a stream (P10.8).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SlotMove {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
    /// The stream's list.
    pub list: ListId,
    /// Its position there.
    pub position: Position,
    /// How many of them are there.
    pub moved_slots: usize,
    /// How many they are.
    pub total_slots: usize,
    /// How far it is.
    pub state: SlotMoveState,
    /// Why it was given up; else empty.
    pub reason: String,
}

/// How far a move of slots is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotMoveState {
    /// Under way.
    Moving,
    /// At its end.
    Done,
    /// Ended before that; what has moved stays there.
    GivenUp,
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Which.
    pub id: NodeId,
    /// Its process.
    pub pid: u32,
    /// Where clients ask for any key.
    pub address: String,
    /// Where cluster-aware clients ask.
    pub cluster_address: String,
    /// Where the other nodes reach it.
    pub peer_address: String,
    /// What it is for.
    pub role: RoleStatus,
    /// How it is.
    pub state: NodeCondition,
    /// All its memory.
    pub memory_bytes: u64,
    /// How full its disk is, of a log node.
    pub log: Option<LogStatus>,
    /// It fell again and again of late, and is named only where nobody else is free (P10.7).
    pub flapping: bool,
    /// Roles that broke an invariant in its present incarnation: those lists are without it until it is started again.
    pub halted: Vec<HaltedRole>,
    /// What is wanted of it: to stay, to come back, or to leave (P5.12, P10.2a).
    pub duty: Duty,
    /// Positions that it holds.
    pub positions: usize,
    /// Why what it holds cannot be moved now, if it is to leave; else empty.
    pub waits_for: String,
}

/// What a node is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleStatus {
    /// Named by lists, or to be.
    Member,
    /// Waits to replace another.
    Spare,
    /// Holds logged parity on disk, and nothing else.
    Log,
}

/// How a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeCondition {
    /// All its positions are Live.
    Live,
    /// Some are being rebuilt.
    Filling,
    /// Silent, ended, or not yet seen.
    Down,
    /// Holds none.
    Spare,
}

/// A list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListStatus {
    /// Which.
    pub id: ListId,
    /// Of its configuration.
    pub epoch: u32,
    /// Every position.
    pub positions: Vec<PositionStatus>,
    /// More was lost than the scheme covers.
    pub lost: bool,
    /// It once lost more than its scheme covers, and began again empty.
    pub reset: bool,
    /// Why something is not whole, in words; empty if all is.
    pub reason: String,
}

/// A position.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PositionStatus {
    /// Who holds it.
    pub node: Option<NodeId>,
    /// How it is.
    pub state: PositionCondition,
}

/// How a position is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PositionCondition {
    /// Whole.
    Live,
    /// Being rebuilt.
    Filling,
    /// Its holder is silent or has ended.
    Down,
    /// Nobody holds it.
    Vacant,
    /// Whole, at a node that holds another position of the list for want of a free one: both are lost with it
    /// (P10.5).
    #[serde(rename = "stand-in")]
    StandIn,
}

/// What is being rebuilt.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RebuildStatus {
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// How fast, of late.
    pub bytes_per_second: u64,
    /// How long still, at that rate; nothing to do: 0; no rate: unknown.
    pub eta_seconds: Option<u64>,
}

/// The search for wrong bytes in memory (P9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Chunks checked, each as often as it was.
    pub checked_chunks: u64,
    /// Chunks found to be wrong.
    pub bad_chunks: u64,
    /// Those of them that are right again.
    pub repaired_chunks: u64,
}

/// What memory is used for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Objects.
    pub objects: u64,
    /// Bytes of their keys and values.
    pub user_bytes: u64,
    /// Memory by kind.
    pub by_kind: BTreeMap<String, u64>,
}

impl RebuildStatus {
    /// Adds the time that is left.
    pub(crate) fn with_eta(mut self) -> Self {
        let left = self.total_bytes.saturating_sub(self.done_bytes);
        self.eta_seconds = if left == 0 {
            Some(0)
        } else {
            left.checked_div(self.bytes_per_second)
        };
        self
    }
}
