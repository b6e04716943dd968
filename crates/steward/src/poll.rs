//! A mount's thread that asks DataNodes for their counters while this steward leads. No request of a client waits for
//! it: it shares only one flag and the queue of answers with the main thread.

use crate::jmx::{self, DataNode};
use crate::link::{Done, Home};
use crate::settings::MountSettings;
use paritas_base::{Span, Time};
use paritas_files::Counters;
use paritas_files::steward::{Listed, Polled};
use paritas_io::clock;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ureq::Agent;

/// DataNodes that are asked at once.
const AT_ONCE: usize = 8;
/// After this time of a round no further DataNode is asked. The next round begins with those that are left.
const ROUND_MAX: Span = Span::from_secs(5);
/// The longest pause between two rounds. With a round whose NameNodes hang it stays far below the minute after which an
/// answer is too old to be compared with the next one.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How often the NameNode is asked for the list. It is long, and changes rarely.
const LIST_EVERY: Span = Span::from_secs(10);
/// When a NameNode and a DataNode are asked again after a failure.
const LIST_RETRY: Span = Span::from_secs(2);
const NODE_RETRY: Span = Span::from_secs(10);

/// Starts the thread if the mount names NameNodes. It ends some time after what is returned is dropped.
pub(crate) fn start(
    name: &str,
    settings: &MountSettings,
    leads: Arc<AtomicBool>,
    home: Home,
) -> io::Result<Option<Sender<()>>> {
    let namenodes = settings.namenodes();
    if namenodes.is_empty() {
        return Ok(None);
    }
    let (ending, ended) = channel();
    let pause = Duration::from_nanos(settings.machine().period.0).min(PAUSE_MAX);
    let mut poller = Poller::new(name, namenodes);
    std::thread::Builder::new()
        .name(format!("poll-{name}"))
        .spawn(move || poller.run(pause, &leads, &ended, &home))?;
    Ok(Some(ending))
}

/// A DataNode of the list.
struct Known {
    http: String,
    /// When it is to be asked next.
    ask_at: Time,
    /// Why it did not tell when it was asked last.
    failure: Option<String>,
}

struct Poller {
    mount: String,
    agent: Agent,
    /// `http://host:port`; the one that has answered last is the first.
    namenodes: Vec<String>,
    list_at: Time,
    nodes: BTreeMap<String, Known>,
    /// What was logged last of the NameNode, and of DataNodes.
    list_warned: Option<String>,
    nodes_warned: bool,
}

impl Poller {
    fn new(mount: &str, namenodes: Vec<String>) -> Self {
        Self {
            mount: mount.to_owned(),
            agent: jmx::agent(),
            namenodes,
            list_at: Time(0),
            nodes: BTreeMap::new(),
            list_warned: None,
            nodes_warned: false,
        }
    }

    fn run(&mut self, pause: Duration, leads: &AtomicBool, ended: &Receiver<()>, home: &Home) {
        while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            // A spare leaves the nodes in peace.
            if leads.load(Ordering::SeqCst) {
                let polled = self.round();
                home.send(0, Done::Polled(polled));
            }
        }
    }

    fn round(&mut self) -> Polled {
        let mut polled = Polled::default();
        if self.list_at <= clock::mono() {
            polled.list = Some(self.list());
        }
        self.ask(&mut polled);
        // A node that has failed is left out for a while, so a round without failures may be one without questions.
        let failing = self.nodes.values().filter_map(|known| known.failure.as_ref());
        polled.failure = failing.clone().next().cloned();
        match (failing.count(), self.nodes_warned) {
            (0, true) => tracing::info!(mount = self.mount, "all DataNodes tell their counters"),
            (count @ 1.., false) => {
                let (mount, example) = (&self.mount, polled.failure.as_deref());
                tracing::warn!(mount, count, example, "DataNodes do not tell their counters");
            }
            _ => {}
        }
        self.nodes_warned = polled.failure.is_some();
        polled
    }

    /// Asks one NameNode after the other for the DataNodes. If none tells, those of the last list remain.
    fn list(&mut self) -> Listed {
        let mut errors = Vec::new();
        for at in 0..self.namenodes.len() {
            let Some(namenode) = self.namenodes.get(at) else {
                break;
            };
            match jmx::list(&self.agent, namenode) {
                // One that has just started has not heard of its DataNodes yet.
                Ok(nodes) if nodes.is_empty() => errors.push(format!("{namenode}: it lists no live DataNode")),
                Ok(nodes) => {
                    self.namenodes.rotate_left(at);
                    return self.listed(nodes);
                }
                Err(why) => errors.push(format!("{namenode}: {why}")),
            }
        }
        // Their order changes, their errors need not.
        errors.sort_unstable();
        let why = errors.join("; ");
        self.list_at = clock::mono() + LIST_RETRY;
        if self.list_warned.as_ref() != Some(&why) {
            let mount = &self.mount;
            tracing::warn!(
                mount,
                why,
                "the NameNode does not list its DataNodes: the last list stays in use"
            );
            self.list_warned = Some(why.clone());
        }
        Listed::Failed(why)
    }

    fn listed(&mut self, nodes: Vec<DataNode>) -> Listed {
        if self.list_warned.take().is_some() {
            tracing::info!(
                mount = self.mount,
                nodes = nodes.len(),
                "the NameNode lists its DataNodes"
            );
        }
        let now = clock::mono();
        self.list_at = now + LIST_EVERY;
        let mut earlier = std::mem::take(&mut self.nodes);
        for DataNode { name, http } in nodes {
            // A node at another address has been started again.
            let known = match earlier.remove(&name) {
                Some(known) if known.http == http => known,
                _ => Known {
                    http,
                    ask_at: Time(0),
                    failure: None,
                },
            };
            self.nodes.insert(name, known);
        }
        Listed::Nodes(self.nodes.len())
    }

    /// Asks the nodes that are due, the one that has waited longest first.
    fn ask(&mut self, polled: &mut Polled) {
        let start = clock::mono();
        let mut due: Vec<_> = self
            .nodes
            .iter_mut()
            .filter(|(_, known)| known.ask_at <= start)
            .collect();
        due.sort_by_key(|(_, known)| known.ask_at);
        let threads = AT_ONCE.min(due.len());
        let due = Mutex::new(due.into_iter());
        let agent = &self.agent;
        let work = || {
            let mut found = Found::default();
            while clock::mono() - start < ROUND_MAX {
                let next = due.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((name, known)) = next else {
                    break;
                };
                found.take(name, known, jmx::counters(agent, &known.http));
            }
            found
        };
        std::thread::scope(|scope| {
            // One of them is this thread, so that it goes on if no thread can be had.
            let others: Vec<_> = (1..threads)
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            work().add_to(polled);
            for other in others {
                // A thread that panicked has reported that itself.
                if let Ok(found) = other.join() {
                    found.add_to(polled);
                }
            }
        });
    }
}

/// What one thread was told.
#[derive(Default)]
struct Found {
    counters: Vec<(String, Counters)>,
    failures: u64,
}

impl Found {
    fn take(&mut self, name: &str, known: &mut Known, answer: Result<Counters, String>) {
        match answer {
            Ok(counters) => {
                self.counters.push((name.to_owned(), counters));
                known.failure = None;
                known.ask_at = clock::mono();
            }
            Err(why) => {
                self.failures += 1;
                known.failure = Some(format!("{name}: {why}"));
                known.ask_at = clock::mono() + NODE_RETRY;
            }
        }
    }

    fn add_to(self, polled: &mut Polled) {
        polled.counters.extend(self.counters);
        polled.failures += self.failures;
    }
}
