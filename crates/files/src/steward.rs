//! The steward of one mount: which parity is in the cache, who uses it, and when its keys are deleted.
//!
//! An entry is the parity of one version of one file. Its life:
//!
//! ```text
//!   OPEN, ROOM ─▶ Granted ──record stored──▶ Filling ──COMMIT──▶ Cached
//!                    │ store away               │ DROP, no RENEW    │ evicted, deleted, another version, damaged
//!                    ▼                          ▼                   ▼
//!                  (gone)                     Doomed ◀──────────────┘
//!                                               │ last reader gone
//!                                               ▼
//!                                            Erasing ──keys deleted──▶ (gone)
//! ```
//!
//! - The blocks of Granted, Filling and Cached entries are those of [`Csac`], never more than the mount's.
//! - A *pin* says that a client uses an entry. A pin that is not renewed ends by itself. The keys of an entry that a
//!   reader has pinned are not deleted. The paper does not say what happens when a parity in use is evicted.
//! - Doomed and Erasing entries still take memory of the cache. While they are more than a tenth of the mount's
//!   blocks, nothing new is granted.
//! - The answer `should-cache` waits until the record is stored. So a steward that starts finds every entry.
//! - Time, identity and chance come as arguments. What is to be done in the cache store leaves through [`Out`].
//!
//! When a node becomes a straggler, [`Csac::prefetch`] names the files whose parity should be made ahead of their
//! readers. Workers ask for them, one at a time (PREFETCH), and then write their parity as readers do (MAKE).

mod answers;
mod check;
mod credit;
mod entry;
mod nodes;
mod pins;
mod polled;
mod prefetch;
mod status;

use crate::csac::{Admission, Csac, CsacSettings, Decision, Decline, Prediction, Update};
use crate::eviction::Eviction;
use crate::geometry::{Geometry, SUBBLOCKS_MAX};
use crate::rates::{Estimator, Rates};
use crate::record::{Record, Stage};
use crate::request::{Open, Request, Room, Told};
use crate::{File, Node};
pub use answers::{Answer, Asker, Granted, Opened, Out, Refreshed, Reply};
use credit::Credit;
use entry::{Entry, State};
use nodes::Nodes;
use paritas_base::{Map, Prng, Span, Time, map};
use pins::Pins;
use polled::Polls;
pub use polled::{Listed, Polled};
use status::Counters;
pub use status::NodeFigures;
use std::collections::{BTreeSet, VecDeque};

/// Parity rows of a stripe. Row 0 is the XOR of the data, so it serves codes with more rows too.
const M: u32 = 1;
/// A reader's pin ends this long after OPEN or its last RENEW.
pub const READER_PIN: Span = Span::from_secs(30);
/// A writer's.
pub const WRITER_PIN: Span = Span::from_secs(60);
/// Most pins at a time.
pub const PINS_MAX: usize = 1 << 16;
/// How often the keys' expiry is put off; they expire after a day. It also finds out whether they are there.
const REFRESH: Span = Span::from_secs(6 * 3600);
/// When to try again what the cache store did not do.
const RETRY: Span = Span::from_secs(5);
/// Most entries that are refreshed at a time.
const REFRESHING_MAX: usize = 4;
/// Part of the blocks that Doomed and Erasing entries may take before nothing new is granted: 1 / this.
const DOOMED_PART: u64 = 10;

/// Settings of a mount.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Blocks of the cache: the paper's T.
    pub blocks: u64,
    /// Bytes of such a block.
    pub block_bytes: u64,
    /// Bytes of a parity subblock with the contiguous layout, and of a cell if a client does not say.
    pub sub_bytes: u64,
    /// Which files are cached while no node is a straggler.
    pub admission: Admission,
    /// Which file is evicted.
    pub eviction: Eviction,
    /// Which nodes are stragglers.
    pub estimator: Estimator,
    /// How often that is estimated.
    pub period: Span,
    /// The paper's θ: percent of the blocks that parity made ahead may take, each time a node becomes a straggler.
    pub prefetch_percent: u8,
    /// Which of them comes first.
    pub prediction: Prediction,
}

