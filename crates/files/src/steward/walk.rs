//! Random walks: clients, a store that fails now and then, and stewards that die, beside the plainest model. The seed
//! of a walk that failed is in its message; `PARITAS_WALK_SEED` replays it.

use super::tests::{Asked, open, settings};
use super::*;
use crate::geometry::Layout;
use crate::rates::Sample;
use std::collections::{BTreeMap, VecDeque};

const STEPS: usize = 400;
const FILES: u64 = 12;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Role {
    Reader,
    /// With the number of subblocks to write.
    Writer(u64),
    /// Of a file under construction.
    Creator,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    pin: u64,
    token: u64,
    file: File,
    role: Role,
    until: Time,
    /// Its steward lives.
    current: bool,
}

struct Walk {
    seed: u64,
    random: Prng,
    now: Time,
    blocks: u64,
    steward: Steward,
    /// What the store has yet to do.
    queue: VecDeque<Asked>,
    records: BTreeMap<File, Record>,
    /// The version of the file whose parity is under each token, `None` while it is being written.
    keys: BTreeMap<u64, Option<u64>>,
    versions: BTreeMap<File, u64>,
    clients: Vec<Client>,
    replies: BTreeMap<u64, Reply>,
    next_asker: u64,
    /// Tokens without a record when a steward died: only the expiry deletes their keys.
    orphans: BTreeSet<u64>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut random = Prng::new(seed);
        let blocks = random.between(1, 30);
        let now = Time(1_000_000_000_000);
        let mut settings = settings(blocks);
        settings.eviction = *random.pick(Eviction::ALL);
        settings.admission = *random.pick(Admission::ALL);
        settings.prediction = *random.pick(Prediction::ALL);
        let steward = Steward::new(now, settings, random.fork(), [], &mut Vec::new());
        Self {
            seed,
            random,
            now,
            blocks,
            steward,
            queue: VecDeque::new(),
            records: BTreeMap::new(),
            keys: BTreeMap::new(),
            versions: BTreeMap::new(),
            clients: Vec::new(),
            replies: BTreeMap::new(),
            next_asker: 0,
            orphans: BTreeSet::new(),
        }
    }

    fn on(&mut self, event: Event<'_>) {
        let mut asked = Vec::new();
        self.steward.on(self.now, event, &mut asked);
        for what in asked {
            match what {
                Asked::Reply(asker, reply) => {
                    let twice = self.replies.insert(asker.0, reply);
                    assert!(twice.is_none(), "seed {}: two replies", self.seed);
                }
                Asked::Erase(token, ..) => {
                    let reader = self
                        .clients
                        .iter()
                        .find(|client| client.token == token && client.role == Role::Reader && client.until > self.now);
                    assert!(
                        reader.is_none(),
                        "seed {}: the keys of {reader:?} are deleted",
                        self.seed
                    );
                    self.queue.push_back(what);
                }
                _ => self.queue.push_back(what),
            }
        }
        let used = self.steward.csac.used_blocks();
        assert!(
            used <= self.blocks,
            "seed {}: {used} blocks of {}",
            self.seed,
            self.blocks
        );
        assert_eq!(used, self.steward.live_blocks(), "seed {}", self.seed);
    }

    /// The store does the next thing, or fails.
    fn store_works(&mut self, may_fail: bool) -> bool {
        let Some(what) = self.queue.pop_front() else {
            return false;
        };
        let fails = may_fail && self.random.chance(100_000);
        let event = match what {
            Asked::Store(token, file, record) => {
                if !fails {
                    self.records.insert(file, record);
                }
                Event::Stored(token, !fails)
            }
            Asked::Erase(token, file, _, record) => {
                if !fails {
                    self.keys.remove(&token);
                    if record {
                        self.records.remove(&file);
                    }
                }
                Event::Erased(token, !fails)
            }
            Asked::Refresh(token, ..) => Event::Refreshed(
                token,
                match self.keys.get(&token) {
                    _ if fails => Refreshed::Away,
                    Some(Some(_)) => Refreshed::Whole,
                    _ => Refreshed::Missing,
                },
            ),
            Asked::Reply(..) => unreachable!("replies are not queued"),
        };
        self.on(event);
        true
    }

    /// Asks, and lets the store work until the answer is there.
    fn ask(&mut self, request: Request<'_>) -> Reply {
        let asker = self.next_asker;
        self.next_asker += 1;
        self.on(Event::Request(Asker(asker), request));
        loop {
            if let Some(reply) = self.replies.remove(&asker) {
                return reply;
            }
            assert!(self.store_works(true), "seed {}: no answer", self.seed);
        }
    }

    fn version(&self, file: File) -> u64 {
        self.versions.get(&file).copied().unwrap_or(1)
    }

    /// Length by id, so that sizes differ: 1 to 3 parity blocks.
    fn open(&self, file: File) -> Open<'static> {
        let length = (64 << 20) * (1 + file % 3) - file;
        let layout = if file.is_multiple_of(4) {
            Layout::Striped
        } else {
            Layout::Contiguous
        };
        Open {
            length,
            layout,
            ..open(file, self.version(file))
        }
    }

    fn client(&mut self, file: File, grant: Granted, role: Role) {
        let life = if role == Role::Reader { READER_PIN } else { WRITER_PIN };
        self.clients.push(Client {
            pin: grant.pin,
            token: grant.token.unwrap(),
            file,
            role,
            until: self.now + life,
            current: true,
        });
    }

    fn step(&mut self) {
        let file = self.random.between(1, FILES);
        match self.random.below(22) {
            0..=6 => {
                let open = self.open(file);
                let subblocks = self.steward.geometry(&open).subblocks();
                let Reply::Opened(opened) = self.ask(Request::Open(open)) else {
                    panic!("seed {}", self.seed)
                };
                match opened.answer {
                    Answer::Cached => {
                        let token = opened.grant.token.unwrap();
                        assert_eq!(
                            self.keys.get(&token),
                            Some(&Some(self.version(file))),
                            "seed {}: parity of another version, or none",
                            self.seed
                        );
                        self.client(file, opened.grant, Role::Reader);
                    }
                    Answer::ShouldCache => {
                        self.keys.insert(opened.grant.token.unwrap(), None);
                        self.client(file, opened.grant, Role::Writer(subblocks));
                    }
                    Answer::ShouldNotCache => assert_eq!(opened.grant.pin, 0),
                }
            }
            7 => {
                let request = Request::Room(Room {
                    file,
                    blocks: self.random.between(1, 4),
                    k: 4,
                    layout: Layout::Contiguous,
                    cell_bytes: None,
                    block_bytes: 16 << 20,
                });
                // The file is made anew.
                self.versions.insert(file, self.version(file) + 1);
                if let Reply::Room(1.., grant) = self.ask(request) {
                    self.keys.insert(grant.token.unwrap(), None);
                    self.client(file, grant, Role::Creator);
                }
            }
            8..=12 => self.client_ends(),
            13 => {
                let pins: Vec<u64> = self.clients.iter().map(|client| client.pin).take(100).collect();
                if let Reply::Renewed(known) = self.ask(Request::Renew(pins)) {
                    let now = self.now;
                    for (client, known) in self.clients.iter_mut().zip(known) {
                        if known {
                            let reader = client.role == Role::Reader;
                            client.until = now + if reader { READER_PIN } else { WRITER_PIN };
                        }
                    }
                }
            }
            14 => {
                self.versions.insert(file, self.version(file) + 1);
            }
            15 => {
                if self.random.chance(300_000) {
                    self.ask(Request::Tell(Told::Deleted, file));
                }
            }
            16 => {
                let slow = *self.random.pick(&["a:9866", "b:9866", "x:1", "y:1", "z:1"]);
                let samples = ["a:9866", "b:9866", "x:1", "y:1", "z:1"].map(|node| {
                    let bytes = if node == slow { 1 << 18 } else { 1 << 22 };
                    let time = Span::from_ms(100);
                    let cancelled = false;
                    (node, Sample { bytes, time, cancelled })
                });
                self.ask(Request::Report(samples.to_vec()));
            }
            21 => {
                let asked = Request::Credit {
                    bytes: 1 << 20,
                    node: "a:9866",
                };
                let reply = self.ask(asked);
                assert!(matches!(reply, Reply::Credit(0 | 0x10_0000)), "{reply:?}");
            }
            19 => {
                if let Reply::Next(Some(file)) = self.ask(Request::Prefetch) {
                    let open = self.open(file);
                    let subblocks = self.steward.geometry(&open).subblocks();
                    if let Reply::Opened(made) = self.ask(Request::Make(open))
                        && made.answer == Answer::ShouldCache
                    {
                        self.keys.insert(made.grant.token.unwrap(), None);
                        self.client(file, made.grant, Role::Writer(subblocks));
                    }
                }
            }
            17 | 18 => {
                let seconds = *self.random.pick(&[1, 5, 20, 40, 100, 7 * 3600]);
                self.now = self.now + Span::from_secs(seconds);
                self.on(Event::Tick);
                let now = self.now;
                self.clients.retain(|client| client.until > now);
            }
            _ => {
                if self.random.chance(200_000) {
                    self.steward_dies();
                }
            }
        }
        for _ in 0..self.random.below(4) {
            self.store_works(true);
        }
    }

    fn client_ends(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let at = self.random.below(self.clients.len() as u64) as usize;
        let client = self.clients.swap_remove(at);
        let pin = client.pin;
        if self.random.chance(100_000) {
            self.ask(Request::Drop { pin });
            return;
        }
        let (subblocks, written, version) = match client.role {
            Role::Reader => {
                self.ask(Request::Close { pin });
                return;
            }
            Role::Writer(subblocks) => (subblocks, None, None),
            Role::Creator => {
                let open = self.open(client.file);
                let geometry = self.steward.geometry(&Open {
                    layout: Layout::Contiguous,
                    ..open.clone()
                });
                let version = self.version(client.file);
                (geometry.subblocks(), Some((version, open.length)), Some(version))
            }
        };
        // The client has read or written one version. If the file was changed meanwhile, it cannot know.
        let entry = self.steward.entries.get(&client.token);
        let version = version.or_else(|| entry.and_then(|entry| entry.version));
        if let Some(key) = self.keys.get_mut(&client.token) {
            *key = version;
        }
        let reply = self.ask(Request::Commit {
            pin,
            subblocks,
            written,
        });
        assert!(client.current || reply != Reply::Done, "seed {}: {client:?}", self.seed);
    }

    /// The steward is killed, and another reads the records.
    fn steward_dies(&mut self) {
        if self.random.chance(500_000) {
            self.rest();
            // Nothing is under way: then nothing is forgotten.
            let before = self.cached();
            self.start();
            assert_eq!(self.cached(), before, "seed {}", self.seed);
            return;
        }
        // The store may still do some of what it was asked.
        let more = self.random.below(1 + self.queue.len() as u64);
        for _ in 0..more {
            match self.queue.pop_front() {
                Some(Asked::Store(_, file, record)) => {
                    self.records.insert(file, record);
                }
                Some(Asked::Erase(token, file, _, record)) => {
                    self.keys.remove(&token);
                    if record {
                        self.records.remove(&file);
                    }
                }
                _ => {}
            }
        }
        self.start();
    }

    fn start(&mut self) {
        self.queue.clear();
        let recorded: BTreeSet<u64> = self.records.values().map(|record| record.token).collect();
        self.orphans
            .extend(self.keys.keys().filter(|token| !recorded.contains(token)));
        for client in &mut self.clients {
            client.current = false;
        }
        let mut asked = Vec::new();
        let records: Vec<_> = self.records.iter().map(|(file, record)| (*file, *record)).collect();
        let settings = self.steward.settings;
        self.steward = Steward::new(self.now, settings, self.random.fork(), records, &mut asked);
        self.queue.extend(asked);
        self.replies.clear();
    }

    fn cached(&self) -> BTreeMap<File, (u64, Option<u64>, u64)> {
        let entries = self
            .steward
            .entries
            .iter()
            .filter(|(_, entry)| entry.state == State::Cached);
        entries
            .map(|(token, entry)| (entry.file, (*token, entry.version, entry.blocks)))
            .collect()
    }

    /// The store works without a failure until everything is done that can be done now.
    fn rest(&mut self) {
        for _ in 0..3 {
            self.now = self.now + Span::from_secs(6);
            self.on(Event::Tick);
            while self.store_works(false) {}
        }
    }

    /// All clients go. Then only cached parity may be left.
    fn end(&mut self) {
        self.now = self.now + Span::from_secs(100);
        self.clients.clear();
        self.rest();
        let cached: BTreeSet<u64> = self.cached().values().map(|entry| entry.0).collect();
        let keys: BTreeSet<u64> = self.keys.keys().copied().collect();
        let left: Vec<&u64> = keys
            .difference(&cached)
            .filter(|token| !self.orphans.contains(token))
            .collect();
        assert!(left.is_empty(), "seed {}: keys of {left:?} are left", self.seed);
        assert_eq!(self.steward.doomed_blocks, 0, "seed {}", self.seed);
        assert_eq!(self.steward.pins.count(), 0, "seed {}", self.seed);
        let recorded: BTreeSet<u64> = self.records.values().map(|record| record.token).collect();
        assert_eq!(recorded, cached, "seed {}: records are not what is cached", self.seed);
    }
}

#[test]
fn whatever_happens_the_invariants_hold() {
    let one = std::env::var("PARITAS_WALK_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds: Vec<u64> = one.map_or_else(|| (0..1000).collect(), |seed| vec![seed]);
    let (mut hits, mut evictions, mut takeovers) = (0, 0, 0);
    for seed in seeds {
        let mut walk = Walk::new(seed);
        for _ in 0..STEPS {
            walk.step();
        }
        hits += walk.steward.counters.hits;
        evictions += walk.steward.counters.evictions;
        takeovers += walk.orphans.len();
        walk.end();
    }
    if one.is_none() {
        // Walks that meet nothing show nothing.
        assert!(
            hits > 1000 && evictions > 1000 && takeovers > 10,
            "{hits} {evictions} {takeovers}"
        );
    }
}
