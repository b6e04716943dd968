//! Chunks are brought back in the background with parities of log nodes too (LogECMem §5.3, P5.7). Mostly with
//! scheme `3+2/1` on nodes 0 to 4, of which node 4 has the disk, and a spare that takes the place of node 0.

use paritas_base::configuration::PositionState;
use paritas_base::{ListId, NodeId, Position, StreamId, Version};
use paritas_protocol::paritylog::{Layout, Space, Work};
use paritas_protocol::{Channel, LogAssist, Parameters, Port};
use paritas_testbed::{Client, Cluster, tenure};
use paritas_wire::peer::{self, Header, Message, Parity, Versions};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

const KEYS: usize = 400;
const VALUE_BYTES: usize = 3_000;
const MEMORY: usize = 3;
const LOG_NODE: usize = 4;
const SPARE: usize = 5;

/// What the owners asked each parity for, and how many of the log node's answers had none.
#[derive(Clone, Copy, Default, Debug)]
struct Asked {
    memory: u64,
    log: u64,
    refused: u64,
}

type Change = Box<dyn FnMut(usize, &Header, &Message<'_>) -> Option<Vec<u8>>>;

fn no_change() -> Change {
    Box::new(|_, _, _| None)
}

fn value(n: usize) -> String {
    format!("{n:0>VALUE_BYTES$}")
}

fn parameters(log_assist: LogAssist) -> Parameters {
    Parameters {
        log_assist,
        ..Parameters::default()
    }
}

/// With all on the disk, and node 0 dead but not yet replaced.
fn filled(parameters: Parameters) -> (Cluster, Client) {
    let mut cluster = Cluster::logged(3, 2, 1, 1, Layout::Plm, parameters);
    let client = cluster.connect(1, Port::Any);
    for n in 0..KEYS {
        assert_eq!(cluster.ask(client, &format!("SET key{n} {}", value(n))), "+OK\r\n");
    }
    cluster.advance(2_000);
    cluster.kill(0);
    (cluster, client)
}

/// Counts what is asked, under this change to what is sent.
fn watch(cluster: &mut Cluster, mut change: Change) -> Rc<Cell<Asked>> {
    let asked: Rc<Cell<Asked>> = Rc::default();
    let seen = Rc::clone(&asked);
    cluster.tamper = Some(Box::new(move |from, to, header, message| {
        let mut now = seen.get();
        match message {
            Message::ReadParity { .. } => {
                now.memory += u64::from(to == MEMORY);
                now.log += u64::from(to == LOG_NODE);
            }
            Message::ParityValue { parity: None, .. } => now.refused += u64::from(from == LOG_NODE),
            _ => {}
        }
        seen.set(now);
        change(from, header, message)
    }));
    asked
}

/// Node 5 takes its place.
fn take_over(cluster: &mut Cluster, change: Change) -> Rc<Cell<Asked>> {
    let asked = watch(cluster, change);
    cluster.reconfigure(0, |c| c.gone = vec![(NodeId(0), tenure(0, 1).incarnation)]);
    cluster.hand_over(0, 0, SPARE);
    asked
}

/// Chunks brought back with the log node's help, once all are back.
fn whole(cluster: &mut Cluster, client: Client, timeout_ms: u64) -> u64 {
    whole_at(cluster, SPARE, client, timeout_ms)
}

fn whole_at(cluster: &mut Cluster, node: usize, client: Client, timeout_ms: u64) -> u64 {
    let absent = |cluster: &Cluster| {
        let list = cluster.processes[node].node.replica().list(ListId(0)).unwrap();
        let owner = list.owners().next().expect("it is an owner");
        (!owner.is_whole()).then(|| owner.store().chunks().absent_count())
    };
    for _ in 0..timeout_ms {
        if absent(cluster).is_none() {
            break;
        }
        cluster.advance(1);
    }
    assert_eq!(absent(cluster), None, "absent after {timeout_ms} ms");
    all_are(cluster, client);
    assisted(cluster, node)
}

fn assisted(cluster: &mut Cluster, node: usize) -> u64 {
    let spare = cluster.connect(node, Port::Any);
    let info = cluster.ask(spare, "INFO paritas");
    let line = info.lines().find_map(|line| line.strip_prefix("log_assisted_chunks:"));
    line.expect(&info).parse().unwrap()
}

fn all_are(cluster: &mut Cluster, client: Client) {
    for n in 0..KEYS {
        cluster.feed(client, format!("GET key{n}\r\n").as_bytes());
        for _ in 0..500 {
            cluster.advance(1);
            let reply = String::from_utf8(cluster.take(client)).unwrap();
            if !reply.is_empty() {
                assert!(reply.ends_with(&format!("{}\r\n", value(n))), "key{n}: {reply}");
                break;
            }
        }
    }
}

#[test]
fn on_takes_as_many_parities_from_the_log_node_as_from_memory() {
    let (mut cluster, client) = filled(parameters(LogAssist::On));
    let asked = take_over(&mut cluster, no_change());
    let assisted = whole(&mut cluster, client, 1_000);
    let asked = asked.get();
    assert!(asked.log > 10 && asked.log.abs_diff(asked.memory) <= 2, "{asked:?}");
    assert_eq!(assisted, asked.log, "{asked:?}");
}

/// `3+3/2` under this change: node 6 takes the place of node 0. How many chunks and parities it asked each node for,
/// and how many chunks log nodes helped with.
fn with_two_log_nodes(mut change: Change) -> ([usize; 7], u64) {
    let mut cluster = Cluster::logged(3, 3, 2, 1, Layout::Plm, parameters(LogAssist::On));
    let (client, successor) = (cluster.connect(1, Port::Any), 6);
    for n in 0..KEYS {
        assert_eq!(cluster.ask(client, &format!("SET key{n} {}", value(n))), "+OK\r\n");
    }
    cluster.advance(2_000);
    cluster.kill(0);
    let asked: Rc<RefCell<[usize; 7]>> = Rc::default();
    let seen = Rc::clone(&asked);
    cluster.tamper = Some(Box::new(move |from, to, header, message| {
        let asks = matches!(
            message,
            Message::ReadParity { .. } | Message::ReadChunk { want: None, .. }
        );
        seen.borrow_mut()[to] += usize::from(asks && from == successor);
        change(from, header, message)
    }));
    cluster.reconfigure(0, |c| c.gone = vec![(NodeId(0), tenure(0, 1).incarnation)]);
    cluster.hand_over(0, 0, successor);
    let assisted = whole_at(&mut cluster, successor, client, 1_000);
    assert_eq!(
        cluster.processes[successor].node.replica().bad_sums(),
        0,
        "no sum was wrong"
    );
    (*asked.borrow(), assisted)
}

/// All five others send as much, of whom each chunk takes three.
#[test]
fn two_log_nodes_spare_owners_too() {
    let (asked, assisted) = with_two_log_nodes(no_change());
    let each = asked[1];
    assert!(
        each > 10 && asked[1..6].iter().all(|n| n.abs_diff(each) <= 2),
        "{asked:?}"
    );
    // Of the five sets that take turns one has no log node.
    assert!(assisted as usize > each, "{asked:?}, {assisted}");
}

/// P5.7c between parities: what one stands for is not what the other does.
#[test]
fn two_parities_for_different_versions_are_not_used_together() {
    let (asked, _) = with_two_log_nodes(later_parities());
    assert!(asked[MEMORY] > asked[1] + 10, "asked again, of memory first: {asked:?}");
}

#[test]
fn auto_shares_between_those_who_answer_alike() {
    let (mut cluster, client) = filled(parameters(LogAssist::Auto));
    let asked = take_over(&mut cluster, no_change());
    let assisted = whole(&mut cluster, client, 1_000);
    let asked = asked.get();
    assert!(
        asked.log * 4 > asked.memory && asked.memory * 4 > asked.log,
        "{asked:?}"
    );
    assert_eq!(assisted, asked.log, "{asked:?}");
}

#[test]
fn off_does_not_ask_the_log_node_while_there_is_a_parity_in_memory() {
    let (mut cluster, client) = filled(parameters(LogAssist::Off));
    let asked = take_over(&mut cluster, no_change());
    assert_eq!(whole(&mut cluster, client, 1_000), 0);
    let asked = asked.get();
    assert!(asked.memory > 20 && asked.log == 0, "{asked:?}");
}

#[test]
fn the_setting_changes_while_a_node_runs() {
    let (mut cluster, client) = filled(parameters(LogAssist::On));
    let spare = cluster.connect(SPARE, Port::Any);
    let refused = cluster.ask(spare, "CONFIG SET log-assist sometimes");
    assert!(refused.contains("one of the following: on, off, auto"), "{refused}");
    assert_eq!(cluster.ask(spare, "CONFIG SET log-assist off"), "+OK\r\n");
    assert!(cluster.ask(spare, "CONFIG GET log-assist").ends_with("off\r\n"));
    let asked = take_over(&mut cluster, no_change());
    assert_eq!(whole(&mut cluster, client, 1_000), 0);
    assert_eq!(asked.get().log, 0);
}

#[test]
fn a_command_waits_for_the_parity_in_memory_only() {
    let (mut cluster, client) = filled(Parameters {
        // The background brings next to nothing.
        rebuild_rate: Some(1),
        ..parameters(LogAssist::On)
    });
    let asked = take_over(&mut cluster, no_change());
    all_are(&mut cluster, client);
    let asked = asked.get();
    assert!(asked.memory > 20 && asked.log <= 1, "{asked:?}");
}

#[test]
fn what_the_disk_has_lost_comes_from_memory_at_once() {
    let (mut cluster, client) = filled(parameters(LogAssist::On));
    let resend_ms = Parameters::default().resend.as_ms();
    cluster.disk(LOG_NODE).wipe();
    let asked = take_over(&mut cluster, no_change());
    let assisted = whole(&mut cluster, client, resend_ms / 2);
    let asked = asked.get();
    assert!(
        asked.refused > 10 && asked.refused + assisted == asked.log,
        "{asked:?}, {assisted} assisted"
    );
}

/// Nothing is faster than a refusal: it is not taken for a good answer.
#[test]
fn auto_does_not_go_to_a_log_node_that_refuses() {
    let (mut cluster, client) = filled(Parameters {
        fetch_max: 4,
        ..parameters(LogAssist::Auto)
    });
    cluster.disk(LOG_NODE).wipe();
    let asked = take_over(&mut cluster, no_change());
    whole(&mut cluster, client, 1_000);
    let asked = asked.get();
    assert!(asked.memory > 20 && (1..=4).contains(&asked.refused), "{asked:?}");
}

#[test]
fn a_disk_that_does_not_answer_delays_the_rebuild_by_little() {
    let (mut cluster, client) = filled(parameters(LogAssist::Auto));
    cluster.disk(LOG_NODE).held = true;
    let asked = take_over(&mut cluster, no_change());
    // Those that it was asked for are asked for again after a while, of the other.
    assert_eq!(whole(&mut cluster, client, 1_000), 0);
    assert!(asked.get().log <= 40, "{:?}", asked.get());
}

/// The log node's parities stand for a later version of data chunk 1 than there is, and for other bytes.
fn later_parities() -> Change {
    changed_parities(|parity, versions, bytes| {
        if let Some(version) = versions.get_mut(1) {
            *version = Version::new(version.term(), version.seq() + 1);
        }
        // Were it used, the chunk would be wrong.
        if let Some(first) = bytes.first_mut() {
            *first ^= 1;
        }
        parity.recv
    })
}

/// The log node is behind: what it gives is right, but as of an older delta.
fn parities_from_behind() -> Change {
    changed_parities(|_, _, _| 0)
}

/// What the log node gives, with `change` made to versions and bytes, and as of the delta that it returns.
fn changed_parities(mut change: impl FnMut(&Parity<'_>, &mut [Version], &mut [u8]) -> u64 + 'static) -> Change {
    Box::new(move |from, header, message| match message {
        Message::ParityValue {
            id,
            stripe,
            parity: Some(parity),
        } if from == LOG_NODE => {
            let mut versions: Vec<Version> = parity.versions.iter().collect();
            let mut bytes = parity.bytes.to_vec();
            let recv = change(parity, &mut versions, &mut bytes);
            let mut encoded = Vec::new();
            for version in versions {
                Versions::push(&mut encoded, version);
            }
            let parity = Parity {
                recv,
                term: parity.term,
                versions: Versions::new(&encoded),
                sum: parity.sum,
                bytes: &bytes,
            };
            let mut frame = Vec::new();
            let value = Message::ParityValue {
                id: *id,
                stripe: *stripe,
                parity: Some(parity),
            };
            peer::encode(&mut frame, header, &value);
            Some(frame)
        }
        _ => None,
    })
}

/// P5.7c also holds for parity from a log node.
#[test]
fn a_parity_of_the_log_node_for_another_version_is_not_used() {
    let (mut cluster, client) = filled(parameters(LogAssist::On));
    let asked = take_over(&mut cluster, later_parities());
    assert_eq!(whole(&mut cluster, client, 100), 0);
    let asked = asked.get();
    assert!(asked.log > 10 && asked.memory >= 2 * asked.log - 2, "{asked:?}");
    assert_eq!(
        cluster.processes[SPARE].node.replica().bad_sums(),
        0,
        "no sum was wrong"
    );
}

#[test]
fn a_chunk_that_is_being_read_is_not_read_twice() {
    let (mut cluster, _) = filled(parameters(LogAssist::Auto));
    let list = cluster.processes[LOG_NODE].node.replica().list(ListId(0)).unwrap();
    let stripe = list.member().unwrap().valid_stripes().next().unwrap();
    cluster.disk(LOG_NODE).held = true;
    let answers = Rc::new(Cell::new(0));
    let count = Rc::clone(&answers);
    cluster.tamper = Some(Box::new(move |from, to, _, message| {
        let answer = (from, to) == (LOG_NODE, 1) && matches!(message, Message::ParityValue { parity: Some(_), .. });
        count.set(count.get() + usize::from(answer));
        None
    }));
    let link = cluster.link_between(1, LOG_NODE, Channel::Bulk).unwrap();
    for id in 1..=3 {
        let header = Header {
            stream: StreamId {
                list: ListId(0),
                x: Position(1),
            },
            epoch: cluster.configurations[0].epoch,
        };
        let mut frame = Vec::new();
        peer::encode(&mut frame, &header, &Message::ReadParity { id, stripe });
        cluster.hear(LOG_NODE, link, &frame);
    }
    cluster.pump();
    let waiting = &cluster.disk(LOG_NODE).waiting;
    let reads = || waiting.iter().filter(|io| matches!(io.work, Work::Read(_)));
    let places: BTreeSet<(bool, u64)> = reads().map(|io| (io.space == Space::Log, io.at)).collect();
    assert!(reads().count() > 0 && answers.get() == 0);
    assert_eq!(places.len(), reads().count(), "no place twice");
    cluster.disk(LOG_NODE).held = false;
    cluster.pump();
    assert_eq!(answers.get(), 3);
}

/// Node 5 takes the place of node 3, whose parity was the one in memory; writes go on. Then node 6 that of node 0, with
/// that parity and no disk: all keys are right. What was asked for the refill, and how many chunks the log node helped
/// with.
fn refilled(log_assist: LogAssist, wipe: bool, change: Change) -> (Asked, u64) {
    let mut cluster = Cluster::logged(3, 2, 1, 2, Layout::Plm, parameters(log_assist));
    let client = cluster.connect(1, Port::Any);
    for n in 0..KEYS {
        assert_eq!(cluster.ask(client, &format!("SET key{n} {}", value(n))), "+OK\r\n");
    }
    cluster.advance(2_000);
    cluster.kill(MEMORY);
    if wipe {
        cluster.disk(LOG_NODE).wipe();
    }
    let asked = watch(&mut cluster, change);
    cluster.reconfigure(0, |c| c.gone = vec![(NodeId(3), tenure(3, 1).incarnation)]);
    cluster.hand_over(0, 3, SPARE);
    for n in 0..KEYS {
        cluster.feed(client, format!("SET key{n} {}\r\n", value(n)).as_bytes());
        cluster.advance(1);
    }
    let todo = cluster.processes[SPARE].node.figures().rebuild_todo_bytes;
    assert_eq!(todo, 0, "the parity is whole");
    let asked = asked.get();
    let assisted = assisted(&mut cluster, SPARE);
    cluster.tamper = None;
    cluster.disk(LOG_NODE).wipe();
    cluster.reconfigure(0, |c| c.positions[3].as_mut().unwrap().state = PositionState::Live);
    cluster.kill(0);
    cluster.reconfigure(0, |c| c.gone.push((NodeId(0), tenure(0, 1).incarnation)));
    cluster.hand_over(0, 0, 6);
    cluster.take(client);
    cluster.advance(3_000);
    all_are(&mut cluster, client);
    (asked, assisted)
}

#[test]
fn a_parity_is_refilled_with_the_log_node_s_in_place_of_a_chunk() {
    for log_assist in [LogAssist::On, LogAssist::Auto] {
        let (asked, assisted) = refilled(log_assist, false, no_change());
        assert!(assisted > 5 && asked.log >= assisted, "{asked:?}, {assisted}");
    }
    let (asked, assisted) = refilled(LogAssist::Off, false, no_change());
    assert_eq!((asked.log, assisted), (0, 0));
}

#[test]
fn a_parity_is_refilled_by_the_owners_where_the_log_node_s_is_lost_of_another_version_or_behind() {
    let (asked, assisted) = refilled(LogAssist::On, true, no_change());
    assert!(asked.refused > 5 && assisted == 0, "{asked:?}, {assisted}");
    for change in [later_parities(), parities_from_behind()] {
        let (asked, assisted) = refilled(LogAssist::On, false, change);
        assert!(asked.log > 5 && assisted == 0, "{asked:?}, {assisted}");
    }
}

/// `3+3/2`: node 5, a log node too, has nothing of its parity, and refills while writes go on. Then node 6 takes the
/// place of node 0, when only that parity is left.
#[test]
fn a_log_node_is_refilled_with_the_other_s_parity_in_place_of_a_chunk() {
    for (log_assist, helps) in [(LogAssist::On, true), (LogAssist::Auto, true), (LogAssist::Off, false)] {
        let mut cluster = Cluster::logged(3, 3, 2, 1, Layout::Plm, parameters(log_assist));
        let client = cluster.connect(1, Port::Any);
        cluster.reconfigure(0, |c| c.positions[5] = None);
        for n in 0..KEYS {
            assert_eq!(cluster.ask(client, &format!("SET key{n} {}", value(n))), "+OK\r\n");
        }
        cluster.advance(2_000);
        let asked = watch(&mut cluster, no_change());
        cluster.hand_over(0, 5, 5);
        for n in 0..KEYS {
            cluster.feed(client, format!("SET key{n} {}\r\n", value(n)).as_bytes());
            cluster.advance(1);
        }
        assert_eq!(
            cluster.processes[5].node.figures().rebuild_todo_bytes,
            0,
            "the parity is whole"
        );
        let (asked, assisted) = (asked.get(), assisted(&mut cluster, SPARE));
        assert_eq!(
            (assisted > 5, asked.log > 5),
            (helps, helps),
            "{log_assist}: {asked:?}, {assisted}"
        );
        cluster.tamper = None;
        for lost in [0, MEMORY, LOG_NODE] {
            cluster.kill(lost);
        }
        cluster.reconfigure(0, |c| {
            c.positions[5].as_mut().unwrap().state = PositionState::Live;
            c.gone = [0, 3, 4]
                .map(|node| (NodeId(node), tenure(node.into(), 1).incarnation))
                .into();
            (c.positions[MEMORY], c.positions[LOG_NODE]) = (None, None);
        });
        cluster.hand_over(0, 0, 6);
        cluster.take(client);
        cluster.advance(3_000);
        all_are(&mut cluster, client);
    }
}
