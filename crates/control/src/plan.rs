//! The plan of a cluster: scheme, nodes, failure domains, times. It is fixed when the cluster is made. The cluster
//! record and the lists are computed from it.

use crate::agent::HEARTBEAT;
use crate::layout::{self, Layout, Shape};
use core::fmt;
use core::str::FromStr;
use paritas_base::configuration::ClusterRecord;
use paritas_base::formats::{self, Versions};
use paritas_base::one_slot::{self, OneSlot};
use paritas_base::{ClusterId, ListId, NodeId, Position, SLOT_COUNT, Sections, Span, StreamId};
use serde::{Deserialize, Serialize};

/// Limit of nodes of a cluster, spares included.
pub const NODES_MAX: usize = 1024;
/// Limit of positions over all lists, so that one message can hold every configuration.
pub const POSITIONS_MAX: usize = 100_000;
/// Longest name of a failure domain, in bytes.
pub const DOMAIN_BYTES_MAX: usize = 64;
/// Smallest chunk, in bytes: index pages and objects need some space.
const CHUNK_BYTES_MIN: u32 = 4 << 10;
/// Largest chunk, in bytes: the position of an extent in it has 16 bits.
const CHUNK_BYTES_MAX: u32 = 64 << 10;
/// Streams that a node should own at least, so that many nodes take over the work of a lost one
/// (docs/formats/control.md).
const STREAMS_PER_NODE_MIN: usize = 4;
/// The same, if lists have so many data positions that not every node needs to be the first of a list.
const STREAMS_PER_WIDE_NODE_MIN: usize = 8;
/// Largest planned size of a stream, in bytes (docs/formats/control.md).
const STREAM_BYTES_MAX: u64 = 2 << 30;
/// How many times as many lists there may be for the sake of an even load of log nodes.
const LOG_FACTOR_MAX: usize = 4;

/// Smallest suspicion time. A single late heartbeat would exceed a shorter one.
const SUSPICION_MIN: Span = Span(2 * HEARTBEAT.0);

/// Largest suspicion time. A longer one would delay the replacement of a dead node too much.
const SUSPICION_MAX: Span = Span::from_secs(600);
/// A lease is renewed at least this number of times during its length.
pub const LEASE_PARTS: u64 = 16;

/// A node of the plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedNode {
    /// The node.
    pub id: NodeId,
    /// Its failure domain.
    pub domain: String,
}

/// What happens to a list that lost more positions by crashes than its scheme covers (P10.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum LostPolicy {
    /// The remaining data can be read. Writes are refused until an operator decides.
    #[default]
    Stop,
    /// The list begins again empty, which is acceptable for a cache.
    Reset,
}

impl fmt::Display for LostPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "stop",
            Self::Reset => "reset",
        })
    }
}

impl FromStr for LostPolicy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "stop" => Ok(Self::Stop),
            "reset" => Ok(Self::Reset),
            _ => Err(format!("`{text}` is no policy for lost lists: use stop or reset")),
        }
    }
}

/// The plan of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterPlan {
    /// The cluster's id, random.
    pub cluster: ClusterId,
    /// Data positions of a list.
    pub data: u8,
    /// Parity positions of a list.
    pub parity: u8,
    /// How many parity positions must hold a write before it is acknowledged.
    pub ack_quorum: u8,
    /// The nodes that the lists are made of.
    pub nodes: Vec<PlannedNode>,
    /// Nodes that wait to replace others. A node that registers without being planned is one too.
    pub spares: Vec<PlannedNode>,
    /// Bytes in a chunk.
    pub chunk_bytes: u32,
    /// Lease length in ms.
    pub lease_ms: u32,
    /// Silence after which a node is suspected, in ms.
    pub suspicion_ms: u32,
    /// How long the next incarnation of a node that has ended is awaited, in ms (P10.5).
    pub restart_wait_ms: u32,
    /// Fewest Live parity members with which writes are accepted.
    pub min_redundancy: u8,
    /// What happens to a list that lost too many positions.
    pub lost_policy: LostPolicy,
    /// The key of the keyed hash, random.
    pub hash_key: [u64; 2],
    /// Memory of one node, for the number of lists; 0 if unknown.
    pub node_bytes: u64,
    /// How many parity positions of a list, the last ones, lie on log nodes.
    pub logged: u8,
    /// The log nodes that hold them.
    pub log_nodes: Vec<PlannedNode>,
    /// What a later version has added.
    pub more: Sections,
}

