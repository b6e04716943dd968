use super::*;
use crate::plan::{LostPolicy, PlannedNode};
use crate::store::MemoryStore;
use paritas_base::configuration::{Assignment, Lineage, NodeRole, NodeState, PositionState, Tenure};
use paritas_base::hash_slots::{HandOff, ListSlots, SlotRange};
use paritas_base::{ClusterId, Epoch, Position, StreamId};

fn plan() -> ClusterPlan {
    ClusterPlan::simple(ClusterId(9), 1, 1, 2, 0)
}

/// A store with a new cluster.
fn created() -> MemoryStore {
    let mut store = MemoryStore::new();
    Records::create(&mut store, &plan()).unwrap();
    store
}

/// Writes a record past all rules.
fn write(store: &mut MemoryStore, key: &str, value: Vec<u8>) {
    let expected = Expected {
        key: key.into(),
        value: store.get(key).unwrap(),
    };
    let change = Change {
        key: key.into(),
        value: Some(value),
    };
    store.commit(&expected, &[change]).unwrap();
}

fn node() -> StoredNode {
    let record = NodeRecord {
        id: NodeId(1),
        incarnation: Incarnation(300),
        ordinal: 1,
        domain: "a".into(),
        role: NodeRole::Member,
        state: NodeState::Up,
        pid: 5,
        client_address: "h:1".into(),
        cluster_address: "h:2".into(),
        peer_address: "h:3".into(),
        more: Default::default(),
    };
    StoredNode {
        record,
        end: End::Unknown,
        past: vec![(Incarnation(2), true)],
        duty: Duty::Draining,
        more: Default::default(),
    }
}

fn stream(list: u16) -> StreamId {
    StreamId {
        list: ListId(list),
        x: Position(0),
    }
}

fn list() -> Configuration {
    let tenure = Tenure {
        node: NodeId(1),
        incarnation: Incarnation(300),
        since: Epoch(2),
    };
    let mut list = Configuration {
        list: ListId(4),
        epoch: Epoch(2),
        born: Epoch(1),
        data: 1,
        parity: 1,
        ack_quorum: 1,
        positions: vec![
            None,
            Some(Assignment {
                tenure,
                state: PositionState::Filling,
            }),
        ],
        gone: vec![(NodeId(1), Incarnation(2))],
        lost: false,
        slots: ListSlots {
            version: 3,
            ranges: vec![SlotRange {
                first: 5,
                last: 400,
                x: Position(0),
            }],
            hand_off: Some(HandOff {
                version: 6,
                first: 5,
                last: 7,
                from: stream(4),
                to: stream(2),
            }),
        },
        id: 0,
        trail: vec![],
        more: Default::default(),
    };
    list.seal(None);
    list
}

#[test]
fn golden_bytes_of_this_format() {
    assert_eq!(
        encode(&node()),
        [
            8, 1, 172, 2, 1, 1, 97, 0, 0, 5, 3, 104, 58, 49, 3, 104, 58, 50, 3, 104, 58, 51, 0, 0, 1, 2, 1, 2, 0
        ]
    );
    assert_eq!(
        encode(&list()),
        [
            8, 4, 2, 1, 1, 1, 1, 2, 0, 1, 1, 172, 2, 2, 1, 1, 1, 2, 0, 3, 1, 5, 144, 3, 0, 1, 6, 5, 7, 4, 0, 2, 0, 150,
            231, 135, 136, 168, 198, 155, 199, 112, 0, 0
        ]
    );
    let head = Head {
        openings: 3,
        reign: 300,
        attempt: 2,
    };
    assert_eq!(encode(&head), [8, 3, 172, 2, 2]);
    let plan = encode(&plan());
    assert_eq!(
        plan,
        [
            8, 9, 1, 1, 1, 2, 0, 1, 48, 1, 1, 49, 0, 128, 128, 1, 208, 15, 232, 7, 244, 3, 1, 0, 0, 0, 0, 0, 0, 0
        ]
    );
    let mut logged = ClusterPlan::simple(ClusterId(9), 1, 2, 2, 0);
    logged.logged = 1;
    logged.log_nodes = vec![PlannedNode {
        id: NodeId(2),
        domain: "b".into(),
    }];
    let logged = encode(&logged);
    assert_eq!(logged[logged.len() - 6..], [1, 1, 2, 1, 98, 0]);
}

