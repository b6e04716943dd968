//! Records of objects: they stay with their objects, and each birth and death is reported.

use super::*;
use crate::RECORD_BYTES_MAX;

impl World {
    /// Takes the reported births and deaths into account. A record dies only after its birth.
    pub(super) fn take_record_events(&mut self) {
        self.reported = self.stream.take_record_events();
        for event in &self.reported {
            match event {
                RecordEvent::Born(record) => *self.records.entry(record.to_vec()).or_default() += 1,
                RecordEvent::Died(record) => {
                    let count = self.records.get_mut(&record[..]).expect("it was born");
                    *count -= 1;
                    if *count == 0 {
                        self.records.remove(&record[..]);
                    }
                }
                RecordEvent::AllDied => {
                    assert!(!self.records.is_empty());
                    self.records.clear();
                }
            }
        }
        assert_eq!(self.stream.record_count(), self.records.values().sum::<u64>());
    }

    /// Checks that the reported records are those of the live objects; before all chunks are learnt, a part of them.
    pub(super) fn compare_records(&self) {
        let mut live: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for stored in self.model.values().filter(|stored| !stored.record.is_empty()) {
            *live.entry(stored.record.clone()).or_default() += 1;
        }
        if self.stream.knows_records() {
            assert_eq!(self.records, live);
        } else {
            for (record, count) in &self.records {
                assert!(live.get(record) >= Some(count), "{record:?} was reported {count} times");
            }
        }
    }

    /// The number of resident data chunks that have not been learnt.
    fn unlearnt(&self) -> usize {
        let unlearnt = |number: &u32| {
            self.stream.space.used(*number) == Use::Unknown
                && self.stream.chunks.presence(Stripe::data(*number)) == Some(Presence::Here)
        };
        (0..self.stream.space.end()).filter(unlearnt).count()
    }

    pub(super) fn install_all(&mut self) {
        for stripe in self.mirror.0.keys().copied().collect::<Vec<_>>() {
            if self.stream.chunks.presence(stripe) == Some(Presence::Absent) {
                assert!(self.install(stripe));
            }
        }
    }

    /// Runs one operation. Returns what it reported.
    fn events<T>(
        &mut self,
        op: impl FnOnce(&mut ObjectStore, &mut Arena, &mut Delta) -> Result<T, Blocked>,
    ) -> Vec<RecordEvent> {
        assert!(self.run(op).is_ok());
        core::mem::take(&mut self.reported)
    }

    fn events_of_put(&mut self, record: &[u8], value_bytes: usize) -> Vec<RecordEvent> {
        self.put(b"key", &with_record(record, value_bytes)).unwrap();
        core::mem::take(&mut self.reported)
    }

    fn events_of_set_expiry(&mut self, expiry_ms: Option<u64>) -> Vec<RecordEvent> {
        self.set_expiry(b"key", expiry_ms, None).unwrap();
        core::mem::take(&mut self.reported)
    }
}

pub(super) fn with_record(record: &[u8], value_bytes: usize) -> Stored {
    Stored {
        bytes: vec![7; value_bytes],
        record: record.to_vec(),
        ..Stored::default()
    }
}

fn born(record: &[u8]) -> RecordEvent {
    RecordEvent::Born(record.into())
}

fn died(record: &[u8]) -> RecordEvent {
    RecordEvent::Died(record.into())
}

