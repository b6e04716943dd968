//! A real log over real files.

mod directory;

use super::segments::Segments;
use super::*;
use paritas_base::{ClusterId, ListId, NodeId, Position, Prng, Stripe, Version};
use paritas_paritylog::{Content, Extents, Key, Layout, ParityLog, Recovery, Settings, Space};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

const LAYOUTS: [Layout; 4] = [Layout::Pl, Layout::Plr, Layout::PlrM, Layout::Plm];
const BLOCK: usize = 4096;
/// No multiple of a slot: some lie in two files.
const SEGMENT_BYTES: Option<u64> = Some(64 << 10);
const PATIENCE: Duration = Duration::from_secs(30);

fn owner() -> Owner {
    Owner {
        cluster: ClusterId(7),
        node: NodeId(3),
    }
}

fn settings(layout: Layout) -> Settings {
    Settings {
        layout,
        chunk_bytes: 1 << 10,
        data_max: 2,
        block_bytes: BLOCK,
        reserve_bytes: 2 * BLOCK,
        slots_max: 48,
        log_bytes: 512 << 10,
        flush_bytes: 8 << 10,
        buffer_max_bytes: 64 << 10,
    }
}

/// `None` where the file system of the tests has no direct I/O.
fn open(
    directory: &Path,
    settings: &Settings,
    direct: bool,
    progress: impl FnMut(u64, u64),
) -> Option<(LogDirectory, Recovery)> {
    match LogDirectory::open_in_segments(directory, owner(), settings, direct, SEGMENT_BYTES, progress) {
        Err(LogDirectoryError {
            problem: LogDirectoryProblem::NoDirectIo { error, .. },
            ..
        }) if direct => {
            eprintln!("skipped: no direct I/O here: {error}");
            None
        }
        outcome => Some(outcome.unwrap()),
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

/// What a log should hold.
type Model = BTreeMap<u32, (u64, Vec<u8>)>;

/// A log, its disk, and what is under way between them.
struct World {
    log: ParityLog,
    disk: Disk,
    out: Vec<Io>,
    under_way: usize,
}

impl World {
    fn new(directory: LogDirectory, settings: Settings) -> Self {
        let (log, loop_thread) = (directory.log_number(), std::thread::current());
        Self {
            log: ParityLog::new(settings, log),
            disk: Disk::start(directory, move || loop_thread.unpark()).unwrap(),
            out: Vec::new(),
            under_way: 0,
        }
    }

    /// Gives the disk what there is to do, and waits until at most so much is under way.
    fn wait(&mut self, most: usize) {
        let since = Instant::now();
        loop {
            for io in self.out.drain(..) {
                self.disk.submit(io);
                self.under_way += 1;
            }
            if self.under_way <= most {
                return;
            }
            match self.disk.next_done() {
                Some((id, outcome)) => {
                    self.under_way -= 1;
                    self.log.done(id, outcome, &mut self.out);
                }
                None => {
                    assert!(since.elapsed() < PATIENCE, "{} under way for ever", self.under_way);
                    std::thread::park_timeout(PATIENCE);
                }
            }
        }
    }

    /// Everything that waits is on the disk.
    fn flush(&mut self) {
        let since = Instant::now();
        while !self.log.is_quiet() {
            assert!(since.elapsed() < PATIENCE, "it is never quiet");
            self.log.flush(&mut self.out);
            self.log.turn(&mut self.out);
            self.wait(0);
        }
    }

    fn put(&mut self, model: &mut Model, stripe: u32, version: u64, bytes: Vec<u8>) {
        self.log.put(key(stripe), Position(3), content(version), bytes.clone());
        model.insert(stripe, (version, bytes));
    }

    /// Puts, deltas and reads as they come.
    fn work(&mut self, model: &mut Model, random: &mut Prng, steps: u64) {
        for version in 1..=steps {
            let stripe = random.below(24) as u32;
            let dice = random.below(100);
            if dice < 15 || !model.contains_key(&stripe) {
                let bytes = (0..1 << 10).map(|_| random.below(256) as u8).collect();
                self.put(model, stripe, version, bytes);
            } else if dice < 90 {
                let offset = random.below(1000) as usize;
                let xor: Vec<u8> = (0..24).map(|_| random.below(256) as u8).collect();
                let mut extents = Extents::default();
                extents.fold(offset, &xor);
                assert!(self.log.fold(key(stripe), content(version), extents));
                let known = model.get_mut(&stripe).unwrap();
                known.0 = version;
                for (byte, xor) in known.1[offset..].iter_mut().zip(&xor) {
                    *byte ^= xor;
                }
            } else {
                self.check(model, stripe);
            }
            self.log.turn(&mut self.out);
            if self.log.is_full() {
                self.flush();
            }
            self.wait(8);
            assert!(self.log.take_bad().is_empty());
        }
    }

    fn check(&mut self, model: &Model, stripe: u32) {
        self.log.read(key(stripe), 1, &mut self.out);
        self.wait(0);
        let (version, bytes) = &model[&stripe];
        let answers = self.log.take_answers();
        assert!(
            answers == [(1, Some((content(*version), bytes.clone())))],
            "stripe {stripe}: {:?}",
            answers
                .iter()
                .map(|(n, a)| (n, a.as_ref().map(|(c, _)| c)))
                .collect::<Vec<_>>()
        );
    }
}

/// What a log goes on with.
fn found(recovery: Recovery, stripe: u32) -> Option<Content> {
    recovery.finish().get(&key(stripe)).map(|found| found.content.clone())
}

fn assert_finds(directory: &Path, settings: &Settings, direct: bool, model: &Model) {
    for (stripe, (version, _)) in model {
        let (_, recovery) = open(directory, settings, direct, |_, _| {}).unwrap();
        assert_eq!(
            found(recovery, *stripe),
            Some(content(*version)),
            "{:?}, stripe {stripe}",
            settings.layout
        );
    }
}

#[test]
fn what_goes_to_the_disk_comes_back_and_is_found_by_the_next_life() {
    for direct in [false, true] {
        for (layout, seed) in LAYOUTS.into_iter().zip(1..) {
            let directory = tempfile::tempdir().unwrap();
            let settings = settings(layout);
            let Some((files, recovery)) = open(directory.path(), &settings, direct, |_, _| panic!("nothing to read"))
            else {
                return;
            };
            assert_eq!(found(recovery, 1), None);
            let mut world = World::new(files, settings);
            let (mut model, mut random) = (Model::new(), Prng::new(seed));
            println!("{layout:?}, direct: {direct}, seed {seed}");
            world.work(&mut model, &mut random, 1500);
            world.flush();
            for stripe in 0..24 {
                world.check(&model, stripe);
            }
            let (figures, counters) = (world.disk.figures(), world.log.counters());
            assert_eq!((figures.under_way, figures.under_way_bytes, figures.errors), (0, 0, 0));
            assert_eq!(
                (figures.reads.count, figures.reads.bytes),
                (counters.reads, counters.read_bytes)
            );
            assert_eq!(
                (figures.writes.count, figures.writes.bytes),
                (counters.writes, counters.write_bytes)
            );
            assert!(figures.reads.ns > 0 && figures.writes.ns > 0);
            drop(world);
            assert_finds(directory.path(), &settings, direct, &model);
        }
    }
}

#[test]
fn only_what_was_written_is_read_at_the_start() {
    for layout in LAYOUTS {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            slots_max: 2000,
            log_bytes: 24 << 20,
            ..settings(layout)
        };
        let (files, _) = open(directory.path(), &settings, false, |_, _| {}).unwrap();
        let (mut world, mut model) = (World::new(files, settings), Model::new());
        world.put(&mut model, 5, 1, vec![9; 1 << 10]);
        world.flush();
        drop(world);
        let mut told = Vec::new();
        let (_, recovery) = open(directory.path(), &settings, false, |done, total| {
            told.push((done, total))
        })
        .unwrap();
        assert_eq!(found(recovery, 5), Some(content(1)), "{layout:?}");
        let (done, total) = *told.last().unwrap();
        assert_eq!(done, total, "{layout:?}: all that is to be read is read");
        assert!(total < 64 << 10, "{layout:?}: {total} bytes were read for one chunk");
    }
}

/// As a backup tool leaves them: without holes, or with holes wherever there were zeros.
#[test]
fn copied_files_are_as_good() {
    for layout in LAYOUTS {
        for sparse in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let settings = Settings {
                chunk_bytes: 24 << 10,
                slots_max: 16,
                ..settings(layout)
            };
            let (files, _) = open(directory.path(), &settings, false, |_, _| {}).unwrap();
            let (mut world, mut model) = (World::new(files, settings), Model::new());
            for stripe in 0..5 {
                let mut bytes = vec![0; 24 << 10];
                (bytes[0], bytes[20 << 10]) = (stripe as u8 + 1, 1);
                world.put(&mut model, stripe, 1, bytes);
            }
            world.flush();
            drop(world);
            for file in fs::read_dir(directory.path()).unwrap() {
                let path = file.unwrap().path();
                let bytes = fs::read(&path).unwrap();
                fs::remove_file(&path).unwrap();
                if sparse {
                    let file = fs::File::create(&path).unwrap();
                    file.set_len(bytes.len() as u64).unwrap();
                    for (n, block) in bytes.chunks(BLOCK).enumerate() {
                        if block.iter().any(|byte| *byte != 0) {
                            std::os::unix::fs::FileExt::write_all_at(&file, block, (n * BLOCK) as u64).unwrap();
                        }
                    }
                } else {
                    fs::write(&path, bytes).unwrap();
                }
            }
            assert_finds(directory.path(), &settings, false, &model);
        }
    }
}

