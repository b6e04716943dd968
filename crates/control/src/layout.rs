//! Builds the stripe lists by rotation over a ring of nodes in which neighbours lie in different failure domains
//! (docs/formats/control.md). MemEC's own algorithm leaves some nodes without data positions if there are twelve or
//! more nodes.

use crate::plan::PlannedNode;
use paritas_base::NodeId;
use std::collections::BTreeMap;

/// The lists of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The nodes of each list, by position.
    pub lists: Vec<Vec<NodeId>>,
    /// Limit of positions of a list in one failure domain: the parity count, or the smallest possible number if that is
    /// larger (P10.5).
    pub per_domain_max: usize,
}

/// Limit of rounds in which the order of the ring is improved.
const ROUNDS_MAX: usize = 8;

/// Limit of rotations of the log nodes' ring against the members' ring that are tried to suit the domains.
const TURNS_MAX: usize = 32;

/// Numbers of positions of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// All positions.
    pub(crate) width: usize,
    /// Parity positions, the last ones.
    pub(crate) parity: usize,
    /// Logged positions, the last parities.
    pub(crate) logged: usize,
}

/// List `i` has the members `i, i+1, …` of the members' ring. With `l` logged positions it has the log nodes `l·i,
/// l·i+1, …` of the log nodes' ring. If there are fewer lists than members, their first members are evenly spaced.
pub(crate) fn rotate(nodes: &[PlannedNode], log_nodes: &[PlannedNode], shape: Shape, count: usize) -> Layout {
    let Shape { width, parity, logged } = shape;
    let in_memory = width - logged;
    let ring = order(nodes, in_memory, parity - logged, parity);
    let logs = order(log_nodes, logged, logged, parity);
    let (ring, logs) = (&ring, &logs);
    let list = |turn: usize, i: usize| -> Vec<&PlannedNode> {
        let first = if count < ring.len() { i * ring.len() / count } else { i };
        let members = (0..in_memory).map(|p| ring[(first + p) % ring.len()]);
        let log = (0..logged).map(|p| logs[(turn + i * logged + p) % logs.len()]);
        members.chain(log).collect()
    };
    let lists = |turn: usize| -> Vec<Vec<&PlannedNode>> { (0..count).map(|i| list(turn, i)).collect() };
    let faults = |turn: &usize| -> usize { lists(*turn).iter().map(|list| fault(list, parity, parity)).sum() };
    // Without log nodes there is no second ring to rotate.
    let turns = 0..logs.len().clamp(1, TURNS_MAX);
    let turn = if turns.len() == 1 {
        0
    } else {
        turns.min_by_key(faults).unwrap_or(0)
    };
    let lists = lists(turn);
    let worst = lists
        .iter()
        .map(|list| most_in_one(list.iter().map(|n| n.domain.as_str())))
        .max();
    Layout {
        lists: lists.iter().map(|list| list.iter().map(|n| n.id).collect()).collect(),
        per_domain_max: worst.unwrap_or(0).max(parity),
    }
}

/// The ring. Nodes of one domain are evenly spaced. Then nodes are swapped while that improves the ring: of `width`
/// successive nodes the last `parity` should be in different domains, and at most `limit` in one domain.
fn order(nodes: &[PlannedNode], width: usize, parity: usize, limit: usize) -> Vec<&PlannedNode> {
    let mut by_domain: BTreeMap<&str, Vec<&PlannedNode>> = BTreeMap::new();
    for node in nodes {
        by_domain.entry(&node.domain).or_default().push(node);
    }
    // Node j of the s nodes of a domain is placed at (2j+1)/2s of the ring. Domains of equal size are ordered by their
    // lowest id.
    let mut places: Vec<(u64, NodeId, &PlannedNode)> = Vec::new();
    for members in by_domain.values() {
        let size = members.len() as u64;
        for (j, node) in members.iter().enumerate() {
            places.push(((2 * j as u64 + 1) * (1 << 32) / (2 * size), members[0].id, node));
        }
    }
    places.sort_by_key(|(place, first, node)| (*place, *first, node.id));
    let mut ring: Vec<&PlannedNode> = places.into_iter().map(|(_, _, node)| node).collect();
    improve(&mut ring, width, parity, limit);
    ring
}

