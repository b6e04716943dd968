//! Parts whose units a client sends (P14.18): what a holder takes, and what it tells.

use paritas_base::{ListId, PartState, Position, Prng, StreamId};
use paritas_large::{
    Alive, Class, Content, Fingerprint, FingerprintKey, Folding, GroupId, Keeper, Layout, Ledger, Page, Part, PartId,
    Put, Record, Stored, Units, Writer, belong_together,
};
use proptest::prelude::*;
use std::sync::Arc;

const UNIT: u32 = 128;
const X: Position = Position(0);
const POSITIONS: u8 = 4;
const TERM: u32 = 1;

/// Memory of one node. A unit is its index.
#[derive(Debug)]
struct Pool {
    units: Vec<Option<Vec<u8>>>,
    room: u64,
}

impl Units for Pool {
    type Unit = usize;
    fn unit_bytes(&self) -> u32 {
        UNIT
    }
    fn room(&self) -> u64 {
        self.room
    }
    fn store(&mut self, bytes: &[u8]) -> Option<usize> {
        self.room = self.room.checked_sub(1)?;
        self.units.push(Some(bytes.to_vec()));
        Some(self.units.len() - 1)
    }
    fn stored<'a>(&'a self, unit: &'a usize, length: u32) -> Stored<'a> {
        match &self.units[*unit] {
            Some(bytes) => Stored::Here(&bytes[..length as usize]),
            None => Stored::Lost,
        }
    }
    fn overwrite(&mut self, unit: &mut usize, bytes: &[u8]) {
        self.units[*unit] = Some(bytes.to_vec());
    }
    fn free(&mut self, unit: usize) {
        self.units[unit] = None;
        self.room += 1;
    }
}

/// A part that is open for a client at its holder.
struct Holder {
    keeper: Keeper<usize>,
    pool: Pool,
    part: Part,
    id: PartId,
    /// The right units.
    units: Vec<Vec<u8>>,
    check: u32,
}

/// Holders of all parts of a value.
struct Holders {
    record: Arc<Record>,
    key: FingerprintKey,
    holders: Vec<Holder>,
}

fn open(class: Class, body: &[u8]) -> Holders {
    let mut ledger = Ledger::new(TERM, true);
    let record = ledger.stage(class, 0, 0, body.len() as u64).expect("ids are left");
    let placement = record.placement(POSITIONS).expect("it fits");
    let stream = StreamId { list: ListId(0), x: X };
    let key = FingerprintKey::new([1, 2], stream, record.data_group);
    let mut units = vec![Vec::new(); placement.parts().count()];
    let layout = Layout::of_body(body.len() as u64, class.data(), UNIT).expect("a body");
    let mut writer = Writer::new(layout, placement);
    let mut at = 0;
    while !writer.is_sent() {
        at += writer.push(&body[at..], |part, _, unit| units[part].push(unit.to_vec()));
        (0..units.len()).for_each(|part| writer.on_taken(part, u32::MAX));
    }
    let sealed = Record {
        checks: writer.checks().to_vec(),
        ..(*record).clone()
    };
    let holder = |(part, units): (Part, Vec<Vec<u8>>)| {
        let mut keeper = Keeper::new(part.position, POSITIONS, true);
        keeper.on_owner(&mut pool(), X, TERM);
        let id = PartId {
            x: X,
            name: record.name_of(&part),
        };
        assert_eq!(
            keeper.on_open(&pool(), id, &record, TERM, Some(key)),
            PartState::Open(0)
        );
        Holder {
            keeper,
            pool: pool(),
            part,
            id,
            units,
            check: sealed.check_of(&part),
        }
    };
    let holders = placement.parts().zip(units).map(holder).collect();
    Holders { record, key, holders }
}

fn pool() -> Pool {
    Pool {
        units: Vec::new(),
        room: 1_000,
    }
}

fn bytes(count: usize) -> Vec<u8> {
    let mut prng = Prng::new(count as u64);
    // None of them is 0.
    (0..count).map(|_| 1 + prng.below(255) as u8).collect()
}

impl Holder {
    fn put(&mut self, unit: u32, bytes: &[u8]) -> Option<Put> {
        self.keeper.on_put_by_client(&mut self.pool, self.id, unit, bytes)
    }

    fn print(&self, key: FingerprintKey) -> Fingerprint {
        let mut folding = Folding::new(key);
        self.units.iter().for_each(|unit| folding.push(unit));
        folding.fingerprint()
    }