#[test]
fn a_torn_last_write_takes_nothing_else_with_it() {
    for layout in LAYOUTS {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            chunk_bytes: 16 << 10,
            ..settings(layout)
        };
        let (files, _) = open(directory.path(), &settings, false, |_, _| {}).unwrap();
        let (mut world, mut model) = (World::new(files, settings), Model::new());
        for stripe in 0..5 {
            world.put(&mut model, stripe, 1, vec![stripe as u8 + 1; 16 << 10]);
            world.flush();
        }
        world.log.put(key(9), Position(3), content(1), vec![9; 16 << 10]);
        world.log.flush(&mut world.out);
        let [
            Io {
                space,
                at,
                work: Work::Write(bytes),
                ..
            },
        ] = &mut world.out[..]
        else {
            // Of PLM what waits is in one write, as of the others here.
            panic!("{layout:?}: one write")
        };
        bytes.truncate(2 * BLOCK);
        let (space, at) = (*space, *at);
        world.disk.submit(world.out.remove(0));
        world.under_way += 1;
        world.wait(0);
        drop(world);
        assert_finds(directory.path(), &settings, false, &model);
        let (_, recovery) = open(directory.path(), &settings, false, |_, _| {}).unwrap();
        assert_eq!(found(recovery, 9), None, "{layout:?}: {space:?} at {at}");
    }
}

