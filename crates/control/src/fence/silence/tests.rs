use super::*;
use paritas_base::configuration::{Assignment, PositionState, Tenure};
use paritas_base::{Epoch, ListId};

const INCARNATION: Incarnation = Incarnation(7);

/// A list in which node `i` holds position `i`. Each node is its own failure domain.
fn list(data: u8, parity: u8) -> Configuration {
    let held = |i: u8| {
        let (node, since) = (NodeId(i.into()), Epoch(1));
        let tenure = Tenure {
            node,
            incarnation: INCARNATION,
            since,
        };
        Some(Assignment {
            tenure,
            state: PositionState::Live,
        })
    };
    Configuration {
        list: ListId(0),
        epoch: Epoch(1),
        born: Epoch(1),
        data,
        parity,
        ack_quorum: parity,
        positions: (0..data + parity).map(held).collect(),
        gone: Vec::new(),
        lost: false,
        slots: Default::default(),
        id: 0,
        trail: Vec::new(),
        more: Default::default(),
    }
}

fn holders(count: u16, silent: &[u16]) -> BTreeMap<NodeId, Holder> {
    let holder = |i: u16| Holder {
        incarnation: INCARNATION,
        domain: i.to_string(),
        available: !silent.contains(&i),
        silent: silent.contains(&i),
    };
    (0..count).map(|i| (NodeId(i), holder(i))).collect()
}

fn judge(
    list: &Configuration,
    holders: &BTreeMap<NodeId, Holder>,
    opinion: impl Fn(NodeId, NodeId, Incarnation) -> Opinion,
) -> Silence {
    let parity = list.parity.into();
    Silence::judge(holders, [list].into_iter(), None, parity, opinion)
}

#[test]
fn a_node_that_no_peer_hears_is_suspect() {
    let judged = judge(&list(4, 2), &holders(6, &[1]), |_, _, _| Opinion::Unheard);
    assert_eq!(judged.suspects, BTreeSet::from([NodeId(1)]));
    assert_eq!((judged.isolated.len(), judged.hold), (0, None));
}

#[test]
fn one_peer_that_hears_it_is_enough_to_keep_it() {
    // The four owners are the peers of a parity node.
    let hears = |of: NodeId, _, _| {
        if of == NodeId(3) {
            Opinion::Hears
        } else {
            Opinion::Unheard
        }
    };
    let judged = judge(&list(4, 2), &holders(6, &[4]), hears);
    assert_eq!(judged.suspects, BTreeSet::new());
    assert_eq!(judged.isolated, BTreeSet::from([NodeId(4)]));
}

#[test]
fn nodes_that_exchange_no_frames_with_it_have_no_vote() {
    // Owners of one list exchange no frames, so their reports must not count.
    let opinion = |of: NodeId, _, _| if of.0 < 4 { Opinion::Hears } else { Opinion::Unheard };
    let judged = judge(&list(4, 2), &holders(6, &[1]), opinion);
    assert_eq!(judged.suspects, BTreeSet::from([NodeId(1)]));
}

#[test]
fn two_votes_are_required_if_two_peers_are_available() {
    let one_votes = |of: NodeId, _, _| {
        if of == NodeId(4) {
            Opinion::Unheard
        } else {
            Opinion::Unsure
        }
    };
    assert_eq!(judge(&list(4, 2), &holders(6, &[1]), one_votes).suspects.len(), 0);
    // The other peer is not available, so one vote is enough.
    let judged = judge(&list(4, 2), &holders(6, &[1, 5]), one_votes);
    assert_eq!(judged.suspects, BTreeSet::from([NodeId(1)]));
}

#[test]
fn votes_must_come_from_two_failure_domains_if_there_are_two() {
    let mut holders = holders(6, &[4]);
    let votes = |of: NodeId, _, _| if of.0 < 2 { Opinion::Unheard } else { Opinion::Unsure };
    assert_eq!(judge(&list(4, 2), &holders, votes).suspects.len(), 1);
    for id in [0, 1] {
        holders.get_mut(&NodeId(id)).unwrap().domain = "rack".into();
    }
    assert_eq!(judge(&list(4, 2), &holders, votes).suspects.len(), 0);
}

#[test]
fn without_an_available_peer_no_node_is_suspect() {
    let judged = judge(&list(1, 1), &holders(2, &[0, 1]), |_, _, _| Opinion::Unheard);
    assert_eq!(judged.suspects.len(), 0);
}

#[test]
fn with_more_silent_domains_than_the_scheme_survives_no_node_is_fenced() {
    let judged = judge(&list(4, 2), &holders(6, &[0, 1, 4]), |_, _, _| Opinion::Unheard);
    assert_eq!(judged.suspects.len(), 0);
    assert_eq!(judged.hold, Some(Hold::Many { silent: 3, most: 2 }));
}

#[test]
fn many_silent_nodes_are_told_of_also_while_the_wait_for_them_lasts() {
    let unheard = |_, _, _| Opinion::Unheard;
    let wait_until = Some(Time(5));
    let judged = Silence::judge(
        &holders(6, &[0, 1, 4]),
        [&list(4, 2)].into_iter(),
        wait_until,
        2,
        unheard,
    );
    assert_eq!(judged.suspects.len(), 0);
    assert_eq!(judged.hold, Some(Hold::Many { silent: 3, most: 2 }));
}

#[test]
fn three_copies_on_three_nodes_survive_two_silent_ones() {
    let judged = judge(&list(1, 2), &holders(3, &[0, 1]), |_, _, _| Opinion::Unheard);
    assert_eq!(judged.hold, None);
    // The remaining parity node votes on the owner. The silent parity has no available peer.
    assert_eq!(judged.suspects, BTreeSet::from([NodeId(0)]));
}

#[test]
fn in_the_grace_time_no_node_is_fenced() {
    let (list, until) = (list(4, 2), Time(5));
    let unheard = |_, _, _| Opinion::Unheard;
    let judged = Silence::judge(&holders(6, &[1]), [&list].into_iter(), Some(until), 2, unheard);
    assert_eq!((judged.suspects.len(), judged.hold), (0, Some(Hold::Wait { until })));
}

#[test]
fn grace_is_long_enough_to_dial_every_address() {
    assert_eq!(grace(Span::from_secs(1), 1), Span::from_secs(5));
    assert_eq!(grace(Span::from_secs(1), 2), Span::from_ms(6750));
    assert_eq!(grace(Span::from_secs(1), 3), Span::from_ms(8500));
}

#[test]
fn a_majority_witnesses_but_never_more_than_remain_after_the_losses() {
    let pairs = [
        (3, 2, 1),
        (6, 2, 4),
        (12, 2, 7),
        (2, 1, 1),
        (1, 0, 1),
        (5, 3, 2),
        (0, 2, 1),
    ];
    for (nodes, parity, wanted) in pairs {
        assert_eq!(witnesses(nodes, parity), wanted, "{nodes} nodes, {parity} parity");
    }
}
