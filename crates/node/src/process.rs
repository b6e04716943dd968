//! `paritas node`: one process of a cluster. It starts and connects the threads shown in `lib.rs`.

use crate::agent::{Agent, Farewell, Outcome};
use crate::log_settings::check_alone;
use crate::parity_disk::ParityDisk;
use crate::settings::NodeSettings;
use crate::state_file::StateFile;
use crate::{ByteCount, Failure, lifeline, logging, password, secret};
use clap::Args;
use paritas_base::configuration::{ClusterRecord, NodeRole};
use paritas_base::{Incarnation, NodeId, Span};
use paritas_code::Scheme;
use paritas_control::LEASE_PARTS;
use paritas_control::message::{MESSAGE_VERSION, Registration};
use paritas_frontend::Node;
use paritas_io::door::Door;
use paritas_io::{Limits, Listeners, Mail, Mailbox, ReservedPort, Shard, Stop, clock, descriptors, entropy, signals};
use paritas_protocol::{
    ClassRules, ClientLimits, Hotness, Identity, PROTOCOL_VERSION, Parameters, check_class_rules, check_hotness,
    check_large_from,
};
use paritas_wire::greeting::{Process, Role};
use paritas_wire::resp;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Arguments that a supervisor adds when it starts a process.
#[derive(Args, Clone, Default, Debug)]
pub struct Supervision {
    /// End when standard input closes; the process that started this one certifies the end
    #[arg(long)]
    pub supervised: bool,
    /// The incarnation that the supervisor drew for this process, as 16 hexadecimal digits
    #[arg(long, requires = "supervised", value_parser = parse_incarnation)]
    pub incarnation: Option<Incarnation>,
}

fn parse_incarnation(text: &str) -> Result<Incarnation, String> {
    u64::from_str_radix(text, 16)
        .map(Incarnation)
        .map_err(|error| error.to_string())
}

/// The rules of the protocol, without the one that the environment variable asks to break.
#[cfg(feature = "mutants")]
fn rules() -> Result<paritas_protocol::Rules, Failure> {
    use paritas_protocol::Rules;
    let Ok(wanted) = std::env::var("PARITAS_MUTANT") else {
        return Ok(Rules::default());
    };
    let Some(rules) = Rules::broken(&wanted) else {
        return Err(Failure(format!("PARITAS_MUTANT is not a mutant: {wanted}")));
    };
    tracing::warn!(%wanted, "a rule of the protocol is broken on purpose");
    Ok(rules)
}

