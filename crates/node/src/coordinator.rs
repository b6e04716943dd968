//! `paritas coordinator`: the rules of `control` over TCP, with a store in a file.

use crate::admission::{self, Admitted};
use crate::line::{Arrived, Line};
use crate::settings::CoordinatorSettings;
use crate::{Failure, lifeline, logging, secret};
use paritas_base::configuration::NodeState;
use paritas_base::{ClusterId, NodeId, Span, Time};
use paritas_code::Scheme;
use paritas_control::message::{MESSAGE_VERSION, TO_COORDINATOR_BYTES_MAX};
use paritas_control::rights::Speaker;
use paritas_control::{
    Adoption, ClusterPlan, Coordinator, CoordinatorEvent, CoordinatorOut, Note, OpenError, Progress,
};
use paritas_embedded::EmbeddedStore;
use paritas_io::door::Door;
use paritas_io::{clock, entropy, signals};
use paritas_protocol::LinkId;
use paritas_wire::greeting::{Process, Role};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Most connections: two from every node and every supervisor, and those of operators.
const LINES_MAX: usize = 4_096;
/// Longest time until a request to stop is noticed.
const TICK: Duration = Duration::from_millis(100);

enum Event {
    Admitted(Admitted),
    Line(LinkId, Arrived),
}

/// How a coordinator starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Start {
    /// With the cluster in its store.
    Stored,
    /// The store was lost or is old: the nodes report what was in it.
    Adopt {
        /// Nodes whose machines are off.
        without: Vec<NodeId>,
        /// Whether the data that this loses may be lost. If not, the losses are only reported.
        confirmed: bool,
    },
}

/// Runs a coordinator until it is asked to stop.
pub fn run(settings: CoordinatorSettings, supervised: bool, start: &Start) -> Result<(), Failure> {
    logging::start(settings.log.map(|log| log.0));
    if supervised {
        lifeline::watch();
    }
    signals::watch_stop();
    let plan = plan(&settings)?;
    let path = store_path(&settings)?;
    let listen = settings.listen();
    settings.check()?;
    let secrets = secret::watch(settings.secret_file.as_deref())?;
    let listener = TcpListener::bind(listen).map_err(|error| Failure(format!("listen = {listen}: {error}")))?;
    let listen = listener.local_addr().unwrap_or(listen);
    if *start == Start::Stored && !path.try_exists().map_err(|error| in_store(path, &error))? {
        return Err(in_store(path, &OpenError::NoCluster));
    }
    let mut store = match start {
        Start::Stored => EmbeddedStore::open(path).map_err(|error| in_store(path, &error))?,
        Start::Adopt { .. } => open_or_make(path).map_err(|Failure(why)| {
            Failure(format!(
                "{why}. If the disk works and no other coordinator runs, move the file away: --adopt does not need it"
            ))
        })?,
    };
    let door = Door::new(Role::Coordinator, Process::NONE, MESSAGE_VERSION.into(), secrets);
    let mut server = Server::start(listener, Arc::new(door))?;
    if let Start::Adopt { without, confirmed } = start {
        let mut adoption =
            Adoption::begin(store, &plan, without.iter().copied()).map_err(|error| in_store(path, &error))?;
        if *confirmed {
            adoption.confirm();
        }
        tracing::warn!(%listen, "adopts a cluster: every node is asked for what it knows");
        let Some(written) = server.adopt(adoption)? else {
            return Ok(());
        };
        store = written;
    }
    let mut coordinator = Coordinator::open(store, &plan, random()?).map_err(|error| in_store(path, &error))?;
    warn_of_changed(&settings, coordinator.plan());
    coordinator.set_stand_in(settings.stand_in.unwrap_or(true));
    let slow = settings.slow_removal_ms.filter(|ms| *ms > 0);
    coordinator.set_slow_removal(slow.map(|ms| Span::from_ms(ms.into())));
    tracing::info!(%listen, cluster = format!("{:016x}", coordinator.cluster().id.0), "coordinator runs");
    server.serve(coordinator)
}

