//! The log is compared with a model, on a disk that completes requests in any order.

use crate::*;
use paritas_base::{ListId, Map, Position, Prng, Stripe, Version, map};

const CHUNK: usize = 256;

fn settings(layout: Layout) -> Settings {
    Settings {
        layout,
        chunk_bytes: CHUNK,
        data_max: 2,
        block_bytes: 64,
        reserve_bytes: 512,
        slots_max: 40,
        log_bytes: 42 << 10,
        flush_bytes: 1 << 10,
        buffer_max_bytes: 8 << 10,
    }
}

/// Settings with blocks of one byte and larger ones, and with areas that are not round numbers.
fn drawn(layout: Layout, seed: u64) -> Settings {
    let block_bytes = if seed.is_multiple_of(2) { 64 } else { 1 };
    let odd = seed / 2 % 8 * block_bytes as u64;
    let settings = settings(layout);
    Settings {
        block_bytes,
        log_bytes: settings.log_bytes + odd,
        ..settings
    }
}

const LAYOUTS: [Layout; 4] = [Layout::Pl, Layout::Plr, Layout::PlrM, Layout::Plm];

/// The two spaces, in memory.
#[derive(Default)]
struct Disk {
    slots: Vec<u8>,
    log: Vec<u8>,
    /// If set, writes must be multiples of this.
    block_bytes: usize,
}

impl Disk {
    fn space(&mut self, space: Space, end: usize) -> &mut Vec<u8> {
        let bytes = match space {
            Space::Slots => &mut self.slots,
            Space::Log => &mut self.log,
        };
        bytes.resize(bytes.len().max(end), 0xa5);
        bytes
    }

    fn look(&self, space: Space, at: u64, length: usize) -> Vec<u8> {
        let bytes = match space {
            Space::Slots => &self.slots,
            Space::Log => &self.log,
        };
        let from = (at as usize).min(bytes.len());
        let mut read = bytes[from..bytes.len().min(from + length)].to_vec();
        read.resize(length, 0);
        read
    }

    fn run(&mut self, io: Io) -> (IoId, Outcome) {
        let at = io.at as usize;
        let outcome = match io.work {
            Work::Read(length) => self.space(io.space, at + length)[at..at + length].to_vec(),
            Work::Write(bytes) => {
                let block = self.block_bytes.max(1);
                assert!(
                    at.is_multiple_of(block) && bytes.len().is_multiple_of(block),
                    "writes must be whole blocks"
                );
                self.space(io.space, at + bytes.len())[at..at + bytes.len()].copy_from_slice(&bytes);
                Vec::new()
            }
        };
        (io.id, Ok(outcome))
    }
}

fn key(n: u32) -> Key {
    Key {
        list: ListId(1),
        stripe: Stripe(n),
    }
}

fn content(version: u64) -> Content {
    Content {
        versions: Box::new([Version(version), Version(version * 2)]),
        sums: Box::new([version as u32, 7]),
    }
}

/// Does all work in order, until nothing is left.
fn settle(log: &mut ParityLog, disk: &mut Disk, out: &mut Vec<Io>) {
    while !out.is_empty() {
        let (id, outcome) = disk.run(out.remove(0));
        log.done(id, outcome, out);
    }
}

