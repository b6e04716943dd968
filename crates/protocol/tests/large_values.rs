//! Values that lie in parts at the positions of their list (P14).

use paritas_base::ListId;
use paritas_base::configuration::PositionState;
use paritas_protocol::{Channel, Parameters, Port, Proposal};
use paritas_testbed::{Client, Cluster, following};
use paritas_wire::peer::{self, Kind, Message};
use std::cell::RefCell;
use std::rc::Rc;

const KEYS: usize = 12;
/// Longer than a dead owner's leases.
const LEASES_MS: u64 = 2_500;

fn value(n: usize, round: usize) -> String {
    format!("{n}.{round};").repeat(17_000 + 3_001 * n)
}

fn set_all(cluster: &mut Cluster, client: Client, round: usize) {
    for n in 0..KEYS {
        let reply = cluster.ask_words(client, &["SET", &format!("key{n}"), &value(n, round)]);
        assert_eq!(reply, "+OK\r\n", "key{n}");
    }
}

fn all_there(cluster: &mut Cluster, client: Client, round: usize) {
    for n in 0..KEYS {
        let expected = value(n, round);
        let reply = cluster.ask_words(client, &["GET", &format!("key{n}")]);
        assert!(
            reply == format!("${}\r\n{expected}\r\n", expected.len()),
            "key{n}: {} bytes",
            reply.len()
        );
    }
}

fn part_bytes(cluster: &Cluster, at: usize) -> u64 {
    cluster.processes[at].node.figures().part_bytes
}

/// Positions whose holders have asked to become Live since the last call.
fn asked_live(cluster: &mut Cluster) -> Vec<u8> {
    let mut asked = Vec::new();
    for process in &mut cluster.processes {
        for proposal in process.out.proposals.drain(..) {
            if let Proposal::AskLive { position, .. } = proposal {
                asked.push(position.0);
            }
        }
    }
    asked.sort_unstable();
    asked.dedup();
    asked
}

fn live(cluster: &mut Cluster) {
    cluster.reconfigure(0, |c| {
        for a in c.positions.iter_mut().flatten() {
            a.state = PositionState::Live;
        }
    });
}

/// One list of `2+2` on nodes 0 to 3, six more that hold nothing, and a client of the last.
fn start() -> (Cluster, Client) {
    let mut cluster = Cluster::coded(2, 2, 1, 6, Parameters::default());
    let client = cluster.connect(9, Port::Any);
    (cluster, client)
}

#[test]
fn large_values_survive_any_two_holders_and_their_successors_make_the_parts_again() {
    for [first, second] in [[0, 1], [0, 3], [2, 3]] {
        let (mut cluster, client) = start();
        set_all(&mut cluster, client, 1);
        let before: Vec<u64> = (0..4).map(|at| part_bytes(&cluster, at)).collect();
        assert!(before.iter().all(|bytes| *bytes > 100_000), "{before:?}");
        cluster.kill(first);
        cluster.kill(second);
        cluster.hand_over(0, first as u8, 4);
        cluster.hand_over(0, second as u8, 5);
        cluster.advance(LEASES_MS);
        all_there(&mut cluster, client, 1);
        cluster.advance(2_000);
        let asked = asked_live(&mut cluster);
        assert!(
            asked.contains(&(first as u8)) && asked.contains(&(second as u8)),
            "{asked:?}"
        );
        assert_eq!(
            [part_bytes(&cluster, 4), part_bytes(&cluster, 5)],
            [before[first], before[second]]
        );
        live(&mut cluster);
        set_all(&mut cluster, client, 2);
        let others: Vec<usize> = (0..4).filter(|at| ![first, second].contains(at)).collect();
        cluster.kill(others[0]);
        cluster.kill(others[1]);
        cluster.hand_over(0, others[0] as u8, 6);
        cluster.hand_over(0, others[1] as u8, 7);
        cluster.advance(LEASES_MS);
        all_there(&mut cluster, client, 2);
    }
}

#[test]
fn a_successor_that_cannot_get_its_parts_does_not_ask_to_become_live() {
    let (mut cluster, client) = start();
    set_all(&mut cluster, client, 1);
    cluster.kill(3);
    cluster.tamper = Some(Box::new(|_, to, _, message| {
        (to == 4 && message.kind() == Kind::UnitValue).then(Vec::new)
    }));
    asked_live(&mut cluster);
    cluster.hand_over(0, 3, 4);
    cluster.advance(3_000);
    assert!(!asked_live(&mut cluster).contains(&3));
    cluster.tamper = None;
    cluster.advance(3_000);
    assert!(asked_live(&mut cluster).contains(&3));
}