/// Warns if a setting in the file differs from the store. `paritas set` changes the store, and the store takes
/// precedence; the file may still have the value with which the cluster began.
fn warn_of_changed(settings: &CoordinatorSettings, plan: &ClusterPlan) {
    let said = [
        (
            "suspicion_ms",
            settings.suspicion_ms.map(|ms| ms.to_string()),
            plan.suspicion_ms.to_string(),
        ),
        (
            "lost_policy",
            settings.lost_policy.map(|p| p.0.to_string()),
            plan.lost_policy.to_string(),
        ),
    ];
    for (name, given, stored) in said {
        if let Some(given) = given.filter(|given| *given != stored) {
            tracing::warn!(
                "{name} = {given} in the settings or flags applies to a new cluster only. This cluster has \
                 {stored} in its store and keeps it. `paritas set {name}={given}` changes it"
            );
        }
    }
}

/// Writes a new cluster into the store, which must be empty or missing, and a new secret if its file is missing.
/// Returns whether there is a new secret.
pub fn create(settings: &CoordinatorSettings) -> Result<bool, Failure> {
    let plan = plan(settings)?;
    let path = store_path(settings)?;
    let is_new = settings.secret_file.as_deref().map_or(Ok(false), secret::create)?;
    let mut store = open_or_make(path)?;
    Coordinator::create(&mut store, &plan).map_err(|error| in_store(path, &error))?;
    Ok(is_new)
}

fn store_path(settings: &CoordinatorSettings) -> Result<&Path, Failure> {
    let path = settings.store.as_deref();
    path.ok_or_else(|| Failure("`store` is missing: the file for the configurations".into()))
}

/// Opens the store, or creates it if there is none. If creating it fails, no file is left.
fn open_or_make(path: &Path) -> Result<EmbeddedStore, Failure> {
    let was_there = path.try_exists().map_err(|error| in_store(path, &error))?;
    EmbeddedStore::open(path).map_err(|error| {
        if !was_there {
            // The incomplete file is not a store, and would be in the way once the disk works again.
            let _ = std::fs::remove_file(path);
        }
        in_store(path, &error)
    })
}

fn in_store(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure(format!("store {}: {error}", path.display()))
}

/// The plan of the cluster: from the settings, with random names for what is new. An existing cluster keeps its names.
///
/// # Errors
/// Names the setting that is impossible, and why.
pub fn plan(settings: &CoordinatorSettings) -> Result<ClusterPlan, Failure> {
    let scheme = match settings.scheme {
        Some(scheme) => scheme.0,
        None => Scheme::new(4, 2).map_err(|error| Failure(error.to_string()))?,
    };
    let in_memory = scheme.width() - scheme.logged();
    let nodes = settings.nodes.unwrap_or_else(|| in_memory.into());
    let log_nodes = settings.log_nodes.unwrap_or_else(|| scheme.logged().into());
    let spares = settings.spares.unwrap_or(0);
    let mut plan = ClusterPlan::simple(ClusterId(random()?), scheme.data(), scheme.parity(), nodes, spares);
    plan = plan.with_log_nodes(scheme.logged(), log_nodes);
    if let Some(domains) = &settings.domains {
        plan = plan.with_domains(domains).map_err(|error| Failure(error.to_string()))?;
    }
    plan.hash_key = [random()?, random()?];
    plan.node_bytes = settings.memory.map_or(1 << 30, |memory| memory.0);
    if let Some(chunk) = settings.chunk {
        plan.chunk_bytes = chunk
            .0
            .try_into()
            .map_err(|_| Failure(format!("chunk = {chunk} is too large")))?;
    }
    plan.lease_ms = settings.lease_ms.unwrap_or(plan.lease_ms);
    plan.suspicion_ms = settings.suspicion_ms.unwrap_or(plan.suspicion_ms);
    plan.restart_wait_ms = settings.restart_wait_ms.unwrap_or(plan.restart_wait_ms);
    plan.ack_quorum = settings.ack_quorum.unwrap_or(plan.ack_quorum);
    plan.min_redundancy = settings.min_redundancy.unwrap_or(plan.min_redundancy);
    if let Some(one_slot) = &settings.one_slot {
        plan = plan.with_one_slot(&one_slot.0);
    }
    plan.lost_policy = settings.lost_policy.map_or(plan.lost_policy, |policy| policy.0);
    plan.check().map_err(|error| Failure(error.to_string()))?;
    Ok(plan)
}