#[test]
fn each_change_reports_what_it_does_to_records() {
    let mut world = World::new(4096, 64);
    assert_eq!(world.events_of_put(b"", 10), []);
    assert_eq!(world.events_of_put(b"one", 10), [born(b"one")]);
    assert_eq!(world.events_of_put(b"two", 10), [born(b"two"), died(b"one")]);
    // The same length and kind: not in place all the same.
    assert_eq!(world.events_of_put(b"two", 10), [born(b"two"), died(b"two")]);
    assert_eq!(world.events_of_put(b"", 10), [died(b"two")]);
    assert_eq!(world.events_of_put(b"three", 9000), [born(b"three")]);

    let again = [born(b"three"), died(b"three")];
    assert_eq!(world.events_of_set_expiry(Some(5)), again);
    assert_eq!(world.events_of_set_expiry(Some(6)), []);
    assert_eq!(world.events_of_set_expiry(None), again);
    assert_eq!(world.events_of_set_expiry(None), []);
    assert_eq!(world.events_of_set_expiry(Some(7)), again);
    world.compare_all();
    let expired = world.events(|stream, arena, delta| Ok(stream.expire_step(arena, delta, 7, 64, |_| {})));
    assert_eq!(expired, [died(b"three")]);

    assert_eq!(world.events_of_put(b"four", 10), [born(b"four")]);
    let hash = world.stream.hash(database(b"key"), b"key");
    let deleted = world.events(|stream, arena, delta| stream.delete(arena, delta, hash, b"key"));
    assert_eq!(deleted, [died(b"four")]);

    assert_eq!(world.events_of_put(b"five", 10), [born(b"five")]);
    let hash = world.stream.hash(database(b"key"), b"key");
    let spared = Some((hash, &b"key"[..]));
    let flushed = world.events(|stream, arena, delta| stream.flush(arena, delta, spared));
    assert_eq!(flushed, [RecordEvent::AllDied, born(b"five")]);
    let flushed = world.events(|stream, arena, delta| stream.flush(arena, delta, None));
    assert_eq!(flushed, [RecordEvent::AllDied]);
    let flushed = world.events(|stream, arena, delta| stream.flush(arena, delta, spared));
    assert_eq!(flushed, [], "there was no record left");

    assert_eq!(world.events_of_put(b"six", 10), [born(b"six")]);
    world.stream.set_policy(Policy::AllKeysRandom);
    let evicted = world.events(|stream, arena, delta| stream.evict(arena, delta, 1, |_| {}));
    assert_eq!(evicted, [died(b"six")]);
    assert_eq!(world.stream.record_count(), 0);
}

#[test]
fn the_longest_record_is_taken_and_a_longer_one_refused() {
    for chunk_bytes in [4096, 16384, 65536] {
        let mut world = World::new(chunk_bytes, 1 << 10);
        assert_eq!(world.put(b"key", &with_record(&[1; 256], 1)), Err(Blocked::TooLarge));
        let Limits { key_bytes, value_bytes } = world.stream.limits();
        let stored = Stored {
            expiry_ms: Some(1),
            flags: Some(2),
            marks: 3,
            hash_kind: true,
            ..with_record(&[1; RECORD_BYTES_MAX], value_bytes)
        };
        for n in 0..6 {
            world.put(&vec![n; key_bytes], &stored).unwrap();
            world.put(&[n; 3], &with_record(&[n + 1; 255], 20)).unwrap();
        }
        world.set_expiry(&vec![0; key_bytes], None, None).unwrap();
        world.set_expiry(&vec![0; key_bytes], Some(9), None).unwrap();
        world.compare_all();
    }
}

/// Objects of one piece, and objects of several, whose first piece is moved too.
#[test]
fn records_stay_when_compaction_and_growth_move_objects() {
    for (chunk_bytes, value_bytes) in [(1024, 30), (1024, 1500), (4096, 300), (16384, 20_000)] {
        println!("chunk {chunk_bytes}, values of {value_bytes} B");
        let mut world = World::new(chunk_bytes, 1 << 14);
        let keys = 4000.min(8_000_000 / value_bytes as u64);
        for n in 0..keys {
            let record = n.to_le_bytes().repeat(n as usize % 13);
            world.put(&numbered(n), &with_record(&record, value_bytes)).unwrap();
        }
        assert!(world.stream.page_count() > 1 || keys < 1000);
        for n in (0..keys).filter(|n| n % 5 > 1) {
            world.delete(&numbered(n)).unwrap();
        }
        while world.housekeep().unwrap() {
            assert_eq!(world.reported, [], "a move is neither birth nor death");
        }
        let moved = world.stream.gauges().moved_bytes;
        println!("{moved} bytes moved");
        assert!(moved > value_bytes as u64);
        world.compare_all();
        assert_eq!(world.scan_all(), world.model);
    }
}