#[test]
fn records_of_an_older_format_are_refused_with_what_to_do() {
    for format in [1, 2, 4] {
        let mut store = created();
        for (key, mut old) in store.list("").unwrap() {
            old[0] = format;
            write(&mut store, &key, old);
        }
        let before = store.list("").unwrap();
        let told = Records::open(&mut store, &plan(), 7, Versions::OURS)
            .unwrap_err()
            .to_string();
        assert!(told.contains("snapshot") && told.contains("new cluster"), "{told}");
        assert_eq!(store.list("").unwrap(), before);
    }
}

#[test]
fn an_empty_store_has_no_cluster_and_a_cluster_is_created_once() {
    let mut store = MemoryStore::new();
    let told = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap_err();
    assert_eq!(told, OpenError::NoCluster);
    assert!(told.to_string().contains("--create"), "{told}");
    assert!(store.list("").unwrap().is_empty(), "opening must not create a cluster");
    let mut store = created();
    let before = store.list("").unwrap();
    assert_eq!(Records::create(&mut store, &plan()), Err(OpenError::Exists));
    assert_eq!(store.list("").unwrap(), before);
}

#[test]
fn ids_of_earlier_epochs_are_recorded() {
    let mut store = created();
    let mut records = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
    let mut all = vec![list()];
    records.commit(&mut store, &[], &all, None).unwrap();
    for epoch in 3..40 {
        let mut next = Configuration {
            epoch: Epoch(epoch),
            ..all[all.len() - 1].clone()
        };
        next.seal(all.last());
        records
            .commit(&mut store, &[], std::slice::from_ref(&next), None)
            .unwrap();
        all.push(next);
    }
    for records in [
        &records,
        &Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap(),
    ] {
        let of = ListId(4);
        for c in &all {
            assert_eq!(records.knows(of, c.epoch, c.id), Some(true));
            assert_eq!(records.knows(of, c.epoch, c.id ^ 1), Some(false));
            let found = records.list_since(of, c.epoch).unwrap();
            assert_eq!(found.lineage(c.epoch, c.id), Lineage::Follows, "of epoch {}", c.epoch.0);
        }
        assert_eq!(
            records.knows(of, Epoch(40), 7),
            Some(false),
            "epoch 40 is later than the newest"
        );
        assert_eq!(
            records.knows(of, Epoch(1), 7),
            None,
            "epoch 1 is earlier than the recorded history"
        );
        assert_eq!(
            records.knows(ListId(5), Epoch(1), 7),
            Some(false),
            "list 5 does not exist"
        );
        let newest = &all[all.len() - 1];
        assert_eq!(newest.trail.len(), Configuration::TRAIL_MAX);
    }
}

#[test]
fn records_are_read_back() {
    let mut store = created();
    let mut records = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
    records.commit(&mut store, &[node()], &[list()], None).unwrap();
    let again = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
    assert_eq!(again.nodes[&NodeId(1)], node());
    assert_eq!(again.lists[&ListId(4)], list());
    assert_eq!(again.cluster, plan().record());
}

#[test]
fn a_record_of_a_newer_format_is_refused_and_nothing_changed() {
    let mut store = created();
    write(&mut store, "node/00000", vec![9, 1, 2, 3]);
    let before = store.list("").unwrap();
    let refused = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap_err();
    assert_eq!(
        refused,
        OpenError::NewerFormat {
            key: "node/00000".into(),
            found: 9,
            known: 8
        }
    );
    assert_eq!(
        refused.to_string(),
        "record node/00000 has format 9, this version knows 8: use a newer paritas"
    );
    assert_eq!(store.list("").unwrap(), before);
}