/// LogECMem Fig 9: `a + 2b` and `c + 2d` on one log node, then a → a', c → c', c' → c'', b → b', a' → a'', b' → b''.
#[test]
fn fig_9_takes_8_5_and_4_disk_accesses() {
    let accesses = |layout, flush_after: &[usize]| {
        let mut log = ParityLog::new(settings(layout), 1);
        let (mut disk, mut out) = (Disk::default(), Vec::new());
        log.put(key(0), Position(3), content(1), vec![1; CHUNK]);
        log.put(key(1), Position(3), content(1), vec![2; CHUNK]);
        for (n, stripe) in [0, 1, 1, 0, 0, 0].into_iter().enumerate() {
            let mut delta = Extents::default();
            delta.fold(8 * n, &[n as u8 + 1; 8]);
            assert!(log.fold(key(stripe), content(n as u64 + 2), delta));
            if flush_after.contains(&(n + 3)) {
                log.flush(&mut out);
                settle(&mut log, &mut disk, &mut out);
            }
        }
        log.drain(&mut out);
        settle(&mut log, &mut disk, &mut out);
        let counters = log.counters();
        log.read(key(0), 0, &mut out);
        settle(&mut log, &mut disk, &mut out);
        let reads = log.counters().reads - counters.reads;
        let [(0, Some((found, bytes)))] = &log.take_answers()[..] else {
            panic!("{layout:?}: the chunk is missing")
        };
        assert_eq!(
            (&found.versions[0], bytes[0], bytes[24], bytes[47]),
            (&Version(7), 0, 5, 7),
            "{layout:?}"
        );
        assert_eq!(reads, 1, "{layout:?}: not one contiguous read");
        counters.writes + counters.reads
    };
    assert_eq!(accesses(Layout::Plr, &[8]), 8);
    // The memory in the figure holds three chunks or deltas.
    assert_eq!(accesses(Layout::PlrM, &[3, 6, 8]), 5);
    assert_eq!(accesses(Layout::Plm, &[8]), 4);
}

/// LogECMem Fig 8: the stream a, b, a', b', a'' leaves three deltas to a + 2b, or one.
#[test]
fn fig_8_makes_one_delta_of_three() {
    let deltas = |layout| {
        let mut log = ParityLog::new(settings(layout), 1);
        let (mut disk, mut out) = (Disk::default(), Vec::new());
        log.put(key(0), Position(3), content(1), vec![1; CHUNK]);
        log.flush(&mut out);
        settle(&mut log, &mut disk, &mut out);
        for (n, value) in [1, 2, 3].into_iter().enumerate() {
            let mut delta = Extents::default();
            delta.fold(0, &[value; CHUNK]);
            assert!(log.fold(key(0), content(n as u64 + 2), delta));
        }
        let chunk = settings(layout).chunk_record_bytes();
        log.buffered_bytes().div_ceil(chunk)
    };
    assert_eq!(deltas(Layout::Plr), 3, "HybridPL");
    assert_eq!((deltas(Layout::PlrM), deltas(Layout::Plm)), (1, 1), "LogECMem");
}

/// The expected content of the log, and the answers that readers may get.
struct World {
    random: Prng,
    settings: Settings,
    log: ParityLog,
    disk: Disk,
    under_way: Vec<Io>,
    model: Map<u32, (u64, Vec<u8>)>,
    /// The chunk of each request.
    asked: Map<u64, u32>,
    version: u64,
    answered: u64,
    label: String,
}

impl World {
    fn new(layout: Layout, seed: u64) -> Self {
        let settings = drawn(layout, seed);
        let disk = Disk {
            block_bytes: settings.block_bytes,
            ..Disk::default()
        };
        Self {
            random: Prng::new(seed),
            settings,
            log: ParityLog::new(settings, 1),
            disk,
            under_way: Vec::new(),
            model: map(),
            asked: map(),
            version: 0,
            answered: 0,
            label: format!("{layout:?}, seed {seed}"),
        }
    }

