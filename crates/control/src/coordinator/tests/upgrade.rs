//! P10.21: the active version.

use super::*;
use paritas_base::formats::{HIGHEST, TOMORROW};

/// What is sent to nobody who listens.
struct Nobody;

impl CoordinatorOut for Nobody {
    fn send(&mut self, _: LinkId, _: &[u8]) {}
    fn close(&mut self, _: LinkId) {}
    fn note(&mut self, _: Note) {}
}

fn finish(world: &mut World) -> Result<u16, String> {
    let (mono, wall_ms) = (world.now(), 0);
    world.coordinator.finish_upgrade(Clock { mono, wall_ms }, &mut Nobody)
}

/// Nodes of this build's version, and a coordinator of a newer program.
fn with_newer_coordinator() -> World {
    let mut world = World::started(plan(2, 1, 3, 1));
    assert_eq!(finish(&mut world), Ok(HIGHEST), "nothing is to do");
    world.versions = Versions::up_to(TOMORROW);
    world.reopen();
    world.pass(10_000);
    world
}

fn replace(world: &mut World, node: u16) {
    world.certify(node);
    world.start(node);
    world.pass(3_000);
    world.rebuild();
}

#[test]
fn a_version_becomes_active_when_all_processes_that_have_not_ended_speak_it() {
    let mut world = with_newer_coordinator();
    for node in 0..3 {
        let why = finish(&mut world).unwrap_err();
        assert!(
            why.contains(&format!("n{node} speaks versions 8 to 8, and not 9")),
            "{why}"
        );
        world.newer.insert(node, 0);
        replace(&mut world, node);
    }
    // Until then one may go back, and its record says so.
    world.newer.remove(&1);
    replace(&mut world, 1);
    assert!(finish(&mut world).unwrap_err().contains("n1 speaks"));
    world.certify(1);
    assert_eq!(finish(&mut world), Ok(TOMORROW), "what has ended does not count");
    assert_eq!(world.coordinator.cluster().active_version, TOMORROW);

    let link = world.connect();
    let refused = world.offer(link, 1, Incarnation(901)).unwrap_err();
    assert!(refused.is_final());
    let words = "the cluster's active version is 9, and n1 speaks 8 to 8: use another paritas there";
    assert_eq!(refused.to_string(), words);
    world.newer.insert(1, TOMORROW);
    assert!(world.offer(link, 1, Incarnation(902)).is_ok());

    // An older program does not open the store.
    let store = world.coordinator.store_mut().clone();
    let older = Coordinator::open(store, &world.plan, 3).unwrap_err();
    assert!(
        matches!(older, OpenError::NewerFormat { found: 9, known: 8, .. }),
        "{older}"
    );
}

#[test]
fn an_old_store_learns_the_active_version_from_a_node() {
    let mut world = with_newer_coordinator();
    world.newer.insert(0, TOMORROW);
    replace(&mut world, 0);
    assert_eq!(world.coordinator.cluster().active_version, TOMORROW);
    // A coordinator that cannot speak it leaves the node alone.
    let mut world = World::started(plan(2, 1, 3, 1));
    world.newer.insert(3, TOMORROW);
    let link = world.connect();
    let refused = world.offer(link, 3, Incarnation(901)).unwrap_err().to_string();
    assert!(refused.contains("this coordinator speaks 8 to 8"), "{refused}");
    assert_eq!(world.coordinator.cluster().active_version, HIGHEST);
}

/// It would try again for ever.
#[test]
fn a_process_that_has_ended_is_told_so_before_its_version_is_looked_at() {
    let mut world = with_newer_coordinator();
    let former = world.nodes[&1].incarnation;
    for node in 0..3 {
        world.newer.insert(node, 0);
        replace(&mut world, node);
    }
    assert_eq!(finish(&mut world), Ok(TOMORROW));
    world.newer.remove(&1);
    let link = world.connect();
    assert_eq!(world.offer(link, 1, former).unwrap_err(), Refusal::IncarnationEnded);
    let refused = world.offer(link, 1, Incarnation(901)).unwrap_err().to_string();
    assert!(refused.contains("active version is 9"), "{refused}");
}

/// The store is an old copy, and the commit that takes in the older program comes with the news.
#[test]
fn a_process_below_a_version_that_was_active_before_is_not_taken_in() {
    let mut world = with_newer_coordinator();
    world.certify(0);
    world.certify(1);
    world.coordinator.store_mut().fail_commits(1);
    let beat = |world: &mut World, node: u16, incarnation: u64| {
        let link = world.connect();
        let nonce = world.offer(link, node, Incarnation(incarnation)).unwrap().nonce;
        let beat = ToCoordinator::Heartbeat {
            nonce,
            shards: vec![],
            silent: vec![],
            opinions: None,
        };
        world.say(link, &beat);
        (link, beat)
    };
    let (older, again) = beat(&mut world, 1, 901);
    world.newer.insert(0, TOMORROW);
    beat(&mut world, 0, 902);
    world.received(older);
    world.pass(3_000);
    assert_eq!(world.coordinator.cluster().active_version, TOMORROW);
    let record = world.coordinator.nodes().find(|n| n.id == NodeId(1)).unwrap();
    assert_ne!(record.incarnation, Incarnation(901));
    world.received(older);
    world.say(older, &again);
    assert_eq!(world.received(older), [ToAgent::Refused(Refusal::RegisterAgain)]);
}
