//! The messages between the coordinator, the agents of nodes, supervisors and command lines
//! (`docs/formats/control.md`). They are rare, so they are encoded by postcard, after a length, a CRC32C and a version.

use crate::plan::LostPolicy;
use crate::status::{ShardProgress, Status};
use core::fmt;
use paritas_base::configuration::{ClusterRecord, Configuration, Duty, NodeRecord, NodeRole, Tenure};
use paritas_base::hash_slots::SlotOrder;
use paritas_base::one_slot;
use paritas_base::sections::{self, BadSections};
use paritas_base::{ClusterId, Epoch, Incarnation, ListId, NodeId, Position, Sections};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version since which these messages are as they are. It rises only when one of them changes: builds that speak a
/// version in common must understand each other.
pub const MESSAGE_VERSION: u8 = 8;
/// Longest frame to a coordinator, in bytes.
pub const TO_COORDINATOR_BYTES_MAX: usize = 256 << 10;
/// Longest frame to an agent, in bytes: it holds all configurations of the largest cluster.
pub const TO_AGENT_BYTES_MAX: usize = 4 << 20;
/// Bytes of the length and the CRC.
const PREFIX_BYTES: usize = 8;

/// A node's description of itself.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Registration {
    /// The cluster that it belongs to, if it knows.
    pub cluster: Option<ClusterId>,
    /// The node.
    pub node: NodeId,
    /// This incarnation.
    pub incarnation: Incarnation,
    /// Its failure domain. `None`: the planned one, or its own id if it is not planned.
    pub domain: Option<String>,
    /// The role with which it was started. The coordinator decides which positions it gets.
    pub role: NodeRole,
    /// Its process id, for the operator.
    pub pid: u32,
    /// Whether a supervisor certifies its end.
    pub supervised: bool,
    /// The client address for any key, `host:port`.
    pub client_address: String,
    /// The client address for cluster-aware clients, `host:port`.
    pub cluster_address: String,
    /// The address for peers, `host:port`.
    pub peer_address: String,
    /// Number of coordinator addresses that it knows.
    pub coordinators: u8,
    /// The newest configurations that it has installed. By these a coordinator detects that its store is an old copy.
    pub installed: Vec<(ListId, Epoch, u64)>,
    /// Newer configurations of which it knows only epoch and id (`ToAgent::Witness`).
    pub heard: Vec<(ListId, Epoch, u64)>,
    /// The latest incarnation of each node that it knows, and its ordinal. A coordinator whose store is an old copy
    /// continues with these ordinals.
    pub incarnations: Vec<(NodeId, Incarnation, u32)>,
    /// What a later version has added.
    pub more: Sections,
}

/// Peers that a process does not hear. It hears all other peers with which it exchanges frames.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Opinions {
    /// Peers from which no frame has arrived for the suspicion time. At most [`OPINIONS_MAX`] count.
    pub unheard: Vec<(NodeId, Incarnation)>,
    /// Peers on which the process has no opinion. At most [`OPINIONS_MAX`] count.
    pub unsure: Vec<(NodeId, Incarnation)>,
}

/// Limit of peers in an opinion: the limit of nodes in a cluster.
pub const OPINIONS_MAX: usize = 1024;

/// An order of an operator that can lose data. It is accepted only on the coordinator's own machine.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Order {
    /// Lost lists begin again empty (P10.6).
    ResetLists {
        /// The lists. Empty: all lost lists.
        lists: Vec<ListId>,
    },
    /// The present processes of these nodes have ended: their machines are off.
    Fence {
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// Changes settings. Without any, the answer lists the present ones.
    Set(Settings),
}

/// Settings that may change while the cluster runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// Silence after which a node is suspected, in ms.
    pub suspicion_ms: Option<u32>,
    /// What happens to a list that lost too many positions.
    pub lost_policy: Option<LostPolicy>,
}