    fn step(&mut self) {
        let mut out = Vec::new();
        let stripe = self.random.below(24) as u32;
        let dice = self.random.below(100);
        self.version += 1;
        if dice < 45 && !self.log.is_full() {
            let offset = self.random.below(CHUNK as u64 - 8) as usize;
            let most = if self.random.below(10) == 0 { CHUNK - offset } else { 8 };
            let xor: Vec<u8> = (0..1 + self.random.below(most as u64))
                .map(|_| self.random.below(256) as u8)
                .collect();
            let mut extents = Extents::default();
            extents.fold(offset, &xor);
            let known = self.model.get_mut(&stripe);
            let coefficient = self.random.below(3) as u8;
            let folded = match coefficient {
                0 => self.log.fold(key(stripe), content(self.version), extents),
                _ => {
                    let content = content(self.version);
                    let change = |x: usize| Change {
                        x,
                        version: content.versions[x],
                        sum: content.sums[x],
                    };
                    self.log.fold_data(key(stripe), change(1), 0, offset, &xor)
                        && self.log.fold_data(key(stripe), change(0), coefficient, offset, &xor)
                }
            };
            assert_eq!(folded, known.is_some(), "{}", self.label);
            if let Some((version, bytes)) = known {
                *version = self.version;
                paritas_code::mul_add(coefficient.max(1), &xor, &mut bytes[offset..offset + xor.len()]);
            }
        } else if dice < 55 && !self.log.is_full() {
            let bytes: Vec<u8> = (0..CHUNK).map(|_| self.random.below(256) as u8).collect();
            self.log
                .put(key(stripe), Position(3), content(self.version), bytes.clone());
            self.model.insert(stripe, (self.version, bytes));
        } else if dice < 57 {
            self.log.remove(key(stripe));
            self.model.remove(&stripe);
        } else if dice < 70 {
            let number = self.version;
            if self.model.contains_key(&stripe) {
                self.asked.insert(number, stripe);
                self.log.read(key(stripe), number, &mut out);
            }
        } else if !self.under_way.is_empty() {
            let at = self.random.below(self.under_way.len() as u64) as usize;
            let (id, outcome) = self.disk.run(self.under_way.remove(at));
            self.log.done(id, outcome, &mut out);
        }
        if self.random.below(20) == 0 {
            self.log.flush(&mut out);
        }
        self.log.turn(&mut out);
        self.under_way.append(&mut out);
        self.check();
        // One flush more than the limit is possible, because it began while there was space.
        let records_max = self.settings.records_max() + self.settings.buffer_max_bytes / record::HEAD_BYTES;
        assert!(
            self.log.records() <= records_max,
            "{}: {}",
            self.label,
            self.log.records()
        );
        let seen = self
            .log
            .chunk_now(key(stripe), |space, at, length| self.disk.look(space, at, length));
        let now = self.model.get(&stripe);
        assert_eq!(
            seen,
            now.map(|(version, bytes)| (content(*version), bytes.clone())),
            "{}, stripe {stripe}",
            self.label
        );
    }

    fn check(&mut self) {
        assert!(self.log.take_bad().is_empty(), "{}", self.label);
        for (number, answer) in self.log.take_answers() {
            let stripe = self.asked.remove(&number).unwrap();
            // The answer is the chunk as of the time of the answer. Since then it may have been removed and put again.
            if let Some((found, read)) = answer {
                let now = self.model.get(&stripe);
                let now = now.map(|(version, bytes)| (content(*version), bytes.clone()));
                assert_eq!(Some((found, read)), now, "{}, stripe {stripe}", self.label);
                self.answered += 1;
            }
        }
    }

    /// Completes everything under way.
    fn calm_down(&mut self) {
        for _ in 0..10_000 {
            let mut out = Vec::new();
            self.log.flush(&mut out);
            self.log.turn(&mut out);
            self.under_way.append(&mut out);
            if self.under_way.is_empty() {
                break;
            }
            let (id, outcome) = self.disk.run(self.under_way.remove(0));
            self.log.done(id, outcome, &mut self.under_way);
        }
        assert!(self.log.is_quiet(), "{}", self.label);
        self.check();
    }
}

impl World {
    /// Compares every chunk with the model, by a request and directly.
    fn check_all(&mut self) {
        let mut stripes: Vec<u32> = self.model.keys().copied().collect();
        stripes.sort_unstable();
        for stripe in stripes {
            let (version, bytes) = self.model[&stripe].clone();
            let mut out = Vec::new();
            self.log.read(key(stripe), 0, &mut out);
            settle(&mut self.log, &mut self.disk, &mut out);
            let answers = self.log.take_answers();
            assert_eq!(
                answers,
                [(0, Some((content(version), bytes)))],
                "{}, stripe {stripe}",
                self.label
            );
        }
    }
}

/// Opens the disk as another process.
fn resume(disk: &mut Disk, settings: Settings, log: u32) -> ParityLog {
    let mut recovery = Recovery::new(settings, log);
    for (slot, bytes) in disk.slots.chunks(settings.slot_bytes()).enumerate() {
        recovery.slot(slot as u32, bytes);
    }
    recovery.log(0, &disk.log);
    recovery.resume(1)
}