#[test]
fn a_successor_is_told_of_each_record_once() {
    for (chunk_bytes, seed) in [(512, 1), (1024, 2), (4096, 3), (16384, 4)] {
        println!("chunk {chunk_bytes} seed {seed}");
        let mut prng = Prng::new(seed);
        let mut world = World::new(chunk_bytes, 1 << 14);
        for _ in 0..3000 {
            random_op(&mut world, &mut prng, 400).unwrap();
        }
        world.take_over();
        assert!(!world.stream.knows_records());
        world.directory();
        let keys: Vec<Vec<u8>> = world.model.keys().cloned().collect();
        // What dies before its chunk is learnt is not reported. What is put is born at once.
        for key in keys.iter().step_by(7) {
            world.insist(|world| world.delete(key));
        }
        assert!(world.records.is_empty());
        for key in keys.iter().skip(1).step_by(7) {
            world.insist(|world| world.put(key, &with_record(b"new", 20)));
        }
        assert!(world.records.keys().eq([b"new"]));
        world.compare_records();
        // Memory is short: chunks are learnt one after the other, and dropped.
        while !world.stream.knows_records() {
            let stream = &world.stream;
            let next = world.mirror.0.keys().copied().find(|stripe| {
                stream.chunks.presence(*stripe) == Some(Presence::Absent)
                    && stream.aside.iter().all(|(aside, _)| aside != stripe)
            });
            if let Some(stripe) = next {
                assert!(world.install(stripe));
            }
            for _ in 0..3 {
                world.insist(World::housekeep);
                world.compare_records();
            }
            let stripe = next.unwrap_or_else(|| Stripe::data(0));
            let learnt = !stripe.is_index() && world.stream.space.is_counted(stripe.number());
            if learnt && prng.chance(500_000) {
                assert!(world.stream.drop_chunk(&mut world.arena, stripe));
            }
        }
        let (count, dropped) = (world.stream.record_count(), world.stream.chunks.absent_count());
        println!("{count} records, {dropped} chunks dropped");
        assert!(count > 5 && dropped > 0);
        world.compare_records();
        world.install_all();
        world.compare_all();
    }
}

/// A flush ends objects in chunks that are not resident too, learnt or not.
#[test]
fn after_a_flush_all_records_are_known_to_be_dead() {
    for learnt in [false, true] {
        let mut world = World::new(1024, 1 << 10);
        for n in 0..400 {
            world.put(&numbered(n), &with_record(&n.to_le_bytes(), 40)).unwrap();
        }
        world.take_over();
        world.directory();
        let stripes: Vec<Stripe> = world.mirror.0.keys().copied().collect();
        for stripe in stripes.iter().filter(|s| learnt || s.is_index() || s.number() % 2 == 0) {
            assert!(world.install(*stripe));
        }
        while world.unlearnt() > 0 {
            assert_eq!(world.housekeep(), Ok(true));
        }
        assert!(!world.records.is_empty());
        assert_eq!(world.stream.knows_records(), learnt);
        for number in (0..world.stream.space.end()).step_by(4) {
            assert!(world.stream.drop_chunk(&mut world.arena, Stripe::data(number)));
        }
        assert_eq!(world.stream.knows_records(), learnt);
        let flushed = world.events(|stream, arena, delta| stream.flush(arena, delta, None));
        assert_eq!(flushed, [RecordEvent::AllDied]);
        world.model.clear();
        assert!(world.stream.knows_records());
        world.install_all();
        while world.housekeep().unwrap() {}
        world.put(b"key", &with_record(b"record", 1)).unwrap();
        world.compare_all();
    }
}

