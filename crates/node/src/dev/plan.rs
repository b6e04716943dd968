//! The plan of a cluster of `dev`. All settings are checked before any process starts.

use super::ports::HOST;
use crate::quantity::{ByteCount, Text};
use crate::settings::{CLUSTER_OFFSET, DEFAULT_PORT, MEMCACHED_OFFSET, MEMORY_MIN};
use crate::{Failure, password};
use clap::Args;
use paritas_base::OneSlot;
use paritas_code::Scheme;
use paritas_control::LostPolicy;
use paritas_protocol::{
    ClassRules, ClientCoding, HotnessSetting, LogAssist, Policy, Reads, check_class_rules, check_hotness,
    check_large_from,
};
use paritas_wire::resp::Password;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings of `paritas dev`.
#[derive(Args, Clone, Debug)]
pub struct DevSettings {
    /// Number of nodes, without log nodes and spares [default: 6; if the scheme logs parities, as many as it has
    /// positions in memory]
    #[arg(long)]
    pub nodes: Option<u16>,
    /// Data and parity positions: 4+2 survives two losses, 1+2 keeps three copies, 1+0 has no redundancy. With 4+2/1,
    /// the last parity is on the disks of log nodes
    #[arg(long, default_value = "4+2")]
    pub scheme: Text<Scheme>,
    /// Number of parities that must hold a write before it is acknowledged [default: all of them]
    #[arg(long)]
    pub ack_quorum: Option<u8>,
    /// Number of log nodes [default: the number of parities that the scheme logs]
    #[arg(long)]
    pub log_nodes: Option<u16>,
    /// Directory for the parity of the log nodes [default: in the directory of --dir]
    #[arg(long)]
    pub log_dir: Option<PathBuf>,
    /// Most bytes on the disk of each log node
    #[arg(long, default_value = "1gb")]
    pub log_size: ByteCount,
    /// What happens to a list that lost more than its scheme covers: stop, or reset to empty, which suits a cache
    #[arg(long, default_value = "stop")]
    pub lost_policy: Text<LostPolicy>,
    /// Keys that lie in one hash slot together, as in db:1,prefix:bull:
    #[arg(long, default_value = "")]
    pub one_slot: Text<OneSlot>,
    /// Milliseconds of acknowledgement delay above which a node is left out for a while, if it is also much slower than
    /// the others, 0 for never
    #[arg(long, default_value_t = 0)]
    pub slow_removal_ms: u32,
    /// Port of the first node. Node i uses port + i for any client, port + 1000 + i for cluster-aware clients, and
    /// port + 2000 + i for clients of memcached. The system chooses all other ports. Other commands find the cluster by
    /// this port
    #[arg(long, default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// Memory of each node
    #[arg(long, default_value = "256mb")]
    pub memory: ByteCount,
    /// Which keys are evicted when a node's memory is full, as in allkeys-lru
    #[arg(long, default_value = "noeviction")]
    pub maxmemory_policy: Text<Policy>,
    /// Directory for logs and configurations [default: a temporary one]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Number of spares, which wait to replace a lost node
    #[arg(long, default_value_t = 0)]
    pub spares: u16,
    /// Bytes a second that each node checks for flipped bits, 0 for none [default: its whole memory once a day]
    #[arg(long)]
    pub scrub_rate: Option<ByteCount>,
    /// Most bytes a second that each node rebuilds, 0 for no limit [default: adapts to the load of clients]
    #[arg(long)]
    pub rebuild_rate: Option<ByteCount>,
    /// Whether to read parity from log nodes too while rebuilding: on, off, or auto, by the rate of each
    #[arg(long, default_value = "auto")]
    pub log_assist: Text<LogAssist>,
    /// Bytes of a chunk, as in 4kb
    #[arg(long, default_value = "16kb")]
    pub chunk: ByteCount,
    /// Values of more bytes than this are large: they lie in parts of their own [default: 64kb]
    #[arg(long)]
    pub large_from: Option<ByteCount>,
    /// Redundancy of new large values by key and least length, as in "img:* eor:3,4 1mb; tmp:* rep:3"
    #[arg(long, default_value = "")]
    pub redundancy_rules: Text<ClassRules>,
    /// Redundancy of values above 64 KiB by how often clients read them, as in "hot eor:3,4 cold ec:4,2", with "reads
    /// 8" and "seconds 60" if need be; empty: by rules alone
    #[arg(long, default_value = "")]
    pub redundancy_hotness: Text<HotnessSetting>,
    /// What client libraries may do with the parts of values above 64 KiB: off, read, or on, which is read and write
    #[arg(long, default_value = "read")]
    pub client_coding: Text<ClientCoding>,
    /// What allows a node to answer reads: leases, or confirmed by other nodes each turn
    #[arg(long, default_value = "leases")]
    pub reads: Text<Reads>,
    /// File with the password that clients must give: one line [default: none]
    #[arg(long)]
    pub password_file: Option<PathBuf>,
}

