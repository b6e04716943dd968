//! The figures for Prometheus (`docs/files.md`, "Metrics"). The counts of a mount are those of its status.

use crate::clients::Clients;
use crate::mount::Mount;
use mio::Waker;
use paritas_base::Time;
use paritas_files::steward::NodeFigures;
use paritas_io::metrics::{Kind, Source, Text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Longest wait for the main thread.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Where the text is to go.
pub(crate) type Asked = SyncSender<String>;

/// What the main thread tells about a mount.
pub(crate) struct MountFigures {
    pub(crate) role: &'static str,
    /// Whether the cache store has answered last.
    pub(crate) cache_is_up: bool,
    /// What failed in the cache store, by operation.
    pub(crate) cache_errors: CacheErrors,
    /// The status without lists, if this steward leads.
    pub(crate) status: Value,
    pub(crate) nodes: Vec<NodeFigures>,
}

/// Numbers of what failed in the cache store since the process began.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct CacheErrors {
    pub(crate) lease: u64,
    pub(crate) load: u64,
    pub(crate) store: u64,
    pub(crate) erase: u64,
    pub(crate) refresh: u64,
}

/// A source that asks the main thread, and where the main thread finds that.
pub(crate) fn source(waker: Arc<Waker>) -> (Source, Receiver<Asked>) {
    let (ask, asked) = sync_channel::<Asked>(1);
    let source = move || {
        let (reply, answer) = sync_channel(1);
        ask.try_send(reply).ok()?;
        waker.wake().ok()?;
        answer.recv_timeout(ANSWER_MAX).ok()
    };
    (Box::new(source), asked)
}

/// A family whose samples are numbers of the status. Each has labels, written as in the text, and the number's place.
struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// Name of the label by which samples differ; empty if there is one sample.
    label: &'static str,
    samples: &'static [(&'static str, &'static str)],
    /// Factor from the status's unit to that of the figure.
    unit: f64,
}

const fn counter(name: &'static str, help: &'static str, at: &'static [(&'static str, &'static str)]) -> Family {
    of(Kind::Counter, name, help, "", at)
}

const fn gauge(name: &'static str, help: &'static str, at: &'static [(&'static str, &'static str)]) -> Family {
    of(Kind::Gauge, name, help, "", at)
}

const fn of(
    kind: Kind,
    name: &'static str,
    help: &'static str,
    label: &'static str,
    samples: &'static [(&'static str, &'static str)],
) -> Family {
    Family {
        name,
        kind,
        help,
        label,
        samples,
        unit: 1.0,
    }
}

