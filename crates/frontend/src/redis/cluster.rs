//! CLUSTER: shows the stripe lists in the form of Redis Cluster. Addresses are those of the strict port, also for
//! clients of the other port.

use crate::router::{Dispatcher, lists_tenure};
use paritas_base::configuration::{NodeRecord, NodeRole, NodeState};
use paritas_base::{ClusterId, Epoch, NodeId, SLOT_COUNT};
use paritas_protocol::{Context, Lists, Out};
use paritas_wire::command::Command;
use paritas_wire::resp::{ArgList, Proto, encode, errors};
use std::fmt::Write;

/// Consecutive hash slots with the same owner.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u16,
    last: u16,
    owner: Option<NodeId>,
}

/// A node's name: 40 hexadecimal digits, the same in every incarnation of it.
fn name(cluster: ClusterId, node: NodeId) -> String {
    format!("{:016x}{:024x}", cluster.0, node.0)
}

fn host_and_port(address: &str) -> (&str, i64) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    (host, port.parse().unwrap_or(0))
}

impl Dispatcher {
    pub(crate) fn cluster<O: Out>(
        &self,
        cx: &Context<'_, O>,
        lists: &Lists,
        (proto, database): (Proto, u8),
        id: Command,
        out: &mut Vec<u8>,
        args: ArgList<'_>,
    ) {
        let cluster = cx.shared.cluster.id;
        match id {
            Command::ClusterKeyslot => {
                let slot = cx.shared.slots.slot(database, args.arg(2));
                encode::integer(out, i64::from(slot));
            }
            Command::ClusterMyid | Command::ClusterMyshardid => {
                encode::bulk(out, name(cluster, cx.shared.node).as_bytes())
            }
            Command::ClusterLinks => encode::array_header(out, 0),
            Command::ClusterReplicas | Command::ClusterSlaves => {
                let is_named = |node: &NodeRecord| name(cluster, node.id).as_bytes() == args.arg(2);
                match self.nodes.iter().any(is_named) {
                    true => encode::array_header(out, 0),
                    false => {
                        let asked = errors::echoed(args.arg(2));
                        encode::error(out, &format!("ERR Unknown node {asked}"));
                    }
                }
            }
            Command::ClusterSlots => self.cluster_slots(cx, lists, proto, out),
            Command::ClusterShards => self.cluster_shards(cx, lists, proto, out),
            Command::ClusterNodes => {
                let text = self.cluster_nodes(cx, lists);
                encode::verbatim(out, proto, b"txt", text.as_bytes());
            }
            _ => {
                let text = self.cluster_info(cx, lists);
                encode::verbatim(out, proto, b"txt", text.as_bytes());
            }
        }
    }

    /// SENTINEL: for clients that look for a master by name. Any node takes any key, so this node is the
    /// master, whatever the name.
    pub(crate) fn sentinel<O: Out>(
        &self,
        cx: &Context<'_, O>,
        proto: Proto,
        id: Command,
        out: &mut Vec<u8>,
        args: ArgList<'_>,
    ) {
        let me = self.node(cx.shared.node);
        let (host, port) = me.map_or(("", 0), |node| host_and_port(&node.client_address));
        let port = port.to_string();
        match id {
            Command::SentinelGetMasterAddrByName => {
                encode::array_header(out, 2);
                encode::bulk(out, host.as_bytes());
                encode::bulk(out, port.as_bytes());
            }
            Command::SentinelMasters | Command::SentinelMaster => {
                let asked = if id == Command::SentinelMaster {
                    args.arg(2)
                } else {
                    b"mymaster"
                };
                let fields: [(&str, &[u8]); 9] = [
                    ("name", asked),
                    ("ip", host.as_bytes()),
                    ("port", port.as_bytes()),
                    ("runid", b""),
                    ("flags", b"master"),
                    ("role-reported", b"master"),
                    ("num-slaves", b"0"),
                    ("num-other-sentinels", b"0"),
                    ("quorum", b"1"),
                ];
                if id == Command::SentinelMasters {
                    encode::array_header(out, 1);
                }
                encode::map_header(out, proto, fields.len());
                for (field, value) in fields {
                    encode::bulk(out, field.as_bytes());
                    encode::bulk(out, value);
                }
            }
            _ => encode::array_header(out, 0),
        }
    }

    /// The owners of all hash slots, by the newest configurations installed here.
    fn ranges<O: Out>(&self, cx: &Context<'_, O>, lists: &Lists) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        let mut first = 0;
        for (last, stream) in cx.shared.slots.ranges() {
            let owner = lists_tenure(lists, stream).map(|tenure| tenure.node);
            let owner = owner.filter(|owner| self.nodes.iter().any(|node| node.id == *owner));
            match ranges.last_mut() {
                Some(range) if range.owner == owner => range.last = last,
                _ => ranges.push(Range { first, last, owner }),
            }
            first = last.saturating_add(1);
        }
        ranges
    }

    fn node(&self, id: NodeId) -> Option<&NodeRecord> {
        self.nodes.iter().find(|node| node.id == id)
    }