/// Default number of nodes of a scheme that logs no parity.
const NODES: u16 = 6;

/// The cluster to start. All values are checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) scheme: Scheme,
    pub(crate) ack_quorum: u8,
    pub(crate) lost_policy: LostPolicy,
    pub(crate) one_slot: OneSlot,
    pub(crate) slow_removal_ms: u32,
    pub(crate) members: u16,
    /// Number of log nodes. They have the numbers after the members.
    pub(crate) log_nodes: u16,
    pub(crate) log_dir: Option<PathBuf>,
    pub(crate) log_size: ByteCount,
    pub(crate) spares: u16,
    pub(crate) port: u16,
    pub(crate) memory: ByteCount,
    pub(crate) policy: Policy,
    pub(crate) scrub_rate: Option<ByteCount>,
    pub(crate) rebuild_rate: Option<ByteCount>,
    pub(crate) log_assist: LogAssist,
    pub(crate) chunk: ByteCount,
    pub(crate) large_from: Option<ByteCount>,
    pub(crate) class_rules: ClassRules,
    pub(crate) hotness: HotnessSetting,
    pub(crate) client_coding: ClientCoding,
    pub(crate) reads: Reads,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) dir: Option<PathBuf>,
}

impl Plan {
    /// Checks the settings against the scheme and the machine.
    pub(crate) fn new(settings: &DevSettings) -> Result<Self, Failure> {
        let plan = Self::checked(settings)?;
        plan.check_memory(total_memory())?;
        plan.password()?;
        Ok(plan)
    }

    pub(crate) fn checked(settings: &DevSettings) -> Result<Self, Failure> {
        let scheme = settings.scheme.0;
        let in_memory = u16::from(scheme.width() - scheme.logged());
        let logged = u16::from(scheme.logged());
        let members = settings.nodes.unwrap_or(if logged > 0 { in_memory } else { NODES });
        if members < in_memory {
            let which = if logged > 0 { " in memory" } else { "" };
            return Err(Failure(format!(
                "--nodes {members}: scheme {scheme} needs at least {in_memory} nodes, one for each position{which}"
            )));
        }
        let log_nodes = settings.log_nodes.unwrap_or(logged);
        if log_nodes < logged {
            return Err(Failure(format!(
                "--log-nodes {log_nodes}: scheme {scheme} needs at least {logged}, one for each logged parity"
            )));
        }
        if logged == 0 && (log_nodes > 0 || settings.log_dir.is_some()) {
            return Err(Failure(format!(
                "--log-nodes, --log-dir: scheme {scheme} logs no parity; write {scheme}/1 to log one, or leave them out"
            )));
        }
        let all = scheme.parity();
        let ack_quorum = settings.ack_quorum.unwrap_or(all);
        if ack_quorum > all || (ack_quorum == 0) != (all == 0) {
            return Err(Failure(format!(
                "--ack-quorum {ack_quorum}: scheme {scheme} allows {} to {all}, since it has {all} parities",
                all.min(1)
            )));
        }
        if let Some(bytes) = settings.large_from {
            let chunk_bytes = u32::try_from(settings.chunk.0).unwrap_or(u32::MAX);
            check_large_from(scheme, chunk_bytes, bytes.0).map_err(|why| Failure(format!("--large-from: {why}")))?;
        }
        let class_rules = settings.redundancy_rules.0.clone();
        check_class_rules(scheme, &class_rules).map_err(|why| Failure(format!("--redundancy-rules: {why}")))?;
        let hotness = settings.redundancy_hotness.0;
        check_hotness(scheme, hotness).map_err(|why| Failure(format!("--redundancy-hotness: {why}")))?;
        let plan = Self {
            scheme,
            ack_quorum,
            lost_policy: settings.lost_policy.0,
            one_slot: settings.one_slot.0.clone(),
            slow_removal_ms: settings.slow_removal_ms,
            members,
            log_nodes,
            log_dir: settings.log_dir.clone(),
            log_size: settings.log_size,
            spares: settings.spares,
            port: settings.port,
            memory: settings.memory,
            policy: settings.maxmemory_policy.0,
            scrub_rate: settings.scrub_rate,
            rebuild_rate: settings.rebuild_rate,
            log_assist: settings.log_assist.0,
            chunk: settings.chunk,
            large_from: settings.large_from,
            class_rules,
            hotness,
            client_coding: settings.client_coding.0,
            reads: settings.reads.0,
            password_file: settings.password_file.clone(),
            dir: settings.dir.clone(),
        };
        if plan.port == 0 {
            return Err(Failure("--port 0: choose a port, because clients must know it".into()));
        }
        let count = u32::from(members) + u32::from(log_nodes) + u32::from(settings.spares);
        if count > u32::from(CLUSTER_OFFSET) {
            return Err(Failure(format!(
                "{count} nodes: at most {CLUSTER_OFFSET} are possible, because node i uses port + i, port + \
                 {CLUSTER_OFFSET} + i and port + {MEMCACHED_OFFSET} + i"
            )));
        }
        let last = u32::from(plan.port) + u32::from(MEMCACHED_OFFSET) + count - 1;
        if last > u32::from(u16::MAX) {
            return Err(Failure(format!(
                "--port {}: ports up to {last} would be needed, past 65535; choose one up to {}",
                plan.port,
                u32::from(u16::MAX) - (last - u32::from(plan.port))
            )));
        }
        Ok(plan)
    }