pub(crate) const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// The longest that can be read whole. memcached has 1 MiB, with key and header.
const DEFAULT_ITEM_BYTES: u64 = (1 << 20) - 1;
const TICK: Duration = Duration::from_millis(100);
/// How long a node that is asked to end serves, at most, until it is permitted.
const DEFAULT_STOP_WAIT: Duration = Duration::from_secs(60);
/// A node that waits for permission says for what after this time. Most get it within two heartbeats.
const QUIET: Duration = Duration::from_secs(1);
/// How long a shard may need to end its turn when it is to stop.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// How long the coordinator may need to note the end of a process.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// Runs a node with these settings, completed by those of a file, until it is asked to stop. A broken invariant is an
/// error: the process must not continue.
pub fn run(settings: NodeSettings, file: Option<PathBuf>, supervision: Supervision) -> Result<(), Failure> {
    let settings = settings.with_file(file.as_deref())?;
    logging::start(settings.log.map(|log| log.0));
    if supervision.supervised {
        lifeline::watch();
    }
    signals::watch_stop();
    settings.check()?;
    check_alone(&settings)?;
    // A process that has no place yet must not take commands: it would run them when it gets the place, although their
    // clients have long given up. Its ports are reserved, so that connections are refused until then.
    let reserved = reserve(&settings)?;
    let bound = reserved.each_ref().map(ReservedPort::address);
    let memcached = settings.listen_memcached().map(reserve_memcached).transpose()?;
    let registration = registration(&settings, bound, &supervision)?;
    let password = settings.password_file.as_deref().map(password::read_first).transpose();
    let password = password.map_err(|why| Failure(format!("password_file: {why}")))?;
    let coordinators = settings.coordinator.clone().unwrap_or_default();
    if coordinators.is_empty() {
        return Err(Failure(
            "`coordinator` is missing: the addresses of the coordinator, host:port".into(),
        ));
    }
    // The log is read before registration: it takes a while, and a registered node gets positions at once.
    let log = ParityDisk::open_found(&settings, registration.node)?;
    let own = Process {
        node: registration.node,
        incarnation: registration.incarnation,
    };
    let secrets = secret::watch(settings.secret_file.as_deref())?;
    let desk = Door::new(Role::Node, own, MESSAGE_VERSION.into(), secrets.clone());
    let Registration {
        node: id, incarnation, ..
    } = registration;
    let begin = |directory: &PathBuf| StateFile::begin(directory, id, incarnation);
    let mut state = settings.state_dir.as_ref().map(begin).transpose()?.flatten();
    let ends = state.as_ref().map(StateFile::ends).unwrap_or_default();
    let agent = Agent::start(registration.clone(), coordinators, desk, random()?, ends)?;
    let Some(cluster) = wait_for_cluster(&agent, &mut state)? else {
        return Ok(());
    };
    let mut listeners = listen(bound)?;
    if let Some(memcached) = &memcached {
        let address = memcached.address();
        let bound = listeners.bind_memcached(address);
        bound.map_err(|error| cannot_listen_memcached(address, &error))?;
    }
    drop((reserved, memcached));
    let log = match log {
        Some(found) => Some(found.of_cluster(&settings, &cluster)?),
        None => ParityDisk::open_new(&settings, registration.node, &cluster)?,
    };
    let cluster_id = cluster.id;
    let maxmemory_bytes = settings.memory.map_or(DEFAULT_MEMORY_BYTES, |memory| memory.0);
    // With as many lists as nodes, a node owns a stream in `k` lists and logs `k` streams in each of `m` other lists.
    let streams = u64::from(cluster.data) * (1 + u64::from(cluster.parity));
    let lease = Span::from_ms(cluster.lease_ms.into());
    // With long leases fewer requests are needed. This matters for wide schemes, in which each node asks nearly all
    // others.
    let renewal = Parameters::default().lease_renewal.max(Span(lease.0 / LEASE_PARTS));
    let parameters = Parameters {
        lease,
        lease_renewal: renewal,
        rebuild_rate: settings.rebuild_rate.map(|rate| rate.0).filter(|rate| *rate > 0),
        log_assist: settings.log_assist.map(|assist| assist.0).unwrap_or_default(),
        large_from: large_from(&settings, &cluster)?,
        class_rules: class_rules(&settings, &cluster)?,
        hotness: hotness(&settings, &cluster)?,
        client_limits: client_limits(&settings),
        item_bytes_max: settings.memcached_item_max.map_or(DEFAULT_ITEM_BYTES, |max| max.0) as usize,
        reads: settings.reads.map(|reads| reads.0).unwrap_or_default(),
        client_coding: settings.client_coding.map(|coding| coding.0).unwrap_or_default(),
        transactions: settings.transactions.map(|keys| keys.0).unwrap_or_default(),
        policy: settings.maxmemory_policy.map(|policy| policy.0).unwrap_or_default(),
        #[cfg(feature = "mutants")]
        rules: rules()?,
        ..Parameters::for_memory(maxmemory_bytes, streams)
    };
    let parameters = match settings.scrub_rate {
        None => parameters,
        Some(rate) => Parameters {
            scrub_rate: (rate.0 > 0).then_some(rate.0),
            ..parameters
        },
    };
    let identity = Identity {
        node: registration.node,
        incarnation: registration.incarnation,
        cluster,
        seed: random()?,
        maxmemory_bytes,
    };
    let failed = |error: std::io::Error| Failure(format!("the event loop cannot start: {error}"));
    let mut node = Node::new(identity, parameters);
    if let Some(password) = password {
        node.require(password);
    }
    node.set_script_clock(clock::thread_time_ns);
    let directory = log.map(|log| log.attach(&mut node));
    let limits = Limits {
        sockets_max: sockets_max(),
        ..Limits::default()
    };
    let mut door = Door::new(Role::Node, own, PROTOCOL_VERSION, secrets);
    door.cluster = Some(cluster_id);
    let (mut shard, mailbox, proposals, progress) = Shard::new(node, listeners, limits, door).map_err(failed)?;
    if let Some(directory) = directory {
        shard.start_disk(directory, &mailbox).map_err(failed)?;
    }
    agent.attach(mailbox.clone(), progress, proposals, file)?;
    let farewell = agent.farewell();
    let (gone_in, gone) = channel();
    let verdict = Verdict {
        farewell: farewell.clone(),
        agent,
        mailbox,
        state,
        incarnation,
        supervised: supervision.supervised,
        stop_wait: settings.stop_wait_ms.map_or(DEFAULT_STOP_WAIT, Duration::from_millis),
        asked_at: None,
        stopped_at: None,
        is_told: false,
        reason: None,
        said: None,
        gone: gone_in,
    };
    verdict.start()?;
    let memory = ByteCount(maxmemory_bytes);
    tracing::info!(node = %id, %incarnation, any = %bound[0], %memory, "node runs");
    match shard.run() {
        // Its supervisor certifies the end.
        Stop::Asked if supervision.supervised => Ok(()),
        Stop::Asked => {
            // Not before: until its last write it may answer clients, and nobody else may own its keys (P10.20).
            farewell.stopped();
            let _ = gone.recv_timeout(GONE_WITHIN);
            Ok(())
        }
        Stop::Failed(error) => Err(Failure(format!("waiting for events failed: {error}"))),
    }
}

