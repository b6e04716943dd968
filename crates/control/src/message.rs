//! What the coordinator, the agents of nodes and supervisors say to each other (`docs/formats/control.md`): rare
//! messages, so postcard behind a length, a CRC32C and a version.

use crate::plan::LostPolicy;
use crate::status::{ShardProgress, Status};
use core::fmt;
use paritas_base::configuration::{ClusterRecord, Configuration, Duty, NodeRecord, NodeRole, Tenure};
use paritas_base::hash_slots::SlotOrder;
use paritas_base::{ClusterId, Epoch, Incarnation, ListId, NodeId, Position};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version of these messages.
pub const MESSAGE_VERSION: u8 = 5;
/// Longest frame that a coordinator takes.
pub const TO_COORDINATOR_BYTES_MAX: usize = 256 << 10;
/// Longest frame that an agent takes: every configuration of the largest cluster.
pub const TO_AGENT_BYTES_MAX: usize = 4 << 20;
/// Length and CRC.
const PREFIX_BYTES: usize = 8;

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Registration {
    /// The cluster it expects, if it knows.
    pub cluster: Option<ClusterId>,
    /// Which node.
    pub node: NodeId,
    /// This incarnation.
    pub incarnation: Incarnation,
    /// Its failure domain; `None`: as planned, else its own id.
    pub domain: Option<String>,
    /// What it was started as. Where it serves is for the coordinator to say.
    pub role: NodeRole,
    /// For people.
    pub pid: u32,
    /// Whether a supervisor certifies its end.
    pub supervised: bool,
    /// Where clients ask for any key, `host:port`.
    pub client_address: String,
    /// Where cluster-aware clients ask.
    pub cluster_address: String,
    /// Where peers connect.
    pub peer_address: String,
    /// How many coordinators it knows.
    pub coordinators: u8,
    /// The newest configurations it has, by which a coordinator sees that its own store went back in time.
    pub installed: Vec<(ListId, Epoch, u64)>,
    /// Configurations that it knows by id alone, newer than what it has (`ToAgent::Witness`).
    pub heard: Vec<(ListId, Epoch, u64)>,
    /// The latest incarnation of each node that it knows, and how many lives that makes. A coordinator whose store went
    /// back in time counts on from there.
    pub incarnations: Vec<(NodeId, Incarnation, u32)>,
}

/// Peers that a process does not hear. All others that it exchanges frames with are heard.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Opinions {
    /// Peers of which no frame has come for the suspicion time. At most [`OPINIONS_MAX`] are looked at.
    pub unheard: Vec<(NodeId, Incarnation)>,
    /// Peers of which the process cannot say anything. At most [`OPINIONS_MAX`] are looked at.
    pub unsure: Vec<(NodeId, Incarnation)>,
}

/// Most peers that an opinion names: as many as a cluster has nodes.
pub const OPINIONS_MAX: usize = 1024;

/// What an operator orders, on the coordinator's own machine: orders that can lose data.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Order {
    /// Lost lists begin again empty (P10.6).
    ResetLists {
        /// Which; none: all that are lost.
        lists: Vec<ListId>,
    },
    /// The present processes of these nodes have ended: their machines are off.
    Fence {
        /// Which.
        nodes: Vec<NodeId>,
    },
    /// Settings that may change while the cluster lives. Without any: which there are.
    Set(Settings),
}

/// Settings that may change while the cluster lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// Silence after which a node is suspected, in ms.
    pub suspicion_ms: Option<u32>,
    /// What becomes of a list that lost too much.
    pub lost_policy: Option<LostPolicy>,
}

