//! Which version of formats nodes speak (P2.5, P10.21).

use paritas_base::formats::{HIGHEST, TOMORROW};
use paritas_protocol::{Channel, Event, Parameters};
use paritas_testbed::Cluster;
use paritas_wire::peer::{self, Header, Message};

fn speaking(version_max: u16) -> Cluster {
    let parameters = Parameters {
        version_max,
        ..Parameters::default()
    };
    Cluster::coded(2, 1, 1, 0, parameters)
}

fn seen(cluster: &Cluster) -> Vec<(u16, bool)> {
    let replicas = cluster.processes.iter().map(|process| process.node.replica());
    replicas.map(|r| (r.active_version(), r.tomorrows() > 0)).collect()
}

/// One node is told by the coordinator, and the others by what it speaks.
#[test]
fn nodes_that_can_speak_a_version_learn_from_a_peer_that_it_is_active() {
    let mut cluster = speaking(TOMORROW);
    cluster.advance(100);
    assert_eq!(seen(&cluster), [(HIGHEST, false); 3]);
    cluster.event(0, Event::ActiveVersion(TOMORROW));
    cluster.advance(100);
    let versions: Vec<u16> = seen(&cluster).iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, [TOMORROW; 3]);
    assert!(seen(&cluster)[1].1 && seen(&cluster)[2].1);
    // An older record does not take it back.
    cluster.event(1, Event::ActiveVersion(HIGHEST));
    assert_eq!(seen(&cluster)[1].0, TOMORROW);
}

/// What ships does not offer the version that is on trial, and acts on nothing of it.
#[test]
fn a_node_that_cannot_speak_a_version_acts_on_nothing_of_it() {
    let mut cluster = speaking(Parameters::default().version_max);
    cluster.event(0, Event::ActiveVersion(TOMORROW));
    let link = cluster.link_between(0, 1, Channel::Main).unwrap();
    let mut frame = Vec::new();
    peer::encode(&mut frame, &Header::bare(), &Message::Tomorrow);
    cluster.hear(1, link, &frame);
    assert_ne!(cluster.link_between(0, 1, Channel::Main), Some(link), "it is closed");
    cluster.advance(100);
    assert_eq!(seen(&cluster), [(HIGHEST, false); 3]);
}

/// Nobody has told them since they began.
#[test]
fn processes_that_begin_under_a_later_version_speak_it() {
    let mut cluster = Cluster::under(2, TOMORROW);
    assert_eq!(cluster.processes[0].node.replica().active_version(), TOMORROW);
    cluster.advance(100);
    assert_eq!(seen(&cluster), [(TOMORROW, true); 2]);
    cluster.event(0, Event::ActiveVersion(HIGHEST));
    assert_eq!(seen(&cluster)[0].0, TOMORROW);
}