    /// Puts the units that are not here, all at once.
    fn put_all(&mut self) -> Option<Put> {
        let PartState::Open(from) = self.keeper.on_ask(&self.id) else {
            panic!("not open");
        };
        let rest = self.units[from as usize..].concat();
        self.put(from, &rest)
    }
}

proptest! {
    #[test]
    fn a_part_is_kept_with_check_and_fingerprint_however_its_units_come(
        is_copy in any::<bool>(), count in 1usize..3_000, seed in any::<u64>(),
    ) {
        let class = if is_copy { Class::Rep { copies: 2 } } else { Class::Ec { data: 2, parity: 2 } };
        let mut value = open(class, &bytes(count));
        let (mut prng, mut prints) = (Prng::new(seed), Vec::new());
        for holder in &mut value.holders {
            let all = holder.units.len() as u32;
            let mut here = 0;
            let print = loop {
                // Some that are here already, some that are not, or none of those that come next.
                let from = prng.below(u64::from(here) + 2) as u32;
                let to = (from + 1 + prng.below(4) as u32).min(all);
                if from >= to {
                    continue;
                }
                let some = holder.units[from as usize..to as usize].concat();
                match holder.put(from, &some) {
                    Some(Put::Here(now)) => {
                        prop_assert_eq!(now, if from > here { here } else { here.max(to) });
                        prop_assert!(now < all);
                        prop_assert_eq!(holder.keeper.on_ask(&holder.id), PartState::Open(now));
                        here = now;
                    }
                    Some(Put::Kept(now, check, print)) => {
                        prop_assert_eq!((now, check), (all, holder.check));
                        break *print;
                    }
                    other => panic!("{other:?}"),
                }
            };
            prop_assert_eq!(print, holder.print(value.key));
            // The owner asks again, and so does the client.
            prop_assert_eq!(
                holder.keeper.on_open(&holder.pool, holder.id, &value.record, TERM, Some(value.key)),
                PartState::Kept(holder.check)
            );
            prop_assert_eq!(holder.keeper.fingerprint(&holder.id), Some(&print));
            let last = holder.units[all as usize - 1].clone();
            prop_assert_eq!(holder.put(all - 1, &last), Some(Put::Here(all)));
            prints.push(print);
        }
        prop_assert!(belong_together(class, &prints));
    }
}

#[test]
fn bytes_behind_the_end_of_the_body_break_data_and_copies_alone() {
    // Two full rows, and a short one whose last unit has 10 of 64 bytes.
    let body = bytes(4 * UNIT as usize + 74);
    for class in [Class::Ec { data: 2, parity: 1 }, Class::Rep { copies: 2 }] {
        let count = open(class, &body).holders.len();
        for at in 0..count {
            let mut value = open(class, &body);
            let holder = &mut value.holders[at];
            let last = holder.units.last_mut().expect("a unit");
            let is_padded = last.ends_with(&[0]);
            let free_before = holder.pool.room;
            *last.last_mut().expect("a byte") ^= 1;
            let put = holder.put_all();
            match (is_padded, holder.part.content) {
                (_, Content::Parity(_)) | (false, _) => assert!(matches!(put, Some(Put::Kept(..))), "{put:?}"),
                (true, _) => {
                    assert_eq!(put, Some(Put::Broken));
                    assert_eq!(holder.keeper.on_ask(&holder.id), PartState::Unknown);
                    assert_eq!((holder.pool.room, holder.keeper.unit_count()), (free_before, 0));
                    assert_eq!(holder.put(0, &holder.units[0].clone()), None, "it is not open any more");
                }
            }
        }
    }
}

#[test]
fn what_are_no_units_of_the_part_changes_nothing() {
    let mut value = open(Class::Ec { data: 2, parity: 1 }, &bytes(4 * UNIT as usize + 74));
    let holder = &mut value.holders[0];
    let (full, short) = (holder.units[0].clone(), holder.units[2].clone());
    assert_eq!((full.len(), short.len()), (128, 64));
    assert_eq!(holder.put(0, &full), Some(Put::Here(1)));
    for (unit, wrong) in [
        (1, &[][..]),
        (1, &full[..127]),
        (1, &[&full[..], &[0]].concat()),
        (1, &short),
        (2, &full),
        (1, &[&full[..], &full].concat()),
        (1, &[&full[..], &short, &short].concat()),
        (3, &short),
        (u32::MAX, &short),
    ] {
        assert_eq!(holder.put(unit, wrong), None, "unit {unit}, {} bytes", wrong.len());
        assert_eq!(holder.keeper.on_ask(&holder.id), PartState::Open(1));
    }
    assert_eq!(holder.put(2, &short), Some(Put::Here(1)), "not the next one");
    assert!(matches!(holder.put_all(), Some(Put::Kept(3, ..))));
}

