//! Units whose bytes change while they are kept (P14.12).

use paritas_base::{PartState, Position, Prng};
use paritas_large::{Class, Keeper, Layout, Ledger, PartId, Stored, Units, Writer};

const UNIT: u32 = 64;
const X: Position = Position(0);
const POSITIONS: u8 = 4;
const TERM: u32 = 1;

/// Memory of one node. A unit is its index.
#[derive(Debug)]
struct Pool {
    units: Vec<Vec<u8>>,
}

impl Units for Pool {
    type Unit = usize;
    fn unit_bytes(&self) -> u32 {
        UNIT
    }
    fn room(&self) -> u64 {
        u64::MAX
    }
    fn store(&mut self, bytes: &[u8]) -> Option<usize> {
        self.units.push(bytes.to_vec());
        Some(self.units.len() - 1)
    }
    fn stored<'a>(&'a self, unit: &'a usize, length: u32) -> Stored<'a> {
        Stored::Here(&self.units[*unit][..length as usize])
    }
    fn overwrite(&mut self, unit: &mut usize, bytes: &[u8]) {
        self.units[*unit][..bytes.len()].copy_from_slice(bytes);
    }
    fn free(&mut self, _: usize) {}
}

struct Node {
    keeper: Keeper<usize>,
    pool: Pool,
}

/// Nodes that keep a value of this class.
struct Nodes {
    nodes: Vec<Node>,
}

impl Nodes {
    fn with_value(class: Class, bytes: &[u8]) -> Self {
        let mut ledger = Ledger::new(TERM, true);
        let record = ledger.stage(class, 0, 0, bytes.len() as u64).expect("ids are left");
        let placement = record.placement(POSITIONS).expect("it fits");
        let layout = Layout::of_body(bytes.len() as u64, class.data(), UNIT).expect("a body");
        let node = |position| Node {
            keeper: Keeper::new(position, POSITIONS, true),
            pool: Pool { units: Vec::new() },
        };
        let mut nodes: Vec<Node> = (0..POSITIONS).map(node).collect();
        let parts: Vec<_> = placement.parts().collect();
        for part in &parts {
            let Node { keeper, pool } = &mut nodes[usize::from(part.position)];
            let id = PartId {
                x: X,
                name: record.name_of(part),
            };
            assert_eq!(keeper.on_open(pool, id, &record, TERM, None), PartState::Open(0));
        }
        let mut writer = Writer::new(layout, placement);
        let mut at = 0;
        while !writer.is_sent() {
            at += writer.push(&bytes[at..], |part, unit, bytes| {
                let Node { keeper, pool } = &mut nodes[usize::from(parts[part].position)];
                let id = PartId {
                    x: X,
                    name: record.name_of(&parts[part]),
                };
                assert!(matches!(
                    keeper.on_put(pool, id, unit, bytes),
                    Some(PartState::Taken(_) | PartState::Kept(_))
                ));
            });
            (0..parts.len()).for_each(|part| writer.on_taken(part, u32::MAX));
        }
        Self { nodes }
    }

    /// Changes a bit of a unit that this position keeps.
    fn flip(&mut self, position: usize, prng: &mut Prng) -> (PartId, u32) {
        let Node { keeper, pool } = &mut self.nodes[position];
        let units: Vec<_> = keeper.kept_units().collect();
        let (id, unit) = units[prng.below(units.len() as u64) as usize];
        let (stored, length, _) = keeper.stored(UNIT, &id, unit).expect("it is kept");
        let byte = prng.below(u64::from(length)) as usize;
        pool.units[*stored][byte] ^= 1 << prng.below(8);
        (id, unit)
    }

    fn wrong_units(&self) -> usize {
        let wrong = |node: &Node| {
            let units = node.keeper.kept_units();
            units
                .filter(|(id, unit)| node.keeper.read(&node.pool, id, *unit).is_none())
                .count()
        };
        self.nodes.iter().map(wrong).sum()
    }

    /// One pass over everything. Returns the number of units that were checked.
    fn scrub(&mut self) -> usize {
        let mut checked = 0;
        for Node { keeper, pool } in &mut self.nodes {
            while let Some((id, unit)) = keeper.next_to_check() {
                keeper.check(pool, id, unit);
                checked += 1;
            }
        }
        checked
    }