const FAMILIES: &[Family] = &[
    gauge(
        "paritas_files_blocks_max",
        "Parity blocks that the mount may use.",
        &[("", "/blocks/total")],
    ),
    of(
        Kind::Gauge,
        "paritas_files_blocks",
        "Parity blocks in use, and those that are evicted and not yet deleted.",
        "state",
        &[("used", "/blocks/used"), ("doomed", "/blocks/doomed")],
    ),
    gauge(
        "paritas_files_block_bytes",
        "Bytes of a parity block.",
        &[("", "/blocks/bytes")],
    ),
    of(
        Kind::Gauge,
        "paritas_files_entries",
        "Files with parity, by state.",
        "state",
        &[
            ("granted", "/entries_count/granted"),
            ("filling", "/entries_count/filling"),
            ("cached", "/entries_count/cached"),
            ("doomed", "/entries_count/doomed"),
            ("erasing", "/entries_count/erasing"),
        ],
    ),
    of(
        Kind::Gauge,
        "paritas_files_parity_bytes",
        "Bytes of the parity of these files; of files under construction, what they may get.",
        "state",
        &[
            ("granted", "/parity_bytes/granted"),
            ("filling", "/parity_bytes/filling"),
            ("cached", "/parity_bytes/cached"),
            ("doomed", "/parity_bytes/doomed"),
            ("erasing", "/parity_bytes/erasing"),
        ],
    ),
    gauge("paritas_files_pins", "Uses of parity by clients now.", &[("", "/pins")]),
    gauge(
        "paritas_files_nodes",
        "Nodes that clients have named.",
        &[("", "/nodes")],
    ),
    gauge(
        "paritas_files_nodes_with_rate",
        "Nodes that have a rate.",
        &[("", "/nodes_with_rate")],
    ),
    of(
        Kind::Gauge,
        "paritas_files_nodes_by_source",
        "Nodes that have a rate, by where it comes from.",
        "source",
        &[
            ("clients", "/nodes_by_source/clients"),
            ("node", "/nodes_by_source/node"),
            ("earlier", "/nodes_by_source/earlier"),
        ],
    ),
    gauge(
        "paritas_files_nodes_slow",
        "Nodes that are slow.",
        &[("", "/nodes_slow")],
    ),
    counter(
        "paritas_files_samples_total",
        "Samples of rates from clients.",
        &[("", "/samples")],
    ),
    Family {
        unit: 1e-3,
        ..gauge(
            "paritas_files_last_sample_age_seconds",
            "Time since the last sample of a rate; missing before the first.",
            &[("", "/last_sample_ms")],
        )
    },
    gauge(
        "paritas_files_datanodes",
        "DataNodes in the NameNode's last list.",
        &[("", "/datanodes/nodes")],
    ),
    of(
        Kind::Counter,
        "paritas_files_namenode_polls_total",
        "Questions to NameNodes for their DataNodes.",
        "outcome",
        &[("answered", "/datanodes/lists"), ("failed", "/datanodes/lists_failed")],
    ),
    of(
        Kind::Counter,
        "paritas_files_datanode_polls_total",
        "Questions to DataNodes for their counters.",
        "outcome",
        &[("answered", "/datanodes/answers"), ("failed", "/datanodes/failures")],
    ),
    counter(
        "paritas_files_datanode_intervals_total",
        "Intervals between two answers of a DataNode that said something about its rate.",
        &[("", "/datanodes/intervals")],
    ),
    Family {
        unit: 1e-3,
        ..gauge(
            "paritas_files_last_datanode_answer_age_seconds",
            "Time since the last answer of a DataNode; missing before the first.",
            &[("", "/datanodes/last_answer_ms")],
        )
    },
    counter("paritas_files_opens_total", "Opens of files.", &[("", "/opens")]),
    of(
        Kind::Counter,
        "paritas_files_decisions_total",
        "Answers to opens.",
        "decision",
        &[
            ("cached", "/decisions/cached"),
            ("should-cache", "/decisions/should_cache"),
            ("should-not-cache", "/decisions/should_not_cache"),
        ],
    ),
    counter(
        "paritas_files_affected_total",
        "Opens of files with a unit on a slow node.",
        &[("", "/affected")],
    ),
    counter(
        "paritas_files_affected_misses_total",
        "Of these, opens without parity.",
        &[("", "/affected_misses")],
    ),
    of(
        Kind::Counter,
        "paritas_files_declined_total",
        "Why parity was not given or not granted.",
        "reason",
        &[
            ("being-written", "/declined/being_written"),
            ("other-geometry", "/declined/other_geometry"),
            ("too-large", "/declined/too_large"),
            ("nothing-evictable", "/declined/nothing_evictable"),
            ("too-many-doomed", "/declined/too_many_doomed"),
            ("too-many-pins", "/declined/too_many_pins"),
            ("no-room", "/declined/no_room"),
            ("store-away", "/declined/store_away"),
        ],
    ),
    counter(
        "paritas_files_evictions_total",
        "Files whose parity was evicted for that of others.",
        &[("", "/evictions")],
    ),
    of(
        Kind::Counter,
        "paritas_files_prefetches_total",
        "What became of parity to be made ahead of readers.",
        "outcome",
        &[
            ("granted", "/prefetches"),
            ("declined", "/prefetches_declined"),
            ("skipped", "/prefetches_skipped"),
            ("forgotten", "/prefetches_forgotten"),
        ],
    ),
    gauge(
        "paritas_files_prefetches_waiting",
        "Files that no worker has asked for yet.",
        &[("", "/prefetches_waiting")],
    ),
    counter(
        "paritas_files_rooms_total",
        "Grants to writers of files.",
        &[("", "/rooms")],
    ),
    counter(
        "paritas_files_commits_total",
        "Parity that was written to its end.",
        &[("", "/commits")],
    ),
    counter(
        "paritas_files_drops_total",
        "Messages that parity is of no use.",
        &[("", "/drops")],
    ),
    counter(
        "paritas_files_missing_total",
        "Files whose parity was gone from the cache when the steward looked.",
        &[("", "/missing")],
    ),
    counter(
        "paritas_files_other_version_total",
        "Files whose parity was of another version.",
        &[("", "/other_version")],
    ),
    counter(
        "paritas_files_deleted_total",
        "Messages that a file is gone.",
        &[("", "/deleted")],
    ),
    counter(
        "paritas_files_checks_total",
        "Files that workers were to look for.",
        &[("", "/checks")],
    ),
    counter(
        "paritas_files_credit_bytes_total",
        "Bytes granted for hedged reads beside slow nodes.",
        &[("", "/credit_bytes")],
    ),
    counter(
        "paritas_files_credits_declined_total",
        "Requests for such bytes that were not granted.",
        &[("", "/credits_declined")],
    ),
    counter(
        "paritas_files_pins_ended_total",
        "Pins that were not renewed.",
        &[("", "/pins_ended")],
    ),
];

