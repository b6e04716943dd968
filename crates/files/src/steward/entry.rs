//! Entries: how they are doomed, erased, refreshed and taken up from records.

use super::{Granted, Out, READER_PIN, REFRESH, REFRESHING_MAX, RETRY, Refreshed, Steward, WRITER_PIN, Waiting};
use crate::geometry::{Geometry, Layout};
use crate::record::{Record, Stage};
use crate::request::Open;
use crate::{File, Node};
use paritas_base::Time;

/// Most names of stragglers in an answer.
const SLOW_MAX: usize = 64;

/// How far an entry is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum State {
    /// Its record is being stored.
    Granted,
    /// A client writes it.
    Filling,
    /// It is whole.
    Cached,
    /// It goes when its last pin goes.
    Doomed,
    /// Its keys are being deleted.
    Erasing,
}

impl State {
    pub(super) const ALL: [Self; 5] = [Self::Granted, Self::Filling, Self::Cached, Self::Doomed, Self::Erasing];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Filling => "filling",
            Self::Cached => "cached",
            Self::Doomed => "doomed",
            Self::Erasing => "erasing",
        }
    }
}

/// The parity of one version of one file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) file: File,
    /// `None` while the file is under construction.
    pub(super) version: Option<u64>,
    pub(super) geometry: Geometry,
    pub(super) blocks: u64,
    pub(super) state: State,
    pub(super) pins_count: u32,
    /// The writer's pin.
    pub(super) writer: Option<u64>,
    /// Who waits for the record to be stored.
    pub(super) waiting: Option<Waiting>,
    /// Clients of an earlier steward may still use it until then.
    pub(super) hold_until: Time,
    /// When its file was last known to exist.
    pub(super) seen: Time,
    pub(super) path: String,
}

impl Entry {
    pub(super) fn new(file: File, version: Option<u64>, geometry: Geometry, blocks: u64, path: &str) -> Self {
        Self {
            file,
            version,
            geometry,
            blocks,
            state: State::Granted,
            pins_count: 0,
            writer: None,
            waiting: None,
            hold_until: Time(0),
            seen: Time(0),
            path: path.to_owned(),
        }
    }

    pub(super) fn record(&self, token: u64, stage: Stage) -> Record {
        Record {
            stage,
            token,
            version: self.version,
            geometry: self.geometry,
            blocks: self.blocks,
        }
    }
}

impl Steward {
    /// The parity of a file that is opened.
    pub(super) fn geometry(&self, open: &Open<'_>) -> Geometry {
        let sub_bytes = match open.layout {
            Layout::Contiguous => self.settings.sub_bytes,
            Layout::Striped => open.cell_bytes.unwrap_or(self.settings.sub_bytes),
        };
        Geometry {
            layout: open.layout,
            k: open.k,
            m: super::M,
            block_bytes: open.block_bytes,
            sub_bytes,
            length: open.length,
        }
    }

    pub(super) fn granted(&self, pin: u64, token: u64, geometry: Geometry) -> Granted {
        Granted {
            pin,
            token: Some(token),
            m: geometry.m,
            sub_bytes: geometry.sub_bytes,
        }
    }

    /// Names of stragglers, those of the file first.
    pub(super) fn slow(&self, nodes: &[Node]) -> Vec<String> {
        let mut slow: Vec<Node> = self.csac.stragglers().collect();
        slow.sort_unstable_by_key(|node| (nodes.binary_search(node).is_err(), *node));
        slow.truncate(SLOW_MAX);
        slow.into_iter().map(|node| self.nodes.name(node).to_owned()).collect()
    }

    /// Takes up an entry of an earlier steward.
    pub(super) fn take_up(&mut self, now: Time, file: File, record: &Record, out: &mut impl Out) {
        let token = record.token;
        if self.entries.contains_key(&token) || self.by_file.contains_key(&file) {
            return;
        }
        let mut entry = Entry::new(file, record.version, record.geometry, record.blocks, "");
        if record.stage == Stage::Cached && self.csac.reserve(file, record.blocks) {
            entry.state = State::Cached;
            entry.hold_until = now + READER_PIN;
            self.entries.insert(token, entry);
            self.by_file.insert(file, token);
            self.see(now, token);
            // Whether its keys are there is not known.
            self.refreshes.insert((now, token));
            return;
        }
        // Its writer's pin is lost, or it was doomed, or the mount has fewer blocks than before.
        entry.state = State::Doomed;
        entry.hold_until = now + WRITER_PIN;
        self.doomed_blocks += entry.blocks;
        self.doomed.insert(token);
        out.store(token, file, &entry.record(token, Stage::Doomed));
        self.entries.insert(token, entry);
    }