#[test]
fn whatever_the_order_what_is_read_is_what_was_written() {
    let mut counters = Counters::default();
    for layout in LAYOUTS {
        for seed in 0..60 {
            let mut world = World::new(layout, seed);
            (0..1500).for_each(|_| world.step());
            world.calm_down();
            world.check_all();
            assert!(world.answered > 20, "{}: {}", world.label, world.answered);
            counters.folded += world.log.counters().folded;
            counters.compacted += world.log.counters().compacted;
        }
    }
    assert!(counters.folded > 1000 && counters.compacted > 1000, "{counters:?}");
}

#[test]
fn what_an_earlier_incarnation_left_is_found_whole_or_not_at_all() {
    let mut found_count = 0;
    for layout in LAYOUTS {
        for seed in 0..60 {
            let mut world = World::new(layout, seed);
            (0..800).for_each(|_| world.step());
            let whole = seed % 3 == 0;
            if whole {
                world.calm_down();
            } else if let Some(Io {
                space,
                at,
                work: Work::Write(bytes),
                ..
            }) = world.under_way.pop()
            {
                // The process ends in the middle of a write.
                let cut = world.random.below(bytes.len() as u64) as usize;
                world.disk.space(space, at as usize + cut)[at as usize..at as usize + cut]
                    .copy_from_slice(&bytes[..cut]);
            }
            let mut log = resume(&mut world.disk, world.settings, 1);
            for (stripe, (version, bytes)) in &world.model {
                let found = log.content(key(*stripe)).cloned();
                match &found {
                    Some(found) => assert!(found.versions[0].0 <= *version, "{}", world.label),
                    None => assert!(!whole, "{}, stripe {stripe} was not found", world.label),
                }
                let same = found.is_some_and(|f| f == content(*version));
                assert!(same || !whole, "{}, stripe {stripe}", world.label);
                if same {
                    found_count += 1;
                    let mut out = Vec::new();
                    log.read(key(*stripe), 0, &mut out);
                    settle(&mut log, &mut world.disk, &mut out);
                    let answer = Some((content(*version), bytes.clone()));
                    assert_eq!(log.take_answers(), [(0, answer)], "{}", world.label);
                }
            }
            // The log continues with what was found, and works as before.
            let kept: Vec<Key> = log.keys_of(ListId(1));
            let of_model = |key: &Key| world.model.get(&key.stripe.0).map(|(version, _)| content(*version));
            for key in kept {
                if log.content(key).cloned() != of_model(&key) {
                    log.remove(key);
                }
            }
            world.model.retain(|stripe, _| log.content(key(*stripe)).is_some());
            (world.log, world.under_way, world.asked) = (log, Vec::new(), map());
            (0..400).for_each(|_| world.step());
            world.calm_down();
            world.check_all();
            let again = resume(&mut world.disk, world.settings, 1);
            for (stripe, (version, _)) in &world.model {
                assert_eq!(again.content(key(*stripe)), Some(&content(*version)), "{}", world.label);
            }
            let other = Recovery::new(world.settings, 2);
            assert_eq!(other.resume(1).chunks(), 0);
        }
    }
    assert!(found_count > 1500, "{found_count}");
}

#[test]
fn a_disk_that_fails_says_so_and_nothing_is_answered_wrongly() {
    let mut log = ParityLog::new(settings(Layout::Plr), 1);
    let mut out = Vec::new();
    log.put(key(1), Position(3), content(1), vec![3; CHUNK]);
    log.flush(&mut out);
    log.read(key(1), 5, &mut out);
    assert_eq!(
        log.take_answers(),
        [(5, Some((content(1), vec![3; CHUNK])))],
        "a chunk still in memory must be answered"
    );
    log.done(out[0].id, Err(Bad), &mut Vec::new());
    assert!(log.has_failed());
    log.read(key(1), 6, &mut out);
    assert_eq!(log.take_answers(), [(6, None)]);
}