/// From agents, supervisors and whoever asks for status.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum ToCoordinator {
    /// A node introduces itself. It counts once a heartbeat repeats the nonce of the answer (P10.4).
    Register(Box<Registration>),
    /// This incarnation goes on.
    Heartbeat {
        /// Of the newest `Registered`.
        nonce: u64,
        /// Every shard of the process.
        shards: Vec<ShardProgress>,
        /// Peers that owe acks for too long (P10.2).
        silent: Vec<(NodeId, Incarnation)>,
        /// Which peers the process hears (P10.9). `None`: its shard has not said.
        opinions: Option<Opinions>,
    },
    /// A position is whole.
    AskLive {
        /// The list.
        list: ListId,
        /// The position.
        position: Position,
        /// Who asks.
        tenure: Tenure,
    },
    /// Send the newest configuration of a list.
    GetConfiguration {
        /// The list.
        list: ListId,
        /// What the node has: the answer's trail reaches back to it.
        installed: Option<(Epoch, u64)>,
    },
    /// Send a status report.
    Status {
        /// Comes back with the report.
        n: u64,
    },
    /// This link's end starts that process, and will see it end. Said before the process starts.
    Supervise {
        /// The node.
        node: NodeId,
        /// The incarnation that the supervisor drew for it.
        incarnation: Incarnation,
    },
    /// That process has ended: its supervisor has waited for it.
    Exited {
        /// The node.
        node: NodeId,
        /// The incarnation that ended.
        incarnation: Incarnation,
    },
    /// A position has drained: see `ToAgent::Drain`.
    Drained {
        /// The list.
        list: ListId,
        /// The position.
        position: Position,
        /// Whose it is.
        tenure: Tenure,
    },
    /// An operator wants that of a node.
    SetDuty {
        /// Comes back with the answer.
        n: u64,
        /// The node.
        node: NodeId,
        /// What is wanted of it.
        duty: Duty,
    },
    /// An operator wants that of slots (P10.8).
    MoveSlots {
        /// Comes back with the answer.
        n: u64,
        /// What.
        order: SlotOrder,
    },
    /// The source of a hand-off has brought the slots as far as `last`, or gives it up (P10.8).
    HandOff {
        /// Which hand-off.
        version: u64,
        /// The last slot that is there.
        last: Option<u16>,
        /// The source's tenure.
        from: Tenure,
        /// The destination's.
        to: Tenure,
    },
    /// An operator's order.
    Order {
        /// Comes back with the answer.
        n: u64,
        /// What.
        order: Order,
        /// Whether it is to be done; else only what it would lose is said.
        confirmed: bool,
    },
    /// What the process knows of the cluster, asked for by `Refusal::Adopting`; in several frames if need be.
    Testimony(Box<Testimony>),
    /// The process knows the ids of a batch of configurations, and of all batches before (P10.16).
    Witnessed {
        /// Of `ToAgent::Witness`.
        batch: u64,
    },
}

/// What a process knows of its cluster.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Testimony {
    /// The cluster; none if it is new.
    pub cluster: Option<ClusterRecord>,
    /// The latest incarnation of each node that it knows, and how many lives that makes.
    pub incarnations: Vec<(NodeId, Incarnation, u32)>,
    /// The newest configurations that it has.
    pub configurations: Vec<Configuration>,
    /// There are no more.
    pub is_last: bool,
}

/// To agents and askers.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum ToAgent {
    /// The answer to a registration: all there is to know.
    Registered(Box<Registered>),
    /// The message had no effect.
    Refused(Refusal),
    /// A heartbeat counted.
    Heard,
    /// Configurations that changed or were asked for.
    Configurations(Vec<Configuration>),
    /// Node records that changed.
    Nodes(Vec<NodeRecord>),
    /// The answer to `Status`.
    StatusReport {
        /// Of the question.
        n: u64,
        /// The report.
        status: Box<Status>,
    },
    /// A certificate was accepted; its supervisor need not repeat it.
    ExitNoted {
        /// The node.
        node: NodeId,
        /// The incarnation that ended.
        incarnation: Incarnation,
    },
    /// This position is to go to another node: its owner may finish what it has begun, and says so with `Drained`
    /// (P5.12). Repeated while it is wanted.
    Drain {
        /// The list.
        list: ListId,
        /// The position.
        position: Position,
        /// Whose it is.
        tenure: Tenure,
    },
    /// The answer to `SetDuty`, or to `MoveSlots`.
    Ordered {
        /// Of the question.
        n: u64,
        /// Why not; `None`: it is recorded.
        refused: Option<String>,
    },
    /// The answer to `Order`.
    Said {
        /// Of the question.
        n: u64,
        /// Whether it is done, or only what it would lose is said; a sentence each. Or why nothing is.
        answer: Result<(bool, Vec<String>), String>,
    },
    /// The cluster's record has changed.
    Cluster(ClusterRecord),
    /// Configurations that are committed and are sent later. The process remembers their ids, names them when it
    /// registers next, and answers `Witnessed` (P10.16).
    Witness {
        /// Their batch.
        batch: u64,
        /// List, epoch and id of each.
        heads: Vec<(ListId, Epoch, u64)>,
    },
}

/// Everything a node needs to begin.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Registered {
    /// To be repeated in heartbeats.
    pub nonce: u64,
    /// The cluster.
    pub cluster: ClusterRecord,
    /// All nodes.
    pub nodes: Vec<NodeRecord>,
    /// All lists; none until every planned node has registered once.
    pub configurations: Vec<Configuration>,
    /// Lists of which the process knows a configuration by its id that has never left a coordinator: it forgets the id.
    pub void: Vec<ListId>,
}

/// Why the coordinator did not do as asked.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Refusal {
    /// The nonce is not this registration's: register again.
    RegisterAgain,
    /// The node expects another cluster.
    WrongCluster {
        /// The coordinator's.
        here: ClusterId,
    },
    /// This incarnation was certified ended, or a later one of the node has registered.
    IncarnationEnded,
    /// Another incarnation of the node may still run: it was heard a moment ago, or the coordinator has just begun.
    Running,
    /// The plan has the node in another failure domain.
    WrongDomain {
        /// The plan's.
        planned: String,
    },
    /// The node, or another one, has a configuration that is not in the history of the coordinator's store: that store
    /// is not the cluster's newest.
    StoreIsBehind {
        /// The list.
        list: ListId,
    },
    /// A field is too long, there are too many nodes, or the records are none that this version knows.
    Limit(String),
    /// The message is of a version that the coordinator does not speak.
    Version {
        /// What it speaks.
        here: u8,
    },
    /// The coordinator has lost its place to another.
    Deposed,
    /// A log node where the plan has none, or another node where it has one.
    WrongRole {
        /// Which, and what to do.
        why: String,
    },
    /// The coordinator's store was lost, and it asks all nodes for what they know (P10.18): say so, and
    /// register again later.
    Adopting,
}

