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