/// A chunk found damaged before the directory came is absent like others: it is counted and learnt when it is back.
#[test]
fn what_was_set_aside_before_the_directory_is_learnt_once() {
    let mut world = World::new(512, 1 << 10);
    for n in 0..200 {
        world.put(&numbered(n), &with_record(b"record", 10)).unwrap();
    }
    world.take_over();
    let stripes: Vec<Stripe> = world.mirror.0.keys().copied().collect();
    for stripe in &stripes {
        assert!(world.install(*stripe));
        assert!(world.stream.set_aside(*stripe));
    }
    for stripe in stripes.iter().step_by(2) {
        assert!(world.install(*stripe));
    }
    world.directory();
    world.install_all();
    while world.housekeep().unwrap() {}
    world.compare_all();
    // Again, now that all have been counted.
    for stripe in &stripes {
        world.stream.set_aside(*stripe);
    }
    assert!(world.stream.knows_records());
    world.install_all();
    while world.housekeep().unwrap() {}
    world.compare_all();
}

/// After each of many random operations, births less deaths are the records of the live objects.
#[test]
fn births_less_deaths_are_the_records_of_live_objects() {
    for chunk_bytes in [256, 512, 1024, 4096, 16384] {
        for seed in 0..3 {
            births_less_deaths(chunk_bytes, seed);
        }
    }
}

fn births_less_deaths(chunk_bytes: usize, seed: u64) {
    println!("chunk {chunk_bytes} seed {seed}");
    let mut prng = Prng::new(seed);
    let mut world = World::new(chunk_bytes, 1 << 12);
    let (mut known, mut most) = (0, 0);
    for _ in 0..4000 {
        match prng.below(1000) {
            0..5 => {
                world.take_over();
                world.directory();
            }
            // A chunk is dropped, or set aside because its bytes are wrong.
            5..50 => {
                let all: Vec<Stripe> = world.stream.chunks.stripes().map(|(stripe, _)| stripe).collect();
                if !all.is_empty() {
                    let stripe = *prng.pick(&all);
                    if prng.chance(500_000) {
                        world.stream.set_aside(stripe);
                    } else {
                        world.stream.drop_chunk(&mut world.arena, stripe);
                    }
                }
            }
            50..55 => world.install_all(),
            55..60 => {
                world.stream.set_policy(Policy::AllKeysRandom);
                let mut gone = BTreeSet::new();
                let evicted = world.run(|stream, arena, delta| {
                    stream.evict(arena, delta, 100, |hash| {
                        gone.insert(hash);
                    })
                });
                assert_eq!(evicted.map(|count| count as usize), Ok(gone.len()));
                let stream = &world.stream;
                world
                    .model
                    .retain(|key, _| !gone.contains(&stream.hash(database(key), key)));
            }
            60..65 => {
                let now_ms = 1 << 19;
                let step = world.run(|stream, arena, delta| Ok(stream.expire_step(arena, delta, now_ms, 16, |_| {})));
                assert!(step.is_ok());
                for key in world.model.keys().cloned().collect::<Vec<_>>() {
                    if world.insist(|world| world.find(&key)).is_none() {
                        let expiry_ms = world.model.remove(&key).and_then(|stored| stored.expiry_ms);
                        assert!(expiry_ms.is_some_and(|at| at <= now_ms));
                    }
                }
            }
            65..250 => {
                world.insist(|world| {
                    // As the owner does: it names the chunk to compact, so a chunk that is absent changes nothing.
                    world.stream.next_victim(&world.arena);
                    world.housekeep()
                });
            }
            250..450 => {
                let limits = world.stream.limits();
                let key = random_key(&mut prng, limits, 150);
                let stored = Stored {
                    record: random_record(&mut prng),
                    ..random_stored(&mut prng, limits)
                };
                world.insist(|world| may_be_too_large(limits, true, world.put(&key, &stored)));
            }
            _ => {
                let at = prng.clone();
                world.insist(|world| {
                    prng = at.clone();
                    random_op(world, &mut prng, 150)
                });
            }
        }
        world.compare_records();
        known += u32::from(world.stream.knows_records());
        most = most.max(world.stream.record_count());
    }
    println!("chunk {chunk_bytes} seed {seed}: all known {known} times, {most} records at most");
    assert!(known > 100 && most > 10);
    world.install_all();
    while world.housekeep().unwrap() {}
    assert!(world.stream.knows_records());
    world.compare_all();
}