/// Records that an earlier round left, and whose successors are overwritten, do not affect later ones.
#[test]
fn what_was_written_after_a_gap_is_found() {
    let mut area = vec![0; settings(Layout::Pl).log_bytes as usize];
    let mut write = |at: usize, number, before| {
        let mut extents = Extents::default();
        extents.fold(8, &[number as u8; 8]);
        let record = Record {
            key: key(1),
            position: Position(3),
            place: DiskLocation { log: 1, number, before },
            whole: before == 0,
            content: content(number),
            extents,
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        area[at..at + bytes.len()].copy_from_slice(&bytes);
    };
    write(20 << 10, 1, 0);
    write(10 << 10, 2, 1);
    write(0, 3, 0);
    let mut recovery = Recovery::new(settings(Layout::Pl), 1);
    recovery.log(0, &area);
    assert_eq!(recovery.resume(1).content(key(1)), Some(&content(3)));
}

/// After a crash, a part of a delta must not be taken for the whole delta.
#[test]
fn what_one_delta_changes_in_several_places_is_one_record() {
    for layout in LAYOUTS {
        for is_read in [false, true] {
            let mut log = ParityLog::new(settings(layout), 1);
            let (mut disk, mut out) = (Disk::default(), Vec::new());
            log.put(key(1), Position(3), content(1), vec![0; CHUNK]);
            log.flush(&mut out);
            settle(&mut log, &mut disk, &mut out);
            if is_read {
                log.read(key(1), 5, &mut out);
            }
            let version = Version(2);
            for (sum, offset) in [(7, 10), (8, 100)] {
                assert!(log.fold_data(key(1), Change { x: 0, version, sum }, 1, offset, &[9]));
            }
            let writes = log.counters().writes;
            log.flush(&mut out);
            settle(&mut log, &mut disk, &mut out);
            assert_eq!(log.counters().writes - writes, 1, "{layout:?}");
            let found = resume(&mut disk, settings(layout), 1);
            let sums = found
                .content(key(1))
                .map(|content| (content.versions[0], content.sums[0]));
            assert_eq!(sums, Some((version, 8)), "{layout:?}");
        }
    }
}

/// Records of one chunk at the end and at the beginning of the log area have adjacent addresses, but are not adjacent
/// on the disk.
#[test]
fn a_chunk_on_both_ends_of_the_log_area_is_read_whole() {
    let settings = Settings {
        log_bytes: 1 << 10,
        ..settings(Layout::Pl)
    };
    let mut log = ParityLog::new(settings, 1);
    let (mut disk, mut out) = (Disk::default(), Vec::new());
    let change = |n: u64| {
        let mut extents = Extents::default();
        extents.fold(n as usize, &[n as u8; 48]);
        assert_eq!(record_bytes(2, &extents), 128);
        (content(n), extents)
    };
    for n in 1..=9 {
        let (content, extents) = change(n);
        if n < 9 {
            log.put_extents(key(1), Position(3), content, extents);
        } else {
            assert!(log.fold(key(1), content, extents));
        }
        log.flush(&mut out);
        settle(&mut log, &mut disk, &mut out);
    }
    let places: Vec<(u64, usize)> = log.places(key(1)).iter().map(|place| (place.1, place.2)).collect();
    assert_eq!(places, [(896, 128), (0, 128)]);
    log.read(key(1), 5, &mut out);
    settle(&mut log, &mut disk, &mut out);
    let [(5, Some((found, bytes)))] = &log.take_answers()[..] else {
        panic!("the chunk is missing")
    };
    assert_eq!((found.versions[0], bytes[8], bytes[56]), (Version(9), 8, 9));
}

#[test]
fn a_changed_byte_on_the_disk_makes_the_chunk_bad() {
    for layout in LAYOUTS {
        let mut log = ParityLog::new(settings(layout), 1);
        let (mut disk, mut out) = (Disk::default(), Vec::new());
        log.put(key(1), Position(3), content(1), vec![3; CHUNK]);
        log.flush(&mut out);
        settle(&mut log, &mut disk, &mut out);
        let bytes = if layout.appends() {
            &mut disk.log
        } else {
            &mut disk.slots
        };
        bytes[200] ^= 1;
        log.read(key(1), 5, &mut out);
        settle(&mut log, &mut disk, &mut out);
        assert_eq!(log.take_answers(), [(5, None)]);
        assert_eq!(log.take_bad(), [key(1)]);
    }
}