#[test]
fn parts_are_freed_when_their_value_is_overwritten_deleted_or_never_finished() {
    let (mut cluster, client) = start();
    set_all(&mut cluster, client, 1);
    let before: Vec<u64> = (0..4).map(|at| part_bytes(&cluster, at)).collect();
    set_all(&mut cluster, client, 2);
    cluster.advance(100);
    let after: Vec<u64> = (0..4).map(|at| part_bytes(&cluster, at)).collect();
    assert_eq!(before, after, "overwritten");
    // A holder takes no unit: the value is never whole, and its client gives up.
    cluster.tamper = Some(Box::new(|_, to, _, message| {
        (to == 2 && message.kind() == Kind::PutUnit).then(Vec::new)
    }));
    let second = cluster.connect(8, Port::Any);
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, &["SET", "key0", &value(0, 3)]);
    cluster.feed(second, &request);
    cluster.pump();
    cluster.tamper = Some(Box::new(|_, _, _, message| {
        [Kind::MakePart, Kind::OpenPart]
            .contains(&message.kind())
            .then(Vec::new)
    }));
    cluster.advance(12_000);
    cluster.tamper = None;
    let reply = String::from_utf8_lossy(&cluster.take(second)).into_owned();
    assert!(reply.starts_with('-'), "{reply:?}");
    cluster.advance(1_000);
    all_there(&mut cluster, client, 2);
    cluster.advance(1_000);
    let after: Vec<u64> = (0..4).map(|at| part_bytes(&cluster, at)).collect();
    assert_eq!(before, after, "never finished");
    for n in 0..KEYS {
        assert_eq!(cluster.ask_words(client, &["DEL", &format!("key{n}")]), ":1\r\n");
    }
    cluster.advance(1_000);
    let after: Vec<u64> = (0..4).map(|at| part_bytes(&cluster, at)).collect();
    assert_eq!(after, [0; 4], "deleted");
}

#[test]
fn an_owner_that_dies_with_a_value_half_sent_leaves_nothing() {
    let (mut cluster, client) = start();
    set_all(&mut cluster, client, 1);
    let before: Vec<u64> = (2..4).map(|at| part_bytes(&cluster, at)).collect();
    cluster.tamper = Some(Box::new(|_, to, _, message| {
        (to == 3 && message.kind() == Kind::PutUnit).then(Vec::new)
    }));
    let second = cluster.connect(8, Port::Any);
    for n in 0..KEYS {
        let mut request = Vec::new();
        paritas_wire::resp::encode::request(&mut request, &["SET", &format!("key{n}"), &value(n, 3)]);
        cluster.feed(second, &request);
        cluster.pump();
    }
    cluster.kill(0);
    cluster.kill(1);
    cluster.tamper = None;
    cluster.hand_over(0, 0, 4);
    cluster.hand_over(0, 1, 5);
    // The commands were forwarded: they are sent to the new owners, and run there.
    cluster.advance(LEASES_MS + 6_000);
    let configuration = cluster.processes[2]
        .node
        .replica()
        .list(ListId(0))
        .unwrap()
        .configuration
        .clone();
    assert_eq!(configuration.positions.iter().flatten().count(), 4);
    for n in 0..KEYS {
        let reply = cluster.ask_words(client, &["GET", &format!("key{n}")]);
        let is = |round| reply == format!("${}\r\n{}\r\n", value(n, round).len(), value(n, round));
        assert!(is(1) || is(3), "key{n}: {} bytes", reply.len());
    }
    cluster.advance(3_000);
    let after: Vec<u64> = (2..4).map(|at| part_bytes(&cluster, at)).collect();
    assert_eq!(before, after);
}

/// A part is opened after its holder was told that its group is dead, and the holder says so under an epoch that is
/// over at the owner: the owner stays the same, so the holder asks for no list.
#[test]
fn a_part_that_is_opened_after_its_group_has_died_is_freed_also_under_an_older_epoch() {
    let (mut cluster, client) = start();
    let parts = |cluster: &Cluster| {
        let list = cluster.processes[3].node.replica().list(ListId(0)).unwrap();
        list.parts
            .iter()
            .map(|held| held.keeper().parts().count())
            .sum::<usize>()
    };
    // The holder has compared the lists of both owners.
    set_all(&mut cluster, client, 1);
    cluster.advance(3_000);
    let before = parts(&cluster);
    let late = Rc::new(RefCell::new(None));
    let held_back = late.clone();
    cluster.tamper = Some(Box::new(move |from, to, header, message| {
        (to == 3 && message.kind() == Kind::OpenPart).then(|| {
            let mut frame = Vec::new();
            peer::encode(&mut frame, header, message);
            *held_back.borrow_mut() = Some((from, frame));
            Vec::new()
        })
    }));
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, &["SET", "key0", &value(0, 2)]);
    cluster.feed(client, &request);
    // The command is given up, and its groups are dead.
    cluster.advance(12_000);
    let reply = String::from_utf8_lossy(&cluster.take(client)).into_owned();
    assert!(reply.starts_with('-'), "{reply:?}");
    cluster.advance(1_000);
    assert_eq!(parts(&cluster), before);
    let (owner, frame) = late.take().unwrap();
    cluster.tamper = Some(Box::new(|_, _, _, message| {
        // Only the owner has the next epoch, until it has heard the holder.
        matches!(message, Message::Stale { .. } | Message::GetConfiguration { .. }).then(Vec::new)
    }));
    let link = cluster.link_between(owner, 3, Channel::Bulk).unwrap();
    cluster.hear(3, link, &frame);
    assert_eq!(parts(&cluster), before + 1, "the part is open");
    let next = following(&cluster.configurations[0], |_| {});
    cluster.configure(owner, &next);
    cluster.tamper = None;
    for at in 0..cluster.processes.len() {
        cluster.configure(at, &next);
    }
    cluster.advance(60_000);
    assert_eq!(parts(&cluster), before, "the part of a dead group stays");
}