fn improve(ring: &mut [&PlannedNode], width: usize, parity: usize, limit: usize) {
    // Without parity every loss loses data, in any order. With many nodes the first order is good enough.
    if parity == 0 || ring.len() > 128 {
        return;
    }
    let mut best = penalty(ring, width, parity, limit);
    for _ in 0..ROUNDS_MAX {
        let before = best;
        for a in 0..ring.len() {
            for b in a + 1..ring.len() {
                if best == 0 {
                    return;
                }
                if ring[a].domain == ring[b].domain {
                    continue;
                }
                ring.swap(a, b);
                let now = penalty(ring, width, parity, limit);
                if now < best {
                    best = now;
                } else {
                    ring.swap(a, b);
                }
            }
        }
        if best == before {
            return;
        }
    }
}

/// The sum of the faults of all lists of a ring.
fn penalty(ring: &[&PlannedNode], width: usize, parity: usize, limit: usize) -> usize {
    let list = |start: usize| -> Vec<&PlannedNode> { (0..width).map(|p| ring[(start + p) % ring.len()]).collect() };
    (0..ring.len()).map(|start| fault(&list(start), parity, limit)).sum()
}

/// The fault of a list: the positions beyond `limit` in one domain, with a large weight, and parities in one domain.
fn fault(list: &[&PlannedNode], parity: usize, limit: usize) -> usize {
    let domains = |from: usize| list[from..].iter().map(|node| node.domain.as_str());
    let excess = most_in_one(domains(0)).saturating_sub(limit);
    let shared = most_in_one(domains(list.len() - parity)).saturating_sub(1);
    excess * 1000 + shared
}