/// Why a plan is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanError(pub String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for PlanError {}

impl ClusterPlan {
    /// A node that is not heard for this time is silent.
    pub(crate) fn suspicion(&self) -> Span {
        Span::from_ms(self.suspicion_ms.into())
    }

    /// For how long the positions of a node that ended wait for its next incarnation.
    pub(crate) fn restart_wait(&self) -> Span {
        Span::from_ms(self.restart_wait_ms.into())
    }

    /// The time after which all leases of a removed incarnation have ended, with a margin.
    pub(crate) fn leases_end_after(&self) -> Span {
        Span::from_ms(u64::from(self.lease_ms) * 5 / 2)
    }

    /// A plan with the default times, every node its own failure domain: nodes `0..nodes`, then the spares.
    pub fn simple(cluster: ClusterId, data: u8, parity: u8, nodes: u16, spares: u16) -> Self {
        Self {
            cluster,
            data,
            parity,
            ack_quorum: parity,
            nodes: (0..nodes).map(planned).collect(),
            spares: (nodes..nodes.saturating_add(spares)).map(planned).collect(),
            chunk_bytes: 16 << 10,
            lease_ms: 2_000,
            suspicion_ms: 1_000,
            restart_wait_ms: 500,
            min_redundancy: parity.min(1),
            lost_policy: LostPolicy::Stop,
            hash_key: [0, 0],
            node_bytes: 0,
            logged: 0,
            log_nodes: Vec::new(),
            more: Sections::none(),
        }
    }

    /// Keys that lie in one slot together. None, if what the plan says of it is damaged: [`Self::check`] refuses that.
    pub fn one_slot(&self) -> OneSlot {
        OneSlot::of(&self.more).unwrap_or_default()
    }

    /// The same with such keys.
    #[must_use]
    pub fn with_one_slot(mut self, one_slot: &OneSlot) -> Self {
        one_slot.put(&mut self.more);
        self
    }

    /// Positions of a list.
    pub fn width(&self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }

    /// The same with logged parity: `count` log nodes, each its own failure domain, numbered after the nodes, and the
    /// spares after them.
    #[must_use]
    pub fn with_log_nodes(mut self, logged: u8, count: u16) -> Self {
        let first = self.nodes.len() as u16;
        self.logged = logged;
        self.log_nodes = (first..first.saturating_add(count)).map(planned).collect();
        let first = first.saturating_add(count);
        self.spares = (0..self.spares.len() as u16)
            .map(|i| planned(first.saturating_add(i)))
            .collect();
        self
    }

    /// The same in these failure domains, one for each node by its number: members, log nodes, spares.
    ///
    /// # Errors
    /// If the number of names is wrong, or a name is invalid.
    pub fn with_domains(mut self, domains: &[String]) -> Result<Self, PlanError> {
        let count = self.all().count();
        if domains.len() != count {
            return Err(PlanError(format!(
                "domains names {}, and {count} nodes are planned (log nodes and spares counted): name one for each, in \
                 the order of their numbers",
                domains.len()
            )));
        }
        if let Some(i) = domains.iter().position(|domain| !domain_is_valid(domain)) {
            return Err(PlanError(format!(
                "domains: that of node {i} has {} bytes; a failure domain has 1 to {DOMAIN_BYTES_MAX}",
                domains[i].len()
            )));
        }
        let all = self.nodes.iter_mut().chain(&mut self.log_nodes).chain(&mut self.spares);
        for (node, domain) in all.zip(domains) {
            node.domain.clone_from(domain);
        }
        Ok(self)
    }