/// Keeps the ports of the node for this process. Nothing listens on them yet.
fn reserve(settings: &NodeSettings) -> Result<[ReservedPort; 3], Failure> {
    let addresses = settings.listen()?;
    let reserve = |address| ReservedPort::new(address).map_err(|error| cannot_listen(addresses, address, &error));
    let [any, cluster, peer] = addresses;
    Ok([reserve(any)?, reserve(cluster)?, reserve(peer)?])
}

fn reserve_memcached(address: SocketAddr) -> Result<ReservedPort, Failure> {
    ReservedPort::new(address).map_err(|error| cannot_listen_memcached(address, &error))
}

fn cannot_listen_memcached(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure(format!(
        "cannot listen on {address}, for clients of memcached: {error}; end the process that uses the port, or set \
         another `memcached_port`"
    ))
}

fn listen(addresses: [SocketAddr; 3]) -> Result<Listeners, Failure> {
    let [any, cluster, peer] = addresses;
    let listeners = Listeners::bind(any, cluster, peer);
    listeners.map_err(|(address, error)| cannot_listen(addresses, address, &error))
}

fn cannot_listen([any, cluster, _]: [SocketAddr; 3], address: SocketAddr, error: &std::io::Error) -> Failure {
    let (users, key) = match address {
        address if address == any => ("any client", "port"),
        address if address == cluster => ("cluster-aware clients", "cluster_port"),
        _ => ("the other nodes", "peer_port"),
    };
    Failure(format!(
        "cannot listen on {address}, for {users}: {error}; end the process that uses the port, or set another `{key}`"
    ))
}