    /// Answers all fetches.
    fn run(&mut self) {
        self.run_some(usize::MAX);
    }

    /// Answers at most this number of fetches of each position.
    fn run_some(&mut self, fetches_max: usize) {
        for at in 0..self.nodes.len() {
            let mut left = fetches_max;
            while let Some(rest) = left.checked_sub(1)
                && let Some((id, fetch)) = self.nodes[at].keeper.next_fetch(|_| true, true)
            {
                left = rest;
                let source = &self.nodes[usize::from(fetch.position)];
                let name = PartId { x: X, name: fetch.name };
                let bytes = source.keeper.read(&source.pool, &name, fetch.unit);
                let bytes = bytes.map(|(_, bytes)| bytes.to_vec());
                let Node { keeper, pool } = &mut self.nodes[at];
                keeper.on_fetched(pool, id, &fetch, bytes.as_deref());
            }
        }
    }
}

fn value(prng: &mut Prng) -> Vec<u8> {
    (0..1 + prng.below(900)).map(|_| prng.next_u64() as u8).collect()
}

#[test]
fn wrong_units_at_as_many_positions_as_the_class_bears_are_all_replaced() {
    let classes = [
        Class::Ec { data: 2, parity: 2 },
        Class::Rep { copies: 3 },
        Class::Eor { copies: 3, data: 3 },
        Class::Eor { copies: 3, data: 2 },
    ];
    for seed in 0..200 {
        let prng = &mut Prng::new(seed);
        for class in classes {
            let mut nodes = Nodes::with_value(class, &value(prng));
            let holders: Vec<usize> = (0..usize::from(POSITIONS))
                .filter(|at| nodes.nodes[*at].keeper.kept_units().next().is_some())
                .collect();
            for at in holders.iter().take(1 + prng.below(2) as usize) {
                nodes.flip(*at, prng);
            }
            let wrong = nodes.wrong_units();
            assert!(wrong > 0, "seed {seed}, {class}: no unit is wrong");
            nodes.scrub();
            nodes.run();
            assert_eq!(nodes.wrong_units(), 0, "seed {seed}, {class}");
            let repaired: u64 = nodes.nodes.iter().map(|node| node.keeper.repaired()).sum();
            assert_eq!(repaired, wrong as u64, "seed {seed}, {class}");
        }
    }
}

#[test]
fn a_pass_checks_each_unit_once() {
    let mut nodes = Nodes::with_value(Class::Ec { data: 2, parity: 2 }, &[7; 700]);
    let units = nodes.nodes.iter().map(|node| node.keeper.kept_units().count()).sum();
    assert_eq!(nodes.scrub(), units);
    assert_eq!(nodes.scrub(), units, "the second pass begins again");
}

#[test]
fn a_part_with_a_wrong_unit_gives_its_other_units_and_says_when_it_cannot_be_repaired() {
    let prng = &mut Prng::new(1);
    let mut nodes = Nodes::with_value(Class::Rep { copies: 1 }, &[7; 700]);
    let (id, wrong) = nodes.flip(0, prng);
    nodes.scrub();
    nodes.run();
    let Node { keeper, pool } = &nodes.nodes[0];
    assert!(!keeper.is_sound(&id), "no other part gives its bytes back");
    for (id, unit) in keeper.kept_units() {
        assert_eq!(keeper.read(pool, &id, unit).is_some(), unit != wrong, "unit {unit}");
    }
}

#[test]
fn a_part_is_right_again_as_soon_as_its_last_wrong_unit_is_replaced() {
    let mut nodes = Nodes::with_value(Class::Rep { copies: 2 }, &[7; 700]);
    let Node { keeper, pool } = &mut nodes.nodes[0];
    let (id, unit) = keeper.kept_units().next().expect("a copy");
    pool.units[*keeper.stored(UNIT, &id, unit).expect("it is kept").0][0] ^= 1;
    nodes.scrub();
    nodes.run_some(2);
    let Node { keeper, .. } = &mut nodes.nodes[0];
    assert_eq!(keeper.repaired(), 1);
    // The other copy is lost now.
    assert_eq!(keeper.next_fetch(|_| false, true), None);
    assert!(keeper.is_sound(&id));
}