/// Messages of agents, supervisors and command lines to the coordinator.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum ToCoordinator {
    /// A node registers. The registration counts once a heartbeat repeats the nonce of the answer (P10.4).
    Register(Box<Registration>),
    /// This incarnation still runs.
    Heartbeat {
        /// The nonce of the newest `Registered`.
        nonce: u64,
        /// The progress of every shard of the process.
        shards: Vec<ShardProgress>,
        /// Peers whose acks have been missing for too long (P10.2).
        silent: Vec<(NodeId, Incarnation)>,
        /// Which peers the process hears (P10.9). `None`: its shard has not reported yet.
        opinions: Option<Opinions>,
    },
    /// A holder asks that its position becomes Live, since it has all data.
    AskLive {
        /// The list.
        list: ListId,
        /// The position.
        position: Position,
        /// The tenure of the holder.
        tenure: Tenure,
    },
    /// Requests the newest configuration of a list.
    GetConfiguration {
        /// The list.
        list: ListId,
        /// Epoch and id of the installed configuration. The trail of the answer reaches back to it.
        installed: Option<(Epoch, u64)>,
    },
    /// Requests a status report.
    Status {
        /// The number of the request, which the report repeats.
        n: u64,
    },
    /// The sender is the supervisor of that process and will certify its end. Sent before the process starts.
    Supervise {
        /// The node.
        node: NodeId,
        /// The incarnation that the supervisor chose for it.
        incarnation: Incarnation,
    },
    /// A certificate: that process has ended. Its supervisor has waited for it; or its node's next process holds the
    /// lock that it held; or the process itself has stopped its shard, and does nothing more.
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
        /// The tenure of its owner.
        tenure: Tenure,
    },
    /// An operator sets the duty of a node.
    SetDuty {
        /// The number of the request, which the answer repeats.
        n: u64,
        /// The node.
        node: NodeId,
        /// The duty.
        duty: Duty,
    },
    /// An operator starts or stops a move of slots (P10.8).
    MoveSlots {
        /// The number of the request, which the answer repeats.
        n: u64,
        /// The order.
        order: SlotOrder,
    },
    /// The source of a hand-off has moved the slots up to `last`, or gives the hand-off up (P10.8).
    HandOff {
        /// The version of the hand-off.
        version: u64,
        /// The last slot that has arrived. `None`: the hand-off is given up.
        last: Option<u16>,
        /// The source's tenure.
        from: Tenure,
        /// The destination's tenure.
        to: Tenure,
    },
    /// An operator's order.
    Order {
        /// The number of the request, which the answer repeats.
        n: u64,
        /// The order.
        order: Order,
        /// Whether the order is to be done. If not, the answer only says which data would be lost.
        confirmed: bool,
    },
    /// What the process knows of the cluster, as `Refusal::Adopting` requests. It may take several frames.
    Testimony(Box<Testimony>),
    /// The process knows the ids of a batch of configurations, and of all earlier batches (P10.16).
    Witnessed {
        /// The batch of `ToAgent::Witness`.
        batch: u64,
    },
    /// The process is to end, and asks whether it may (P10.20). Repeated until it may.
    Leave {
        /// The nonce of the newest `Registered`.
        nonce: u64,
    },
    /// The answer to `Ping`: the process has run after that was sent.
    Pong {
        /// The nonce of the newest `Registered`.
        nonce: u64,
        /// The time of the `Ping`.
        at_ns: u64,
    },
}

/// What a process knows of its cluster.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Testimony {
    /// The cluster's record. `None` if the process is new.
    pub cluster: Option<ClusterRecord>,
    /// The latest incarnation of each node that it knows, and its ordinal.
    pub incarnations: Vec<(NodeId, Incarnation, u32)>,
    /// The newest configurations that it has installed.
    pub configurations: Vec<Configuration>,
    /// This is the last frame.
    pub is_last: bool,
}