    /// Positions of a list that are held in memory.
    pub fn width_in_memory(&self) -> usize {
        self.width() - usize::from(self.logged).min(self.width())
    }

    /// All nodes that the plan names.
    pub fn all(&self) -> impl Iterator<Item = &PlannedNode> {
        self.nodes.iter().chain(&self.log_nodes).chain(&self.spares)
    }

    /// The scheme in the notation of the settings.
    pub fn scheme(&self) -> String {
        match self.logged {
            0 => format!("{}+{}", self.data, self.parity),
            logged => format!("{}+{}/{logged}", self.data, self.parity),
        }
    }

    /// Checks all settings of the plan.
    ///
    /// # Errors
    /// Says what is wrong, in the words of the settings.
    pub fn check(&self) -> Result<(), PlanError> {
        let fail = |why: String| Err(PlanError(why));
        let scheme = self.scheme();
        if !scheme_is_valid(self.data, self.width()) {
            return fail(format!("scheme {scheme}: 1 to 128 data positions, at most 255 in all"));
        }
        if self.logged > 0 && self.logged >= self.parity {
            return fail(format!(
                "scheme {scheme}: the first parity is not logged, so fewer are than there are"
            ));
        }
        if self.nodes.len() < self.width_in_memory() {
            let beside = if self.logged > 0 { " beside its log nodes" } else { "" };
            return fail(format!(
                "scheme {scheme} needs {} nodes{beside}, there are {}",
                self.width_in_memory(),
                self.nodes.len()
            ));
        }
        let logs = self.log_nodes.len();
        if self.logged == 0 && logs > 0 {
            return fail(format!(
                "{logs} log nodes: scheme {scheme} logs no parity, {scheme}/1 would log one"
            ));
        }
        if logs < usize::from(self.logged) {
            return fail(format!(
                "scheme {scheme} needs {} log nodes, there are {logs}",
                self.logged
            ));
        }
        if self.all().count() > NODES_MAX {
            return fail(format!("a cluster has at most {NODES_MAX} nodes"));
        }
        let mut ids: Vec<NodeId> = self.all().map(|n| n.id).collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|w| w[0] == w[1]) {
            return fail(format!("node {} is planned twice", twice[0].0));
        }
        if let Some(node) = self.all().find(|n| !domain_is_valid(&n.domain)) {
            return fail(format!(
                "node {}: a failure domain has 1 to {DOMAIN_BYTES_MAX} bytes",
                node.id.0
            ));
        }
        if self.min_redundancy > self.parity {
            return fail(format!(
                "min_redundancy {} is more than scheme {scheme} has parity",
                self.min_redundancy
            ));
        }
        OneSlot::of(&self.more).map_err(PlanError)?;
        if !quorum_is_valid(self.ack_quorum, self.parity) {
            let least = self.parity.min(1);
            return fail(format!(
                "ack_quorum {}: of scheme {scheme}, {least} to {} parities can be waited for",
                self.ack_quorum, self.parity
            ));
        }
        if !chunk_bytes_are_valid(self.chunk_bytes) {
            return fail(format!(
                "chunk size {}: a power of two from {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX}",
                self.chunk_bytes
            ));
        }
        if self.lease_ms == 0 || self.suspicion_ms == 0 {
            return fail("lease and suspicion are more than 0 ms".into());
        }
        let lists = self.list_count();
        if lists * self.width() > POSITIONS_MAX || lists > usize::from(u16::MAX) {
            return fail(format!("{lists} lists of {} positions are too many", self.width()));
        }
        if lists * usize::from(self.data) > usize::from(SLOT_COUNT) {
            return fail(format!("{lists} lists have more streams than there are slots"));
        }
        Ok(())
    }

    /// Checks times that an operator may change while the cluster runs.
    ///
    /// # Errors
    /// Says what is wrong, in the words of the settings.
    pub fn check_times(&self) -> Result<(), PlanError> {
        self.check_new()?;
        let suspicion = u64::from(self.suspicion_ms);
        // Peers hear each other at least at every renewal of a lease.
        let renewal = u64::from(self.lease_ms) / LEASE_PARTS;
        if suspicion < 2 * renewal {
            return Err(PlanError(format!(
                "suspicion_ms {suspicion}: with lease_ms {}, peers hear each other every {renewal} ms, and one message \
                 that is late must not be enough; at least {}",
                self.lease_ms,
                2 * renewal
            )));
        }
        if suspicion > SUSPICION_MAX.as_ms() {
            return Err(PlanError(format!(
                "suspicion_ms {suspicion}: a dead node would not be replaced for so long; at most {}",
                SUSPICION_MAX.as_ms()
            )));
        }
        Ok(())
    }

    /// Checks the plan of a new cluster. An existing one keeps its suspicion time, even if it is shorter.
    ///
    /// # Errors
    /// Says what is wrong, in the words of the settings.
    pub fn check_new(&self) -> Result<(), PlanError> {
        self.check()?;
        if u64::from(self.suspicion_ms) < SUSPICION_MIN.as_ms() {
            return Err(PlanError(format!(
                "suspicion_ms {}: nodes are heard every {} ms, and one message that is late must not be enough; at \
                 least {}",
                self.suspicion_ms,
                HEARTBEAT.as_ms(),
                SUSPICION_MIN.as_ms()
            )));
        }
        Ok(())
    }

    /// The number of lists. It is a multiple of the number of nodes, so that each node holds each position equally
    /// often. With log nodes it is the multiple, of the first few, that also loads the log nodes most evenly.
    ///
    /// The factor is the smallest that gives every node four streams of at most 2 GiB each. Without parity, or with one
    /// node, no position is ever taken over, so one stream for each node is enough.
    ///
    /// Nodes of wide schemes would own more streams than they need, and each turn of a node visits all its streams. So
    /// only one list in `stride` is made, evenly spaced, such that data and parity stay even. Then a node holds some
    /// positions and not all. There are never more streams than slots.
    pub fn list_count(&self) -> usize {
        let data = usize::from(self.data).max(1);
        let spread = if self.parity == 0 || self.nodes.len() == 1 {
            1
        } else {
            STREAMS_PER_NODE_MIN.div_ceil(data)
        };
        let data_bytes = self.node_bytes / self.width_in_memory() as u64 * u64::from(self.data);
        let sized = data_bytes.div_ceil(STREAM_BYTES_MAX * u64::from(self.data)) as usize;
        let least = self.nodes.len() / self.stride() * spread.max(sized);
        // By how many parts in a thousand the fullest log node exceeds the emptiest.
        let unevenness = |count: usize| {
            let (held, logs) = (count * usize::from(self.logged), self.log_nodes.len().max(1));
            let low = held / logs;
            (held.div_ceil(logs) - low) * 1000 / low.max(1)
        };
        // Every stream needs a slot: the widest schemes have fewer lists than nodes, spread over them.
        let slots = usize::from(SLOT_COUNT);
        let most = if sized > 1 { least } else { least.min(slots / data) };
        let counts = (1..=LOG_FACTOR_MAX).map(|factor| factor * least);
        let counts = counts.filter(|count| count * data <= slots);
        counts.min_by_key(|count| unevenness(*count)).unwrap_or(most)
    }

    /// The distance on the ring of members between the first positions of two successive lists.
    fn stride(&self) -> usize {
        let (nodes, in_memory) = (self.nodes.len(), usize::from(self.parity.saturating_sub(self.logged)));
        let is_even = |stride: &usize| nodes.is_multiple_of(*stride) && in_memory.is_multiple_of(*stride);
        let is_spread = |stride: &usize| usize::from(self.data) >= STREAMS_PER_WIDE_NODE_MIN * stride;
        let stream_bytes = self.node_bytes / self.width_in_memory().max(1) as u64;
        let is_small = |stride: &usize| stream_bytes.saturating_mul(*stride as u64) <= STREAM_BYTES_MAX;
        let strides = (2..=in_memory).filter(|s| is_even(s) && is_spread(s) && is_small(s));
        strides.max().unwrap_or(1)
    }

    /// The lists.
    pub fn layout(&self) -> Layout {
        let shape = Shape {
            width: self.width(),
            parity: self.parity.into(),
            logged: self.logged.into(),
        };
        layout::rotate(&self.nodes, &self.log_nodes, shape, self.list_count())
    }

    /// The cluster record that follows from the plan.
    pub fn record(&self) -> ClusterRecord {
        let mut more = Sections::none();
        self.one_slot().put(&mut more);
        ClusterRecord {
            id: self.cluster,
            active_version: formats::HIGHEST,
            data: self.data,
            parity: self.parity,
            ack_quorum: self.ack_quorum,
            chunk_bytes: self.chunk_bytes,
            hash_key: self.hash_key,
            lease_ms: self.lease_ms,
            suspicion_ms: self.suspicion_ms,
            min_redundancy: self.min_redundancy,
            slots: self.slots(&self.layout()),
            logged: self.logged,
            more,
        }
    }

    /// Slots split evenly over the streams, those of one owner side by side.
    fn slots(&self, layout: &Layout) -> Vec<(u16, StreamId)> {
        let mut streams: Vec<(NodeId, StreamId)> = Vec::new();
        for (i, nodes) in layout.lists.iter().enumerate() {
            for x in 0..self.data {
                let stream = StreamId {
                    list: ListId(i as u16),
                    x: Position(x),
                };
                streams.push((nodes[usize::from(x)], stream));
            }
        }
        streams.sort_unstable();
        let count = streams.len();
        let last = |i: usize| ((i + 1) * usize::from(SLOT_COUNT) / count - 1) as u16;
        streams
            .into_iter()
            .enumerate()
            .map(|(i, (_, stream))| (last(i), stream))
            .collect()
    }
}