fn most_in_one<'a>(domains: impl Iterator<Item = &'a str>) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for domain in domains {
        *counts.entry(domain).or_default() += 1;
    }
    counts.into_values().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_base::ClusterId;

    fn shape(width: usize, parity: usize) -> Shape {
        Shape {
            width,
            parity,
            logged: 0,
        }
    }

    fn nodes(domains: &[(&str, u16)]) -> Vec<PlannedNode> {
        let mut all = Vec::new();
        for (domain, size) in domains {
            for _ in 0..*size {
                all.push(PlannedNode {
                    id: NodeId(all.len() as u16),
                    domain: (*domain).into(),
                });
            }
        }
        all
    }

    /// For each node: its positions, its data positions, and its write load. Each of its parity positions receives k
    /// deltas and each of its data positions sends m.
    fn loads(layout: &Layout, count: usize, data: usize) -> Vec<[usize; 3]> {
        let mut loads = vec![[0; 3]; count];
        for list in &layout.lists {
            for (p, node) in list.iter().enumerate() {
                let load = &mut loads[usize::from(node.0)];
                load[0] += 1;
                load[1] += usize::from(p < data);
                load[2] += if p < data { list.len() - data } else { data };
            }
        }
        loads
    }

    #[test]
    fn positions_data_and_write_load_balance_within_five_percent() {
        for (data, parity) in [(4, 2), (2, 1), (1, 2), (6, 3), (10, 4)] {
            let width = data + parity;
            for count in width..=4 * width {
                let plan = crate::ClusterPlan::simple(ClusterId(1), data as u8, parity as u8, count as u16, 0);
                let layout = plan.layout();
                assert_eq!(layout.lists.len() % count, 0);
                let loads = loads(&layout, count, data);
                for kind in 0..3 {
                    let low = loads.iter().map(|l| l[kind]).min().unwrap();
                    let high = loads.iter().map(|l| l[kind]).max().unwrap();
                    assert!(
                        high * 100 <= low * 105,
                        "{data}+{parity} on {count}, kind {kind}: {low}..{high}"
                    );
                }
                assert!(loads.iter().all(|l| l[1] >= 4), "four streams a node");
            }
        }
    }

    #[test]
    fn a_list_has_no_node_twice() {
        for count in 6..30 {
            for list in rotate(&nodes(&[("a", count)]), &[], shape(6, 2), usize::from(count)).lists {
                let mut sorted = list.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), 6);
            }
        }
    }

    #[test]
    fn no_domain_holds_more_than_m_positions_where_domains_allow() {
        type Case<'a> = (&'a [(&'a str, u16)], usize, usize);
        let cases: [Case<'_>; 8] = [
            (&[("a", 2), ("b", 2), ("c", 2)], 6, 2),
            (&[("a", 3), ("b", 3), ("c", 3)], 6, 2),
            (&[("a", 4), ("b", 4), ("c", 4), ("d", 4)], 6, 2),
            (&[("a", 2), ("b", 3), ("c", 3), ("d", 4)], 6, 2),
            (&[("a", 1), ("b", 1), ("c", 2), ("d", 2), ("e", 3)], 6, 2),
            (&[("a", 1), ("b", 1), ("c", 1)], 3, 2),
            (&[("a", 5), ("b", 5), ("c", 5)], 9, 3),
            (&[("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 2)], 6, 2),
        ];
        for (domains, width, parity) in cases {
            let nodes = nodes(domains);
            let layout = rotate(&nodes, &[], shape(width, parity), nodes.len());
            assert_eq!(layout.per_domain_max, parity, "{domains:?}");
            for list in &layout.lists {
                let domain = |node: &NodeId| nodes[usize::from(node.0)].domain.as_str();
                assert!(most_in_one(list.iter().map(domain)) <= parity, "{domains:?}: {list:?}");
                assert_eq!(
                    most_in_one(list[width - parity..].iter().map(domain)),
                    1,
                    "{domains:?}: {list:?}"
                );
            }
        }
    }

    #[test]
    fn too_few_domains_are_spread_as_far_as_they_go() {
        let nodes = nodes(&[("a", 3), ("b", 3)]);
        assert_eq!(rotate(&nodes, &[], shape(6, 2), 6).per_domain_max, 3);
    }

    #[test]
    fn logged_positions_lie_on_log_nodes_and_both_kinds_balance() {
        for (data, parity, logged) in [(4, 2, 1), (6, 3, 2), (6, 3, 1), (2, 2, 1), (1, 3, 2)] {
            let in_memory = data + parity - logged;
            for count in in_memory..=3 * in_memory {
                for logs in logged..=logged + 3 {
                    let plan = crate::ClusterPlan::simple(ClusterId(1), data, parity, count.into(), 2);
                    let plan = plan.with_log_nodes(logged, logs.into());
                    plan.check().unwrap();
                    let layout = plan.layout();
                    let mut loads = vec![0_usize; usize::from(count + logs) + 2];
                    for list in &layout.lists {
                        let mut sorted = list.clone();
                        sorted.sort_unstable();
                        sorted.dedup();
                        assert_eq!(sorted.len(), usize::from(data + parity));
                        for (p, node) in list.iter().enumerate() {
                            let is_log = (count..count + logs).contains(&(node.0 as u8));
                            assert_eq!(is_log, p >= usize::from(in_memory), "{list:?}");
                            loads[usize::from(node.0)] += 1;
                        }
                    }
                    let (members, rest) = loads.split_at(count.into());
                    for (kind, slack) in [(members, 0), (&rest[..logs.into()], 1)] {
                        let (low, high) = (kind.iter().min().unwrap(), kind.iter().max().unwrap());
                        assert!(
                            high - low <= slack && high * 4 <= low * 5,
                            "{data}+{parity}/{logged} on {count} and {logs}: {low}..{high}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn domains_count_members_and_log_nodes_together() {
        let all = nodes(&[("a", 3), ("b", 3), ("c", 3)]);
        let (logs, members): (Vec<_>, Vec<_>) = all.into_iter().partition(|n| n.id.0 % 3 == 2);
        let shape = Shape {
            width: 6,
            parity: 2,
            logged: 1,
        };
        let layout = rotate(&members, &logs, shape, 6);
        assert_eq!(layout.per_domain_max, 2, "{:?}", layout.lists);
    }
}