#[test]
fn a_damaged_record_is_reported() {
    for bytes in [vec![], vec![0], vec![8], vec![8, 255, 255, 255, 255]] {
        let mut store = created();
        write(&mut store, "list/00000", bytes);
        let refused = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap_err();
        assert_eq!(
            refused,
            OpenError::Damaged {
                key: "list/00000".into()
            }
        );
    }
}

#[test]
fn another_plan_is_refused() {
    let mut store = created();
    let other = ClusterPlan::simple(ClusterId(10), 1, 1, 3, 0);
    assert!(matches!(
        Records::open(&mut store, &other, 7, Versions::OURS),
        Err(OpenError::OtherPlan { .. })
    ));
    let told = |change: fn(&mut ClusterPlan)| {
        let mut other = plan();
        change(&mut other);
        let mut store = store.clone();
        Records::open(&mut store, &other, 7, Versions::OURS)
            .unwrap_err()
            .to_string()
    };
    for (says, change) in [
        (
            "lease_ms = 2000, which is fixed, and the settings or defaults say 700: set lease_ms to",
            (|p| p.lease_ms = 700) as fn(&mut ClusterPlan),
        ),
        (
            "one_slot = , which is fixed, and the settings or defaults say db:1: set one_slot to",
            |p| *p = p.clone().with_one_slot(&"db:1".parse().unwrap()),
        ),
        ("scheme = 1+1, ", |p| *p = ClusterPlan::simple(ClusterId(9), 2, 0, 2, 0)),
        (
            "chunk = 16384, which is fixed, and the settings or defaults say 4096",
            |p| {
                p.chunk_bytes = 4096;
            },
        ),
        (
            "domains = `1` for n1, which is fixed, and the settings or defaults say `b` for n1",
            |p| {
                p.nodes[1].domain = "b".into();
            },
        ),
    ] {
        let told = told(change);
        assert!(told.contains(says), "{told}");
    }
    // `paritas set` may have changed these settings: those of the store are used.
    let original = ClusterPlan {
        suspicion_ms: 700,
        lost_policy: LostPolicy::Reset,
        ..plan()
    };
    let opened = Records::open(&mut store, &original, 7, Versions::OURS).unwrap().plan;
    assert_eq!((opened.suspicion_ms, opened.lost_policy), (1000, LostPolicy::Stop));
    let same = ClusterPlan::simple(ClusterId(10), 1, 1, 2, 0);
    assert_eq!(
        Records::open(&mut store, &same, 7, Versions::OURS).unwrap().cluster.id,
        ClusterId(9),
        "the id of the store is used"
    );
}

#[test]
fn an_invalid_plan_is_refused_before_anything_is_written() {
    let mut store = MemoryStore::new();
    let hasty = ClusterPlan {
        suspicion_ms: 300,
        ..plan()
    };
    let refused = Records::create(&mut store, &hasty).unwrap_err().to_string();
    assert!(
        refused.contains("suspicion_ms 300") && store.list("").unwrap().is_empty(),
        "{refused}"
    );
}

#[test]
fn a_replaced_coordinator_cannot_commit() {
    let mut store = created();
    let mut old = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
    let mut new = Records::open(&mut store, &plan(), 8, Versions::OURS).unwrap();
    let conflict = old.commit(&mut store, &[node()], &[], None);
    assert_eq!(conflict, Err(StoreError::Conflict));
    assert_eq!(old.reload(&store), Ok(Standing::Deposed));
    new.commit(&mut store, &[node()], &[], None).unwrap();
}

/// Commits a list of the next epoch.
fn commit_next(records: &mut Records, store: &mut MemoryStore) -> Result<(), StoreError> {
    let mut next = list();
    if let Some(now) = records.lists.get(&next.list) {
        next = Configuration {
            epoch: Epoch(now.epoch.0 + 1),
            ..now.clone()
        };
        next.seal(Some(now));
    }
    records.commit(store, &[], &[next], None)
}

fn epoch(records: &Records) -> u32 {
    records.lists[&ListId(4)].epoch.0
}