/// Messages of the coordinator to agents, supervisors and command lines.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum ToAgent {
    /// The answer to a registration, with all records.
    Registered(Box<Registered>),
    /// The message had no effect.
    Refused(Refusal),
    /// A heartbeat was accepted.
    Heard,
    /// Configurations that changed or were requested.
    Configurations(Vec<Configuration>),
    /// Node records that changed.
    Nodes(Vec<NodeRecord>),
    /// The answer to `Status`.
    StatusReport {
        /// The number of the request.
        n: u64,
        /// The report.
        status: Box<Status>,
    },
    /// A certificate is committed; it need not be repeated.
    ExitNoted {
        /// The node.
        node: NodeId,
        /// The incarnation that ended.
        incarnation: Incarnation,
    },
    /// This position is to move to another node: its owner finishes the writes that it has begun, and then sends
    /// `Drained` (P5.12). Repeated until the position has moved.
    Drain {
        /// The list.
        list: ListId,
        /// The position.
        position: Position,
        /// The tenure of its owner.
        tenure: Tenure,
    },
    /// The answer to `SetDuty`, or to `MoveSlots`.
    Ordered {
        /// The number of the request.
        n: u64,
        /// Why the order is refused. `None`: it is recorded.
        refused: Option<String>,
    },
    /// The answer to `Order`.
    Said {
        /// The number of the request.
        n: u64,
        /// Whether the order is done, with one sentence for each remark, such as the data that is or would be lost. Or
        /// why it is refused.
        answer: Result<(bool, Vec<String>), String>,
    },
    /// The cluster's record has changed.
    Cluster(ClusterRecord),
    /// Configurations that are committed and will be sent later. The process records their ids, reports them in its
    /// next registration, and answers `Witnessed` (P10.16).
    Witness {
        /// The number of the batch.
        batch: u64,
        /// List, epoch and id of each.
        heads: Vec<(ListId, Epoch, u64)>,
    },
    /// The answer to `Leave`.
    MayLeave {
        /// What the process has to wait for. `None`: it may end, and ends.
        refused: Option<String>,
    },
    /// The process is to say that it runs now. A heartbeat does not prove that: the network may have held it up, and
    /// its sender may have died since.
    Ping {
        /// The coordinator's time, which the answer repeats.
        at_ns: u64,
    },
}

/// The answer to a registration: all records that a node needs.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Registered {
    /// The nonce that heartbeats must repeat.
    pub nonce: u64,
    /// The cluster.
    pub cluster: ClusterRecord,
    /// All nodes.
    pub nodes: Vec<NodeRecord>,
    /// All lists. Empty until every planned node has registered once.
    pub configurations: Vec<Configuration>,
    /// Lists for which the process knows only the id of a configuration that no coordinator has sent: it drops the id.
    pub void: Vec<ListId>,
}

/// Why the coordinator refuses a request.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Refusal {
    /// The nonce is not that of the present registration: register again.
    RegisterAgain,
    /// The node belongs to another cluster.
    WrongCluster {
        /// The coordinator's cluster.
        here: ClusterId,
    },
    /// This incarnation was certified ended, or a later one of the node has registered.
    IncarnationEnded,
    /// Another incarnation of the node may still run: it was heard a short time ago, it holds positions, or the
    /// coordinator has just started.
    Running,
    /// The plan has the node in another failure domain.
    WrongDomain {
        /// The planned domain.
        planned: String,
    },
    /// The node, or another one, has a configuration that is not in the history of the coordinator's store: that store
    /// is an old copy.
    StoreIsBehind {
        /// The list.
        list: ListId,
    },
    /// A field is too long, there are too many nodes, or this version cannot read the records.
    Limit(String),
    /// The coordinator does not support the version of the message.
    Version {
        /// The version that it supports.
        here: u8,
    },
    /// Another coordinator has opened the store.
    Deposed,
    /// The role of the node is not the planned one.
    WrongRole {
        /// What is wrong, and what to do.
        why: String,
    },
    /// The coordinator's store was lost or is an old copy (P10.18): send a testimony, and register again later.
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
                "another process with this node's id may run: it was heard a moment ago, or it holds positions and its \
                 lists cannot do without it yet. This process waits until the other one's end is certified, or until \
                 the lists can do without it. If the other one has ended, `paritas fence` with the node's number shows \
                 what would be lost. If both should run, give this one its own id",
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
            Self::Version { here } => write!(f, "the coordinator supports version {here} of the messages"),
            Self::Adopting => f.write_str(
                "the coordinator's store was lost or old, and it waits for the reports of all nodes; its log and \
                 `paritas status --coordinator` name the nodes that are missing",
            ),
            Self::Deposed => f.write_str("another coordinator has taken over the store"),
        }
    }
}