impl Refusal {
    /// Whether a process that has not served yet need not try again.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::RegisterAgain | Self::Deposed | Self::Running | Self::Adopting
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RegisterAgain => f.write_str("the coordinator does not know this registration"),
            Self::WrongCluster { here } => write!(f, "the coordinator is of another cluster ({:016x})", here.0),
            Self::IncarnationEnded => f.write_str("this incarnation of the node has ended, or the node runs twice"),
            Self::Running => f.write_str(
                "another process with this node's id was heard a moment ago, or the coordinator has just started and \
                 cannot know yet: this process is taken in once the other one is silent. If both are to run, give this \
                 one an id of its own",
            ),
            Self::WrongRole { why } => f.write_str(why),
            Self::WrongDomain { planned } => write!(
                f,
                "the node is planned in failure domain `{planned}`: set domain = \"{planned}\" in its settings, or \
                 leave domain out; the coordinator's domains are fixed when the cluster is made"
            ),
            Self::StoreIsBehind { list } => {
                write!(
                    f,
                    "the coordinator's store is not the cluster's newest: a node has a configuration of list {} that \
                     is not in its history. The coordinator changes nothing. Stop it and put the newest store back",
                    list.0
                )
            }
            Self::Limit(why) => f.write_str(why),
            Self::Version { here } => write!(f, "the coordinator speaks version {here}"),
            Self::Adopting => f.write_str(
                "the coordinator's store was lost or old, and it waits until every node has told what it knows; its \
                 log and `paritas status --coordinator` say who is missing",
            ),
            Self::Deposed => f.write_str("another coordinator has taken over the store"),
        }
    }
}

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// Longer than the limit, or shorter than a frame can be.
    Length(usize),
    /// The CRC does not fit.
    Crc,
    /// Of another version.
    Version(u8),
    /// The contents are not a message.
    Contents,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(n) => write!(f, "a control message of {n} bytes"),
            Self::Crc => f.write_str("a control message with a wrong checksum"),
            Self::Version(v) => write!(f, "a control message of version {v}, this is {MESSAGE_VERSION}"),
            Self::Contents => f.write_str("a control message that cannot be read"),
        }
    }
}

impl core::error::Error for MessageError {}

/// How many of the bytes are the first frame; `None` while it is not whole.
///
/// # Errors
/// If it claims a length that no frame has: close the link.
pub fn split(bytes: &[u8], bytes_max: usize) -> Result<Option<usize>, MessageError> {
    let Some(length) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let total = (u32::from_le_bytes(*length) as usize).saturating_add(PREFIX_BYTES);
    if total <= PREFIX_BYTES || total > bytes_max {
        return Err(MessageError::Length(total));
    }
    Ok((bytes.len() >= total).then_some(total))
}

/// A message as a whole frame.
///
/// # Errors
/// If it is longer than `bytes_max`.
pub fn encode(message: &impl Serialize, bytes_max: usize) -> Result<Vec<u8>, MessageError> {
    let mut frame = vec![0; PREFIX_BYTES];
    frame.push(MESSAGE_VERSION);
    let mut frame = postcard::to_extend(message, frame).map_err(|_| MessageError::Contents)?;
    if frame.len() > bytes_max {
        return Err(MessageError::Length(frame.len()));
    }
    let length = (frame.len() - PREFIX_BYTES) as u32;
    let crc = crc32c::crc32c(&frame[PREFIX_BYTES..]);
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame[4..PREFIX_BYTES].copy_from_slice(&crc.to_le_bytes());
    Ok(frame)
}

/// Reads one whole frame, as [`split`] found it.
///
/// # Errors
/// If it is not exactly one good message of this version.
pub fn decode<T: DeserializeOwned>(frame: &[u8], bytes_max: usize) -> Result<T, MessageError> {
    if split(frame, bytes_max)? != Some(frame.len()) {
        return Err(MessageError::Length(frame.len()));
    }
    let (prefix, body) = frame.split_at(PREFIX_BYTES);
    if prefix[4..] != crc32c::crc32c(body).to_le_bytes() {
        return Err(MessageError::Crc);
    }
    // `split` has seen that there is at least the version.
    if body[0] != MESSAGE_VERSION {
        return Err(MessageError::Version(body[0]));
    }
    match postcard::take_from_bytes(&body[1..]) {
        Ok((message, [])) => Ok(message),
        _ => Err(MessageError::Contents),
    }
}

#[cfg(test)]
mod tests;