#[test]
fn a_store_that_was_put_back_under_its_coordinator_is_refused_and_not_read() {
    let mut store = created();
    let before_opening = store.clone();
    let mut records = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
    let mut copies = vec![MemoryStore::new(), before_opening, store.clone()];
    for _ in 0..3 {
        commit_next(&mut records, &mut store).unwrap();
        copies.push(store.clone());
    }
    copies.pop();
    for (n, copy) in copies.into_iter().enumerate() {
        for is_unsure in [false, true] {
            let (mut records, mut store) = (records.clone(), store.clone());
            if is_unsure {
                store.fail_commits(1);
                assert!(matches!(
                    commit_next(&mut records, &mut store),
                    Err(StoreError::Medium(_))
                ));
            }
            store.put_back(copy.clone());
            let before = store.list("").unwrap();
            assert_eq!(
                commit_next(&mut records, &mut store),
                Err(StoreError::Conflict),
                "copy {n}"
            );
            assert_eq!(records.standing(&store), Ok(Standing::WentBack), "copy {n}");
            assert_eq!(records.reload(&store), Ok(Standing::WentBack), "copy {n}");
            assert_eq!(epoch(&records), 4, "nothing of the copy is read");
            assert_eq!(store.list("").unwrap(), before, "nothing is written over the copy");
        }
    }
}

#[test]
fn commits_that_seemed_to_fail_are_read_back_if_they_took_effect() {
    let mut store = created();
    let mut records = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
    commit_next(&mut records, &mut store).unwrap();
    for (lost_answers, failures) in [(1, 0), (0, 1), (0, 2), (1, 1)] {
        let before = epoch(&records);
        store.fail_commits(failures);
        store.lose_answers(lost_answers);
        for _ in 0..failures + lost_answers {
            assert!(matches!(
                commit_next(&mut records, &mut store),
                Err(StoreError::Medium(_))
            ));
        }
        let standing = [Standing::Unchanged, Standing::Landed][lost_answers as usize];
        assert_eq!(records.reload(&store), Ok(standing));
        assert_eq!(epoch(&records), before + lost_answers);
        commit_next(&mut records, &mut store).unwrap();
    }
}

#[test]
fn a_commit_that_lands_late_is_read_before_the_next_decision_or_has_no_effect() {
    for is_read_before in [false, true] {
        let mut store = created();
        let mut records = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
        commit_next(&mut records, &mut store).unwrap();
        let before = epoch(&records);
        store.delay_commits(1);
        assert!(matches!(
            commit_next(&mut records, &mut store),
            Err(StoreError::Medium(_))
        ));
        assert_eq!(records.reload(&store), Ok(Standing::Unchanged));
        assert_eq!(epoch(&records), before, "it has not landed");
        if is_read_before {
            // It lands first, and the next attempt is refused.
            assert_eq!(store.land_late(), 1);
            assert_eq!(commit_next(&mut records, &mut store), Err(StoreError::Conflict));
            assert_eq!(records.reload(&store), Ok(Standing::Landed));
        } else {
            commit_next(&mut records, &mut store).unwrap();
            assert_eq!(store.land_late(), 0);
        }
        assert_eq!(epoch(&records), before + 1);
        commit_next(&mut records, &mut store).unwrap();
    }
}

/// If the number of a failed attempt were used again, the late one would leave a head that looks right.
#[test]
fn a_late_commit_on_a_store_that_was_put_back_is_not_taken_for_a_later_one() {
    let mut store = created();
    let mut records = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
    commit_next(&mut records, &mut store).unwrap();
    let copy = store.clone();
    store.delay_commits(1);
    // Its contents are others than those of the next attempt.
    let late = records.commit(&mut store, &[node()], &[], None);
    assert!(matches!(late, Err(StoreError::Medium(_))));
    assert_eq!(records.reload(&store), Ok(Standing::Unchanged));
    commit_next(&mut records, &mut store).unwrap();
    store.put_back(copy);
    assert_eq!(store.land_late(), 1, "it lands on the copy");
    assert_eq!(commit_next(&mut records, &mut store), Err(StoreError::Conflict));
    assert_eq!(records.reload(&store), Ok(Standing::WentBack));
}

