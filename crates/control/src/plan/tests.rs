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
