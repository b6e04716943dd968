//! Clusters of every form that tests begin with.

use super::disk::{self, Disk};
use super::shape::{record, shape};
use super::{Cluster, Outbox, Process, START_MS, configuration};
use paritas_base::configuration::{ClusterRecord, Configuration, NodeRecord, NodeRole, NodeState};
use paritas_base::{Clock, Incarnation, ListId, NodeId, OneSlot, Position, StreamId, Time, map};
use paritas_frontend::Node;
use paritas_protocol::paritylog::{Layout, ParityLog};
use paritas_protocol::{Event, Identity, Parameters};

impl Cluster {
    /// So many nodes with 16 MiB each and the default parameters.
    pub fn new(count: usize) -> Self {
        Self::with(count, 16 << 20, Parameters::default())
    }

    /// So many nodes, which begin when this version of formats is active, and may speak up to it.
    pub fn under(count: usize, version: u16) -> Self {
        let parameters = Parameters {
            version_max: version,
            ..Parameters::default()
        };
        let mut cluster = Self::with(count, 16 << 20, parameters.clone());
        let nodes = cluster.records.clone();
        cluster.record.active_version = version;
        for (record, process) in nodes.iter().zip(&mut cluster.processes) {
            let identity = Identity {
                node: record.id,
                incarnation: record.incarnation,
                cluster: cluster.record.clone(),
                seed: 0,
                maxmemory_bytes: 16 << 20,
            };
            (process.node, process.out) = (Node::new(identity, parameters.clone()), Outbox::default());
        }
        cluster.ends = map();
        for at in 0..count {
            cluster.event(at, Event::Nodes(&nodes));
        }
        cluster.pump();
        cluster
    }

    /// So many nodes.
    pub fn with(count: usize, memory_bytes: u64, parameters: Parameters) -> Self {
        let stream = |i: usize| StreamId {
            list: ListId(i as u16),
            x: Position(0),
        };
        let slots = (1..=count)
            .map(|i| ((16384 * i / count - 1) as u16, stream(i - 1)))
            .collect();
        let configurations: Vec<Configuration> = (0..count).map(|i| configuration(i as u16, i, 1, 1)).collect();
        let record = record((1, 0), slots, None);
        Self::build(count, memory_bytes, parameters, record, configurations, None)
    }

    /// `lists` lists with this scheme on its `k + m` nodes, each turned by one against the one before, and `spares`
    /// nodes beyond. Streams have equal parts of the slots, in order.
    pub fn coded(data: u8, parity: u8, lists: u16, spares: usize, parameters: Parameters) -> Self {
        Self::coded_in(16 << 20, data, parity, lists, spares, parameters)
    }

    /// The same, with so much memory a node.
    pub fn coded_in(
        memory_bytes: u64,
        data: u8,
        parity: u8,
        lists: u16,
        spares: usize,
        parameters: Parameters,
    ) -> Self {
        Self::coded_on(memory_bytes, (data, parity), lists, spares, parameters, None)
    }

    /// One list whose last `logged` positions are on log nodes, and `spares` nodes that are none.
    pub fn logged(data: u8, parity: u8, logged: u8, spares: usize, layout: Layout, parameters: Parameters) -> Self {
        Self::logged_lists(1, (data, parity, logged), spares, layout, parameters)
    }

    /// The same, of several lists.
    pub fn logged_lists(
        lists: u16,
        (data, parity, logged): (u8, u8, u8),
        spares: usize,
        layout: Layout,
        parameters: Parameters,
    ) -> Self {
        Self::logged_in(4_000, lists, (data, parity, logged), spares, layout, parameters)
    }

    /// The same, with space for `slots` chunks on each disk.
    pub fn logged_in(
        slots: u32,
        lists: u16,
        (data, parity, logged): (u8, u8, u8),
        spares: usize,
        layout: Layout,
        parameters: Parameters,
    ) -> Self {
        let log = Some((logged, layout, slots));
        // Enough memory, so that only the disk is short.
        Self::coded_on(128 << 20, (data, parity), lists, spares, parameters, log)
    }

    fn coded_on(
        memory_bytes: u64,
        (data, parity): (u8, u8),
        lists: u16,
        spares: usize,
        parameters: Parameters,
        log: Option<(u8, Layout, u32)>,
    ) -> Self {
        let count = usize::from(data + parity) + spares;
        let (record, configurations) = shape((data, parity), lists, log);
        Self::build(count, memory_bytes, parameters, record, configurations, log)
    }

    /// `2+1` and a spare, each with 64 MiB, where these keys lie in one slot together.
    pub fn with_one_slot(one_slot: &OneSlot, parameters: Parameters) -> Self {
        let (mut record, configurations) = shape((2, 1), 1, None);
        one_slot.put(&mut record.more);
        Self::build(4, 64 << 20, parameters, record, configurations, None)
    }

    fn build(
        count: usize,
        memory_bytes: u64,
        parameters: Parameters,
        record: ClusterRecord,
        configurations: Vec<Configuration>,
        log: Option<(u8, Layout, u32)>,
    ) -> Self {
        let nodes: Vec<NodeRecord> = (0..count)
            .map(|i| NodeRecord {
                id: NodeId(i as u16),
                incarnation: Incarnation(i as u64 + 1),
                ordinal: 1,
                domain: i.to_string(),
                role: NodeRole::Member,
                state: NodeState::Up,
                pid: 100 + i as u32,
                client_address: format!("127.0.0.1:{}", 6379 + i),
                cluster_address: format!("127.0.0.1:{}", 7379 + i),
                peer_address: format!("127.0.0.1:{}", 16379 + i),
                more: Default::default(),
            })
            .collect();
        let now = Clock {
            mono: Time(1_000_000_000),
            wall_ms: START_MS,
        };
        let processes = (0..count)
            .map(|i| Process {
                node: Node::new(
                    Identity {
                        node: NodeId(i as u16),
                        incarnation: Incarnation(i as u64 + 1),
                        cluster: record.clone(),
                        seed: i as u64,
                        maxmemory_bytes: memory_bytes,
                    },
                    parameters.clone(),
                ),
                out: Outbox::default(),
                inputs: map(),
                outputs: map(),
                closed: Vec::new(),
                disk: None,
                up: true,
            })
            .collect();
        let mut cluster = Self {
            processes,
            now,
            configurations: configurations.clone(),
            cut: false,
            tamper: None,
            record: record.clone(),
            records: nodes.clone(),
            ends: map(),
            next_link: 0,
            next_conn: 0,
        };
        for at in 0..count {
            if let Some((_, layout, slots)) = log.filter(|_| record.is_logged(Position(at as u8))) {
                let process = &mut cluster.processes[at];
                let log = ParityLog::new(disk::settings(layout, record.data, slots), 1);
                process.node.replica_mut().set_log(log, now.mono);
                process.disk = Some(Disk::default());
            }
            cluster.event(at, Event::Nodes(&nodes));
            for configuration in &configurations {
                cluster.event(at, Event::Configuration(configuration));
            }
        }
        cluster.pump();
        cluster
    }
}
