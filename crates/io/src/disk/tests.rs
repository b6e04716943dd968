//! A real log over real files.

mod directory;
mod incarnation;
mod trouble;

use super::segments::Segments;
use super::*;
use paritas_base::{ClusterId, ListId, NodeId, Position, Prng, Stripe, Version};
use paritas_paritylog::{Content, Extents, Key, Layout, ParityLog, Recovery, Settings, Space};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

const LAYOUTS: [Layout; 4] = [Layout::Pl, Layout::Plr, Layout::PlrM, Layout::Plm];
const BLOCK: usize = 4096;
/// Not a multiple of a slot's size, so that some slots are in two files.
const SEGMENT_BYTES: Option<u64> = Some(64 << 10);
const TIMEOUT: Duration = Duration::from_secs(30);

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

/// Opens a directory. `None` if the file system of the tests has no direct I/O.
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

/// The expected content of a log: version and bytes of each stripe.
type Model = BTreeMap<u32, (u64, Vec<u8>)>;

/// A log, its disk, and the requests under way between them.
struct World {
    log: ParityLog,
    disk: Disk,
    out: Vec<Io>,
    under_way: usize,
    layout: Layout,
}

impl World {
    fn new((directory, recovery): (LogDirectory, Recovery), layout: Layout) -> Self {
        let loop_thread = std::thread::current();
        Self {
            log: recovery.resume(1),
            disk: Disk::start(directory, move || loop_thread.unpark()).unwrap(),
            out: Vec::new(),
            under_way: 0,
            layout,
        }
    }

    /// Submits the log's requests, and waits until at most `most` are under way.
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
                    assert!(since.elapsed() < TIMEOUT, "still {} requests under way", self.under_way);
                    std::thread::park_timeout(TIMEOUT);
                }
            }
        }
    }

    /// Waits until all pending data is on the disk.
    fn flush(&mut self) {
        let since = Instant::now();
        while !self.log.is_quiet() {
            assert!(since.elapsed() < TIMEOUT, "the log does not come to rest");
            self.log.flush(&mut self.out);
            self.log.turn(&mut self.out);
            self.wait(0);
        }
    }

    fn put(&mut self, model: &mut Model, stripe: u32, version: u64, bytes: Vec<u8>) {
        self.log.put(key(stripe), Position(3), content(version), bytes.clone());
        model.insert(stripe, (version, bytes));
    }

    /// Random puts, deltas and reads.
    fn work(&mut self, model: &mut Model, random: &mut Prng, versions: Range<u64>) {
        for version in versions {
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

    /// The log holds exactly the model's content.
    fn check_all(&mut self, model: &Model) {
        assert_eq!(self.log.chunks(), model.len(), "{:?}", self.layout);
        for stripe in model.keys() {
            self.check(model, *stripe);
        }
    }

    fn check(&mut self, model: &Model, stripe: u32) {
        self.log.read(key(stripe), 1, &mut self.out);
        self.wait(0);
        let (version, bytes) = &model[&stripe];
        let answers = self.log.take_answers();
        assert!(
            answers == [(1, Some((content(*version), bytes.clone())))],
            "{:?}, stripe {stripe}: {:?}",
            self.layout,
            answers
                .iter()
                .map(|(n, a)| (n, a.as_ref().map(|(c, _)| c)))
                .collect::<Vec<_>>()
        );
    }
}

/// A new process opens the directory.
fn next_incarnation(directory: &Path, settings: &Settings, direct: bool) -> World {
    World::new(open(directory, settings, direct, |_, _| {}).unwrap(), settings.layout)
}
