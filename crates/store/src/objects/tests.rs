//! A stream is compared with a model map. Its deltas are applied to a mirror, as a parity member would apply them.

use super::*;
use crate::delta::{COMMAND_DELTA_BYTES_MAX, DELTA_BYTES_MAX, extents};
use crate::index::page;
use crate::{Object, Policy, Presence, Value};
use paritas_base::{ALL_DATABASES, HIDDEN_DATABASE, Prng};
use std::collections::{BTreeMap, BTreeSet};

mod records;

use records::with_record;

const KEY: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

/// What a parity member of a `1+1` scheme holds: the bytes and version of every chunk.
#[derive(Default)]
struct Mirror(BTreeMap<Stripe, (Version, Vec<u8>)>);

impl Mirror {
    fn apply(&mut self, delta: &Delta, chunk_bytes: usize) -> BTreeSet<Stripe> {
        assert!(delta.bytes().len() <= DELTA_BYTES_MAX);
        let mut touched = BTreeSet::new();
        for extent in extents(delta.version(), delta.bytes(), chunk_bytes) {
            let extent = extent.unwrap();
            let (version, bytes) = self
                .0
                .entry(extent.stripe)
                .or_insert_with(|| (Version::ZERO, vec![0; chunk_bytes]));
            match extent.base {
                Some(base) => assert_eq!(*version, base, "{}", extent.stripe),
                None => assert_eq!(*version, delta.version(), "{}", extent.stripe),
            }
            for (b, x) in bytes[extent.offset..].iter_mut().zip(extent.xor) {
                *b ^= x;
            }
            *version = delta.version();
            if extent.free {
                assert!(bytes.iter().all(|b| *b == 0));
                *version = Version::ZERO;
            }
            touched.insert(extent.stripe);
        }
        touched
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Stored {
    bytes: Vec<u8>,
    expiry_ms: Option<u64>,
    flags: Option<u32>,
    marks: u8,
    hash_kind: bool,
    record: Vec<u8>,
}

impl Stored {
    fn of(object: &Object<'_>) -> Self {
        let mut bytes = Vec::new();
        object.copy_to(&mut bytes);
        assert_eq!(bytes.len(), object.len());
        Self {
            bytes,
            expiry_ms: object.expiry_ms(),
            flags: object.flags(),
            marks: object.marks(),
            hash_kind: object.is_hash(),
            record: object.record().unwrap_or_default().to_vec(),
        }
    }

    fn value(&self) -> Value<'_> {
        Value {
            bytes: &self.bytes,
            expiry_ms: self.expiry_ms,
            flags: self.flags,
            marks: self.marks,
            hash_kind: self.hash_kind,
            record: &self.record,
        }
    }
}

/// The database in which a test keeps a key: most are in database 0.
fn database(key: &[u8]) -> u8 {
    key.last().map_or(0, |last| (last % 6).saturating_sub(3))
}

struct World {
    arena: Arena,
    stream: ObjectStore,
    mirror: Mirror,
    model: BTreeMap<Vec<u8>, Stored>,
    /// The records reported as born and not as dead, each with the number of its objects.
    records: BTreeMap<Vec<u8>, u64>,
    /// What the last operation reported.
    reported: Vec<RecordEvent>,
    seq: u64,
    term: u32,
}

impl World {
    fn new(chunk_bytes: usize, slots: u32) -> Self {
        let mut stream = ObjectStore::new(Settings::new(chunk_bytes, KEY));
        stream.set_credit(u32::MAX, u32::MAX);
        Self {
            arena: Arena::new(chunk_bytes, slots),
            stream,
            mirror: Mirror::default(),
            model: BTreeMap::new(),
            records: BTreeMap::new(),
            reported: Vec::new(),
            seq: 0,
            term: 1,
        }
    }

    /// Runs one operation with its own delta, and compares the chunks that it touched.
    fn run<T>(
        &mut self,
        op: impl FnOnce(&mut ObjectStore, &mut Arena, &mut Delta) -> Result<T, Blocked>,
    ) -> Result<T, Blocked> {
        let before = self.state();
        let mut delta = Delta::new(Version::new(self.term, self.seq + 1), Vec::new());
        let result = op(&mut self.stream, &mut self.arena, &mut delta);
        if let Err(blocked) = &result {
            assert!(delta.is_empty(), "{blocked:?} has changed bytes");
            assert_eq!(before, self.state(), "{blocked:?} has changed the stream");
            assert_eq!(self.stream.take_record_events(), [], "{blocked:?}");
        }
        self.apply(&delta);
        result
    }

    fn apply(&mut self, delta: &Delta) {
        self.take_record_events();
        if delta.is_empty() {
            return;
        }
        self.seq += 1;
        for stripe in self.mirror.apply(delta, self.arena.chunk_bytes()) {
            self.compare(stripe);
        }
    }

    fn state(&self) -> Option<String> {
        // Only for small streams, because the text is long.
        (self.stream.space.end() < 40).then(|| {
            let ObjectStore {
                chunks,
                index,
                space,
                credit,
                records,
                ..
            } = &self.stream;
            format!("{chunks:?} {index:?} {space:?} {credit:?} {records:?}")
        })
    }

    fn compare(&self, stripe: Stripe) {
        let (version, bytes) = &self.mirror.0[&stripe];
        assert_eq!(self.stream.chunks.version(stripe), *version, "{stripe}");
        let ours = self.stream.chunks.bytes(&self.arena, stripe).unwrap();
        match ours {
            Some(ours) => assert!(ours == bytes, "{stripe} differs"),
            None => assert!(bytes.iter().all(|b| *b == 0), "{stripe} is not zeros"),
        }
    }

    fn compare_all(&self) {
        for stripe in self.mirror.0.keys() {
            self.compare(*stripe);
        }
        for (stripe, version) in self.stream.chunks.stripes() {
            assert_ne!(version, Version::ZERO, "{stripe} has memory but no version");
            assert!(self.mirror.0.contains_key(&stripe));
        }
        assert_eq!(self.stream.count(), Some(self.model.len() as u64));
        for (key, stored) in &self.model {
            assert_eq!(self.find(key).as_ref(), Ok(&Some(stored.clone())));
        }
        if self.stream.space.unknown_count() == 0 {
            let user: usize = self.model.iter().map(|(k, s)| k.len() + s.bytes.len()).sum();
            assert_eq!(self.stream.user_bytes(), user as u64);
            let expiring = self.model.values().filter(|s| s.expiry_ms.is_some());
            assert_eq!(self.stream.gauges().expiring, expiring.count() as u64);
            let mut keys = [Keys::default(); ALL_DATABASES as usize];
            for (key, stored) in &self.model {
                let of = &mut keys[usize::from(database(key))];
                (of.count, of.expiring) = (of.count + 1, of.expiring + u64::from(stored.expiry_ms.is_some()));
            }
            assert_eq!(self.stream.keys(), Some(keys));
        }
        self.compare_records();
    }

    fn find(&self, key: &[u8]) -> Result<Option<Stored>, Blocked> {
        let hash = self.stream.hash(database(key), key);
        let found = self.stream.find(&self.arena, hash, key)?;
        Ok(found.map(|object| {
            assert_eq!((object.key(), object.database()), (key, database(key)));
            Stored::of(&object)
        }))
    }