/// A disk whose slots are one file.
fn disk_over(directory: &Path, file: &Path, bytes: u64) -> World {
    let settings = settings(Layout::Plr);
    let (files, _) = open(directory, &settings, false, |_, _| {}).unwrap();
    let slots = Segments::open(vec![(file.to_owned(), bytes)], bytes, None).unwrap();
    World::new(files.with_slots(slots), settings)
}

#[test]
fn a_full_a_broken_and_a_cut_off_disk_fail_the_log_and_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let short = directory.path().join("short");
    fs::write(&short, [0; 100]).unwrap();
    let cases = [
        (
            Path::new("/dev/full"),
            Work::Write(vec![1; BLOCK]),
            "No space left on device",
        ),
        // Nothing is mapped there.
        (Path::new("/proc/self/mem"), Work::Read(BLOCK), "Input/output error"),
        (short.as_path(), Work::Read(BLOCK), "failed to fill whole buffer"),
    ];
    for (file, work, says) in cases {
        let mut world = disk_over(directory.path(), file, 1 << 20);
        let space = Space::Slots;
        let mut io = Io {
            id: IoId(5),
            space,
            at: 0,
            work,
        };
        let (_, trouble) = world.disk.shared.run(io.clone(), &mut Scratch::default()).unwrap_err();
        assert!(trouble.error.to_string().contains(says), "{}", trouble.error);
        assert_eq!(trouble.what(), format!("{} at offset 0", file.display()));

        world.log.put(key(1), Position(3), content(1), vec![1; 1 << 10]);
        world.log.flush(&mut world.out);
        io.id = world.out[0].id;
        world.out[0] = io;
        world.wait(0);
        assert!(world.log.has_failed(), "{}", file.display());
        assert_eq!((world.disk.figures().errors, world.disk.figures().under_way), (1, 0));
    }
}

