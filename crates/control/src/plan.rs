//! What somebody who makes a cluster decides: scheme, nodes, domains, times. It is fixed from then on, and what
//! follows from it, the cluster record and the lists, is computed.

use crate::agent::HEARTBEAT;
use crate::layout::{self, Layout, Shape};
use core::fmt;
use core::str::FromStr;
use paritas_base::configuration::ClusterRecord;
use paritas_base::{ClusterId, ListId, NodeId, Position, SLOT_COUNT, Span, StreamId};
use serde::{Deserialize, Serialize};

/// The format of records and chunks that this version makes.
pub const CLUSTER_FORMAT: u16 = 1;
/// Most nodes of a cluster, spares too.
pub const NODES_MAX: usize = 1024;
/// Most positions over all lists: what a message with every configuration may hold.
pub const POSITIONS_MAX: usize = 100_000;
/// Longest name of a failure domain, in bytes.
pub const DOMAIN_BYTES_MAX: usize = 64;
/// Smallest chunk: index pages and objects need some room.
const CHUNK_BYTES_MIN: u32 = 4 << 10;
/// Largest chunk: an extent's place in it has 16 bits.
const CHUNK_BYTES_MAX: u32 = 64 << 10;
/// Streams a node should own at least, so that a lost node's work is spread (docs/formats/control.md).
const STREAMS_PER_NODE_MIN: usize = 4;
/// The same where a list has so many that not every node needs to begin one.
const STREAMS_PER_WIDE_NODE_MIN: usize = 8;
/// Bytes that a stream is planned for at most (docs/formats/control.md).
const STREAM_BYTES_MAX: u64 = 2 << 30;
/// How many times as many lists there may be for the sake of an even load of log nodes.
const LOG_FACTOR_MAX: usize = 4;

/// Silence that is less says nothing: one heartbeat that is late is enough for it.
const SUSPICION_MIN: Span = Span(2 * HEARTBEAT.0);

/// Silence that is more is no fault that anybody waits for.
const SUSPICION_MAX: Span = Span::from_secs(600);
/// Leases are asked for so often while one lasts, at least.
pub const LEASE_PARTS: u64 = 16;

/// A node of the plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedNode {
    /// Which.
    pub id: NodeId,
    /// Its failure domain.
    pub domain: String,
}

/// What becomes of a list that lost more than its scheme covers, by crashes (P10.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum LostPolicy {
    /// What is left can be read; nothing is written until somebody decides.
    #[default]
    Stop,
    /// It begins again, empty, as a cache may.
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

/// A cluster to be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterPlan {
    /// The cluster's id, random.
    pub cluster: ClusterId,
    /// Data positions of a list.
    pub data: u8,
    /// Parity positions of a list.
    pub parity: u8,
    /// How many of them must hold a write before it is acknowledged.
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
    /// How long the next incarnation of a node that certainly ended is waited for, in ms (P10.5).
    pub restart_wait_ms: u32,
    /// Fewest Live parity members with which writes are taken.
    pub min_redundancy: u8,
    /// What becomes of a list that lost too much.
    pub lost_policy: LostPolicy,
    /// The key of the keyed hash, random.
    pub hash_key: [u64; 2],
    /// Memory of one node, for the number of lists; 0 if unknown.
    pub node_bytes: u64,
    /// How many parity positions of a list, the last ones, lie on log nodes.
    pub logged: u8,
    /// The log nodes that hold them.
    pub log_nodes: Vec<PlannedNode>,
}

/// Why a plan cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanError(pub String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for PlanError {}