/// Of two attempts that seemed to fail one has landed. The other can land on a copy only.
#[test]
fn an_attempt_that_another_has_overtaken_does_not_count_as_landed() {
    let mut store = created();
    let mut records = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
    commit_next(&mut records, &mut store).unwrap();
    let copy = store.clone();
    store.delay_commits(1);
    assert!(commit_next(&mut records, &mut store).is_err());
    let mut with_late = store.clone();
    let mut other = records.clone();
    // The second attempt lands, and the coordinator goes on from it.
    with_late.lose_answers(1);
    assert!(other.commit(&mut with_late, &[node()], &[], None).is_err());
    assert_eq!(other.reload(&with_late), Ok(Standing::Landed));
    with_late.put_back(copy);
    assert_eq!(with_late.land_late(), 1);
    assert_eq!(other.reload(&with_late), Ok(Standing::WentBack));
}

#[test]
fn an_ended_incarnation_stays_ended() {
    let mut node = node();
    node.begin(Incarnation(400));
    assert!(node.is_over(Incarnation(300)) && node.is_over(Incarnation(2)) && !node.is_over(Incarnation(400)));
    node.certify(Incarnation(300));
    assert_eq!(node.past, [(Incarnation(2), true), (Incarnation(300), true)]);
    node.certify(Incarnation(400));
    assert!(node.is_over(Incarnation(400)));
    node.certify(Incarnation(500));
    assert!(
        node.is_over(Incarnation(500)),
        "an incarnation that never registered can be certified"
    );
}

#[test]
fn an_end_is_encoded_as_one_byte() {
    let ends = [End::Unknown, End::Certified, End::Attested].map(|end| encode(&end));
    assert_eq!(ends, [[RECORD_FORMAT, 0], [RECORD_FORMAT, 1], [RECORD_FORMAT, 2]]);
    let mut node = node();
    node.attest(Incarnation(7));
    assert!(!node.has_ended(), "the end of another incarnation must not count");
    node.attest(Incarnation(300));
    assert!(node.has_ended() && node.is_over(Incarnation(300)));
    node.begin(Incarnation(400));
    assert_eq!(
        node.past.last(),
        Some(&(Incarnation(300), false)),
        "the end is not certified"
    );
}

/// Opens a store in which one record is replaced.
fn opened_with(key: &str, value: Vec<u8>) -> Result<Records, OpenError> {
    let mut store = created();
    let mut records = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
    records.commit(&mut store, &[node()], &[list()], None).unwrap();
    write(&mut store, key, value);
    Records::open(&mut store, &plan(), 7, Versions::OURS)
}

#[test]
fn a_record_with_invalid_values_is_reported_as_damaged() {
    let wrong_lists: [fn(&mut Configuration); 6] = [
        // Fewer parities than positions: the rules would read beyond the end.
        |c| c.parity = 0,
        |c| c.data = 2,
        |c| c.ack_quorum = 9,
        |c| c.epoch = Epoch(u32::MAX),
        |c| c.born = Epoch(3),
        |c| c.list = ListId(5),
    ];
    for change in wrong_lists {
        let mut wrong = list();
        change(&mut wrong);
        let error = opened_with("list/00004", encode(&wrong)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record list/00004 is damaged or missing",
            "{wrong:?}"
        );
    }
    let error = opened_with("node/00002", encode(&node())).unwrap_err();
    assert_eq!(error.to_string(), "record node/00002 is damaged or missing");
    let mut cluster = plan().record();
    cluster.slots.clear();
    let error = opened_with("cluster", encode(&cluster)).unwrap_err();
    assert_eq!(error.to_string(), "record cluster is damaged or missing");
}

/// What a later version adds: a section that may be left out, and one that must not.
fn more(tag: u8) -> Sections {
    let mut more = Sections::none();
    more.put(tag, b"later");
    more
}