fn feed_words(cluster: &mut Cluster, client: Client, words: &[&str]) {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    cluster.feed(client, &request);
}

fn taken(cluster: &mut Cluster, client: Client) -> String {
    String::from_utf8_lossy(&cluster.take(client)).into_owned()
}

fn bulk(value: &str) -> String {
    format!("${}\r\n{value}\r\n", value.len())
}

/// What ElasticMem's work table is for with reads beside reads (§4.3.2): one fetch serves them all. Here it does so for
/// clients of all nodes.
#[test]
fn eight_readers_of_a_value_at_one_node_ask_for_as_many_units_as_one() {
    let (mut cluster, client) = start();
    set_all(&mut cluster, client, 1);
    let asked = Rc::new(RefCell::new(0));
    let count = asked.clone();
    cluster.tamper = Some(Box::new(move |_, _, _, message| {
        *count.borrow_mut() += u32::from(message.kind() == Kind::ReadUnit);
        None
    }));
    // Each node reads for its own clients.
    let readers: Vec<Client> = (2..10).map(|_| cluster.connect(2, Port::Any)).collect();
    let mut counts = Vec::new();
    for readers in [&readers[..1], &readers] {
        // The owner keeps the body of a read before for a while.
        cluster.advance(5_000);
        asked.replace(0);
        for reader in readers {
            feed_words(&mut cluster, *reader, &["GET", "key0"]);
        }
        cluster.pump();
        counts.push(asked.take());
        for reader in readers {
            assert!(taken(&mut cluster, *reader) == bulk(&value(0, 1)));
        }
    }
    assert!(counts[0] > 1 && counts[0] == counts[1], "{counts:?}");
}

/// ElasticMem's work table (§4.3.2), for writes beside reads and writes: no read has a part of each value, no write
/// fails, and a read and a write do not wait for each other.
#[test]
fn reads_and_writes_of_a_value_at_once_are_all_done_and_see_whole_values() {
    let (mut cluster, client) = start();
    let [reader, writer, other] = [6, 7, 8].map(|at| cluster.connect(at, Port::Any));
    let [old, new, last] = [1, 2, 3].map(|round| value(0, round));
    assert_eq!(cluster.ask_words(client, &["SET", "key0", &old]), "+OK\r\n");
    cluster.advance(5_000);
    // A write after a read: the read has not got a unit yet.
    cluster.tamper = Some(Box::new(|_, _, _, message| {
        (message.kind() == Kind::ReadUnit).then(Vec::new)
    }));
    feed_words(&mut cluster, reader, &["GET", "key0"]);
    cluster.pump();
    assert_eq!(cluster.ask_words(writer, &["SET", "key0", &new]), "+OK\r\n");
    assert_eq!(taken(&mut cluster, reader), "", "the read was not under way");
    cluster.tamper = None;
    cluster.advance(5_000);
    let read = taken(&mut cluster, reader);
    assert!(read == bulk(&old) || read == bulk(&new), "{} bytes", read.len());
    // A read after a write: the write lacks a unit at one holder.
    cluster.advance(5_000);
    cluster.tamper = Some(Box::new(|_, to, _, message| {
        (to == 3 && message.kind() == Kind::PutUnit).then(Vec::new)
    }));
    feed_words(&mut cluster, writer, &["SET", "key0", &last]);
    cluster.pump();
    assert!(cluster.ask_words(reader, &["GET", "key0"]) == bulk(&new));
    assert_eq!(taken(&mut cluster, writer), "", "the write was not under way");
    // A write after a write: both are done, and one of them is the last.
    feed_words(&mut cluster, other, &["SET", "key0", &old]);
    cluster.pump();
    cluster.tamper = None;
    cluster.advance(5_000);
    for client in [writer, other] {
        assert_eq!(taken(&mut cluster, client), "+OK\r\n");
    }
    let read = cluster.ask_words(reader, &["GET", "key0"]);
    assert!(read == bulk(&last) || read == bulk(&old), "{} bytes", read.len());
}
