//! The state for people and scripts (`docs/files.md`).

use super::Steward;
use super::entry::State;
use crate::Node;
use crate::rates::{Rate, Source};
use crate::record::hex;
use paritas_base::Time;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

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
    /// MAKEs that were not granted.
    pub(super) prefetches_declined: u64,
    /// Files that were to be named, and had parity or no straggler by then.
    pub(super) prefetches_skipped: u64,
    /// Files that no worker had asked for when another node became a straggler.
    pub(super) prefetches_forgotten: u64,
    /// Samples that say something about a rate.
    pub(super) samples: u64,
    /// When the last of them came.
    last_sample: Option<Time>,
    /// Files that workers were to look for.
    pub(super) checks: u64,
    /// Messages that a file is gone.
    pub(super) deleted: u64,
    /// What clients may read more because of slow nodes.
    pub(super) credit_bytes: u64,
    /// Requests for it that were not granted.
    pub(super) credits_declined: u64,
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

impl Counters {
    pub(super) fn on_sample(&mut self, now: Time, counts: bool) {
        if counts {
            self.samples += 1;
            self.last_sample = Some(now);
        }
    }
}

/// A node of the store.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeFigures {
    /// Its name.
    pub name: String,
    /// Its rate, if it has one.
    pub rate: Option<Rate>,
    /// Whether it is a straggler.
    pub is_slow: bool,
}

/// Entries of one state.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    bytes: u64,
}

impl Steward {
    /// Nodes that have a rate or are stragglers: stragglers first, then in the order of their names.
    pub fn nodes(&mut self, now: Time) -> Vec<NodeFigures> {
        let rates = self.rates.known(now).into_iter();
        let rates: BTreeMap<Node, Rate> = rates.map(|rate| (rate.node, rate)).collect();
        let slow: BTreeSet<Node> = self.csac.stragglers().collect();
        let numbers: BTreeSet<Node> = rates.keys().chain(&slow).copied().collect();
        let mut nodes: Vec<NodeFigures> = numbers
            .into_iter()
            .map(|node| NodeFigures {
                name: self.nodes.name(node).to_owned(),
                rate: rates.get(&node).copied(),
                is_slow: slow.contains(&node),
            })
            .collect();
        nodes.sort_by(|a, b| (!a.is_slow, &a.name).cmp(&(!b.is_slow, &b.name)));
        nodes
    }

    /// The state as JSON.
    pub(super) fn status(&mut self, now: Time) -> String {
        let mut status = self.figures(now);
        let (mut rates, mut sources) = (Map::new(), Map::new());
        for rate in self.rates.known(now) {
            let name = self.nodes.name(rate.node);
            rates.insert(name.to_owned(), json!(rate.bytes_per_s.round() as u64));
            sources.insert(name.to_owned(), json!(rate.source.word()));
        }
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
        let mut slow = self.slow(&[]);
        slow.sort_unstable();
        status["stragglers"] = json!(slow);
        status["rates"] = Value::Object(rates);
        status["rate_sources"] = Value::Object(sources);
        status["entries"] = Value::Array(listed);
        status.to_string()
    }

    /// The numbers of the state: all but lists of nodes and files.
    pub fn figures(&mut self, now: Time) -> Value {
        let mut sums: BTreeMap<State, Sum> = State::ALL.map(|state| (state, Sum::default())).into();
        for entry in self.entries.values() {
            let sum = sums.entry(entry.state).or_default();
            sum.count += 1;
            sum.bytes += entry.geometry.parity_bytes();
        }
        let by_state = |of: fn(&Sum) -> u64| -> Map<String, Value> {
            let words = sums
                .iter()
                .map(|(state, sum)| (state.word().to_owned(), json!(of(sum))));
            words.collect()
        };
        let rates = self.rates.known(now);
        let sources = Source::ALL.map(|source| {
            let count = rates.iter().filter(|rate| rate.source == source).count();
            (source.word().to_owned(), json!(count))
        });
        let c = &self.counters;
        let mut figures = json!({
            "blocks": {
                "total": self.settings.blocks,
                "used": self.csac.used_blocks(),
                "doomed": self.doomed_blocks,
                "bytes": self.settings.block_bytes,
            },
            "entries_count": by_state(|sum| sum.count),
            "parity_bytes": by_state(|sum| sum.bytes),
            "pins": self.pins.count(),
            "admission": self.settings.admission.to_string(),
            "eviction": self.settings.eviction.to_string(),
            "estimator": self.settings.estimator.to_string(),
            "prediction": self.settings.prediction.to_string(),
            "nodes": self.nodes.count(),
            "nodes_slow": self.csac.stragglers().count(),
            "nodes_with_rate": rates.len(),
            "samples": c.samples,
            "last_sample_ms": c.last_sample.map(|at| (now - at).as_ms()),
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
            "prefetches_declined": c.prefetches_declined,
            "prefetches_skipped": c.prefetches_skipped,
            "prefetches_forgotten": c.prefetches_forgotten,
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
        });
        for (name, count) in [
            ("checks", c.checks),
            ("deleted", c.deleted),
            ("credit_bytes", c.credit_bytes),
            ("credits_declined", c.credits_declined),
        ] {
            figures[name] = json!(count);
        }
        figures["nodes_by_source"] = Map::from_iter(sources).into();
        figures["datanodes"] = json!(self.polls.as_ref().map(|polls| polls.figures(now)));
        figures
    }
}