#[test]
fn clients_and_owners_put_into_parts_that_were_opened_for_them_alone() {
    let mut value = open(Class::Ec { data: 2, parity: 1 }, &bytes(300));
    let holder = &mut value.holders[0];
    let unit = holder.units[0].clone();
    assert_eq!(holder.keeper.on_put(&mut holder.pool, holder.id, 0, &unit), None);
    assert!(matches!(holder.put(0, &unit), Some(Put::Here(1))));
    // The same part, opened for the owner.
    let mut owners = Keeper::new(holder.part.position, POSITIONS, true);
    owners.on_owner(&mut holder.pool, X, TERM);
    let opened = owners.on_open(&holder.pool, holder.id, &value.record, TERM, None);
    assert_eq!(opened, PartState::Open(0));
    assert_eq!(owners.on_put_by_client(&mut holder.pool, holder.id, 0, &unit), None);
    assert_eq!(
        owners.on_put(&mut holder.pool, holder.id, 0, &unit),
        Some(PartState::Taken(1))
    );
}

#[test]
fn a_part_of_a_client_ends_with_the_owner_and_without_memory() {
    let class = Class::Ec { data: 2, parity: 1 };
    let mut value = open(class, &bytes(1_000));
    let holder = &mut value.holders[0];
    assert_eq!(holder.put(0, &holder.units[0].clone()), Some(Put::Here(1)));
    holder.keeper.on_owner(&mut holder.pool, X, TERM + 1);
    assert_eq!(holder.put(1, &holder.units[1].clone()), None);
    assert_eq!(holder.keeper.unit_count(), 0);
    // Memory that the part has reserved is gone all the same.
    let holder = &mut value.holders[1];
    holder.pool.room = 1;
    assert_eq!(holder.put(0, &holder.units[0].clone()), Some(Put::Here(1)));
    assert_eq!(holder.put(1, &holder.units[1].clone()), Some(Put::Broken));
    assert_eq!(holder.keeper.on_ask(&holder.id), PartState::Unknown);
}

#[test]
fn a_fingerprint_is_told_until_an_object_names_the_part() {
    let mut value = open(Class::Ec { data: 2, parity: 1 }, &bytes(1_000));
    let record = value.record.clone();
    let holder = &mut value.holders[0];
    assert_eq!(holder.keeper.fingerprint(&holder.id), None, "it is open");
    assert!(matches!(holder.put_all(), Some(Put::Kept(..))));
    let mut page = |is_staging| {
        let group = holder.id.name.group;
        let alive = Alive {
            group,
            record: record.clone(),
            is_staging,
        };
        let page = Page {
            term: TERM,
            after: None,
            last: group,
            is_end: true,
            alive: vec![alive],
        };
        holder.keeper.on_page(&mut holder.pool, X, &page, true);
        holder.keeper.fingerprint(&holder.id).is_some()
    };
    assert!(page(true));
    assert!(!page(false));
    assert!(matches!(holder.keeper.on_ask(&holder.id), PartState::Kept(_)));
}

#[test]
fn a_new_holder_without_memory_owes_nothing_to_a_client() {
    let class = Class::Ec { data: 2, parity: 1 };
    let mut value = open(class, &bytes(1_000));
    let (record, key) = (value.record.clone(), value.key);
    let holder = &mut value.holders[0];
    let mut keeper = Keeper::new(holder.part.position, POSITIONS, false);
    keeper.on_owner(&mut holder.pool, X, TERM);
    let page = Page {
        term: TERM,
        after: None,
        last: GroupId::newest(TERM, 0),
        is_end: true,
        alive: Vec::new(),
    };
    assert!(keeper.on_page(&mut holder.pool, X, &page, true));
    holder.pool.room = 0;
    let declined = keeper.on_open(&holder.pool, holder.id, &record, TERM, Some(key));
    assert_eq!(declined, PartState::Declined);
    assert!(keeper.is_whole([X].into_iter()));
}
