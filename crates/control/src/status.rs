//! The status report, which `paritas status` shows. It is built from registrations, heartbeats and configurations.

use paritas_base::configuration::Duty;
use paritas_base::{ListId, NodeId, Position};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limit of the kinds of memory that a shard reports.
pub const KINDS_MAX: usize = 32;
/// Limit of shards of a process.
pub const SHARDS_MAX: usize = 256;

/// Limit of halted roles that a shard reports, so that a heartbeat fits its frame.
pub const HALTED_MAX: usize = 128;
/// Limit of peers whose ack delays a shard reports. It is more than the positions of any list.
pub const ACKS_MAX: usize = 1024;
/// Longest reason of a halted role, in bytes.
const REASON_BYTES_MAX: usize = 200;

/// The report of a shard in each heartbeat of its process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ShardProgress {
    /// The number of the shard in its process.
    pub shard: u16,
    /// Turns of its event loop. A shard whose count does not grow for the suspicion time is stuck. So an idle shard
    /// must run one turn for each heartbeat (P10.2b).
    pub turns: u64,
    /// Objects that it owns.
    pub objects: u64,
    /// Bytes of their keys and values.
    pub user_bytes: u64,
    /// Memory of all kinds, in bytes.
    pub memory_bytes: u64,
    /// Memory by kind, in bytes.
    pub by_kind: Vec<(String, u64)>,
    /// Bytes that have been rebuilt.
    pub rebuild_done_bytes: u64,
    /// Bytes to rebuild, including those that have been rebuilt.
    pub rebuild_total_bytes: u64,
    /// The results of its search for wrong bytes.
    pub scrub: ScrubStatus,
    /// Roles that broke an invariant. They stay stopped until the process ends (P3.5).
    pub halted: Vec<HaltedRole>,
    /// The delay of acks of each peer that was measured recently, in microseconds (P10.2a).
    pub ack_us: Vec<(NodeId, u64)>,
    /// How full its memory is.
    pub fill: FillStatus,
    /// How full the disk is, if the node is a log node.
    pub log: Option<LogStatus>,
}

/// Most bytes of keys and values that a position takes: an index entry has 32 bits for where a key is. Index pages and
/// parts of large values do not count.
pub const POSITION_BYTES_MAX: u64 = 1 << 32;

/// How full a node's memory is, and what that has cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FillStatus {
    /// The node's limit of memory, in bytes: `memory` in its settings, or what CONFIG SET has changed it to.
    pub limit_bytes: u64,
    /// Bytes of chunks in use.
    pub used_bytes: u64,
    /// Bytes of chunks that writers may fill. The rest of the memory is for tables, logs and buffers.
    pub writable_bytes: u64,
    /// Writes that its process has refused with -OOM.
    pub refused_writes: u64,
    /// Keys that its process has evicted.
    pub evicted_keys: u64,
}

impl FillStatus {
    /// How much of what writers may fill is in use, in percent. Rebuilds may use more than writers may.
    pub fn percent(&self) -> u64 {
        self.used_bytes.saturating_mul(100) / self.writable_bytes.max(1)
    }

    /// The most bytes of keys and values that `positions` positions take, if that is less than the memory.
    pub fn unreachable_above(&self, positions: usize) -> Option<u64> {
        let most = POSITION_BYTES_MAX.saturating_mul(positions as u64);
        (positions > 0 && most < self.limit_bytes).then_some(most)
    }
}

/// How full a log node's disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogStatus {
    /// Parity chunks on the disk.
    pub chunks: u32,
    /// Limit of parity chunks on the disk.
    pub chunks_max: u32,
}

/// A role that broke an invariant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HaltedRole {
    /// The list.
    pub list: ListId,
    /// The position that it held when it stopped.
    pub position: Position,
    /// The invariant that it broke.
    pub reason: String,
}

impl HaltedRole {
    /// A halted role. A reason that is too long is cut.
    pub fn new(list: ListId, position: Position, mut reason: String) -> Self {
        while reason.len() > REASON_BYTES_MAX {
            reason.pop();
        }
        Self { list, position, reason }
    }
}

/// The state of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// All nodes that are planned or have registered, by id.
    pub nodes: Vec<NodeStatus>,
    /// All lists, by id.
    pub lists: Vec<ListStatus>,
    /// The present or latest move of slots.
    pub slots: Option<SlotMove>,
    /// The progress of rebuilds.
    pub rebuild: RebuildStatus,
    /// The results of the search for wrong bytes, summed over the present incarnations of available nodes.
    pub scrub: ScrubStatus,
    /// Memory, summed over available nodes.
    pub memory: MemoryStatus,
    /// Address of the coordinator. The coordinator leaves it empty. The node or command that requested the report
    /// enters the address that it uses.
    pub coordinator_address: String,
    /// What the coordinator waits for or cannot do, and what to do. One sentence for each.
    pub coordinator: Vec<String>,
    /// The same for scripts.
    pub trouble: Trouble,
}

/// Why the coordinator does not replace holders, and what it waits for (P10.9 to P10.16).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Trouble {
    /// A node with a configuration that is not in the history of the store: the coordinator changes nothing.
    pub behind: Option<NodeId>,
    /// Nodes that have not reported their configurations yet, while the coordinator waits for reports.
    pub witnesses_missing: Vec<NodeId>,
    /// Refused nodes that know of decisions which are not in the store, while the coordinator waits for reports. If it
    /// goes on to wait, put the newest store back, or adopt.
    pub doubts: Vec<NodeId>,
    /// Number of lists whose newest configuration is not sent yet, since too few nodes know its id.
    pub withheld: usize,
    /// Nodes that are not linked to the coordinator, if too few nodes are: no node is removed for silence until more
    /// are.
    pub unlinked: Vec<NodeId>,
    /// For how long no node is removed for silence, in ms.
    pub grace_ms: Option<u64>,
    /// Number of silent failure domains, if it is so large that no node is removed for silence.
    pub silent_domains: Option<usize>,
    /// Nodes that the coordinator does not hear, and that are not known to have ended.
    pub silent: Vec<SilentNode>,
    /// Nodes that have ended, and whose next process is awaited.
    pub next_incarnations: Vec<NodeId>,
    /// Nodes that held a position when the coordinator started, and have not registered since.
    pub awaited: Vec<NodeId>,
    /// Lost lists.
    pub lost: Vec<ListId>,
}

