//! Every system is compared with a model, over nodes that are maps: a read returns the latest value, whatever is lost.

use super::fsmem::FsMem;
use super::in_place::InPlace;
use super::log_node::{DiskSettings, LogNode, Medium};
use super::network::{Ask, Name, Network, Peer, Way};
use super::replication::Replication;
use super::{System, missing};
use crate::stage::Directory;
use paritas_base::{Map, Prng};
use paritas_code::{Code, Scheme};
use paritas_paritylog::{Layout, Settings};
use std::io;
use std::time::Duration;

const VALUE: usize = 64;

/// A node of memory that is a map.
#[derive(Debug, Default)]
pub(super) struct Shelf(Map<Name, Vec<u8>>);

impl Peer for Shelf {
    fn send(&mut self, ask: &Ask) -> io::Result<()> {
        match ask {
            Ask::Set(name, value) | Ask::SetQuietly(name, value) => {
                self.0.insert(*name, value.clone());
                Ok(())
            }
            Ask::Delete(name) => self
                .0
                .remove(name)
                .map(drop)
                .ok_or_else(|| missing("a value to be deleted")),
            _ => Ok(()),
        }
    }

    fn receive(&mut self, ask: &Ask) -> io::Result<Option<Vec<u8>>> {
        let Ask::Get(name) = ask else { return Ok(None) };
        Ok(self.0.get(name).cloned())
    }

    fn stored_bytes(&mut self) -> io::Result<u64> {
        Ok(self.0.values().map(|value| value.len() as u64).sum())
    }
}

pub(crate) fn log_settings(layout: Layout) -> Settings {
    Settings {
        layout,
        chunk_bytes: VALUE,
        data_max: 0,
        block_bytes: 1,
        reserve_bytes: 1 << 10,
        slots_max: 400,
        log_bytes: 256 << 10,
        flush_bytes: 2 << 10,
        buffer_max_bytes: 8 << 10,
    }
}

fn network(memory: usize, code: Option<(u8, u8, Layout)>) -> (Network, Option<Directory>) {
    let mut peers: Vec<Box<dyn Peer>> = (0..memory)
        .map(|_| Box::new(Shelf::default()) as Box<dyn Peer>)
        .collect();
    let mut kept = None;
    if let Some((k, r, layout)) = code {
        let directory = Directory::new().unwrap();
        let code = Code::new(Scheme::new(k, r).unwrap());
        let disk = DiskSettings {
            medium: Medium::Memory,
            access: Duration::ZERO,
        };
        for parity in 1..r {
            let node = LogNode::create(directory.path(), &code, parity, log_settings(layout), disk).unwrap();
            peers.push(Box::new(node));
        }
        kept = Some(directory);
    }
    (Network::new(peers, memory, Way::AtOnce), kept)
}

/// Writes, updates, and reads in every possible way.
fn agrees_with_a_model(system: &mut dyn System, redundant: bool, seed: u64) {
    let mut random = Prng::new(seed);
    let mut model: Vec<Vec<u8>> = Vec::new();
    let objects = 100 + random.below(40) as u32;
    let mut value = || -> Vec<u8> { (0..VALUE).map(|_| random.below(256) as u8).collect() };
    for object in 0..objects {
        model.push(value());
        system.write(object, &model[object as usize]).unwrap();
        // Some objects are updated while they wait for their stripe.
        let early = object / 2;
        model[early as usize] = value();
        system.update(early, &model[early as usize]).unwrap();
    }
    system.finish_loading().unwrap();
    for round in 0..3 {
        for _ in 0..200 {
            let object = (value()[0] as u32 * value()[1] as u32) % objects;
            model[object as usize] = value();
            system.update(object, &model[object as usize]).unwrap();
        }
        if round > 0 {
            system.collect_garbage().unwrap();
        }
        for object in 0..objects {
            let expected = &model[object as usize];
            assert_eq!(&system.read(object).unwrap(), expected, "seed {seed}, object {object}");
            if redundant {
                let degraded = system.degraded_read(object).unwrap();
                assert_eq!(&degraded, expected, "seed {seed}, object {object}");
            }
        }
    }
}

#[test]
fn each_system_gives_back_what_was_written_last() {
    for seed in 0..4 {
        agrees_with_a_model(&mut Replication::new(network(9, None).0, 1), false, seed);
        agrees_with_a_model(&mut Replication::new(network(9, None).0, 4), true, seed);
        agrees_with_a_model(&mut InPlace::new(network(9, None).0, 6, 3, VALUE).unwrap(), true, seed);
        agrees_with_a_model(&mut FsMem::new(network(9, None).0, 6, 3, VALUE).unwrap(), true, seed);
        for layout in [Layout::Pl, Layout::Plr, Layout::PlrM, Layout::Plm] {
            let (network, _kept) = network(7, Some((6, 3, layout)));
            let mut system = InPlace::new(network, 6, 3, VALUE).unwrap();
            agrees_with_a_model(&mut system, true, seed);
            for object in 0..100 {
                let twice = system.twice_degraded_read(object).unwrap();
                assert_eq!(
                    twice,
                    system.read(object).unwrap(),
                    "seed {seed}, {layout:?}, object {object}"
                );
            }
        }
    }
}