#[test]
fn what_lies_outside_of_a_space_is_refused_and_nothing_falls_over() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(Layout::Pl);
    for direct in [false, true] {
        let Some((files, _)) = open(directory.path(), &settings, direct, |_, _| {}) else {
            return;
        };
        let world = World::new(files, settings);
        let beyond = [
            (Space::Log, settings.log_bytes - BLOCK as u64),
            (Space::Log, u64::MAX - BLOCK as u64 + 1),
            (Space::Slots, 0),
        ];
        for (space, at) in beyond {
            for work in [Work::Read(2 * BLOCK), Work::Write(vec![1; 2 * BLOCK])] {
                let io = Io {
                    id: IoId(1),
                    space,
                    at,
                    work,
                };
                let outcome = world.disk.shared.run(io, &mut Scratch::default());
                assert!(outcome.is_err(), "{space:?} at {at}");
            }
        }
    }
}

#[test]
fn a_disk_that_stands_still_holds_up_nobody_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(Layout::Plr);
    let (files, _) = open(directory.path(), &settings, false, |_, _| {}).unwrap();
    let gate = Arc::new(Mutex::new(()));
    let closed = Arc::clone(&gate);
    let held = gate.lock().unwrap();
    let disk = Disk::start(files, move || drop(closed.lock())).unwrap();
    for n in 0..5000 {
        let (space, at, work) = (Space::Slots, n % 40 * BLOCK as u64, Work::Read(100));
        disk.submit(Io {
            id: IoId(n),
            space,
            at,
            work,
        });
    }
    // Both threads stand in their first wake-up at the latest.
    let figures = disk.figures();
    assert!(
        figures.under_way >= 4998 && figures.under_way_bytes >= 499_800,
        "{figures:?}"
    );
    drop(held);
    let (since, mut seen) = (Instant::now(), vec![0; 5000]);
    while seen.contains(&0) {
        match disk.next_done() {
            Some((id, outcome)) => {
                assert_eq!(outcome.unwrap().len(), 100);
                seen[id.0 as usize] += 1;
            }
            None => {
                assert!(since.elapsed() < PATIENCE);
                std::thread::yield_now();
            }
        }
    }
    assert!(seen.iter().all(|count| *count == 1) && disk.next_done().is_none());
}

#[test]
fn a_disk_that_is_dropped_gives_its_directory_free() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(Layout::Plr);
    for _ in 0..20 {
        let (files, _) = open(directory.path(), &settings, false, |_, _| {}).unwrap();
        let disk = Disk::start(files, || {}).unwrap();
        for n in 0..200 {
            let (space, at, work) = (Space::Slots, n % 40 * BLOCK as u64, Work::Write(vec![1; BLOCK]));
            disk.submit(Io {
                id: IoId(n),
                space,
                at,
                work,
            });
        }
    }
}