/// A node that the coordinator does not hear.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SilentNode {
    /// The node.
    pub node: NodeId,
    /// What the coordinator concludes.
    pub verdict: Verdict,
    /// Peers that hear it.
    pub heard_by: Vec<NodeId>,
    /// Peers that do not hear it.
    pub unheard_by: Vec<NodeId>,
    /// Peers that cannot tell.
    pub unsure: Vec<NodeId>,
}

/// What the coordinator concludes from a node's silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its peers do not hear it either: it is replaced in lists that can be rebuilt without it.
    Suspect,
    /// A peer hears it: it keeps its positions.
    Isolated,
    /// Too few peers report that they do not hear it, or no node is removed for silence now.
    Undecided,
}

/// A move of slots to a stream (P10.8).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SlotMove {
    /// The first slot.
    pub first: u16,
    /// The last slot.
    pub last: u16,
    /// The list of the destination stream.
    pub list: ListId,
    /// The data position of the destination stream.
    pub position: Position,
    /// Number of slots that have moved.
    pub moved_slots: usize,
    /// Number of slots of the move.
    pub total_slots: usize,
    /// The state of the move.
    pub state: SlotMoveState,
    /// Why the move was given up. Empty if it was not.
    pub reason: String,
}

/// The state of a move of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotMoveState {
    /// In progress.
    Moving,
    /// All slots have moved.
    Done,
    /// Stopped early. Slots that have moved stay at the destination.
    GivenUp,
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub id: NodeId,
    /// Its process id.
    pub pid: u32,
    /// The client address for any key.
    pub address: String,
    /// The client address for cluster-aware clients.
    pub cluster_address: String,
    /// The address for peers.
    pub peer_address: String,
    /// Its role.
    pub role: RoleStatus,
    /// Its state.
    pub state: NodeCondition,
    /// Its memory of all kinds, in bytes.
    pub memory_bytes: u64,
    /// How full its memory is.
    pub fill: FillStatus,
    /// How full its disk is, if it is a log node.
    pub log: Option<LogStatus>,
    /// It failed repeatedly in the recent past, and gets a position only if no other node is free (P10.7).
    pub flapping: bool,
    /// Roles that broke an invariant in its present incarnation. It gets no position of those lists until it restarts.
    pub halted: Vec<HaltedRole>,
    /// Its duty: to stay, to return, or to leave (P5.12, P10.2a).
    pub duty: Duty,
    /// Number of positions that it holds.
    pub positions: usize,
    /// Why its positions cannot move now, if it is to leave or to return. Otherwise empty.
    pub waits_for: String,
}

/// The role of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleStatus {
    /// It is planned to hold positions, or holds some.
    Member,
    /// It waits to replace another node.
    Spare,
    /// It holds only logged parity, on its disk.
    Log,
}

/// The state of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeCondition {
    /// All its positions are Live.
    Live,
    /// Some of its positions are being rebuilt.
    Filling,
    /// It is silent, has ended, or has not registered yet.
    Down,
    /// It holds no position.
    Spare,
}

/// A list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListStatus {
    /// The list.
    pub id: ListId,
    /// The epoch of its configuration.
    pub epoch: u32,
    /// All positions.
    pub positions: Vec<PositionStatus>,
    /// It lost more positions than its scheme covers.
    pub lost: bool,
    /// It lost more positions than its scheme covers at some time, and began again empty.
    pub reset: bool,
    /// Why some position is not Live, as text. Empty if all are Live.
    pub reason: String,
}

/// A position.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PositionStatus {
    /// Its holder.
    pub node: Option<NodeId>,
    /// Its state.
    pub state: PositionCondition,
}

/// The state of a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PositionCondition {
    /// Its holder has all data.
    Live,
    /// It is being rebuilt.
    Filling,
    /// Its holder is silent or has ended.
    Down,
    /// It has no holder.
    Vacant,
    /// A stand-in holds it, with all data: a node that holds another position of the list, since no other node was
    /// free. The loss of that node loses both (P10.5).
    #[serde(rename = "stand-in")]
    StandIn,
}

/// The progress of rebuilds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RebuildStatus {
    /// Bytes that have been rebuilt.
    pub done_bytes: u64,
    /// Bytes to rebuild, including those that have been rebuilt.
    pub total_bytes: u64,
    /// The present rate, in bytes per second.
    pub bytes_per_second: u64,
    /// The remaining time at that rate, in seconds. 0 if there is nothing to rebuild, `None` if the rate is 0.
    pub eta_seconds: Option<u64>,
}

/// The search for wrong bytes in memory (P9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Number of checks of chunks.
    pub checked_chunks: u64,
    /// Chunks that were found to be wrong.
    pub bad_chunks: u64,
    /// Wrong chunks that have been repaired.
    pub repaired_chunks: u64,
}

/// The use of memory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Number of objects.
    pub objects: u64,
    /// Bytes of their keys and values.
    pub user_bytes: u64,
    /// Memory by kind, in bytes.
    pub by_kind: BTreeMap<String, u64>,
}

impl RebuildStatus {
    /// Computes the remaining time.
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