fn registration(
    settings: &NodeSettings,
    [any, cluster, peer]: [SocketAddr; 3],
    supervision: &Supervision,
) -> Result<Registration, Failure> {
    let host = settings.announced_host()?;
    let at = |port: u16| {
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    };
    Ok(Registration {
        cluster: None,
        node: NodeId(
            settings
                .id
                .ok_or_else(|| Failure("`id` is missing: the number of this node".into()))?,
        ),
        incarnation: match supervision.incarnation {
            Some(incarnation) => incarnation,
            None => Incarnation(random()?),
        },
        domain: settings.domain.clone(),
        role: if settings.log_dir.is_some() {
            NodeRole::Log
        } else if settings.spare == Some(true) {
            NodeRole::Spare
        } else {
            NodeRole::Member
        },
        pid: std::process::id(),
        supervised: supervision.supervised,
        client_address: at(any.port()),
        cluster_address: at(cluster.port()),
        peer_address: at(peer.port()),
        coordinators: 1,
        installed: Vec::new(),
        heard: Vec::new(),
        incarnations: Vec::new(),
        more: Default::default(),
    })
}

fn large_from(settings: &NodeSettings, cluster: &ClusterRecord) -> Result<usize, Failure> {
    let Some(bytes) = settings.large_from else {
        return Ok(Parameters::default().large_from);
    };
    let fits = check_large_from(scheme_of(cluster)?, cluster.chunk_bytes, bytes.0);
    fits.map_err(|why| Failure(format!("`large_from`: {why}")))?;
    Ok(bytes.0 as usize)
}

fn class_rules(settings: &NodeSettings, cluster: &ClusterRecord) -> Result<ClassRules, Failure> {
    let rules = settings
        .redundancy_rules
        .clone()
        .map(|rules| rules.0)
        .unwrap_or_default();
    let fits = check_class_rules(scheme_of(cluster)?, &rules);
    fits.map_err(|why| Failure(format!("`redundancy_rules`: {why}")))?;
    Ok(rules)
}

fn hotness(settings: &NodeSettings, cluster: &ClusterRecord) -> Result<Option<Hotness>, Failure> {
    let setting = settings.redundancy_hotness.map(|hotness| hotness.0).unwrap_or_default();
    let fits = check_hotness(scheme_of(cluster)?, setting);
    fits.map_err(|why| Failure(format!("`redundancy_hotness`: {why}")))?;
    Ok(setting.0)
}

fn scheme_of(cluster: &ClusterRecord) -> Result<Scheme, Failure> {
    let scheme = Scheme::with_logged(cluster.data, cluster.parity, cluster.logged);
    scheme.map_err(|error| Failure(error.to_string()))
}

fn client_limits(settings: &NodeSettings) -> ClientLimits {
    let default = ClientLimits::default();
    let bytes = |size: ByteCount| usize::try_from(size.0).unwrap_or(usize::MAX);
    ClientLimits {
        clients_max: settings.clients_max.unwrap_or(default.clients_max),
        query_bytes_max: settings.query_max.map_or(default.query_bytes_max, bytes),
        reply_bytes_max: settings.reply_max.map_or(default.reply_bytes_max, bytes),
        // The windows have another eighth of the memory, and the chunks have the rest (P8.3).
        bytes_max: match settings.clients_memory {
            None => settings.memory.map_or(DEFAULT_MEMORY_BYTES, |memory| memory.0) as usize / 8,
            Some(ByteCount(0)) => usize::MAX,
            Some(size) => bytes(size),
        },
        // An argument in the client's input, which may be a copy that grows, and in its command or reply.
        alone_bytes: 3 * resp::Limits::DEFAULT.whole_bytes_max,
    }
}

/// Number of connections for which this process has descriptors, beside those open now.
fn sockets_max() -> usize {
    // Reserved for the event loop, a second line to the coordinator, name lookups, and a file being written.
    const OTHERS: usize = 32;
    let limit = descriptors::raise_limit().map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    limit.saturating_sub(descriptors::open_count() + OTHERS)
}

fn random() -> Result<u64, Failure> {
    entropy::random_u64().map_err(|error| Failure(format!("no random numbers: {error}")))
}