    /// What clients must give.
    pub(crate) fn password(&self) -> Result<Option<Password>, Failure> {
        let read = self.password_file.as_deref().map(password::read).transpose();
        read.map_err(|why| Failure(format!("--password-file: {why}")))
    }

    /// Number of all nodes. The spares have the last numbers.
    pub(crate) fn count(&self) -> u16 {
        self.members + self.log_nodes + self.spares
    }

    pub(crate) fn is_log_node(&self, node: u16) -> bool {
        (self.members..self.members + self.log_nodes).contains(&node)
    }

    pub(crate) fn is_spare(&self, node: u16) -> bool {
        node >= self.members + self.log_nodes
    }

    pub(crate) fn any_address(&self, node: u16) -> SocketAddr {
        SocketAddr::new(HOST, self.port + node)
    }

    pub(crate) fn cluster_address(&self, node: u16) -> SocketAddr {
        SocketAddr::new(HOST, self.port + CLUSTER_OFFSET + node)
    }

    pub(crate) fn memcached_address(&self, node: u16) -> SocketAddr {
        SocketAddr::new(HOST, self.port + MEMCACHED_OFFSET + node)
    }

    /// A warning for a cluster that has no more nodes than positions.
    pub(crate) fn warning(&self) -> Option<String> {
        let exact = self.members == u16::from(self.scheme.width() - self.scheme.logged()) && self.spares == 0;
        (exact && self.scheme.parity() > 0).then(|| {
            format!(
                "with exactly {} nodes, the others stand in for a lost node and need memory for that: --spares 1 adds \
                 a node that waits to replace it",
                self.members
            )
        })
    }

    fn check_memory(&self, machine: Option<u64>) -> Result<(), Failure> {
        if self.memory < MEMORY_MIN {
            return Err(Failure(format!(
                "--memory {}: a node needs at least {MEMORY_MIN}",
                self.memory
            )));
        }
        let needed = self.memory.0.saturating_mul(u64::from(self.count()));
        match machine {
            Some(machine) if needed > machine => Err(Failure(format!(
                "{} nodes of {} need {}, but this machine has {}: lower --memory or --nodes",
                self.count(),
                self.memory,
                ByteCount(needed),
                ByteCount(machine)
            ))),
            _ => Ok(()),
        }
    }
}