/// Why bytes are no valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// The length is more than the limit, or too short for a frame. In bytes.
    Length(usize),
    /// The CRC is wrong.
    Crc,
    /// The version is another one.
    Version(u8),
    /// The contents cannot be decoded.
    Contents,
    /// A later version has added what must not be left out.
    Section(BadSections),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(n) => write!(f, "a control message of {n} bytes"),
            Self::Crc => f.write_str("a control message with a wrong checksum"),
            Self::Version(v) => write!(
                f,
                "a control message of version {v}; this version supports {MESSAGE_VERSION}"
            ),
            Self::Contents => f.write_str("a control message that cannot be decoded"),
            Self::Section(bad) => write!(f, "a control message: {bad}"),
        }
    }
}

impl core::error::Error for MessageError {}

/// The length of the first frame, in bytes. `None` while the frame is incomplete.
///
/// # Errors
/// If the length is invalid: close the link.
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

/// Encodes a message as a frame.
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

/// Decodes one complete frame, as found by [`split`].
///
/// # Errors
/// If it is not one valid message of this version, and perhaps sections after it that may be left out.
pub fn decode<T: ControlMessage>(frame: &[u8], bytes_max: usize) -> Result<T, MessageError> {
    if split(frame, bytes_max)? != Some(frame.len()) {
        return Err(MessageError::Length(frame.len()));
    }
    let (prefix, body) = frame.split_at(PREFIX_BYTES);
    if prefix[4..] != crc32c::crc32c(body).to_le_bytes() {
        return Err(MessageError::Crc);
    }
    // `split` has checked that the frame has at least the version.
    if body[0] != MESSAGE_VERSION {
        return Err(MessageError::Version(body[0]));
    }
    let (message, rest): (T, _) = postcard::take_from_bytes(&body[1..]).map_err(|_| MessageError::Contents)?;
    sections::check(rest, &[]).map_err(MessageError::Section)?;
    message.check_sections().map_err(MessageError::Section)?;
    Ok(message)
}

/// A message of either way.
pub trait ControlMessage: DeserializeOwned {
    /// Whether this version may use all records in it.
    ///
    /// # Errors
    /// The first section that it does not know and must not leave out.
    fn check_sections(&self) -> Result<(), BadSections>;
}

impl ControlMessage for ToCoordinator {
    fn check_sections(&self) -> Result<(), BadSections> {
        match self {
            Self::Register(registration) => registration.more.check(&[]),
            Self::Testimony(testimony) => {
                let mut cluster = testimony.cluster.iter().map(|cluster| &cluster.more);
                cluster.try_for_each(|more| more.check(&[one_slot::SECTION]))?;
                let mut lists = testimony.configurations.iter().map(|list| &list.more);
                lists.try_for_each(|more| more.check(&[]))
            }
            _ => Ok(()),
        }
    }
}

impl ControlMessage for ToAgent {
    /// Not those of the cluster's record: a process that is told of such a cluster says why it ends.
    fn check_sections(&self) -> Result<(), BadSections> {
        let (nodes, lists): (&[NodeRecord], &[Configuration]) = match self {
            Self::Registered(registered) => (&registered.nodes, &registered.configurations),
            Self::Configurations(lists) => (&[], lists),
            Self::Nodes(nodes) => (nodes, &[]),
            _ => return Ok(()),
        };
        let nodes = nodes.iter().map(|node| &node.more);
        let lists = lists.iter().map(|list| &list.more);
        nodes.chain(lists).try_for_each(|more| more.check(&[]))
    }
}

#[cfg(test)]
mod tests;