    fn cluster_slots<O: Out>(&self, cx: &Context<'_, O>, lists: &Lists, proto: Proto, out: &mut Vec<u8>) {
        let ranges = self.ranges(cx, lists);
        let owned: Vec<(&Range, &NodeRecord)> = ranges
            .iter()
            .filter_map(|range| Some((range, self.node(range.owner?)?)))
            .collect();
        encode::array_header(out, owned.len());
        for (range, node) in owned {
            let (host, port) = host_and_port(&node.cluster_address);
            encode::array_header(out, 3);
            encode::integer(out, i64::from(range.first));
            encode::integer(out, i64::from(range.last));
            encode::array_header(out, 4);
            encode::bulk(out, host.as_bytes());
            encode::integer(out, port);
            encode::bulk(out, name(cx.shared.cluster.id, node.id).as_bytes());
            encode::map_header(out, proto, 0);
        }
    }

    fn cluster_shards<O: Out>(&self, cx: &Context<'_, O>, lists: &Lists, proto: Proto, out: &mut Vec<u8>) {
        let ranges = self.ranges(cx, lists);
        encode::array_header(out, self.nodes.len());
        for node in &self.nodes {
            let own = || ranges.iter().filter(|range| range.owner == Some(node.id));
            let (host, port) = host_and_port(&node.cluster_address);
            let health = if node.state == NodeState::Up { "online" } else { "fail" };
            encode::map_header(out, proto, 2);
            encode::bulk(out, b"slots");
            encode::array_header(out, 2 * own().count());
            for range in own() {
                encode::integer(out, i64::from(range.first));
                encode::integer(out, i64::from(range.last));
            }
            encode::bulk(out, b"nodes");
            encode::array_header(out, 1);
            encode::map_header(out, proto, 7);
            encode::bulk(out, b"id");
            encode::bulk(out, name(cx.shared.cluster.id, node.id).as_bytes());
            encode::bulk(out, b"port");
            encode::integer(out, port);
            for (field, value) in [("ip", host), ("endpoint", host), ("role", "master")] {
                encode::bulk(out, field.as_bytes());
                encode::bulk(out, value.as_bytes());
            }
            encode::bulk(out, b"replication-offset");
            encode::integer(out, 0);
            encode::bulk(out, b"health");
            encode::bulk(out, health.as_bytes());
        }
    }

    /// The text of CLUSTER NODES. It has only flags that Redis knows: a spare node is shown as a master without slots.
    fn cluster_nodes<O: Out>(&self, cx: &Context<'_, O>, lists: &Lists) -> String {
        let ranges = self.ranges(cx, lists);
        let epoch = newest_epoch(lists);
        let mut text = String::new();
        for node in &self.nodes {
            let me = if node.id == cx.shared.node { "myself," } else { "" };
            let (fail, link) = match node.state {
                NodeState::Up => ("", "connected"),
                NodeState::Down => (",fail", "disconnected"),
            };
            let (_, bus) = host_and_port(&node.peer_address);
            // Writing to a string never fails.
            let _ = write!(
                text,
                "{} {}@{bus} {me}master{fail} - 0 0 {} {link}",
                name(cx.shared.cluster.id, node.id),
                node.cluster_address,
                epoch.0
            );
            for range in ranges.iter().filter(|range| range.owner == Some(node.id)) {
                let _ = if range.first == range.last {
                    write!(text, " {}", range.first)
                } else {
                    write!(text, " {}-{}", range.first, range.last)
                };
            }
            text.push('\n');
        }
        text
    }

    fn cluster_info<O: Out>(&self, cx: &Context<'_, O>, lists: &Lists) -> String {
        let ranges = self.ranges(cx, lists);
        let up = |id: NodeId| self.node(id).is_some_and(|node| node.state == NodeState::Up);
        let slots = |wanted: &dyn Fn(NodeId) -> bool| -> u32 {
            let wanted = ranges.iter().filter(|range| range.owner.is_some_and(wanted));
            wanted.map(|range| u32::from(range.last - range.first) + 1).sum()
        };
        let (assigned, ok) = (slots(&|_| true), slots(&up));
        let state = if ok == u32::from(SLOT_COUNT) { "ok" } else { "fail" };
        let members = self.nodes.iter().filter(|node| node.role == NodeRole::Member).count();
        let epoch = newest_epoch(lists).0;
        let lines = [
            ("cluster_enabled", "1".to_owned()),
            ("cluster_state", state.to_owned()),
            ("cluster_slots_assigned", assigned.to_string()),
            ("cluster_slots_ok", ok.to_string()),
            ("cluster_slots_pfail", "0".to_owned()),
            ("cluster_slots_fail", (assigned - ok).to_string()),
            ("cluster_known_nodes", self.nodes.len().to_string()),
            ("cluster_size", members.to_string()),
            ("cluster_current_epoch", epoch.to_string()),
            ("cluster_my_epoch", epoch.to_string()),
        ];
        lines
            .iter()
            .map(|(name, value)| format!("{name}:{value}\r\n"))
            .collect()
    }
}

fn newest_epoch(lists: &Lists) -> Epoch {
    lists
        .iter()
        .map(|list| list.configuration.epoch)
        .max()
        .unwrap_or_default()
}