/// Waits for a coordinator. `None` if asked to stop before.
fn wait_for_cluster(agent: &Agent, state: &mut Option<StateFile>) -> Result<Option<ClusterRecord>, Failure> {
    while !signals::stop_requested() {
        match agent.outcome(TICK) {
            Some(Outcome::Cluster(cluster)) => {
                if let Some(state) = state {
                    state.set_cluster(cluster.id);
                }
                return Ok(Some(*cluster));
            }
            Some(Outcome::Ended(failure)) => return Err(failure),
            Some(Outcome::Noted(ended)) => {
                if let Some(state) = state {
                    state.note(ended);
                }
            }
            Some(Outcome::MayLeave | Outcome::LeaveWaits(_)) | None => {}
        }
    }
    Ok(None)
}

/// The thread that ends the process: when it is asked to and may, or when it may not go on. It keeps the state file.
struct Verdict {
    agent: Agent,
    farewell: Farewell,
    mailbox: Mailbox,
    state: Option<StateFile>,
    incarnation: Incarnation,
    supervised: bool,
    stop_wait: Duration,
    /// When the process was asked to end.
    asked_at: Option<Instant>,
    /// Since when the shard is to stop.
    stopped_at: Option<Instant>,
    /// The shard was told so.
    is_told: bool,
    /// What it waits for, and what of that the log has said.
    reason: Option<String>,
    said: Option<String>,
    /// Told when the coordinator has noted the end of this process.
    gone: Sender<()>,
}

impl Verdict {
    fn start(mut self) -> Result<(), Failure> {
        let watch = move || {
            loop {
                let outcome = self.agent.outcome(TICK);
                self.on_outcome(outcome);
                self.look();
            }
        };
        match std::thread::Builder::new().name("verdict".into()).spawn(watch) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure(format!("no thread: {error}"))),
        }
    }

    fn on_outcome(&mut self, outcome: Option<Outcome>) {
        match outcome {
            // Another process of the node may run elsewhere.
            Some(Outcome::Ended(failure)) => {
                eprintln!("paritas: {failure}");
                std::process::exit(1);
            }
            Some(Outcome::Noted(ended)) => {
                if ended == self.incarnation {
                    let _ = self.gone.send(());
                } else if let Some(state) = &mut self.state {
                    state.note(ended);
                }
            }
            Some(Outcome::LeaveWaits(why)) => self.reason = Some(why),
            Some(Outcome::MayLeave) => {
                tracing::info!("the other nodes have all data: this one ends");
                self.stop();
            }
            Some(Outcome::Cluster(_)) | None => {}
        }
    }

    fn look(&mut self) {
        if let Some(stopped_at) = self.stopped_at {
            // A shard that is stuck ends with its process.
            if stopped_at.elapsed() > STOP_WITHIN {
                std::process::exit(0);
            }
            // The mailbox was full.
            if !self.is_told {
                self.stop();
            }
            return;
        }
        let Some(asked_at) = self.asked_at else {
            if signals::stop_requested() {
                self.on_asked();
            }
            return;
        };
        if signals::stop_demanded() {
            tracing::warn!("asked to end a second time: this node ends without permission");
            self.stop();
        } else if asked_at.elapsed() >= self.stop_wait {
            let ms = self.stop_wait.as_millis();
            tracing::warn!("stop_wait_ms = {ms} is over: this node ends without permission");
            self.stop();
        } else if asked_at.elapsed() >= QUIET {
            let why = self.reason.clone();
            let why = why.unwrap_or_else(|| "no coordinator answers".to_owned());
            if self.said.as_ref() != Some(&why) {
                tracing::info!("still serving: {why}");
                self.said = Some(why);
            }
        }
    }

    fn on_asked(&mut self) {
        self.asked_at = Some(Instant::now());
        if self.supervised {
            return self.stop();
        }
        let ms = self.stop_wait.as_millis();
        tracing::info!(
            "asked to end: serves until the coordinator says that the other nodes have all data, at most {ms} ms \
             (stop_wait_ms); a second SIGTERM or SIGINT ends it at once"
        );
        self.farewell.leave();
    }

    fn stop(&mut self) {
        self.stopped_at.get_or_insert_with(Instant::now);
        self.is_told = self.is_told || self.mailbox.post(Mail::Stop).is_ok();
    }
}