/// Memory of this machine in bytes, if the system reports it.
fn total_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn settings(nodes: u16, scheme: &str, port: u16) -> DevSettings {
        DevSettings {
            nodes: Some(nodes),
            log_nodes: None,
            log_dir: None,
            log_size: ByteCount(1 << 30),
            scheme: scheme.parse().unwrap(),
            ack_quorum: None,
            lost_policy: Text(LostPolicy::Stop),
            one_slot: Text(OneSlot::default()),
            slow_removal_ms: 0,
            port,
            memory: ByteCount(256 << 20),
            maxmemory_policy: Text(Policy::NoEviction),
            dir: None,
            spares: 0,
            scrub_rate: None,
            rebuild_rate: None,
            log_assist: Text(LogAssist::Auto),
            chunk: ByteCount(16 << 10),
            large_from: None,
            redundancy_rules: Text(ClassRules::default()),
            redundancy_hotness: Text(HotnessSetting::default()),
            client_coding: Text(ClientCoding::Read),
            reads: Text(Reads::Leases),
            password_file: None,
        }
    }

    #[test]
    fn large_values_need_a_chunk_for_each_data_block() {
        let with = |chunk, bytes| DevSettings {
            chunk: ByteCount(chunk),
            large_from: Some(ByteCount(bytes)),
            ..settings(7, "4+2", 6379)
        };
        let why = Plan::checked(&with(16 << 10, 16 << 10)).unwrap_err();
        assert!(
            why.0.contains("--large-from: at least 65536 are needed, not 16384"),
            "{why}"
        );
        assert!(Plan::checked(&with(4 << 10, 16 << 10)).is_ok());
    }

    #[test]
    fn too_few_nodes_are_refused_and_just_enough_remarked() {
        let why = Plan::checked(&settings(5, "4+2", 6379)).unwrap_err();
        assert!(why.0.contains("4+2") && why.0.contains("at least 6"), "{why}");
        assert!(Plan::checked(&settings(6, "4+2", 6379)).unwrap().warning().is_some());
        assert!(Plan::checked(&settings(7, "4+2", 6379)).unwrap().warning().is_none());
        assert!(Plan::checked(&settings(1, "1+0", 6379)).unwrap().warning().is_none());
        let spare = DevSettings {
            spares: 1,
            ..settings(6, "4+2", 6379)
        };
        assert!(Plan::checked(&spare).unwrap().warning().is_none());
    }

    #[test]
    fn log_nodes_come_after_the_members_and_before_the_spares() {
        let logged = DevSettings {
            nodes: None,
            spares: 1,
            ..settings(0, "4+2/1", 6379)
        };
        let plan = Plan::checked(&logged).unwrap();
        assert_eq!((plan.members, plan.log_nodes, plan.count()), (5, 1, 7));
        let kinds: Vec<(bool, bool)> = (4..7).map(|n| (plan.is_log_node(n), plan.is_spare(n))).collect();
        assert_eq!(kinds, [(false, false), (true, false), (false, true)]);
        let plain = DevSettings {
            nodes: None,
            ..settings(0, "2+1", 6379)
        };
        assert_eq!(Plan::checked(&plain).unwrap().members, 6);
    }

    #[test]
    fn log_nodes_that_do_not_fit_the_scheme_are_refused() {
        let why = |nodes, scheme, log_nodes| {
            let asked = DevSettings {
                log_nodes,
                ..settings(nodes, scheme, 6379)
            };
            Plan::checked(&asked).unwrap_err().0
        };
        assert!(why(4, "4+2/1", None).contains("at least 5 nodes, one for each position in memory"));
        assert!(why(7, "6+3/2", Some(1)).contains("at least 2, one for each logged parity"));
        assert!(why(6, "4+2", Some(1)).contains("write 4+2/1"));
    }

    #[test]
    fn no_more_parities_are_waited_for_than_there_are() {
        let quorum = |scheme, ack_quorum| {
            Plan::checked(&DevSettings {
                ack_quorum: Some(ack_quorum),
                ..settings(8, scheme, 6379)
            })
        };
        assert_eq!(quorum("4+3", 2).unwrap().ack_quorum, 2);
        assert_eq!(Plan::checked(&settings(8, "4+3", 6379)).unwrap().ack_quorum, 3);
        for (scheme, a) in [("4+3", 4), ("4+3", 0), ("4+0", 1)] {
            let why = quorum(scheme, a).unwrap_err();
            assert!(why.0.contains("--ack-quorum") && why.0.contains(scheme), "{why}");
        }
    }

    #[test]
    fn ports_past_the_end_are_refused() {
        let why = Plan::checked(&settings(6, "4+2", 65_000)).unwrap_err();
        assert!(
            why.0.contains("up to 67005") && why.0.contains("one up to 63530"),
            "{why}"
        );
        let plan = Plan::checked(&settings(6, "4+2", 63_530)).unwrap();
        assert_eq!(plan.memcached_address(5).port(), u16::MAX);
        assert!(Plan::checked(&settings(6, "4+2", 0)).is_err());
        assert!(Plan::checked(&settings(1001, "4+2", 6379)).is_err());
    }

    #[test]
    fn memory_must_do_for_a_node_and_fit_the_machine() {
        let mut plan = Plan::checked(&settings(6, "4+2", 6379)).unwrap();
        assert_eq!(plan.check_memory(Some(1536 << 20)), Ok(()));
        assert!(
            plan.check_memory(Some((1536 << 20) - 1))
                .unwrap_err()
                .0
                .contains("1.50 GB")
        );
        plan.memory = ByteCount(1 << 20);
        assert!(plan.check_memory(None).unwrap_err().0.contains("at least 32.0 MB"));
        assert!(total_memory().is_none_or(|bytes| bytes > 1 << 26));
    }
}