fn random() -> Result<u64, Failure> {
    entropy::random_u64().map_err(|error| Failure(format!("no random numbers: {error}")))
}

/// An event on a coordinator's port.
enum News {
    Up(LinkId),
    Frame(LinkId, Speaker, Vec<u8>),
    Down(LinkId),
    Nothing,
}

/// A coordinator's port.
struct Server {
    events: Sender<Event>,
    inbox: Receiver<Event>,
    out: Lines,
}

impl Server {
    fn start(listener: TcpListener, door: Arc<Door>) -> Result<Self, Failure> {
        let (events, inbox) = channel();
        let admitted = events.clone();
        let tell = move |who| admitted.send(Event::Admitted(who)).is_ok();
        admission::start(listener, Arc::clone(&door), tell)?;
        let lines = BTreeMap::new();
        Ok(Self {
            events,
            inbox,
            out: Lines { lines, door },
        })
    }

    /// Waits for the next event, at most until the given time.
    fn next(&mut self, until: Option<Time>) -> News {
        let wait = until.map_or(TICK, |at| Duration::from_nanos((at - clock::mono()).0).min(TICK));
        match self.inbox.recv_timeout(wait) {
            Ok(Event::Admitted(who)) if self.out.lines.len() < LINES_MAX => {
                let Admitted {
                    link,
                    stream,
                    address,
                    by,
                } = who;
                let events = self.events.clone();
                let tell = move |arrived| events.send(Event::Line(link, arrived)).is_ok();
                match Line::start(stream, TO_COORDINATOR_BYTES_MAX, tell) {
                    Ok(line) => {
                        self.out.lines.insert(link, Known { line, address, by });
                        return News::Up(link);
                    }
                    Err(error) => tracing::warn!(%error, "connection refused"),
                }
                News::Nothing
            }
            Ok(Event::Admitted(who)) => {
                let why = format!("there are {LINES_MAX} connections already");
                self.out.door.refusals.note(Some(who.address), &why);
                News::Nothing
            }
            Ok(Event::Line(link, Arrived::Frame(frame))) => match self.out.lines.get(&link) {
                Some(known) => News::Frame(link, known.by, frame),
                None => News::Nothing,
            },
            Ok(Event::Line(link, Arrived::Down)) => {
                self.out.lines.remove(&link);
                News::Down(link)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => News::Nothing,
        }
    }

    /// Asks all nodes for what was in the store and writes it there. Returns the store; `None` if asked to stop before.
    fn adopt(&mut self, mut adoption: Adoption<EmbeddedStore>) -> Result<Option<EmbeddedStore>, Failure> {
        let mut said = Vec::new();
        while !signals::stop_requested() {
            let news = self.next(adoption.next_deadline());
            let now = clock::now();
            let event = match &news {
                News::Up(link) => CoordinatorEvent::Connected { link: *link },
                News::Frame(link, by, bytes) => CoordinatorEvent::Message {
                    link: *link,
                    by: *by,
                    bytes,
                },
                News::Down(link) => CoordinatorEvent::Disconnected { link: *link },
                News::Nothing => CoordinatorEvent::Timer,
            };
            adoption.on(now, event, &mut self.out);
            match adoption.progress() {
                Progress::Waits(words) => {
                    // A countdown alone is not logged again.
                    let news: Vec<String> = words.iter().map(|line| without_digits(line)).collect();
                    if news != said {
                        words.iter().for_each(|line| tracing::warn!("{line}"));
                        said = news;
                    }
                }
                Progress::Failed(why) => return Err(Failure(why.clone())),
                Progress::Done(words) => {
                    words.iter().for_each(|line| tracing::warn!("adopted: {line}"));
                    // All nodes register again, now with the coordinator.
                    self.out.lines.clear();
                    return Ok(Some(adoption.into_store()));
                }
            }
        }
        Ok(None)
    }

    fn serve(mut self, mut coordinator: Coordinator<EmbeddedStore>) -> Result<(), Failure> {
        while !signals::stop_requested() && coordinator.ending().is_none() {
            let news = self.next(coordinator.next_deadline());
            // The clock is read after the wait, so that an event does not seem earlier than it was.
            let now = clock::now();
            let out = &mut self.out;
            match news {
                News::Up(link) => coordinator.on(now, CoordinatorEvent::Connected { link }, out),
                News::Frame(link, by, bytes) => {
                    coordinator.on(
                        now,
                        CoordinatorEvent::Message {
                            link,
                            by,
                            bytes: &bytes,
                        },
                        out,
                    );
                }
                News::Down(link) => coordinator.on(now, CoordinatorEvent::Disconnected { link }, out),
                News::Nothing => {}
            }
            if coordinator.next_deadline().is_some_and(|at| now.mono >= at) {
                coordinator.on(now, CoordinatorEvent::Timer, out);
            }
        }
        match coordinator.ending() {
            Some(ending) => Err(Failure(ending.to_string())),
            None => Ok(()),
        }
    }
}

fn without_digits(line: &str) -> String {
    line.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// A line whose other end has proven who it is.
struct Known {
    line: Line,
    address: SocketAddr,
    by: Speaker,
}

struct Lines {
    lines: BTreeMap<LinkId, Known>,
    door: Arc<Door>,
}

impl CoordinatorOut for Lines {
    fn send(&mut self, link: LinkId, bytes: &[u8]) {
        if let Some(Known { line, .. }) = self.lines.get(&link) {
            line.send(bytes.to_vec());
        }
    }

    fn close(&mut self, link: LinkId) {
        if let Some(Known { line, .. }) = self.lines.remove(&link) {
            line.finish();
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Forbidden { link, .. } => {
                let address = self.lines.get(&link).map(|known| known.address);
                self.door.refusals.note(address, &note);
            }
            Note::State {
                state: NodeState::Up, ..
            }
            | Note::Bootstrapped
            | Note::Registered { .. }
            | Note::Duty { .. }
            | Note::Set(_) => tracing::info!("{note}"),
            Note::BadMessage(_)
            | Note::Unsent(_)
            | Note::State { .. }
            | Note::Ended { .. }
            | Note::Attested { .. }
            | Note::Moved { .. } => {
                tracing::warn!("{note}");
            }
            _ => tracing::error!("{note}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn plan_of(text: &str) -> Result<ClusterPlan, Failure> {
        plan(&CoordinatorSettings::parse(text).unwrap())
    }

    #[test]
    fn nodes_are_planned_in_the_domains_of_the_settings() {
        let six = "scheme = \"2+1\"\nnodes = 6\nspares = 1\n";
        let racks = format!("{six}domains = [\"a\", \"a\", \"b\", \"b\", \"c\", \"c\", \"a\"]\n");
        let plan = plan_of(&racks).unwrap();
        let domains: Vec<&str> = plan.all().map(|n| n.domain.as_str()).collect();
        assert_eq!(domains, ["a", "a", "b", "b", "c", "c", "a"]);
        assert_eq!(plan.layout().per_domain_max, 1);
        let domain = |node: &NodeId| domains[usize::from(node.0)];
        for list in plan.layout().lists {
            let held: BTreeSet<&str> = list.iter().map(domain).collect();
            assert_eq!(held.len(), 3, "one position in each rack: {list:?}");
        }
        let own: Vec<String> = plan_of(six).unwrap().all().map(|n| n.domain.clone()).collect();
        assert_eq!(own, ["0", "1", "2", "3", "4", "5", "6"]);
    }

    #[test]
    fn domains_that_do_not_fit_are_named() {
        let why = plan_of("scheme = \"2+1\"\ndomains = [\"a\", \"b\"]\n").unwrap_err();
        assert!(why.0.starts_with("domains names 2, and 3 nodes are planned"), "{why}");
    }
}