/// The whole text.
pub(crate) fn text(
    now: Time,
    clients: &Clients,
    names: &BTreeMap<String, usize>,
    mounts: &mut BTreeMap<usize, Mount>,
) -> String {
    let figures: Vec<(&str, MountFigures)> = names
        .iter()
        .filter_map(|(name, number)| Some((name.as_str(), mounts.get_mut(number)?.metrics(now))))
        .collect();
    let mut text = Text::new();
    text.family("paritas_files_steward_info", Kind::Gauge, "Always 1.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family("paritas_files_clients", Kind::Gauge, "Connections of clients.");
    text.sample(&[], clients.count());
    text.family(
        "paritas_files_clients_refused_total",
        Kind::Counter,
        "Connections beyond clients_max.",
    );
    text.sample(&[], clients.refused_count());
    text.family(
        "paritas_files_denied_total",
        Kind::Counter,
        "Commands of clients without the password, and wrong passwords.",
    );
    text.sample(&[], clients.denied_count());
    for_mounts(&mut text, &figures);
    text.end()
}

fn for_mounts(text: &mut Text, figures: &[(&str, MountFigures)]) {
    text.family(
        "paritas_files_role",
        Kind::Gauge,
        "1 for what this steward is: leader, loading (leader that reads its records), spare, none (nobody leads).",
    );
    for (mount, of) in figures {
        for role in ["leader", "loading", "spare", "none"] {
            let value = u8::from(of.role == role);
            text.sample(&[("mount", mount), ("role", role)], value);
        }
    }
    text.family(
        "paritas_files_cache_up",
        Kind::Gauge,
        "1 if the cache store has answered last.",
    );
    for (mount, of) in figures {
        text.sample(&[("mount", mount)], u8::from(of.cache_is_up));
    }
    text.family(
        "paritas_files_cache_errors_total",
        Kind::Counter,
        "What failed in the cache store, since the process began.",
    );
    for (mount, of) in figures {
        let errors = of.cache_errors;
        for (operation, count) in [
            ("lease", errors.lease),
            ("load", errors.load),
            ("store", errors.store),
            ("erase", errors.erase),
            ("refresh", errors.refresh),
        ] {
            text.sample(&[("mount", mount), ("operation", operation)], count);
        }
    }
    for family in FAMILIES {
        text.family(family.name, family.kind, family.help);
        for (mount, of) in figures {
            for (value, place) in family.samples {
                let Some(number) = of.status.pointer(place).and_then(Value::as_u64) else {
                    continue;
                };
                let labels = [("mount", *mount), (family.label, *value)];
                let labels = labels.get(..1 + usize::from(!family.label.is_empty()));
                text.sample(labels.unwrap_or_default(), number as f64 * family.unit);
            }
        }
    }
    // Last, since there may be thousands of nodes, and what is too long is cut off.
    text.family("paritas_files_node_slow", Kind::Gauge, "1 if this node is slow.");
    for_nodes(text, figures, |node| Some(f64::from(u8::from(node.is_slow))));
    text.family(
        "paritas_files_node_rate_bytes_per_second",
        Kind::Gauge,
        "Rate of this node, if it has one.",
    );
    for_nodes(text, figures, |node| node.rate.map(|rate| rate.bytes_per_s.round()));
}

fn for_nodes(text: &mut Text, figures: &[(&str, MountFigures)], of: fn(&NodeFigures) -> Option<f64>) {
    for (mount, figures) in figures {
        for node in &figures.nodes {
            if let Some(value) = of(node) {
                text.sample(&[("mount", mount), ("node", &node.name)], value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