impl ClusterPlan {
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
        }
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
    /// If there are too few or too many of them, or one has a name that none may have.
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

    /// Everybody that the plan names.
    pub fn all(&self) -> impl Iterator<Item = &PlannedNode> {
        self.nodes.iter().chain(&self.log_nodes).chain(&self.spares)
    }

    /// The scheme as people write it.
    pub fn scheme(&self) -> String {
        match self.logged {
            0 => format!("{}+{}", self.data, self.parity),
            logged => format!("{}+{}/{logged}", self.data, self.parity),
        }
    }

    /// Checks everything that a person may have got wrong.
    ///
    /// # Errors
    /// Says what, in the words of the settings.
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
            return fail(format!("more than {NODES_MAX} nodes"));
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

    /// Checks times that an operator changes while the cluster lives.
    ///
    /// # Errors
    /// Says what, in the words of the settings.
    pub fn check_times(&self) -> Result<(), PlanError> {
        self.check_new()?;
        let suspicion = u64::from(self.suspicion_ms);
        // Peers speak when they renew leases.
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

    /// The same for a cluster that is to be made; one that exists goes on with what it has.
    ///
    /// # Errors
    /// Says what, in the words of the settings.
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

    /// How many lists: a multiple of the nodes, so that each holds each position equally often; with log nodes the
    /// multiple, of the first few, by which they hold equally many too, or most nearly so.
    ///
    /// The factor is the smallest that gives every node four streams, each planned for at most 2 GiB. With no
    /// parity, or one node, nothing is ever taken over and there is nothing to spread: one stream is enough then.
    ///
    /// Nodes of wide schemes own more streams than they need, and each of their turns looks at all of them: there one
    /// list in so many is made, evenly spread, that data and parity stay even. Each holds some positions then, not all.
    /// There are never more streams than slots.
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
        // Parts in a thousand by which the log node that holds most holds more than the one that holds least.
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

    /// How many members lie from the beginning of one list to that of the next.
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
        ClusterRecord {
            id: self.cluster,
            format: CLUSTER_FORMAT,
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

/// Checks a cluster record that somebody else has written: everything that a node computes with.
///
/// # Errors
/// Says what is wrong; of a newer version's record only that it is one.
pub fn check_record(record: &ClusterRecord) -> Result<(), PlanError> {
    let fail = |why: String| Err(PlanError(why));
    if record.format != CLUSTER_FORMAT {
        return fail(format!(
            "the cluster's records are of format {}, this version knows {CLUSTER_FORMAT}: use another paritas",
            record.format
        ));
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
        return fail("the cluster record makes no sense: the coordinator's store is damaged".into());
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

/// Whether a failure domain's name may be.
pub(crate) fn domain_is_valid(domain: &str) -> bool {
    !domain.is_empty() && domain.len() <= DOMAIN_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(data: u8, parity: u8, nodes: u16) -> ClusterPlan {
        ClusterPlan::simple(ClusterId(1), data, parity, nodes, 0)
    }

    #[test]
    fn one_node_without_redundancy_has_one_list_of_one_stream() {
        assert_eq!(plan(1, 0, 1).list_count(), 1);
        assert_eq!(
            plan(1, 0, 1).record().slots,
            [(
                SLOT_COUNT - 1,
                StreamId {
                    list: ListId(0),
                    x: Position(0)
                }
            )]
        );
    }

    #[test]
    fn every_node_owns_four_streams_at_least_where_there_is_parity() {
        assert_eq!(plan(4, 2, 6).list_count(), 6);
        assert_eq!(plan(1, 2, 3).list_count(), 12);
        assert_eq!(plan(3, 1, 4).list_count(), 8);
    }

    #[test]
    fn large_nodes_have_more_lists() {
        let mut large = plan(4, 2, 6);
        large.node_bytes = 24 << 30;
        // 16 GiB of data a node in streams of at most 2 GiB: 8 streams, of which a rotation gives 4.
        assert_eq!(large.list_count(), 12);
    }

    #[test]
    fn wide_schemes_have_fewer_lists_evenly_spread() {
        // Nodes, lists, and how much more than others a node may hold.
        let cases = [
            (16, 4, 20, 10, 0),
            (32, 4, 36, 9, 0),
            (64, 4, 68, 17, 0),
            (128, 4, 132, 33, 0),
            (128, 4, 264, 66, 0),
            // No two parities beside one another can be spared: as many lists as there are slots for.
            (128, 4, 133, 128, 2),
            (128, 3, 131, 128, 2),
        ];
        for (data, parity, nodes, lists, off) in cases {
            let wide = plan(data, parity, nodes);
            assert_eq!(
                (wide.check(), wide.list_count()),
                (Ok(()), lists),
                "{data}+{parity} on {nodes}"
            );
            assert!(wide.record().slots_are_whole());
            let mut held = vec![[0_usize; 2]; usize::from(nodes)];
            for list in wide.layout().lists {
                for (p, node) in list.iter().enumerate() {
                    held[usize::from(node.0)][usize::from(p >= usize::from(data))] += 1;
                }
            }
            for kind in 0..2 {
                let (low, high) = (held.iter().map(|h| h[kind]).min(), held.iter().map(|h| h[kind]).max());
                assert!(
                    high <= low.map(|low| low + off),
                    "{data}+{parity} on {nodes}: {low:?}..{high:?}"
                );
            }
        }
        let mut large = plan(16, 4, 20);
        large.node_bytes = 64 << 30;
        assert_eq!(large.list_count(), 40, "streams of 2 GiB at most");
        let mut large = plan(128, 4, 132);
        large.node_bytes = 1 << 40;
        assert!(
            large
                .check()
                .unwrap_err()
                .0
                .contains("more streams than there are slots")
        );
    }

    #[test]
    fn slots_are_whole_even_and_contiguous_by_owner() {
        for (data, parity, nodes) in [(4, 2, 6), (1, 2, 3), (10, 4, 17), (1, 0, 1), (3, 0, 5), (6, 3, 36)] {
            let plan = plan(data, parity, nodes);
            plan.check().unwrap();
            let record = plan.record();
            assert!(record.slots_are_whole());
            let layout = plan.layout();
            let mut first = 0;
            let mut counts = vec![0_u32; usize::from(nodes)];
            let mut runs = 0;
            let mut before = None;
            for (last, stream) in &record.slots {
                let owner = layout.lists[usize::from(stream.list.0)][stream.x.index()];
                counts[usize::from(owner.0)] += u32::from(*last) + 1 - first;
                first = u32::from(*last) + 1;
                runs += u16::from(before != Some(owner));
                before = Some(owner);
            }
            assert_eq!(runs, nodes, "an owner's slots are one range");
            let (low, high) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(
                f64::from(*high) <= f64::from(*low) * 1.05,
                "{data}+{parity} on {nodes}: {low}..{high} slots"
            );
        }
    }

    #[test]
    fn a_plan_that_cannot_be_says_why() {
        let why = |change: fn(&mut ClusterPlan)| {
            let mut plan = plan(4, 2, 6);
            change(&mut plan);
            plan.check().unwrap_err().0
        };
        assert_eq!(why(|p| p.nodes.truncate(5)), "scheme 4+2 needs 6 nodes, there are 5");
        assert!(why(|p| p.data = 0).starts_with("scheme 0+2"));
        assert!(why(|p| (p.data, p.parity) = (128, 128)).starts_with("scheme 128+128"));
        assert_eq!(why(|p| p.nodes[1].id = NodeId(0)), "node 0 is planned twice");
        assert!(why(|p| p.nodes[1].domain = String::new()).starts_with("node 1: a failure domain"));
        assert!(why(|p| p.min_redundancy = 3).starts_with("min_redundancy 3"));
        assert!(why(|p| p.ack_quorum = 3).starts_with("ack_quorum 3: of scheme"));
        assert!(why(|p| p.ack_quorum = 0).starts_with("ack_quorum 0: of scheme"));
        assert!(why(|p| p.chunk_bytes = 5000).starts_with("chunk size 5000"));
        assert!(why(|p| p.suspicion_ms = 0).starts_with("lease and suspicion"));
        assert!(why(|p| p.node_bytes = 1 << 50).contains("too many"));
    }

    #[test]
    fn a_new_cluster_suspects_nobody_for_one_late_heartbeat() {
        let with = |suspicion_ms| ClusterPlan {
            suspicion_ms,
            ..plan(4, 2, 6)
        };
        let why = with(499).check_new().unwrap_err().0;
        assert!(
            why.starts_with("suspicion_ms 499: ") && why.ends_with("at least 500"),
            "{why}"
        );
        assert_eq!(with(500).check_new(), Ok(()));
        assert_eq!(with(499).check(), Ok(()), "a cluster that has it goes on");
    }

    #[test]
    fn log_nodes_are_counted_apart() {
        let logged = plan(4, 2, 5).with_log_nodes(1, 1);
        assert_eq!((logged.check(), logged.scheme().as_str()), (Ok(()), "4+2/1"));
        assert_eq!(logged.record().logged, 1);
        let why = |change: fn(&mut ClusterPlan)| {
            let mut plan = logged.clone();
            change(&mut plan);
            plan.check().unwrap_err().0
        };
        assert_eq!(
            why(|p| p.nodes.truncate(4)),
            "scheme 4+2/1 needs 5 nodes beside its log nodes, there are 4"
        );
        assert_eq!(
            why(|p| p.log_nodes.clear()),
            "scheme 4+2/1 needs 1 log nodes, there are 0"
        );
        assert_eq!(why(|p| p.log_nodes[0].id = NodeId(3)), "node 3 is planned twice");
        assert!(why(|p| p.log_nodes[0].domain = String::new()).starts_with("node 5: a failure domain"));
        assert!(why(|p| p.logged = 2).contains("the first parity is not logged"));
        let stray = plan(4, 2, 6).with_log_nodes(0, 1).check().unwrap_err();
        assert!(stray.0.contains("4+2 logs no parity, 4+2/1 would"), "{stray}");
    }

    fn named(domains: &[&str]) -> Vec<String> {
        domains.iter().map(|domain| (*domain).into()).collect()
    }

    #[test]
    fn lists_are_spread_over_the_domains_that_are_named() {
        let racks = ["a", "a", "b", "b", "c", "c"];
        let plan = plan(2, 1, 6).with_domains(&named(&racks)).unwrap();
        let layout = plan.layout();
        assert_eq!(layout.per_domain_max, 1);
        for list in &layout.lists {
            let mut racks: Vec<&str> = list.iter().map(|node| racks[usize::from(node.0)]).collect();
            racks.sort_unstable();
            assert_eq!(racks, ["a", "b", "c"], "{list:?}");
        }
        let logged = ClusterPlan::simple(ClusterId(1), 2, 2, 3, 1).with_log_nodes(1, 1);
        let logged = logged.with_domains(&named(&["a", "b", "c", "d", "e"])).unwrap();
        let domains: Vec<&str> = logged.all().map(|n| n.domain.as_str()).collect();
        assert_eq!(domains, ["a", "b", "c", "d", "e"], "by their numbers");
    }

    #[test]
    fn domains_that_do_not_fit_the_nodes_are_refused() {
        let why = |domains: &[&str]| plan(2, 1, 3).with_domains(&named(domains)).unwrap_err().0;
        assert!(why(&["a", "b"]).starts_with("domains names 2, and 3 nodes are planned"));
        assert!(why(&["a", "b", "c", "d"]).starts_with("domains names 4, and 3 nodes are planned"));
        assert!(why(&["a", "", "c"]).starts_with("domains: that of node 1 has 0 bytes"));
        assert!(why(&["a", "b", &"c".repeat(65)]).starts_with("domains: that of node 2 has 65 bytes"));
    }

    #[test]
    fn spares_are_numbered_after_log_nodes() {
        let plan = ClusterPlan::simple(ClusterId(1), 4, 2, 5, 2).with_log_nodes(1, 2);
        let ids: Vec<u16> = plan.all().map(|n| n.id.0).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(plan.spares[0].id, NodeId(7));
    }

    #[test]
    fn log_nodes_do_not_change_how_many_streams_a_node_owns_without_need() {
        assert_eq!(plan(4, 2, 5).with_log_nodes(1, 1).list_count(), 5);
        assert_eq!(
            plan(4, 2, 5).with_log_nodes(1, 2).list_count(),
            10,
            "each log node has five"
        );
        assert_eq!(plan(6, 3, 7).with_log_nodes(2, 2).list_count(), 7);
    }
}
