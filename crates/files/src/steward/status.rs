//! The state for people and scripts (`docs/files.md`).

use super::Steward;
use super::entry::State;
use crate::record::hex;
use paritas_base::Time;
use serde_json::{Map, Value, json};

/// Most entries that a status lists.
const ENTRIES_MAX: usize = 1000;

/// Numbers of what happened since this steward began to lead.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counters {
    pub(super) opens: u64,
    /// Opens of files with a unit on a straggler.
    pub(super) affected: u64,
    /// Of these, without parity.
    pub(super) affected_misses: u64,
    pub(super) hits: u64,
    pub(super) should_cache: u64,
    pub(super) should_not_cache: u64,
    pub(super) rooms: u64,
    pub(super) commits: u64,
    pub(super) drops: u64,
    pub(super) evictions: u64,
    /// Grants to workers that make parity ahead of readers.
    pub(super) prefetches: u64,
    pub(super) ended_pins: u64,
    /// Entries whose keys were gone.
    pub(super) missing: u64,
    pub(super) other_version: u64,
    // Why parity was not granted or not given.
    pub(super) being_written: u64,
    pub(super) other_geometry: u64,
    pub(super) too_large: u64,
    pub(super) nothing_evictable: u64,
    pub(super) too_many_doomed: u64,
    pub(super) too_many_pins: u64,
    pub(super) no_room: u64,
    pub(super) store_away: u64,
}

impl Steward {
    /// The state as JSON.
    pub(super) fn status(&mut self, now: Time) -> String {
        let rates: Map<String, Value> = self
            .rates
            .known(now)
            .into_iter()
            .map(|(node, rate)| (self.nodes.name(node).to_owned(), json!(rate.round() as u64)))
            .collect();
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_unstable_by_key(|(token, entry)| (entry.file, **token));
        let listed: Vec<Value> = entries
            .iter()
            .take(ENTRIES_MAX)
            .map(|(token, entry)| {
                json!({
                    "id": entry.file,
                    "path": entry.path,
                    "state": entry.state.word(),
                    "token": hex(**token),
                    "version": entry.version.map(hex).unwrap_or_default(),
                    "layout": entry.geometry.layout,
                    "k": entry.geometry.k,
                    "length": entry.geometry.length,
                    "blocks": entry.blocks,
                    "pins": entry.pins_count,
                })
            })
            .collect();
        let count = |state: State| entries.iter().filter(|(_, entry)| entry.state == state).count();
        let c = &self.counters;
        let mut slow = self.slow(&[]);
        slow.sort_unstable();
        json!({
            "blocks": {
                "total": self.settings.blocks,
                "used": self.csac.used_blocks(),
                "doomed": self.doomed_blocks,
                "bytes": self.settings.block_bytes,
            },
            "entries_count": {
                "granted": count(State::Granted),
                "filling": count(State::Filling),
                "cached": count(State::Cached),
                "doomed": count(State::Doomed),
                "erasing": count(State::Erasing),
            },
            "pins": self.pins.count(),
            "eviction": self.settings.eviction.to_string(),
            "estimator": self.settings.estimator.to_string(),
            "nodes": self.nodes.count(),
            "stragglers": slow,
            "rates": rates,
            "opens": c.opens,
            "hits": c.hits,
            "misses": c.opens - c.hits,
            "affected": c.affected,
            "affected_misses": c.affected_misses,
            "decisions": {
                "cached": c.hits,
                "should_cache": c.should_cache,
                "should_not_cache": c.should_not_cache,
            },
            "rooms": c.rooms,
            "commits": c.commits,
            "drops": c.drops,
            "evictions": c.evictions,
            "prefetches": c.prefetches,
            "prefetches_waiting": self.ahead.len(),
            "pins_ended": c.ended_pins,
            "missing": c.missing,
            "other_version": c.other_version,
            "declined": {
                "being_written": c.being_written,
                "other_geometry": c.other_geometry,
                "too_large": c.too_large,
                "nothing_evictable": c.nothing_evictable,
                "too_many_doomed": c.too_many_doomed,
                "too_many_pins": c.too_many_pins,
                "no_room": c.no_room,
                "store_away": c.store_away,
            },
            "entries": listed,
        })
        .to_string()
    }
}