/// A node of memory is emptied and repaired, with and without help from the log nodes.
#[test]
fn a_node_that_lost_everything_gets_it_back() {
    for log_assist in [false, true] {
        let (network, _kept) = network(7, Some((6, 3, Layout::Plm)));
        let mut system = InPlace::new(network, 6, 3, VALUE).unwrap();
        agrees_with_a_model(&mut system, true, 5);
        let values: Vec<Vec<u8>> = (0..100).map(|object| system.read(object).unwrap()).collect();
        for node in 0..7 {
            system.network().take(node);
            system.network().put_back(node, Box::new(Shelf::default()));
            let repaired = system.repair_node(node, log_assist).unwrap();
            assert!(repaired.chunks > 10 && repaired.bytes == repaired.chunks * VALUE as u64);
        }
        for (object, value) in (0..).zip(&values) {
            assert_eq!(&system.read(object).unwrap(), value, "{log_assist}, object {object}");
            assert_eq!(
                &system.degraded_read(object).unwrap(),
                value,
                "{log_assist}, object {object}"
            );
        }
    }
}

/// A log node is emptied and repaired. Two lost nodes of memory are then decoded with its parity.
#[test]
fn a_log_node_that_lost_everything_gets_it_back() {
    for log_assist in [false, true] {
        let (network, kept) = network(7, Some((6, 3, Layout::Plm)));
        let mut system = InPlace::new(network, 6, 3, VALUE).unwrap();
        agrees_with_a_model(&mut system, true, 6);
        let code = Code::new(Scheme::new(6, 3).unwrap());
        let disk = DiskSettings {
            medium: Medium::Memory,
            access: Duration::ZERO,
        };
        // With help, the first log node is repaired from what the second one was repaired to.
        for lost in [1, 0] {
            let (node, parity) = (system.network().log_node(lost), lost as u8 + 1);
            let settings = log_settings(Layout::Plm);
            let directory = kept.as_ref().unwrap().path();
            let empty = LogNode::create(directory, &code, parity, settings, disk).unwrap();
            system.network().take(node);
            system.network().put_back(node, Box::new(empty));
            assert!(
                system.twice_degraded_read(0).is_err() || lost == 1,
                "the first log node is empty"
            );
            let repaired = system.repair_log_node(lost, log_assist).unwrap();
            assert_eq!(repaired.chunks, system.stripes().all().len() as u64);
            for object in 0..100 {
                let twice = system.twice_degraded_read(object).unwrap();
                assert_eq!(twice, system.read(object).unwrap(), "{log_assist}, object {object}");
            }
        }
    }
}

/// The costs of each step, in messages and waits (§4.2; IPMem reads and writes all parity).
#[test]
fn an_update_costs_what_the_paper_draws() {
    let cost = |system: &mut dyn System| {
        for object in 0..120 {
            system.write(object, &[object as u8; VALUE]).unwrap();
        }
        system.finish_loading().unwrap();
        let before = system.network().counts();
        system.update(7, &[1; VALUE]).unwrap();
        let counts = system.network().counts().since(before);
        (counts.messages, counts.one_by_one, counts.at_once)
    };
    for (k, r) in [(6u8, 3u8), (10, 4)] {
        let nodes = usize::from(k + r);
        let parity = u64::from(r);
        let mut replication = Replication::new(network(nodes, None).0, usize::from(r) + 1);
        assert_eq!(cost(&mut replication), (parity + 1, parity + 1, 1));
        let mut ipmem = InPlace::new(network(nodes, None).0, k, r, VALUE).unwrap();
        assert_eq!(cost(&mut ipmem), (2 * (parity + 1), 2 * (parity + 1), 2));
        let (network, _kept) = network(usize::from(k) + 1, Some((k, r, Layout::Plm)));
        let mut logecmem = InPlace::new(network, k, r, VALUE).unwrap();
        assert_eq!(cost(&mut logecmem), (4 + parity - 1, 5, 2));
    }
}

#[test]
fn deleting_leaves_zeros_that_parity_knows() {
    let (network, _kept) = network(7, Some((6, 3, Layout::Plm)));
    let mut system = InPlace::new(network, 6, 3, VALUE).unwrap();
    agrees_with_a_model(&mut system, true, 9);
    system.delete(3).unwrap();
    assert_eq!(system.read(3).unwrap(), [0; VALUE]);
    assert_eq!(system.degraded_read(3).unwrap(), [0; VALUE]);
    assert_eq!(system.twice_degraded_read(3).unwrap(), [0; VALUE]);
}