    fn put(&mut self, key: &[u8], stored: &Stored) -> Result<(), Blocked> {
        let hash = self.stream.hash(database(key), key);
        self.run(|stream, arena, delta| stream.put(arena, delta, hash, key, stored.value()))?;
        self.model.insert(key.to_vec(), stored.clone());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Blocked> {
        let hash = self.stream.hash(database(key), key);
        let there = self.run(|stream, arena, delta| stream.delete(arena, delta, hash, key))?;
        assert_eq!(there, self.model.remove(key).is_some());
        Ok(())
    }

    fn flush(&mut self, spared: Option<&[u8]>) -> Result<(), Blocked> {
        let hashed = spared.map(|key| (self.stream.hash(database(key), key), key));
        self.run(|stream, arena, delta| stream.flush(arena, delta, hashed))?;
        self.model.retain(|key, _| spared == Some(key));
        Ok(())
    }

    fn set_expiry(&mut self, key: &[u8], expiry: Option<u64>, marks: Option<u8>) -> Result<(), Blocked> {
        let hash = self.stream.hash(database(key), key);
        let there = self.run(|stream, arena, delta| stream.set_expiry(arena, delta, hash, key, expiry, marks))?;
        assert_eq!(there, self.model.contains_key(key));
        if let Some(stored) = self.model.get_mut(key) {
            stored.expiry_ms = expiry;
            stored.marks = marks.unwrap_or(stored.marks);
        }
        Ok(())
    }

    fn expire(&mut self, now_ms: u64) {
        for _ in 0..20_000 {
            self.run(|stream, arena, delta| {
                stream.expire_step(arena, delta, now_ms, 64, |_| {});
                Ok(())
            })
            .unwrap();
            // Spilled keys are left to lazy expiry.
            let late = |s: &Stored| s.expiry_ms.is_some_and(|e| e <= now_ms);
            let dead: Vec<_> = self
                .model
                .iter()
                .filter(|(_, s)| late(s))
                .map(|(k, _)| k.clone())
                .collect();
            let mut left = 0;
            for key in dead {
                if self.find(&key) == Ok(None) {
                    self.model.remove(&key);
                } else {
                    left += 1;
                }
            }
            if left == 0 {
                return;
            }
        }
        panic!("expired keys were not deleted");
    }

    fn housekeep(&mut self) -> Result<bool, Blocked> {
        self.run(|stream, arena, delta| stream.housekeep(arena, delta, 4096))
    }

    fn scan_all(&self) -> BTreeMap<Vec<u8>, Stored> {
        let mut seen = BTreeMap::new();
        let mut cursor = 0;
        loop {
            let next = self.stream.scan(&self.arena, cursor, 7, |object| {
                seen.insert(object.key().to_vec(), Stored::of(object));
            });
            cursor = next.unwrap();
            if cursor == 0 {
                return seen;
            }
        }
    }

    /// The owner dies. Another takes the stream over, with nothing but the mirror.
    fn take_over(&mut self) {
        let chunk_bytes = self.arena.chunk_bytes();
        self.arena = Arena::new(chunk_bytes, 1 << 16);
        let mut stream = ObjectStore::taken_over(*self.stream.settings());
        stream.set_credit(u32::MAX, u32::MAX);
        self.stream = stream;
        self.records.clear();
        self.term += 1;
    }

    fn directory(&mut self) {
        let stripes = self.mirror.0.iter().map(|(s, (v, _))| (*s, *v));
        self.stream.set_directory(&self.arena, stripes);
    }

    fn install(&mut self, stripe: Stripe) -> bool {
        let (version, bytes) = &self.mirror.0[&stripe];
        self.stream.install(&mut self.arena, stripe, *version, 0, bytes)
    }

    /// Repeats an operation, reconstructing every chunk that it misses.
    fn insist<T>(&mut self, mut op: impl FnMut(&mut Self) -> Result<T, Blocked>) -> T {
        loop {
            match op(self) {
                Ok(done) => return done,
                Err(Blocked::Missing(stripe)) => assert!(self.install(stripe)),
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

fn random_key(prng: &mut Prng, limits: Limits, keys: u64) -> Vec<u8> {
    let id = prng.below(keys);
    let mut own = Prng::new(id);
    let length = match own.below(20) {
        0 => own.below(limits.key_bytes as u64 + 1),
        1 => 250 + own.below(10),
        _ => 8 + own.below(30),
    };
    let length = length.min(limits.key_bytes as u64) as usize;
    let mut key = id.to_le_bytes().repeat(length / 8 + 1);
    key.truncate(length);
    key
}

fn random_stored(prng: &mut Prng, limits: Limits) -> Stored {
    let most = limits.value_bytes as u64;
    let length = match prng.below(40) {
        0 => prng.below(most + 1),
        1 => most,
        2..=8 => prng.below(2000.min(most)),
        _ => prng.below(80),
    };
    let first = prng.next_u64();
    Stored {
        bytes: (0..length).map(|i| (first.wrapping_mul(i | 1) >> 32) as u8).collect(),
        expiry_ms: prng.chance(200_000).then(|| prng.below(1 << 20)),
        flags: prng.chance(100_000).then(|| prng.next_u64() as u32),
        marks: random_marks(prng).unwrap_or(0),
        hash_kind: prng.chance(50_000),
        record: if prng.chance(100_000) {
            random_record(prng)
        } else {
            Vec::new()
        },
    }
}

/// Those of few objects.
fn random_marks(prng: &mut Prng) -> Option<u8> {
    prng.chance(100_000).then(|| prng.below(256) as u8)
}

fn random_record(prng: &mut Prng) -> Vec<u8> {
    let length = match prng.below(4) {
        0 => 1 + prng.below(255),
        _ => 1 + prng.below(60),
    };
    // Few different bytes, so that some records are equal.
    (0..length).map(|_| prng.below(2) as u8).collect()
}

/// With chunks under 4 KiB, some keys and values leave no space for a record.
fn may_be_too_large(limits: Limits, has_record: bool, done: Result<(), Blocked>) -> Result<(), Blocked> {
    match done {
        Err(Blocked::TooLarge) if has_record && limits.key_bytes < 2048 => Ok(()),
        done => done,
    }
}

/// Does one random operation. Returns what blocked it.
fn random_op(world: &mut World, prng: &mut Prng, keys: u64) -> Result<(), Blocked> {
    let limits = world.stream.limits();
    let key = random_key(prng, limits, keys);
    match prng.below(1000) {
        0 => {
            let spared = key.len().is_multiple_of(2).then_some(&key[..]);
            world.flush(spared)?;
        }
        1..=20 => {
            world.housekeep()?;
        }
        21..=300 => world.delete(&key)?,
        301..=340 => {
            let expiry = prng.chance(500_000).then(|| prng.below(1 << 20));
            let has_record = world.model.get(&key).is_some_and(|stored| !stored.record.is_empty());
            let marks = random_marks(prng);
            may_be_too_large(limits, has_record, world.set_expiry(&key, expiry, marks))?;
        }
        341..=400 => assert_eq!(world.find(&key)?.as_ref(), world.model.get(&key)),
        401..=500 => {
            // A value of the same length again: it is overwritten in place.
            if let Some(mut stored) = world.model.get(&key).cloned() {
                stored
                    .bytes
                    .iter_mut()
                    .for_each(|b| *b = b.wrapping_add(prng.below(2) as u8));
                world.put(&key, &stored)?;
            }
        }
        _ => {
            let stored = random_stored(prng, limits);
            may_be_too_large(limits, !stored.record.is_empty(), world.put(&key, &stored))?;
        }
    }
    Ok(())
}

#[test]
fn random_operations_agree_with_a_model_and_with_the_mirror() {
    for (chunk_bytes, keys, ops) in [
        (256, 300, 6000),
        (512, 2000, 6000),
        (1024, 300, 4000),
        (4096, 3000, 8000),
        (16384, 10_000, 12_000),
        (65536, 3000, 4000),
    ] {
        for seed in 0..3 {
            println!("chunk {chunk_bytes} seed {seed}");
            let mut prng = Prng::new(seed);
            let mut world = World::new(chunk_bytes, 1 << 15);
            for op in 0..ops {
                random_op(&mut world, &mut prng, keys).unwrap();
                if op % 1000 == 999 {
                    world.compare_all();
                    assert_eq!(world.scan_all(), world.model);
                }
            }
            world.expire(1 << 19);
            while world.housekeep().unwrap() {}
            world.compare_all();
        }
    }
}

#[test]
fn a_blocked_operation_changes_nothing() {
    for chunk_bytes in [256, 1024, 4096] {
        for seed in 0..4 {
            println!("chunk {chunk_bytes} seed {seed}");
            let mut prng = Prng::new(seed);
            let mut world = World::new(chunk_bytes, 60);
            world.stream.set_credit(0, 0);
            let mut kinds = BTreeSet::new();
            for _ in 0..6000 {
                match random_op(&mut world, &mut prng, 400) {
                    Ok(()) => {}
                    Err(Blocked::Credit { .. }) => {
                        kinds.insert("credit");
                        let (data, index) = world.stream.credit;
                        let wants = world.stream.wants_credit().unwrap();
                        assert!(wants.0 > data || wants.1 > index);
                        let step = |has: u32, wants: u32| wants.min(has + 1);
                        world.stream.set_credit(step(data, wants.0), step(index, wants.1));
                    }
                    Err(Blocked::Memory) => {
                        kinds.insert("memory");
                        let key = world.model.keys().next().cloned();
                        if let Some(key) = key {
                            world.delete(&key).unwrap();
                        }
                        while world.housekeep().is_ok_and(|done| done) {}
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            world.compare_all();
            assert!(kinds.contains("credit") && kinds.contains("memory"), "{kinds:?}");
        }
    }
}

/// Several changes find the space that [`ObjectStore::may_take`] promised. Credit is asked for until it is enough for
/// all, however small the chunks.
#[test]
fn room_promised_to_several_changes_is_there_for_all_of_them() {
    for chunk_bytes in [1024, 4096, 16384] {
        for (count, value_bytes) in [(2, 60_000), (200, 400), (2_500, 1)] {
            let mut world = World::new(chunk_bytes, 4096);
            let value_bytes = world.stream.limits().value_bytes.min(value_bytes);
            world.stream.set_credit(0, 0);
            let pages = world.stream.pages_for(count);
            let chunks = 2 * count * (value_bytes + 56) / chunk_bytes + 2;
            let mut asked = 0;
            while let Err(blocked) = world.stream.may_take(&world.arena, chunks as u32, pages) {
                assert!(matches!(blocked, Blocked::Credit { .. }), "{blocked:?}");
                let (data, index) = world
                    .stream
                    .wants_credit()
                    .expect("it asks for the credit that it lacks");
                world.stream.set_credit(data, index);
                asked += 1;
                assert!(asked < 1000, "it still asks for more credit");
            }
            for n in 0..count {
                let stored = Stored {
                    bytes: vec![b'v'; value_bytes],
                    ..Stored::default()
                };
                let key = format!("key{n}");
                let done = world.put(key.as_bytes(), &stored);
                assert_eq!(done, Ok(()), "chunk {chunk_bytes}: {n} of {count} of {value_bytes}");
            }
        }
    }
}

#[test]
fn many_operations_share_a_delta_until_it_is_full() {
    for chunk_bytes in [256, 4096, 16384] {
        let mut world = World::new(chunk_bytes, 1 << 14);
        let mut prng = Prng::new(5);
        let limits = world.stream.limits();
        let mut full = 0;
        let mut delta = Delta::new(Version::new(1, 1), Vec::new());
        while full < 3 {
            let key = random_key(&mut prng, limits, 5000);
            let stored = random_stored(&mut prng, limits);
            let hash = world.stream.hash(database(&key), &key);
            let (stream, arena) = (&mut world.stream, &mut world.arena);
            let before = delta.bytes().len();
            match stream.put(arena, &mut delta, hash, &key, stored.value()) {
                Ok(()) => {
                    world.model.insert(key, stored);
                }
                Err(Blocked::TooLarge) if !stored.record.is_empty() => {}
                Err(Blocked::DeltaFull) => {
                    assert_eq!(delta.bytes().len(), before);
                    full += 1;
                    world.apply(&delta);
                    world.compare_all();
                    delta = Delta::new(Version::new(1, world.seq + 1), Vec::new());
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_successor_finds_every_key_and_goes_on() {
    for (chunk_bytes, keys, ops) in [
        (256, 300, 3000),
        (512, 300, 3000),
        (4096, 2000, 6000),
        (16384, 8000, 9000),
    ] {
        for seed in 0..4 {
            println!("chunk {chunk_bytes} seed {seed}");
            let mut prng = Prng::new(seed);
            let mut world = World::new(chunk_bytes, 1 << 15);
            for _ in 0..3 {
                for _ in 0..ops {
                    random_op(&mut world, &mut prng, keys).unwrap();
                }
                world.take_over();
                assert_eq!(world.find(b"anything"), Err(Blocked::Directory));
                world.directory();
                if !world.model.is_empty() {
                    assert_eq!(world.stream.count(), None);
                }
                let some: Vec<_> = world.model.iter().map(|(k, s)| (k.clone(), s.clone())).collect();
                for (key, stored) in some.iter().step_by(3) {
                    assert_eq!(world.insist(|w| w.find(key)).as_ref(), Some(stored));
                }
                // Some chunks are still absent: run operations all the same.
                for _ in 0..ops / 4 {
                    let at = prng.clone();
                    world.insist(|w| {
                        prng = at.clone();
                        random_op(w, &mut prng, keys)
                    });
                }
                let absent: Vec<_> = world.mirror.0.keys().copied().collect();
                for stripe in absent {
                    if world.stream.chunks.presence(stripe) == Some(Presence::Absent) {
                        world.install(stripe);
                    }
                }
                while world.housekeep().unwrap() {}
                assert_eq!(world.stream.space.unknown_count(), 0);
                world.compare_all();
                assert_eq!(world.scan_all(), world.model);
                live_bytes_are_right(&world);
            }
        }
    }
}

#[test]
fn equal_names_in_all_databases_are_different_keys() {
    let mut world = World::new(512, 1 << 14);
    let names = 200;
    let value = |database: u8, n: u64| format!("{n} in {database}").into_bytes();
    for n in 0..names {
        for database in 0..ALL_DATABASES {
            let hash = world.stream.hash(database, &numbered(n));
            assert_eq!(database_of(hash), database);
            let bytes = value(database, n);
            let put = Value {
                bytes: &bytes,
                ..Value::default()
            };
            world
                .run(|stream, arena, delta| stream.put(arena, delta, hash, &numbered(n), put))
                .unwrap();
        }
    }
    // A database is emptied, and another one changed.
    for n in 0..names {
        let [gone, changed] = [3, 4].map(|database| world.stream.hash(database, &numbered(n)));
        let key = numbered(n);
        assert!(
            world
                .run(|stream, arena, delta| stream.delete(arena, delta, gone, &key))
                .unwrap()
        );
        assert!(
            !world
                .run(|stream, arena, delta| stream.delete(arena, delta, gone, &key))
                .unwrap()
        );
        assert!(
            world
                .run(|stream, arena, delta| stream.set_expiry(arena, delta, changed, &key, Some(7), None))
                .unwrap()
        );
    }
    let check = |world: &World| {
        for n in 0..names {
            for database in 0..ALL_DATABASES {
                let hash = world.stream.hash(database, &numbered(n));
                let found = world.stream.find(&world.arena, hash, &numbered(n)).unwrap();
                let stored = found.as_ref().map(Stored::of);
                assert_eq!(stored.is_none(), database == 3);
                if let (Some(object), Some(stored)) = (found, stored) {
                    assert_eq!((object.database(), stored.bytes), (database, value(database, n)));
                    assert_eq!(stored.expiry_ms, (database == 4).then_some(7));
                }
            }
        }
        let counts = world.stream.keys().unwrap();
        for (database, keys) in (0..).zip(counts) {
            let count = if database == 3 { 0 } else { names };
            let expiring = if database == 4 { names } else { 0 };
            assert_eq!((keys.count, keys.expiring), (count, expiring), "database {database}");
        }
    };
    check(&world);
    world.take_over();
    world.directory();
    assert_eq!(world.stream.keys(), None, "nothing is counted yet");
    for stripe in world.mirror.0.keys().copied().collect::<Vec<_>>() {
        world.install(stripe);
    }
    assert_eq!(world.stream.keys(), None, "nothing is counted yet");
    while world.stream.learn_one(&world.arena).unwrap() {}
    check(&world);
    // A random key of a database is found wherever it is, and of an empty one none.
    let mut prng = Prng::new(1);
    let draw = |random, database| match world
        .stream
        .random_key(&world.arena, random, |o| o.database() == database)
    {
        Ok(Drawn::Key(object)) => Some(object.database()),
        Ok(Drawn::None) => None,
        other => panic!("{other:?}"),
    };
    for _ in 0..50 {
        assert_eq!((draw(prng.next_u64(), 9), draw(prng.next_u64(), 3)), (Some(9), None));
    }
}

/// Checks that, after the recount, live bytes are those of the model's objects.
fn live_bytes_are_right(world: &World) {
    let mut live = 0;
    for key in world.model.keys() {
        let hash = world.stream.hash(database(key), key);
        let found = world.stream.locate(&world.arena, hash, key).unwrap().unwrap();
        let (number, _) = world.stream.split(found.locator);
        let chunk = world.stream.data(&world.arena, number).unwrap();
        live += u64::from(found.head.bytes());
        live += found.head.pieces(chunk).map(|(_, l)| l as u64 + 8).sum::<u64>();
    }
    // A piece counts as live, though it may be dead, if its first piece was absent when its chunk was recounted.
    assert!(world.stream.gauges().live_bytes >= live);
    assert!(world.stream.gauges().live_bytes <= live + live / 4 + 2000);
}

#[test]
fn chunks_may_come_before_the_directory() {
    let mut world = World::new(512, 1 << 14);
    let mut prng = Prng::new(3);
    for _ in 0..2000 {
        random_op(&mut world, &mut prng, 300).unwrap();
    }
    world.take_over();
    let stripes: Vec<_> = world.mirror.0.keys().copied().collect();
    for stripe in stripes.iter().step_by(2) {
        world.install(*stripe);
    }
    world.directory();
    for stripe in stripes {
        world.install(stripe);
    }
    while world.housekeep().unwrap() {}
    world.compare_all();
}

#[test]
fn a_scan_under_growth_and_deletes_visits_every_key_that_stays_once() {
    for (chunk_bytes, batch) in [(256, 20), (4096, 500), (16384, 3000)] {
        for seed in 0..4 {
            println!("chunk {chunk_bytes} seed {seed}");
            let mut prng = Prng::new(seed);
            let mut world = World::new(chunk_bytes, 1 << 14);
            let key = |i: u64| format!("key {i}").into_bytes();
            let mut next = 0;
            let mut add = |world: &mut World| {
                for _ in 0..batch {
                    world.put(&key(next), &Stored::default()).unwrap();
                    next += 1;
                }
                next
            };
            let stay = add(&mut world);
            let mut seen = BTreeSet::new();
            let mut cursor = 0;
            let mut steps = 0;
            loop {
                let limit = 1 + prng.below(batch / 4) as usize;
                cursor = world
                    .stream
                    .scan(&world.arena, cursor, limit, |object| {
                        let key = object.key().to_vec();
                        assert!(seen.insert(key), "{:?} is visited twice", object.key());
                    })
                    .unwrap();
                steps += 1;
                if cursor == 0 {
                    break;
                }
                if steps < 40 {
                    let end = add(&mut world);
                    let gone = stay + prng.below(end - stay);
                    world.delete(&key(gone)).unwrap();
                }
            }
            assert!(steps > 3);
            for i in 0..stay {
                assert!(seen.contains(&key(i)), "key {i} was skipped");
            }
        }
    }
}

#[test]
fn flush_empties_at_once_and_memory_comes_back_behind() {
    for chunk_bytes in [256, 4096, 65536] {
        let mut world = World::new(chunk_bytes, 1 << 14);
        let mut prng = Prng::new(9);
        for _ in 0..5000 {
            let limits = world.stream.limits();
            let key = random_key(&mut prng, limits, 100_000);
            world.put(&key, &Stored::default()).unwrap();
        }
        let pages = world.stream.page_count();
        assert!(chunk_bytes > 4096 || pages > 5);
        world.flush(None).unwrap();
        assert_eq!((world.stream.count(), world.stream.page_count()), (Some(0), 0));
        // A successor also sees an empty stream, before and after the first inserts.
        for round in 0..3 {
            world.take_over();
            world.directory();
            for stripe in world.mirror.0.keys().copied().collect::<Vec<_>>() {
                world.install(stripe);
            }
            world.compare_all();
            for i in 0..round * 30 {
                world
                    .put(format!("{round} {i}").as_bytes(), &Stored::default())
                    .unwrap();
            }
            world.compare_all();
        }
        while world.housekeep().unwrap() {}
        world.flush(None).unwrap();
        while world.housekeep().unwrap() {}
        let gauges = world.stream.gauges();
        assert_eq!(gauges.index_chunks, 0);
        assert!(gauges.data_chunks <= 1, "{gauges:?}");
        world.compare_all();
    }
}

#[test]
fn flush_spares_a_key_in_the_same_delta() {
    for chunk_bytes in [256, 4096, 65536] {
        for pieces in [false, true] {
            println!("chunk {chunk_bytes} pieces {pieces}");
            let mut world = World::new(chunk_bytes, 1 << 14);
            world.stream.set_policy(Policy::AllKeysLru);
            let limits = world.stream.limits();
            let spared = Stored {
                bytes: vec![9; if pieces { limits.value_bytes - 300 } else { 20 }],
                expiry_ms: Some(7),
                record: b"record".to_vec(),
                ..Stored::default()
            };
            let mut prng = Prng::new(9);
            for round in 0..3 {
                // Over several chunks and pages. It is put among the others, or was spared before.
                for n in 0..3000 {
                    let key = random_key(&mut prng, limits, 100_000);
                    world.put(&key, &with_record(&key[..key.len().min(3)], 10)).unwrap();
                    if n == 1500 && round != 1 {
                        world.put(b"spared", &spared).unwrap();
                    }
                }
                assert!(world.stream.page_count() > 2 || chunk_bytes > 4096);
                world.flush(Some(b"spared")).unwrap();
                assert_eq!(world.model.len(), 1);
                world.compare_all();
                assert_eq!(world.scan_all(), world.model);
                if round == 1 {
                    while world.housekeep().unwrap() {}
                }
                // Again there is nothing to do, and so no delta.
                let seq = world.seq;
                world.flush(Some(b"spared")).unwrap();
                assert_eq!(world.seq, seq);
                // A successor sees that key alone. It may flush before it has learnt the chunks.
                world.take_over();
                world.directory();
                world.insist(|world| world.flush(Some(b"spared")));
                assert!(world.stream.knows_records());
                world.install_all();
                world.compare_all();
                while world.housekeep().unwrap() {}
                world.compare_all();
                let gauges = world.stream.gauges();
                let least = spared.bytes.len() / chunk_bytes;
                assert_eq!(gauges.index_chunks, 1);
                assert!(gauges.data_chunks as usize <= least + 3, "{gauges:?}");
            }
            // A key that is not there is not spared.
            world.flush(Some(b"other")).unwrap();
            world.compare_all();
            assert_eq!((world.stream.count(), world.stream.page_count()), (Some(0), 0));
        }
    }
}

/// The whole object is needed. Else its absent pieces would count as dead, and be written over.
#[test]
fn flush_waits_for_the_pieces_of_the_spared_key() {
    let mut world = World::new(4096, 1 << 10);
    let long = Stored {
        bytes: vec![1; 20_000],
        ..Stored::default()
    };
    world.put(b"spared", &long).unwrap();
    for n in 0..100 {
        world.put(&numbered(n), &long).unwrap();
    }
    let mut waited = 0;
    for number in 0..8 {
        world.stream.drop_chunk(&mut world.arena, Stripe::data(number));
    }
    while let Err(blocked) = world.flush(Some(b"spared")) {
        let Blocked::Missing(stripe) = blocked else {
            panic!("{blocked:?}");
        };
        assert!(world.install(stripe));
        waited += 1;
    }
    assert!(waited >= 5, "{waited} pieces");
    world.install_all();
    for n in 0..200 {
        world.put(&numbered(n), &long).unwrap();
    }
    world.compare_all();
}

#[test]
fn too_large_keys_and_values_are_refused_and_the_largest_taken() {
    for chunk_bytes in [256, 512, 1024, 4096, 16384, 32768, 65536] {
        let mut world = World::new(chunk_bytes, 1 << 12);
        let Limits { key_bytes, value_bytes } = world.stream.limits();
        assert!(chunk_bytes < 1024 || value_bytes >= VALUE_BYTES_MAX.min(58 * chunk_bytes));
        let value = |length: usize| Stored {
            bytes: vec![1; length],
            expiry_ms: Some(1),
            flags: Some(2),
            marks: 3,
            hash_kind: true,
            record: Vec::new(),
        };
        assert_eq!(world.put(&vec![1; key_bytes + 1], &value(1)), Err(Blocked::TooLarge));
        assert_eq!(world.put(b"k", &value(value_bytes + 1)), Err(Blocked::TooLarge));
        for i in 0..10u8 {
            world.put(&vec![i; key_bytes], &value(value_bytes)).unwrap();
            world.put(&[i; 3], &value(usize::from(i) * 20)).unwrap();
        }
        world.put(b"", &value(value_bytes - 1)).unwrap();
        world.compare_all();
    }
}

#[test]
fn keys_outlast_many_doublings_and_spill_pages() {
    for (chunk_bytes, keys, limit) in [(256, 12_000, 1750), (1024, 30_000, 1600)] {
        println!("chunk {chunk_bytes}");
        let mut world = World::new(chunk_bytes, 1 << 16);
        let mut spills = 0;
        for i in 0..keys {
            let key = format!("{i}").into_bytes();
            world.put(&key, &Stored::default()).unwrap();
            spills = spills.max(world.stream.index.spills);
            // For a while the index may not grow. It spills, and catches up later.
            let held = i % 4096 > 1000 && i % 4096 < limit;
            world.stream.index.grow_wait = if held { 2 } else { 0 };
        }
        assert!(spills > 0);
        world.compare_all();
        assert_eq!(world.scan_all(), world.model);
        for i in (0..keys).step_by(3) {
            world.delete(format!("{i}").as_bytes()).unwrap();
        }
        world.compare_all();
    }
}

/// A lookup normally ends at the key, before another key of the same tag. If a removal has moved that other key in
/// front, its chunk must be resident. A command of several changes must learn this before its first change.
#[test]
fn what_a_key_may_be_compared_with_is_told_before() {
    let mut world = World::new(256, 1 << 10);
    let place = |world: &World, key: &[u8]| world.stream.shape.place(world.stream.hash(database(key), key), 1);
    let (first, other) = (1..)
        .find_map(|n| {
            let (key, place_of) = (numbered(n), |key: &[u8]| place(&world, key));
            let other = (0..n).map(numbered).find(|other| place_of(other) == place_of(&key))?;
            Some((other, key))
        })
        .unwrap();
    let between = (1_000_000..)
        .map(numbered)
        .filter(|key| place(&world, key) != place(&world, &first));
    let between: Vec<_> = between.take(12).collect();
    for key in [&first].into_iter().chain(&between).chain([&other]) {
        let stored = Stored {
            bytes: vec![7; 40],
            ..Stored::default()
        };
        world.put(key, &stored).unwrap();
    }
    assert_eq!(world.stream.page_count(), 1);
    world.take_over();
    world.directory();
    let hash = world.stream.hash(database(&first), &first);
    world.insist(|world| world.find(&first).map(|_| ()));
    let missing = world.stream.may_compare(&world.arena, hash);
    assert!(
        matches!(missing, Err(Blocked::Missing(stripe)) if !stripe.is_index()),
        "{missing:?}"
    );
    world.insist(|world| world.stream.may_compare(&world.arena, hash));
    assert!(world.insist(|world| world.find(&other)).is_some());
}

/// Small integers as keys, in the order of their hashes. A client that has run SCAN can send keys in this order, so
/// that one line of a small index gets all of them.
fn in_order_of_hashes(stream: &ObjectStore, keys: u32) -> Vec<(u64, [u8; 4])> {
    let keys = (0..keys).map(u32::to_le_bytes);
    let mut in_order: Vec<_> = keys.map(|key| (stream.hash(0, &key), key)).collect();
    in_order.sort_unstable();
    in_order
}

/// Grows the index by one page, in its own delta.
fn grow_for_a_crowd(arena: &mut Arena, stream: &mut ObjectStore, seq: &mut u64) {
    *seq += 1;
    let mut delta = Delta::new(Version::new(1, *seq), Vec::new());
    assert_eq!(
        stream.grow_for_crowd(arena, &mut delta),
        Ok(()),
        "an empty delta takes a step"
    );
}

/// Memory does not hold all chunks that one call of SCAN needs (P5.10).
#[test]
fn a_scan_gives_what_lies_before_a_chunk_that_is_not_here() {
    let mut world = World::new(256, 1 << 14);
    for i in 0..300 {
        world.put(format!("key {i}").as_bytes(), &Stored::default()).unwrap();
    }
    let away = Stripe::data(1);
    assert!(world.stream.drop_chunk(&mut world.arena, away));
    let (mut cursor, mut steps, mut seen) = (0, 0, BTreeSet::new());
    let blocked = loop {
        let step = world.stream.scan(&world.arena, cursor, usize::MAX, |object| {
            assert!(seen.insert(object.key().to_vec()));
        });
        match step {
            Ok(next) => cursor = next,
            Err(blocked) => break blocked,
        }
        steps += 1;
        assert!(
            steps < 2 && cursor > 0,
            "all keys were listed although a chunk is absent"
        );
    };
    assert_eq!(blocked, Blocked::Missing(away));
    assert!(steps == 1 && !seen.is_empty(), "{steps}");
}

#[test]
fn keys_in_the_order_of_a_scan_find_room() {
    // Growth steps run after every insert, or as rarely as possible.
    for (chunk_bytes, keys, eager) in [
        (256, 5_000, true),
        (1024, 20_000, true),
        (4096, 100_000, true),
        (16_384, 400_000, true),
        (256, 20_000, false),
        (4096, 200_000, false),
        (16_384, 1_000_000, false),
        (65_536, 400_000, false),
    ] {
        let mut arena = Arena::new(chunk_bytes, 1 << 16);
        let mut stream = ObjectStore::new(Settings::new(chunk_bytes, KEY));
        stream.set_credit(u32::MAX, u32::MAX);
        let in_order = in_order_of_hashes(&stream, keys);
        let (mut seq, mut blocked, mut spills) = (0, 0, 0);
        for (hash, key) in &in_order {
            for tries in 0.. {
                assert!(tries < 2000, "chunk {chunk_bytes}: no space after {tries} steps");
                if !eager {
                    stream.index.grow_wait = 2;
                }
                seq += 1;
                let mut delta = Delta::new(Version::new(1, seq), Vec::new());
                match stream.put(&mut arena, &mut delta, *hash, key, Value::default()) {
                    Ok(()) => break,
                    Err(Blocked::DeltaFull) => {}
                    Err(Blocked::Crowded) => {
                        blocked += 1;
                        grow_for_a_crowd(&mut arena, &mut stream, &mut seq);
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            spills = spills.max(stream.index.spills);
        }
        let (pages, slots) = (stream.index.pages, stream.shape.lines() as usize * page::SLOTS);
        let fill = f64::from(keys) / (pages as usize * slots) as f64;
        println!("chunk {chunk_bytes}: fill {fill:.2}, {pages} pages, {spills} spill pages, {blocked} times blocked");
        assert!(
            fill > 0.3 && stream.count() == Some(keys.into()),
            "chunk {chunk_bytes}: fill {fill}"
        );
        assert!(eager || blocked > 0, "chunk {chunk_bytes}: keys never were crowded");
        for (hash, key) in &in_order {
            assert!(stream.find(&arena, *hash, key).unwrap().is_some());
        }
        // Lines whose count is saturated find the remaining keys after some are deleted.
        for (hash, key) in in_order.iter().step_by(2) {
            seq += 1;
            let mut delta = Delta::new(Version::new(1, seq), Vec::new());
            assert_eq!(stream.delete(&mut arena, &mut delta, *hash, key), Ok(true));
        }
        for (nth, (hash, key)) in in_order.iter().enumerate() {
            let found = stream.find(&arena, *hash, key).unwrap().is_some();
            assert_eq!(found, nth % 2 == 1, "chunk {chunk_bytes}: key {nth}");
        }
    }
}

/// One command with the largest number of keys, whose hashes are close together: all fit in one delta, with no more
/// credit than was promised.
#[test]
fn a_command_of_many_crowding_keys_finds_room_for_all_of_them() {
    enum Others {
        None,
        Anywhere(usize),
        /// This many other keys, close to those of the command in the order of hashes.
        Among(usize),
    }
    for (chunk_bytes, keys, others) in [
        (256, 20_000, Others::None),
        (1024, 50_000, Others::None),
        (4096, 500_000, Others::None),
        (4096, 500_000, Others::Anywhere(30_000)),
        (4096, 40_000, Others::Among(10_400)),
        (8192, 40_000, Others::Among(14_000)),
        (16_384, 500_000, Others::None),
        (16_384, 500_000, Others::Anywhere(30_000)),
        (16_384, 40_000, Others::Among(20_000)),
        (65_536, 500_000, Others::None),
    ] {
        let mut arena = Arena::new(chunk_bytes, 1 << 15);
        let mut stream = ObjectStore::new(Settings::new(chunk_bytes, KEY));
        stream.set_credit(u32::MAX, 2);
        let mut rest = in_order_of_hashes(&stream, keys);
        let batch: Vec<(u64, [u8; 4])> = match others {
            Others::None => rest.drain(..).take(3900).collect(),
            Others::Anywhere(count) => {
                let batch = rest.drain(..3900).collect();
                rest.sort_unstable_by_key(|(hash, _)| hash.reverse_bits());
                rest.truncate(count);
                batch
            }
            Others::Among(part) => {
                rest.truncate(part);
                let (every, mut nth) = (part / 3900, 0);
                rest.extract_if(.., |_| {
                    nth += 1;
                    nth % every == 0
                })
                .take(3900)
                .collect()
            }
        };
        let (mut seq, mut steps) = (0, 0);
        let more_credit = |stream: &mut ObjectStore| {
            let (data, index) = stream.wants_credit().expect("it asks for the credit that it lacks");
            stream.set_credit(data, index);
        };
        for (hash, key) in &rest {
            loop {
                seq += 1;
                let mut delta = Delta::new(Version::new(1, seq), Vec::new());
                match stream.put(&mut arena, &mut delta, *hash, key, Value::default()) {
                    Ok(()) => break,
                    Err(Blocked::Crowded) => grow_for_a_crowd(&mut arena, &mut stream, &mut seq),
                    Err(Blocked::Credit { .. }) => more_credit(&mut stream),
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
        let before = stream.index.pages;
        loop {
            let mut hashes = batch.iter().map(|(hash, _)| *hash).collect();
            let more = stream.may_insert(&arena, &mut hashes).and_then(|()| {
                let pages = stream.pages_for(batch.len());
                stream.may_take(&arena, 3900 * 60 / chunk_bytes as u32 + 2, pages)
            });
            match more {
                Ok(()) => break,
                Err(Blocked::Credit { .. }) => more_credit(&mut stream),
                Err(Blocked::Crowded) => {
                    while let Some((_, index)) = stream.wants_credit() {
                        stream.set_credit(u32::MAX, index);
                    }
                    grow_for_a_crowd(&mut arena, &mut stream, &mut seq);
                    // Housekeeping runs meanwhile: pages that were added for these keys stay.
                    seq += 1;
                    let mut delta = Delta::new(Version::new(1, seq), Vec::new());
                    stream.housekeep(&mut arena, &mut delta, 4096).unwrap();
                }
                Err(other) => panic!("{other:?}"),
            }
            steps += 1;
            assert!(steps < 5000, "chunk {chunk_bytes}: the command still finds no space");
        }
        seq += 1;
        let mut delta = Delta::new(Version::new(1, seq), Vec::new());
        delta.set_bytes_max(COMMAND_DELTA_BYTES_MAX);
        for (nth, (hash, key)) in batch.iter().enumerate() {
            let done = stream.put(&mut arena, &mut delta, *hash, key, Value::default());
            assert_eq!(done, Ok(()), "chunk {chunk_bytes}, {} others: key {nth}", rest.len());
        }
        println!(
            "chunk {chunk_bytes}, {} others: {before}, then {} pages, {} spill pages, delta of {} bytes",
            rest.len(),
            stream.index.pages,
            stream.index.spills,
            delta.bytes().len()
        );
        for (hash, key) in batch.iter().chain(&rest) {
            assert!(stream.find(&arena, *hash, key).unwrap().is_some());
        }
        // The next growth step can handle all entries that the command left in spill pages.
        stream.set_credit(u32::MAX, u32::MAX);
        grow_for_a_crowd(&mut arena, &mut stream, &mut seq);
    }
}

/// A growth step may merge two crowds. During a command of several changes, which has reserved less space than that
/// takes, such a step must wait.
#[test]
fn no_growth_step_within_a_command_adds_to_what_is_spilled() {
    let mut arena = Arena::new(16_384, 1 << 12);
    let mut stream = ObjectStore::new(Settings::new(16_384, KEY));
    stream.set_credit(u32::MAX, u32::MAX);
    let in_order = in_order_of_hashes(&stream, 30_000);
    // Most of the keys are close together in the order of hashes.
    let (near, rest) = (&in_order[10_000..15_000], in_order.iter().step_by(20));
    let mut adding = 0;
    for (nth, (hash, key)) in rest.chain(near).enumerate() {
        let mut delta = Delta::new(Version::new(1, 3 * nth as u64 + 1), Vec::new());
        // Growth steps are made below, not by `put`.
        stream.index.grow_wait = 2;
        let done = stream.put(&mut arena, &mut delta, *hash, key, Value::default());
        assert!(matches!(done, Ok(()) | Err(Blocked::Crowded)), "key {nth}: {done:?}");
        let before = (stream.index.pages, stream.spilled(&arena).unwrap());
        if !stream.index.crowded {
            continue;
        }
        let mut delta = Delta::new(Version::new(1, 3 * nth as u64 + 2), Vec::new());
        delta.set_bytes_max(COMMAND_DELTA_BYTES_MAX);
        let refused = stream.grow(&mut arena, &mut delta) == Err(Blocked::Crowded);
        let after = (stream.index.pages, stream.spilled(&arena).unwrap());
        if refused {
            assert_eq!((after, delta.is_empty()), (before, true));
            let mut delta = Delta::new(Version::new(1, 3 * nth as u64 + 3), Vec::new());
            assert_eq!(stream.grow(&mut arena, &mut delta), Ok(()));
            adding += usize::from(stream.spilled(&arena).unwrap() > before.1);
        } else {
            assert!(after.0 == before.0 + 1 && after.1 <= before.1, "{before:?}, {after:?}");
        }
    }
    assert!(adding > 0, "no growth step has added spilled entries");
}

#[test]
fn the_index_fills_well_from_a_hundred_thousand_keys_on() {
    let mut arena = Arena::new(16384, 1 << 16);
    let mut stream = ObjectStore::new(Settings::new(16384, KEY));
    stream.set_credit(u32::MAX, u32::MAX);
    let (mut worst, mut sum, mut weight) = (1.0f64, 0.0, 0.0);
    let mut bytes = Vec::new();
    for i in 0..1_000_000u64 {
        let key = i.to_le_bytes();
        let hash = stream.hash(database(&key), &key);
        let mut delta = Delta::new(Version::new(1, i + 1), bytes);
        let value = Value::default();
        stream.put(&mut arena, &mut delta, hash, &key, value).unwrap();
        assert!(delta.bytes().len() < 140_000);
        bytes = delta.into_bytes();
        if i >= 100_000 && i % 512 == 0 {
            let pages = stream.gauges().index_chunks;
            let fill = (i + 1) as f64 / f64::from(pages * 2560);
            worst = worst.min(fill);
            // Each doubling of the number of keys has the same weight.
            sum += fill / i as f64;
            weight += 1.0 / i as f64;
        }
    }
    let mean = sum / weight;
    println!(
        "fill mean {mean:.3} worst {worst:.3}, spill pages {}",
        stream.index.spills
    );
    assert!(mean >= 0.82 && worst >= 0.74, "mean {mean} worst {worst}");
    assert_eq!(stream.count(), Some(1_000_000));
}

#[test]
fn chunks_set_aside_come_back_and_nothing_is_counted_twice() {
    for (chunk_bytes, seed) in [(256, 1), (1024, 2), (4096, 3)] {
        let mut world = World::new(chunk_bytes, 1 << 15);
        let mut prng = Prng::new(seed);
        let mut asides = 0;
        for _ in 0..8_000 {
            if prng.chance(40_000) {
                let all: Vec<Stripe> = world.stream.chunks.stripes().map(|(stripe, _)| stripe).collect();
                if !all.is_empty() {
                    let stripe = *prng.pick(&all);
                    if let Ok(Some(slot)) = world.stream.chunks.slot(stripe) {
                        world.arena.bytes_mut(slot).fill(0xaa);
                    }
                    asides += usize::from(world.stream.set_aside(stripe));
                }
            }
            world.insist(|world| random_op(world, &mut prng, 400));
        }
        assert!(asides > 200, "seed {seed}: {asides}");
        let absent = |world: &World, s: &Stripe| world.stream.chunks.presence(*s) == Some(Presence::Absent);
        for stripe in world.mirror.0.keys().copied().collect::<Vec<_>>() {
            if absent(&world, &stripe) {
                assert!(world.install(stripe), "seed {seed}");
            }
        }
        world.compare_all();
        let here = world.stream.chunks.here_count();
        assert_eq!(world.arena.used(), here, "seed {seed}: the memory of a chunk was lost");
    }
}

impl World {
    /// Evicts until this many bytes are dead. Returns the evicted keys.
    fn evict(&mut self, bytes: u64) -> Vec<Vec<u8>> {
        let mut hashes = BTreeSet::new();
        let count = self.run(|stream, arena, delta| {
            stream.evict(arena, delta, bytes, |hash| {
                hashes.insert(hash);
            })
        });
        assert_eq!(count.unwrap() as usize, hashes.len());
        let keys = self
            .model
            .keys()
            .filter(|key| hashes.contains(&self.stream.hash(database(key), key)));
        let keys: Vec<Vec<u8>> = keys.cloned().collect();
        for key in &keys {
            assert_eq!(self.find(key), Ok(None));
            self.model.remove(key);
        }
        keys
    }

    fn read(&mut self, key: &[u8]) {
        let hash = self.stream.hash(database(key), key);
        assert!(self.stream.access(&self.arena, hash, key).unwrap().is_some());
    }
}

#[test]
fn a_key_of_the_hidden_database_is_never_evicted() {
    for policy in [Policy::AllKeysRandom, Policy::AllKeysLru, Policy::AllKeysLfu] {
        let mut world = filled(policy, 300);
        let hash = world.stream.hash(HIDDEN_DATABASE, b"functions");
        let put = Value {
            bytes: b"libraries",
            ..Value::default()
        };
        world
            .run(|stream, arena, delta| stream.put(arena, delta, hash, b"functions", put))
            .unwrap();
        for _ in 0..2 {
            while !world.evict(1 << 10).is_empty() {}
            let found = world.stream.find(&world.arena, hash, b"functions").unwrap();
            assert_eq!(
                found.map(|object| object.database()),
                Some(HIDDEN_DATABASE),
                "{policy:?}"
            );
            assert_eq!(world.stream.count(), Some(1), "{policy:?}");
            // A successor has not counted yet what is in the chunks.
            world.take_over();
            world.directory();
            for stripe in world.mirror.0.keys().copied().collect::<Vec<_>>() {
                world.install(stripe);
            }
        }
    }
}

fn numbered(n: u64) -> Vec<u8> {
    format!("key {n}").into_bytes()
}

/// A stream of `count` keys. Every third key has an expiry; the order of expiries differs from that of the keys.
fn filled(policy: Policy, count: u64) -> World {
    let mut world = World::new(4096, 1 << 14);
    world.stream.set_policy(policy);
    for n in 0..count {
        let stored = Stored {
            bytes: vec![7; 40],
            expiry_ms: (n % 3 == 0).then(|| 1_000_000 + n * 7919 % count),
            ..Stored::default()
        };
        world.put(&numbered(n), &stored).unwrap();
    }
    world
}

#[test]
fn what_was_used_last_and_most_outlasts_the_rest() {
    const KEYS: u64 = 6000;
    for policy in Policy::ALL {
        let mut world = filled(policy, KEYS);
        let before: BTreeMap<Vec<u8>, Stored> = world.model.clone();
        // A tenth of the keys is used often, and last.
        for _ in 0..20 {
            for n in (0..KEYS).step_by(10) {
                world.read(&numbered(n));
            }
        }
        let mut gone = 0;
        while gone < KEYS as usize / 5 {
            let keys = world.evict(4096);
            assert!(keys.is_empty() != policy.evicts(), "{policy}");
            gone += keys.len();
            if !policy.evicts() {
                break;
            }
        }
        world.compare_all();
        let left = |n: &u64| world.model.contains_key(&numbered(*n));
        let hot = (0..KEYS).step_by(10).filter(left).count();
        if policy.is_lru() || policy.is_lfu() {
            assert_eq!(hot, KEYS as usize / 10, "{policy}");
        } else if policy.evicts() {
            assert!(hot < KEYS as usize / 10, "{policy} does not keep the used keys");
        }
        let plain_left = before
            .iter()
            .filter(|(k, s)| s.expiry_ms.is_none() && world.model.contains_key(*k));
        let plain = before.values().filter(|s| s.expiry_ms.is_none());
        if policy.is_volatile() {
            assert_eq!(
                plain_left.count(),
                plain.count(),
                "{policy} took keys without an expiry"
            );
        } else if policy.evicts() {
            assert!(plain_left.count() < plain.count(), "{policy}");
        }
        if policy == Policy::VolatileTtl {
            // 1200 of 2000 keys were evicted: almost none of the first half is left, and almost all of the last fifth.
            let mut expiring: Vec<(u64, &Vec<u8>)> =
                before.iter().filter_map(|(k, s)| Some((s.expiry_ms?, k))).collect();
            expiring.sort();
            let left = |part: &[(u64, &Vec<u8>)]| part.iter().filter(|(_, k)| world.model.contains_key(*k)).count();
            let (first, last) = (left(&expiring[..1000]), left(&expiring[1600..]));
            assert!(first < 50 && last > 380, "{first} of 1000, {last} of 400");
        }
    }
}

#[test]
fn the_oldest_go_first_while_pages_grow() {
    const KEYS: u64 = 20_000;
    let mut world = filled(Policy::AllKeysLru, KEYS);
    let mut gone = Vec::new();
    while gone.len() < KEYS as usize / 4 {
        gone.extend(world.evict(4096));
    }
    let young = gone.iter().filter(|key| {
        let n: u64 = std::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
        n >= KEYS / 2
    });
    let young = young.count();
    assert!(
        young < gone.len() / 50,
        "{young} of {} are of the younger half",
        gone.len()
    );
    world.compare_all();
}

#[test]
fn volatile_keys_are_found_where_they_are_few_and_without_any_nothing_goes() {
    for policy in Policy::ALL.into_iter().filter(|policy| policy.is_volatile()) {
        let mut world = World::new(4096, 1 << 14);
        world.stream.set_policy(policy);
        for n in 0..200_000 {
            let stored = Stored {
                bytes: vec![7; 10],
                expiry_ms: (n % 50_000 == 0).then_some(5),
                ..Stored::default()
            };
            world.put(&numbered(n), &stored).unwrap();
        }
        let (mut gone, mut tries) = (0, 0);
        loop {
            let count = world.evict(1 << 20).len();
            (gone, tries) = (gone + count, tries + 1);
            if count == 0 && !world.stream.eviction_goes_on() {
                break;
            }
        }
        assert_eq!(gone, 4, "{policy}");
        assert!(tries > 2, "{policy}: one call searched the whole index");
        assert!(world.evict(1 << 20).is_empty(), "{policy}");
        world.compare_all();
    }
}

#[test]
fn a_successor_starts_cold_and_evicts_only_what_is_here() {
    let mut world = filled(Policy::AllKeysLru, 5000);
    world.take_over();
    world.stream.set_policy(Policy::AllKeysLru);
    world.directory();
    assert!(world.evict(4096).is_empty(), "no chunk is resident");
    let stripes: Vec<Stripe> = world.mirror.0.keys().copied().collect();
    for stripe in stripes.iter().filter(|s| s.is_index()) {
        assert!(world.install(*stripe));
    }
    assert!(world.evict(4096).is_empty(), "no data chunk is resident");
    let data: Vec<Stripe> = stripes.into_iter().filter(|s| !s.is_index()).collect();
    for stripe in &data[..data.len() / 2] {
        assert!(world.install(*stripe));
    }
    for _ in 0..10 {
        let count = world.run(|stream, arena, delta| stream.evict(arena, delta, 4096, |_| {}));
        assert!(count.unwrap() > 0);
    }
}

#[test]
fn random_operations_under_eviction_agree_with_a_model() {
    for (seed, policy) in (1..).zip(Policy::ALL.into_iter().filter(|policy| policy.evicts())) {
        println!("seed {seed}, {policy}");
        let mut prng = Prng::new(seed);
        let mut world = World::new(512, 400);
        world.stream.set_policy(policy);
        let mut evicted = 0;
        for _ in 0..20_000 {
            match random_op(&mut world, &mut prng, 3000) {
                Ok(()) | Err(Blocked::TooLarge) => {}
                Err(Blocked::Memory) => {
                    let gone = world.evict(2048).len();
                    evicted += gone;
                    while world.housekeep().is_ok_and(|done| done) {}
                    if gone == 0 {
                        assert!(policy.is_volatile(), "nothing to evict");
                        let key = world.model.keys().next().cloned().unwrap();
                        world.delete(&key).unwrap();
                    }
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        world.compare_all();
        assert!(evicted > 100, "{evicted}");
    }
}

#[test]
fn when_memory_is_taken_away_no_more_is_evicted_than_that() {
    let mut world = World::new(4096, 400);
    world.stream.set_policy(Policy::AllKeysLfu);
    let stored = Stored {
        bytes: vec![7; 100],
        ..Stored::default()
    };
    let mut count = 0;
    while world.put(&numbered(count), &stored).is_ok() {
        count += 1;
    }
    assert!(count > 10_000, "{count}");
    // The limit falls by a twentieth in small steps, as when a table or a buffer grows.
    for limit in (380..400).rev() {
        world.arena.set_limit(limit);
        loop {
            while world.housekeep().is_ok_and(|done| done) {}
            if !world.arena.budget().is_over() {
                break;
            }
            world.evict(4096);
        }
    }
    let left = world.model.len() as u64;
    println!("{left} of {count} keys are left");
    assert!(left * 10 > count * 8, "{left} of {count} keys are left");
    world.compare_all();
}

fn of_bytes(count: usize) -> Stored {
    Stored {
        bytes: vec![7; count],
        ..Stored::default()
    }
}

/// Puts small values until there is no space. Returns their number.
fn fill(world: &mut World) -> u64 {
    let small = of_bytes(300);
    let mut count = 0;
    while world.put(&numbered(count), &small).is_ok() {
        count += 1;
    }
    count
}

/// Few bytes die at a time, in many chunks. Compaction gains whole chunks from them, as many as the value needs.
#[test]
fn a_value_of_several_chunks_finds_room_once_its_bytes_have_died() {
    for by_credit in [false, true] {
        let chunk = 4096;
        let mut world = World::new(chunk, if by_credit { 4000 } else { 400 });
        world.stream.set_policy(Policy::AllKeysRandom);
        if by_credit {
            world.stream.set_credit(380, u32::MAX);
        }
        let count = fill(&mut world);
        let large = of_bytes(5 * chunk);
        let mut gone = 0;
        for n in 0..20 {
            let key = format!("large {n}").into_bytes();
            while let Err(blocked) = world.put(&key, &large) {
                assert_eq!(blocked == Blocked::Memory, !by_credit, "{blocked:?}");
                if !world.housekeep().unwrap() {
                    let free = world.stream.free_chunks();
                    assert!(world.stream.lacks_free_chunks(), "{blocked:?} with {free} free chunks");
                    let keys = world.evict(chunk as u64).len();
                    assert!(keys > 0, "no key to evict");
                    gone += keys;
                }
            }
        }
        // About a sixth of all keys are bytes that died in chunks that are still too full to be emptied.
        let needed = 20 * 5 * chunk / 300;
        println!("{gone} keys gone, {needed} needed, of {count}");
        assert!(gone < needed + count as usize / 6, "{gone} keys gone, {needed} needed");
        world.compare_all();
    }
}

/// Compaction for a write that was given up ends: the number of chunks that it needed is forgotten.
#[test]
fn what_a_write_that_was_given_up_needed_is_forgotten() {
    let chunk = 4096;
    let mut world = World::new(chunk, 400);
    fill(&mut world);
    let large = of_bytes(5 * chunk);
    assert_eq!(
        world.stream.free_needed(),
        2,
        "one for a small value, one for compaction"
    );
    assert_eq!(world.put(b"large", &large), Err(Blocked::Memory));
    assert!(world.stream.free_needed() > 5, "five chunks, and one for compaction");
    world.stream.forget_wanted();
    assert_eq!(world.stream.free_needed(), 2);
}

/// Each victim is checked before it is emptied (P9.1), so compaction begins with no chunk that `next_victim` has not
/// returned.
#[test]
fn one_call_empties_no_chunk_that_was_not_announced() {
    let mut world = World::new(4096, 1 << 14);
    let stored = of_bytes(300);
    for n in 0..4000 {
        world.put(&numbered(n), &stored).unwrap();
    }
    for n in (0..4000).filter(|n| n % 3 != 0) {
        world.delete(&numbered(n)).unwrap();
    }
    let mut emptied = 0;
    while let Some(victim) = world.stream.next_victim(&world.arena) {
        let free = world.stream.free_chunks();
        let moved = world.run(|stream, arena, delta| stream.compact(arena, delta, 1 << 20));
        assert_eq!(moved, Ok(true));
        assert_ne!(world.stream.space.used(victim.number()), Use::Closed, "{victim}");
        assert!(world.stream.free_chunks() <= free + 1, "another chunk was emptied too");
        emptied += 1;
    }
    assert!(emptied > 10, "{emptied}");
    world.compare_all();
}