#[test]
fn what_a_later_version_has_added_to_records_is_kept_when_they_are_written_again() {
    let mut store = created();
    let mut records = Records::open(&mut store, &plan(), 7, Versions::OURS).unwrap();
    let mut node = node();
    (node.more, node.record.more) = (more(3), more(4));
    let mut list = list();
    list.more = more(5);
    list.seal(None);
    let slots = StoredSlots {
        more: more(6),
        ..StoredSlots::default()
    };
    records.commit(&mut store, &[node], &[list], Some(&slots)).unwrap();
    let (mut plan_more, mut cluster) = (records.plan.clone(), records.cluster.clone());
    (plan_more.more, cluster.more) = (more(7), more(8));
    records.commit_settings(&mut store, plan_more, cluster).unwrap();
    let mut again = Records::open(&mut store, &plan(), 8, Versions::OURS).unwrap();
    // Each record is changed and written anew.
    let mut node = again.nodes[&NodeId(1)].clone();
    node.record.pid = 77;
    let mut next = again.lists[&ListId(4)].clone();
    next.epoch = Epoch(3);
    next.seal(Some(&again.lists[&ListId(4)]));
    let mut slots = again.slots.clone();
    slots.version += 1;
    again
        .commit(&mut store, &[node], &[next.clone()], Some(&slots))
        .unwrap();
    let (mut settings, mut cluster) = (again.plan.clone(), again.cluster.clone());
    (settings.suspicion_ms, cluster.suspicion_ms) = (2_000, 2_000);
    again.commit_settings(&mut store, settings, cluster).unwrap();
    let last = Records::open(&mut store, &plan(), 9, Versions::OURS).unwrap();
    let node = &last.nodes[&NodeId(1)];
    let list = &last.lists[&ListId(4)];
    assert_eq!(
        (node.record.pid, &node.more, &node.record.more),
        (77, &more(3), &more(4))
    );
    // What a process has said of itself is not said of the next one.
    let mut node = node.clone();
    node.begin(Incarnation(301));
    assert_eq!((&node.more, &node.record.more), (&more(3), &Sections::none()));
    assert_eq!((list.epoch, &list.more, list.id), (Epoch(3), &more(5), next.id));
    assert_eq!((last.slots.version, &last.slots.more), (1, &more(6)));
    assert_eq!((&last.plan.more, &last.cluster.more), (&more(7), &more(8)));
    let mut other = next;
    other.more = more(9);
    other.seal(None);
    assert_ne!(
        other.id, list.id,
        "the id of a configuration covers what a later version has added"
    );
}

#[test]
fn a_record_with_what_must_not_be_left_out_is_refused_by_name() {
    let told = |key: &str, value: Vec<u8>| opened_with(key, value).unwrap_err().to_string();
    // 128 in the cluster's record is kept for a shift of locators.
    let mut cluster = plan().record();
    cluster.more = more(128);
    let why = told("cluster", encode(&cluster));
    assert!(
        why.starts_with("record cluster: it has section 128, which this version does not know"),
        "{why}"
    );
    let mut changed = node();
    changed.more = more(200);
    assert!(told("node/00001", encode(&changed)).contains("node/00001: it has section 200"));
    let mut changed = node();
    changed.record.more = more(201);
    assert!(told("node/00001", encode(&changed)).contains("section 201"));
    let mut changed = list();
    changed.more = more(202);
    assert!(told("list/00004", encode(&changed)).contains("section 202"));
    let slots = StoredSlots {
        more: more(203),
        ..StoredSlots::default()
    };
    assert!(told("slots", encode(&slots)).contains("section 203"));
    // Records that are kept for later, and any other.
    for key in ["settings", "layout", "future/1"] {
        let why = told(key, encode(&7u8));
        assert_eq!(
            why,
            format!("there is a record {key} in it, which this version does not know: use a newer paritas")
        );
    }
}

#[test]
fn a_cluster_of_a_newer_format_is_refused() {
    let mut cluster = plan().record();
    cluster.active_version = 9;
    let error = opened_with("cluster", encode(&cluster)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "record cluster has format 9, this version knows 8: use a newer paritas"
    );
}