fn planned(id: u16) -> PlannedNode {
    PlannedNode {
        id: NodeId(id),
        domain: id.to_string(),
    }
}

/// Checks all values of a cluster record that another process has written.
///
/// # Errors
/// Says what is wrong. Of a record of a version that this process may not speak it only says that.
pub fn check_record(record: &ClusterRecord, versions: Versions) -> Result<(), PlanError> {
    let fail = |why: String| Err(PlanError(why));
    if !versions.has(record.active_version) {
        return fail(format!(
            "the cluster's active version is {}, and this paritas speaks {versions}: use another paritas",
            record.active_version
        ));
    }
    if let Err(bad) = record.more.check(&[one_slot::SECTION]) {
        return fail(format!("the cluster's record: {bad}"));
    }
    if let Err(bad) = OneSlot::of(&record.more) {
        return fail(format!("the cluster's record: {bad}"));
    }
    let width = usize::from(record.data) + usize::from(record.parity);
    let times = record.lease_ms > 0 && record.suspicion_ms > 0;
    let slots = record.slots_are_whole() && record.slots.iter().all(|(_, stream)| stream.x.0 < record.data);
    let logged = record.logged == 0 || record.logged < record.parity;
    if !scheme_is_valid(record.data, width)
        || !logged
        || !chunk_bytes_are_valid(record.chunk_bytes)
        || record.min_redundancy > record.parity
        || !quorum_is_valid(record.ack_quorum, record.parity)
        || !times
        || !slots
    {
        return fail("the cluster record has invalid values: the coordinator's store is damaged".into());
    }
    Ok(())
}

fn scheme_is_valid(data: u8, width: usize) -> bool {
    (1..=128).contains(&data) && width <= 255
}

/// At least one parity must acknowledge a write, where there is any.
fn quorum_is_valid(ack_quorum: u8, parity: u8) -> bool {
    (parity.min(1)..=parity).contains(&ack_quorum)
}

fn chunk_bytes_are_valid(chunk_bytes: u32) -> bool {
    chunk_bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes)
}

/// Whether a failure domain's name is valid.
pub(crate) fn domain_is_valid(domain: &str) -> bool {
    !domain.is_empty() && domain.len() <= DOMAIN_BYTES_MAX
}

#[cfg(test)]
mod tests;