    /// The entry is no longer given to anybody. Its keys are deleted when nobody reads them.
    pub(super) fn doom(&mut self, now: Time, token: u64, out: &mut impl Out) {
        let Some(entry) = self.entries.get_mut(&token) else {
            return;
        };
        if matches!(entry.state, State::Doomed | State::Erasing) {
            return;
        }
        entry.state = State::Doomed;
        self.doomed_blocks += entry.blocks;
        let (file, writer, waiting, geometry) = (entry.file, entry.writer, entry.waiting.take(), entry.geometry);
        self.seen.remove(&(entry.seen, token));
        self.doomed.insert(token);
        self.by_file.remove(&file);
        self.csac.remove(file);
        if let Some(waiting) = waiting {
            self.refuse(waiting, geometry, out);
        }
        // The writer hears at its next RENEW or COMMIT that its pin is unknown.
        if let Some(pin) = writer {
            self.unpin(pin);
        }
        if !self.erase_if_free(now, token, out)
            && let Some(entry) = self.entries.get(&token)
        {
            out.store(token, file, &entry.record(token, Stage::Doomed));
        }
    }

    /// Deletes the keys of a Doomed entry that nobody uses. Returns whether they go now.
    pub(super) fn erase_if_free(&mut self, now: Time, token: u64, out: &mut impl Out) -> bool {
        let Some(entry) = self.entries.get_mut(&token) else {
            return false;
        };
        if entry.state != State::Doomed || entry.pins_count > 0 || entry.hold_until > now {
            return false;
        }
        entry.state = State::Erasing;
        self.doomed.remove(&token);
        out.erase(
            token,
            entry.file,
            &entry.geometry,
            !self.by_file.contains_key(&entry.file),
        );
        true
    }

    pub(super) fn on_erased(&mut self, now: Time, token: u64, done: bool) {
        let Some(entry) = self.entries.get(&token).filter(|entry| entry.state == State::Erasing) else {
            return;
        };
        if done {
            self.doomed_blocks -= entry.blocks;
            self.entries.remove(&token);
        } else {
            self.retries.insert((now + RETRY, token));
        }
    }

    pub(super) fn on_refreshed(&mut self, now: Time, token: u64, outcome: Refreshed, out: &mut impl Out) {
        self.refreshing_count = self.refreshing_count.saturating_sub(1);
        let is_cached = self
            .entries
            .get(&token)
            .is_some_and(|entry| entry.state == State::Cached);
        match outcome {
            _ if !is_cached => {}
            Refreshed::Whole => {
                self.refreshes.insert((now + REFRESH, token));
            }
            Refreshed::Away => {
                self.refreshes.insert((now + RETRY, token));
            }
            Refreshed::Missing => {
                self.counters.missing += 1;
                self.doom(now, token, out);
            }
        }
    }

    pub(super) fn on_tick(&mut self, now: Time, out: &mut impl Out) {
        self.next_tick = now + self.settings.period;
        while let Some(pin) = self.pins.ended(now) {
            let (token, is_writer) = (self.pins.token(pin), self.pins.is_writer(pin));
            self.unpin(pin);
            self.counters.ended_pins += 1;
            if let Some(token) = token.filter(|_| is_writer) {
                self.doom(now, token, out);
            }
        }
        let doomed: Vec<u64> = self.doomed.iter().copied().collect();
        for token in doomed {
            self.erase_if_free(now, token, out);
        }
        while let Some((at, token)) = self.retries.first().copied()
            && at <= now
        {
            self.retries.pop_first();
            self.retry(token, out);
        }
        while let Some((at, token)) = self.refreshes.first().copied()
            && at <= now
            && self.refreshing_count < REFRESHING_MAX
        {
            self.refreshes.pop_first();
            if let Some(entry) = self.entries.get(&token).filter(|entry| entry.state == State::Cached) {
                self.refreshing_count += 1;
                out.refresh(token, entry.file, &entry.geometry);
            }
        }
        self.earn_credit(now);
        let slow = self.rates.stragglers(now, self.settings.estimator);
        if self.csac.set_stragglers(slow) {
            self.counters.prefetches_forgotten += self.ahead.len() as u64;
            self.ahead = self.csac.prefetch(self.settings.prefetch_percent).into();
        }
    }

    /// Asks the store again for what it did not do.
    fn retry(&mut self, token: u64, out: &mut impl Out) {
        let Some(entry) = self.entries.get(&token) else {
            return;
        };
        match entry.state {
            State::Cached => out.store(token, entry.file, &entry.record(token, Stage::Cached)),
            State::Doomed if !self.by_file.contains_key(&entry.file) => {
                out.store(token, entry.file, &entry.record(token, Stage::Doomed));
            }
            State::Erasing => {
                let record = !self.by_file.contains_key(&entry.file);
                out.erase(token, entry.file, &entry.geometry, record);
            }
            State::Granted | State::Filling | State::Doomed => {}
        }
    }

    /// The number of blocks that entries of the cache take, for tests.
    #[cfg(test)]
    pub(super) fn live_blocks(&self) -> u64 {
        self.by_file.values().map(|token| self.entries[token].blocks).sum()
    }
}