/// What happens to the machine.
#[derive(Clone, PartialEq, Debug)]
pub enum Event<'a> {
    /// A client asks.
    Request(Asker, Request<'a>),
    /// The record of the entry with this token was stored, or was not.
    Stored(u64, bool),
    /// The keys of the entry with this token were deleted, or were not.
    Erased(u64, bool),
    /// What became of refreshing the keys of the entry with this token.
    Refreshed(u64, Refreshed),
    /// The store's nodes were asked for their counters.
    Polled(&'a Polled),
    /// The deadline has come.
    Tick,
}

/// The machine.
#[derive(Debug)]
pub struct Steward {
    settings: Settings,
    random: Prng,
    csac: Csac,
    rates: Rates,
    nodes: Nodes,
    /// By token.
    entries: Map<u64, Entry>,
    /// Tokens of the entries that are neither Doomed nor Erasing.
    by_file: Map<File, u64>,
    pins: Pins,
    /// Files whose parity should be made ahead, in order.
    ahead: VecDeque<File>,
    /// Tokens of Doomed entries.
    doomed: BTreeSet<u64>,
    /// When it was last known that the file of a Cached entry exists.
    seen: BTreeSet<(Time, u64)>,
    /// Opens since the numbers of accesses were halved.
    opens_count: usize,
    /// When the keys of Cached entries are to be refreshed.
    refreshes: BTreeSet<(Time, u64)>,
    /// When to ask again for what the store did not do.
    retries: BTreeSet<(Time, u64)>,
    refreshing_count: usize,
    /// Blocks of Doomed and Erasing entries.
    doomed_blocks: u64,
    counters: Counters,
    /// Counts of requests for the nodes' counters. `None`: the nodes are not asked.
    polls: Option<Polls>,
    credit: Credit,
    next_tick: Time,
}

impl Steward {
    /// A machine that takes up what the records say; call it with none for an empty cache. `random` gives tokens and
    /// pins, which must not repeat over processes.
    pub fn new(
        now: Time,
        settings: Settings,
        random: Prng,
        records: impl IntoIterator<Item = (File, Record)>,
        out: &mut impl Out,
    ) -> Self {
        let mut steward = Self {
            settings,
            random,
            csac: Csac::new(CsacSettings {
                admission: settings.admission,
                prediction: settings.prediction,
                ..CsacSettings::new(settings.blocks, settings.eviction)
            }),
            rates: Rates::new(),
            nodes: Nodes::default(),
            entries: map(),
            by_file: map(),
            pins: Pins::new(PINS_MAX),
            ahead: VecDeque::new(),
            doomed: BTreeSet::new(),
            seen: BTreeSet::new(),
            opens_count: 0,
            refreshes: BTreeSet::new(),
            retries: BTreeSet::new(),
            refreshing_count: 0,
            doomed_blocks: 0,
            counters: Counters::default(),
            polls: None,
            credit: Credit::new(now),
            next_tick: now,
        };
        for (file, record) in records {
            steward.take_up(now, file, &record, out);
        }
        steward
    }

    /// When to call `on` with [`Event::Tick`].
    pub fn next_deadline(&self) -> Time {
        self.next_tick
    }

    /// Lets something happen.
    pub fn on(&mut self, now: Time, event: Event<'_>, out: &mut impl Out) {
        match event {
            Event::Request(asker, request) => self.on_request(now, asker, request, out),
            Event::Stored(token, done) => self.on_stored(now, token, done, out),
            Event::Erased(token, done) => self.on_erased(now, token, done),
            Event::Refreshed(token, outcome) => self.on_refreshed(now, token, outcome, out),
            Event::Polled(polled) => self.on_polled(now, polled),
            Event::Tick => self.on_tick(now, out),
        }
    }

    fn on_request(&mut self, now: Time, asker: Asker, request: Request<'_>, out: &mut impl Out) {
        match request {
            Request::Open(open) => self.on_open(now, asker, &open, out),
            Request::Prefetch => self.on_prefetch(asker, out),
            Request::Check => {
                let file = self.on_check(now);
                out.reply(asker, Reply::Next(file));
            }
            Request::Make(open) => self.on_make(now, asker, &open, out),
            Request::Room(room) => self.on_room(now, asker, room, out),
            Request::Commit {
                pin,
                subblocks,
                written,
            } => {
                let done = self.on_commit(now, pin, subblocks, written, out);
                out.reply(asker, done.map_or_else(Reply::Error, |()| Reply::Done));
            }
            Request::Drop { pin } => {
                let done = self.on_drop(now, pin, out);
                out.reply(asker, done.map_or_else(Reply::Error, |()| Reply::Done));
            }
            Request::Close { pin } => {
                let done = self.on_close(now, pin, out);
                out.reply(asker, done.map_or_else(Reply::Error, |()| Reply::Done));
            }
            Request::Renew(pins) => {
                let known = pins.into_iter().map(|pin| self.renew(now, pin)).collect();
                out.reply(asker, Reply::Renewed(known));
            }
            Request::Report(samples) => {
                for (name, sample) in samples {
                    if let Some(node) = self.nodes.number(name) {
                        self.counters.on_sample(now, self.rates.add(now, node, sample));
                    }
                }
                out.reply(asker, Reply::Done);
            }
            Request::Tell(told, file) => {
                // A file that was moved keeps its id, and one that was closed has its parity committed or not.
                if told == Told::Deleted {
                    self.counters.deleted += 1;
                    if let Some(token) = self.by_file.get(&file).copied() {
                        self.doom(now, token, out);
                    }
                    self.csac.forget(file);
                }
                out.reply(asker, Reply::Done);
            }
            Request::Credit { bytes, node } => {
                let granted = self.on_credit(bytes, node);
                out.reply(asker, Reply::Credit(granted));
            }
            Request::Status => {
                let status = self.status(now);
                out.reply(asker, Reply::Status(status));
            }
        }
    }

    fn on_open(&mut self, now: Time, asker: Asker, open: &Open<'_>, out: &mut impl Out) {
        let nodes = self.numbers(open);
        let geometry = self.geometry(open);
        let blocks = geometry.cache_blocks(self.settings.block_bytes);
        self.counters.opens += 1;
        self.age();
        let affected = self.csac.is_affected(&nodes);
        self.counters.affected += u64::from(affected);

        if let Some(token) = self.by_file.get(&open.file).copied()
            && let Some(entry) = self.entries.get_mut(&token)
        {
            if entry.state != State::Cached {
                // Another client makes this parity.
                self.csac.update(open.file, &nodes, blocks, Decision::ShouldNotCache);
                self.counters.being_written += 1;
                return self.decline(asker, affected, &nodes, out);
            }
            if entry.version == Some(open.version) {
                if entry.geometry != geometry {
                    self.counters.other_geometry += 1;
                    return self.decline(asker, affected, &nodes, out);
                }
                open.path.clone_into(&mut entry.path);
                let Some(pin) = self.pins.add(&mut self.random, token, now + READER_PIN, false) else {
                    self.counters.too_many_pins += 1;
                    return self.decline(asker, affected, &nodes, out);
                };
                entry.pins_count += 1;
                self.see(now, token);
                self.csac.update(open.file, &nodes, blocks, Decision::Cached);
                self.counters.hits += 1;
                let opened = Opened {
                    answer: Answer::Cached,
                    grant: self.granted(pin, token, geometry),
                    slow: self.slow(&nodes),
                };
                return out.reply(asker, Reply::Opened(opened));
            }
            // Parity of another version is of no use to anybody.
            self.counters.other_version += 1;
            self.doom(now, token, out);
        }

        let mut decision = self.csac.query(open.file, &nodes);
        if decision == Decision::ShouldCache && !self.may_grant(&geometry) {
            decision = Decision::ShouldNotCache;
        }
        match self.csac.update(open.file, &nodes, blocks, decision) {
            Update::Recorded => {}
            Update::Declined(Decline::TooLarge) => self.counters.too_large += 1,
            Update::Declined(Decline::NothingEvictable) => self.counters.nothing_evictable += 1,
            Update::Cached { evicted } => {
                self.evict(now, evicted, out);
                self.counters.affected_misses += u64::from(affected);
                let entry = Entry::new(open.file, Some(open.version), geometry, blocks, open.path);
                return self.grant(now, entry, Waiting::Open(asker, nodes), out);
            }
        }
        self.decline(asker, affected, &nodes, out);
    }

    fn numbers(&mut self, open: &Open<'_>) -> Vec<Node> {
        let mut nodes: Vec<Node> = open.nodes.iter().filter_map(|name| self.nodes.number(name)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    fn evict(&mut self, now: Time, evicted: Vec<File>, out: &mut impl Out) {
        for file in evicted {
            self.counters.evictions += 1;
            if let Some(token) = self.by_file.get(&file).copied() {
                self.doom(now, token, out);
            }
        }
    }

    fn on_room(&mut self, now: Time, asker: Asker, room: Room, out: &mut impl Out) {
        if let Some(token) = self.by_file.get(&room.file).copied() {
            // The file is written again or appended to.
            self.counters.other_version += 1;
            self.doom(now, token, out);
        }
        let geometry = Geometry {
            layout: room.layout,
            k: room.k,
            m: M,
            block_bytes: room.block_bytes,
            sub_bytes: room.cell_bytes.unwrap_or(self.settings.sub_bytes),
            // The greatest length of a file with this number of parity blocks.
            length: (room.blocks / u64::from(M)).max(1) * room.block_bytes * u64::from(room.k),
        };
        let blocks = geometry.cache_blocks(self.settings.block_bytes);
        if geometry.is_valid() && self.may_grant(&geometry) && self.csac.reserve(room.file, blocks) {
            let entry = Entry::new(room.file, None, geometry, blocks, "");
            return self.grant(now, entry, Waiting::Room(asker, room.blocks), out);
        }
        self.counters.no_room += 1;
        out.reply(asker, Reply::Room(0, Granted::none(M, geometry.sub_bytes)));
    }

    /// Whether anything may be granted at all.
    fn may_grant(&mut self, geometry: &Geometry) -> bool {
        if self.doomed_blocks * DOOMED_PART > self.settings.blocks {
            self.counters.too_many_doomed += 1;
            return false;
        }
        if self.pins.is_full() {
            self.counters.too_many_pins += 1;
            return false;
        }
        if geometry.subblocks() > SUBBLOCKS_MAX {
            self.counters.too_large += 1;
            return false;
        }
        true
    }

    /// Makes an entry whose blocks `csac` has. The answer follows when the record is stored.
    fn grant(&mut self, now: Time, mut entry: Entry, waiting: Waiting, out: &mut impl Out) {
        let mut token = self.random.next_u64();
        while token == 0 || self.entries.contains_key(&token) {
            token = self.random.next_u64();
        }
        let file = entry.file;
        self.csac.hold(file, true);
        entry.waiting = Some(waiting);
        out.store(token, file, &entry.record(token, Stage::Filling));
        // Room for this pin was checked before.
        if let Some(pin) = self.pins.add(&mut self.random, token, now + WRITER_PIN, true) {
            entry.writer = Some(pin);
            entry.pins_count = 1;
        }
        self.by_file.insert(file, token);
        self.entries.insert(token, entry);
    }

    fn on_stored(&mut self, now: Time, token: u64, done: bool, out: &mut impl Out) {
        let Some(entry) = self.entries.get_mut(&token) else {
            return;
        };
        let Some(waiting) = entry.waiting.take() else {
            if !done && matches!(entry.state, State::Cached | State::Doomed) {
                self.retries.insert((now + RETRY, token));
            }
            return;
        };
        let (writer, geometry) = (entry.writer, entry.geometry);
        match (done && entry.state == State::Granted, writer) {
            (true, Some(pin)) => {
                entry.state = State::Filling;
                // The client's time begins with the answer.
                self.pins.renew(pin, now + WRITER_PIN);
                let grant = self.granted(pin, token, geometry);
                match waiting {
                    Waiting::Open(asker, nodes) => {
                        self.counters.should_cache += 1;
                        let opened = Opened {
                            answer: Answer::ShouldCache,
                            grant,
                            slow: self.slow(&nodes),
                        };
                        out.reply(asker, Reply::Opened(opened));
                    }
                    Waiting::Make(asker, nodes) => {
                        self.counters.prefetches += 1;
                        let opened = self.making(&nodes, Some(grant));
                        out.reply(asker, Reply::Opened(opened));
                    }
                    Waiting::Room(asker, blocks) => {
                        self.counters.rooms += 1;
                        out.reply(asker, Reply::Room(blocks, grant));
                    }
                }
            }
            _ => {
                if !done {
                    self.counters.store_away += 1;
                }
                self.refuse(waiting, geometry, out);
                self.doom(now, token, out);
            }
        }
    }

    fn refuse(&mut self, waiting: Waiting, geometry: Geometry, out: &mut impl Out) {
        match waiting {
            Waiting::Open(asker, nodes) => self.decline(asker, false, &nodes, out),
            Waiting::Make(asker, nodes) => {
                self.counters.prefetches_declined += 1;
                out.reply(asker, Reply::Opened(self.making(&nodes, None)));
            }
            Waiting::Room(asker, _) => {
                self.counters.no_room += 1;
                out.reply(asker, Reply::Room(0, Granted::none(M, geometry.sub_bytes)));
            }
        }
    }

    fn decline(&mut self, asker: Asker, affected: bool, nodes: &[Node], out: &mut impl Out) {
        self.counters.should_not_cache += 1;
        self.counters.affected_misses += u64::from(affected);
        let opened = Opened {
            answer: Answer::ShouldNotCache,
            grant: Granted::none(M, self.settings.sub_bytes),
            slow: self.slow(nodes),
        };
        out.reply(asker, Reply::Opened(opened));
    }

    fn on_commit(
        &mut self,
        now: Time,
        pin: u64,
        subblocks: u64,
        written: Option<(u64, u64)>,
        out: &mut impl Out,
    ) -> Result<(), String> {
        let token = self.writer(pin, "COMMIT")?;
        let whole = self.check_commit(token, subblocks, written);
        self.unpin(pin);
        let (version, geometry) = match whole {
            Ok(whole) => whole,
            Err(why) => {
                self.doom(now, token, out);
                return Err(format!("{why}; the parity is dropped"));
            }
        };
        let Some(entry) = self.entries.get_mut(&token) else {
            return Err(unknown(pin));
        };
        entry.writer = None;
        entry.version = Some(version);
        entry.geometry = geometry;
        entry.blocks = geometry.cache_blocks(self.settings.block_bytes);
        entry.state = State::Cached;
        self.csac.shrink(entry.file, entry.blocks);
        self.csac.hold(entry.file, false);
        out.store(token, entry.file, &entry.record(token, Stage::Cached));
        self.refreshes.insert((now + REFRESH, token));
        self.see(now, token);
        self.counters.commits += 1;
        Ok(())
    }

    /// The version and the geometry of what was committed.
    fn check_commit(&self, token: u64, subblocks: u64, written: Option<(u64, u64)>) -> Result<(u64, Geometry), String> {
        let Some(entry) = self.entries.get(&token).filter(|entry| entry.state == State::Filling) else {
            return Err("the file was deleted or written again meanwhile".to_owned());
        };
        let mut geometry = entry.geometry;
        let version = match (entry.version, written) {
            (Some(granted), Some((version, _))) if version != granted => {
                return Err("VERSION is not that of FILES.OPEN: the file was changed meanwhile".to_owned());
            }
            (Some(granted), _) => granted,
            (None, Some((version, length))) => {
                if length > geometry.length {
                    let most = geometry.length;
                    return Err(format!(
                        "LENGTH is {length}, the blocks of FILES.ROOM suffice for {most}"
                    ));
                }
                geometry.length = length;
                version
            }
            (None, None) => return Err("after FILES.ROOM, COMMIT needs VERSION and LENGTH".to_owned()),
        };
        let whole = geometry.subblocks();
        if subblocks != whole {
            return Err(format!("SUBBLOCKS is {subblocks}, the parity of the file has {whole}"));
        }
        Ok((version, geometry))
    }

    fn on_drop(&mut self, now: Time, pin: u64, out: &mut impl Out) -> Result<(), String> {
        let token = self.pins.token(pin).ok_or_else(|| unknown(pin))?;
        self.unpin(pin);
        self.counters.drops += 1;
        self.doom(now, token, out);
        self.erase_if_free(now, token, out);
        Ok(())
    }

    fn on_close(&mut self, now: Time, pin: u64, out: &mut impl Out) -> Result<(), String> {
        let token = self.pins.token(pin).ok_or_else(|| unknown(pin))?;
        if self.pins.is_writer(pin) {
            return Err(format!("pin {pin} is a writer's: use COMMIT or DROP"));
        }
        self.unpin(pin);
        self.erase_if_free(now, token, out);
        Ok(())
    }

    fn writer(&self, pin: u64, what: &str) -> Result<u64, String> {
        let token = self.pins.token(pin).ok_or_else(|| unknown(pin))?;
        let is_writer = self.pins.is_writer(pin).then_some(token);
        is_writer.ok_or_else(|| format!("pin {pin} is a reader's: {what} is for writers, use CLOSE or DROP"))
    }

    fn renew(&mut self, now: Time, pin: u64) -> bool {
        let life = if self.pins.is_writer(pin) {
            WRITER_PIN
        } else {
            READER_PIN
        };
        self.pins.renew(pin, now + life)
    }

    fn unpin(&mut self, pin: u64) {
        let token = self.pins.remove(pin);
        if let Some(entry) = token.and_then(|token| self.entries.get_mut(&token)) {
            entry.pins_count -= 1;
            if entry.writer == Some(pin) {
                entry.writer = None;
            }
        }
    }
}

fn unknown(pin: u64) -> String {
    format!("pin {pin} is unknown: it was not renewed in time, or the steward has restarted. Stop using that parity")
}

/// Who waits for the record of an entry.
#[derive(Clone, Debug)]
enum Waiting {
    Open(Asker, Vec<Node>),
    Make(Asker, Vec<Node>),
    /// With the number of parity blocks asked for.
    Room(Asker, u64),
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk;
