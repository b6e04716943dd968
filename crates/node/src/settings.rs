//! Settings of the processes. Each kind of process has one TOML file. Every key is also a flag, and the flag takes
//! precedence. A wrong key or value is an error that names it, the file and the line.

use crate::quantity::{ByteCount, Text};
use crate::{Failure, LogLayout};
use clap::Args;
use paritas_base::OneSlot;
use paritas_code::Scheme;
use paritas_control::LostPolicy;
use paritas_protocol::{ClassRules, ClientCoding, HotnessSetting, LogAssist, Policy, Reads, Transactions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Defines a struct of optional settings that is read from flags and from a file, so that both have the same keys.
macro_rules! settings {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Args, Deserialize, Clone, Default, Debug)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_meta])* #[arg(long)] pub $field: Option<$type>,)*
        }

        impl $name {
            /// These settings, completed by those of `other`.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self { $($field: self.$field.or(other.$field),)* }
            }
        }
    };
}

settings! {
    /// Settings of `paritas node`.
    pub struct NodeSettings {
        /// Number of this node, from 0
        pub id: u16,
        /// Address to listen on [default: 127.0.0.1]
        pub bind: IpAddr,
        /// Host name or address by which clients and peers reach this node [default: the address it listens on]
        pub host: String,
        /// Port for any client: commands for all keys are accepted and forwarded if needed [default: 6379]
        pub port: u16,
        /// Port for cluster-aware clients [default: port + 1000]
        pub cluster_port: u16,
        /// Port for the other nodes, 0 for one that the system chooses [default: port + 10000]
        pub peer_port: u16,
        /// Port for clients of memcached: text and meta protocol, every key [default: none]
        pub memcached_port: u16,
        /// Longest data of an item that clients of memcached store, below 1mb [default: 1048575]
        pub memcached_item_max: ByteCount,
        /// Memory of the whole process, as in 256mb [default: 1gb]
        pub memory: ByteCount,
        /// Which keys are evicted when memory is full, as in allkeys-lru [default: noeviction]
        pub maxmemory_policy: Text<Policy>,
        /// Addresses of the coordinator, host:port
        #[arg(value_delimiter = ',')]
        pub coordinator: Vec<String>,
        /// Failure domain, such as a host or a rack. For a planned node it must be the one in the coordinator's
        /// `domains` [default: the planned one, else the node's own]
        pub domain: String,
        /// Wait as a spare until another node fails; not for a planned member [default: false]
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        pub spare: bool,
        /// File with the password that clients must give: one line. It should be the same at all nodes [default: none]
        pub password_file: PathBuf,
        /// File with the secret of the cluster, by which its processes know each other: one line, the same for all of
        /// them and for the coordinator. Needed if other machines can reach this node [default: none]
        pub secret_file: PathBuf,
        /// Listen where other machines can connect, although a port has no password or no secret [default: false]
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        pub open: bool,
        /// Most client connections [default: 10000]
        pub clients_max: usize,
        /// Most bytes of one command, and of commands that a client sends before it reads its replies [default: 64mb]
        pub query_max: ByteCount,
        /// Most unread reply bytes of one client [default: 256mb]
        pub reply_max: ByteCount,
        /// Most bytes held for all clients, beside 48 MiB of one; above it the clients that hold most are closed, 0 for
        /// no limit [default: an eighth of the memory]
        pub clients_memory: ByteCount,
        /// Most bytes a second that this node rebuilds, 0 for no limit [default: adapts to the load of clients]
        pub rebuild_rate: ByteCount,
        /// Whether to read parity from log nodes too while rebuilding: on, off, or auto, by the rate of each [default:
        /// auto]
        pub log_assist: Text<LogAssist>,
        /// Values of more bytes than this are large: they lie in parts of their own, with redundancy of their own. At
        /// least a chunk for each data position, at most 64kb. It should be the same at all nodes [default: 64kb]
        pub large_from: ByteCount,
        /// Redundancy of new large values by key and least length, as in "img:* eor:3,4 1mb; tmp:* rep:3". It
        /// should be the same at all nodes [default: that of the scheme]
        pub redundancy_rules: Text<ClassRules>,
        /// Redundancy of values above 64 KiB by how often clients read them, as in "hot eor:3,4 cold ec:4,2", with
        /// "reads 8" and "seconds 60" if need be. It should be the same at all nodes [default: off]
        pub redundancy_hotness: Text<HotnessSetting>,
        /// Bytes a second that this node checks for flipped bits, 0 for none [default: its whole memory once a day]
        pub scrub_rate: ByteCount,
        /// What allows this node to answer reads: leases, or confirmation by other nodes each turn [default: leases]
        pub reads: Text<Reads>,
        /// Which keys a transaction may have: by-slot (any; the commands of each hash slot happen together), or strict
        /// (those of one hash slot). It should be the same at all nodes [default: by-slot]
        pub transactions: Text<Transactions>,
        /// Whether clients may read parts of values above 64 KiB themselves (read), or also write them (on), or neither
        /// (off). It should be the same at all nodes [default: read]
        pub client_coding: Text<ClientCoding>,
        /// Directory for logged parity. It makes this node a log node, which holds nothing else
        pub log_dir: PathBuf,
        /// Most bytes on its disk [default: 8gb]
        pub log_size: ByteCount,
        /// Layout of parity on the disk: plm, plr, plr-m or pl [default: plm]
        pub log_layout: Text<LogLayout>,
        /// Most bytes that wait in memory for the disk [default: 64mb, or an eighth of the memory]
        pub log_buffer: ByteCount,
        /// Waiting bytes that start a write [default: 1mb, or a quarter of log_buffer]
        pub log_flush: ByteCount,
        /// Space for deltas after each parity chunk; at least the space of one chunk is always there [default: two
        /// chunks]
        pub log_reserve: ByteCount,
        /// Part of log_size that is written sequentially first, with plm [default: an eighth of it]
        pub log_area: ByteCount,
        /// Use direct I/O, past the system's page cache [default: false]
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        pub log_direct: bool,
        /// Directory with a file by which the next process of this node on this machine proves that this one has ended.
        /// It must be on a disk of the machine or in /run; it is made if it is missing [default: none]
        pub state_dir: PathBuf,
        /// Most milliseconds that a node which is asked to end (SIGTERM) serves until the others have all data
        /// [default: 60000]
        pub stop_wait_ms: u64,
        /// What to log: error, warn, info, debug or trace [default: info]
        pub log: Text<LogLevel>,
    }
}

settings! {
    /// Settings of `paritas coordinator`.
    pub struct CoordinatorSettings {
        /// Address to listen on, host:port [default: 127.0.0.1:6300]
        pub listen: SocketAddr,
        /// File that holds the configurations
        pub store: PathBuf,
        /// File with the secret of the cluster, by which its processes know each other: one line. `--create` makes it
        /// if it is missing. Needed if other machines can reach the coordinator [default: none]
        pub secret_file: PathBuf,
        /// Listen where other machines can connect, although there is no secret [default: false]
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        pub open: bool,
        /// Data and parity positions, as in 4+2, or 4+2/1 with the last parity on log nodes [default: 4+2]
        pub scheme: Text<Scheme>,
        /// Parity members that must hold a write before it is acknowledged [default: all]
        pub ack_quorum: u8,
        /// Nodes that the cluster starts with, without spares and log nodes [default: data + parity - logged]
        pub nodes: u16,
        /// Log nodes that the cluster starts with, numbered after the nodes above [default: as many as parities are
        /// logged]
        pub log_nodes: u16,
        /// Spares that the cluster starts with, numbered after the log nodes: each waits to replace a lost node
        /// [default: 0]
        pub spares: u16,
        /// Failure domains of all these nodes in the order of their numbers, as in rack1,rack1,rack2 [default: one for
        /// each node]
        #[arg(value_delimiter = ',')]
        pub domains: Vec<String>,
        /// Bytes of a chunk, as in 16kb [default: 16kb]
        pub chunk: ByteCount,
        /// Memory of each node, used to plan the number of lists [default: 1gb]
        pub memory: ByteCount,
        /// Keys that lie in one hash slot together, so that commands, transactions and scripts reach all of them: db:N
        /// for those of a database, prefix:TEXT, with commas between, as in db:1,prefix:bull: [default: none]
        pub one_slot: Text<OneSlot>,
        /// Length of a lease in milliseconds [default: 2000]
        pub lease_ms: u32,
        /// Milliseconds of silence after which a node is suspected [default: 1000]
        pub suspicion_ms: u32,
        /// Milliseconds to wait for the next process of a node whose process has ended [default: 500]
        pub restart_wait_ms: u32,
        /// Let nodes stand in for a lost node while no other is free; this takes memory on them [default: true]
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        pub stand_in: bool,
        /// Milliseconds of acknowledgement delay above which a node is left out for a while, if it is also much slower
        /// than the others, 0 for never [default: 0]
        pub slow_removal_ms: u32,
        /// Complete parities needed to accept writes [default: 1, or 0 without parity]
        pub min_redundancy: u8,
        /// What happens to a list that lost more than its scheme covers: stop, or reset to empty [default: stop]
        pub lost_policy: Text<LostPolicy>,
        /// What to log: error, warn, info, debug or trace [default: info]
        pub log: Text<LogLevel>,
    }
}

/// How much to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLevel(pub tracing::Level);

impl std::str::FromStr for LogLevel {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|_| format!("`{text}` is not a log level: use error, warn, info, debug or trace"))
    }
}

impl NodeSettings {
    /// Parses the text of a file. An error has the number of the line, and what is wrong in it.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        parse(text)
    }

    /// Completes the flags with the settings of a file.
    pub fn with_file(self, file: Option<&Path>) -> Result<Self, Failure> {
        Ok(match file {
            Some(file) => self.or(read(file)?),
            None => self,
        })
    }

    /// The addresses to listen on: for any client, for cluster-aware clients, for peers.
    pub fn listen(&self) -> Result<[SocketAddr; 3], Failure> {
        let bind = self.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let port = self.port.unwrap_or(DEFAULT_PORT);
        let derived = |given: Option<u16>, offset: u16, name: &str| match given {
            Some(port) => Ok(port),
            None => port.checked_add(offset).ok_or_else(|| {
                Failure(format!(
                    "port {port} + {offset} is past 65535: choose a lower port, or set {name}"
                ))
            }),
        };
        let cluster = derived(self.cluster_port, CLUSTER_OFFSET, "cluster_port")?;
        let peer = derived(self.peer_port, PEER_OFFSET, "peer_port")?;
        Ok([port, cluster, peer].map(|port| SocketAddr::new(bind, port)))
    }

    /// The address for clients of memcached, if they have a port.
    pub fn listen_memcached(&self) -> Option<SocketAddr> {
        let bind = self.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        self.memcached_port.map(|port| SocketAddr::new(bind, port))
    }

    /// Checks settings against each other. `CONFIG SET` has the same limits for each.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(memory) = self.memory.filter(|memory| *memory < MEMORY_MIN) {
            return Err(Failure(format!(
                "memory = {memory}: a node needs at least {MEMORY_MIN}; raise it"
            )));
        }
        if self.clients_max == Some(0) {
            return Err(Failure(
                "clients_max = 0: no client could connect; set it to at least 1, or leave it out".into(),
            ));
        }
        if let Some(item_max) = self.memcached_item_max.filter(|item_max| *item_max > ITEM_MAX) {
            return Err(Failure(format!(
                "memcached_item_max = {item_max}: items are shorter than 1mb, as longer values are read in pieces; \
                 set it to \
                 {ITEM_MAX} or less"
            )));
        }
        let bind = self.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if is_closed(bind) || self.open == Some(true) {
            return Ok(());
        }
        let lacks = match (&self.password_file, &self.secret_file) {
            (None, _) => ("read and write every key by the ports for clients", "password_file"),
            (_, None) => ("pass for a node of the cluster", "secret_file"),
            _ => return Ok(()),
        };
        Err(unprotected("bind", &bind, lacks))
    }

    /// The host that the node announces in its record.
    pub fn announced_host(&self) -> Result<String, Failure> {
        if let Some(host) = &self.host {
            return Ok(host.clone());
        }
        let bind = self.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if bind.is_unspecified() {
            return Err(Failure(format!(
                "bind = {bind} covers all addresses: set `host` to the name that clients and peers use for this node"
            )));
        }
        Ok(bind.to_string())
    }
}

/// Whether nobody on another machine can connect to the address.
fn is_closed(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn unprotected(key: &str, address: &dyn fmt::Display, (danger, setting): (&str, &str)) -> Failure {
    Failure(format!(
        "{key} = {address}: whoever reaches it could {danger}. Set {setting}, or open = true if only machines that you \
         trust reach it"
    ))
}

impl CoordinatorSettings {
    /// The address to listen on.
    pub fn listen(&self) -> SocketAddr {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, COORDINATOR_PORT));
        self.listen.unwrap_or(default)
    }

    /// Checks settings against each other.
    pub fn check(&self) -> Result<(), Failure> {
        let listen = self.listen();
        if is_closed(listen.ip()) || self.open == Some(true) || self.secret_file.is_some() {
            return Ok(());
        }
        let lacks = ("pass for a node of the cluster and end it", "secret_file");
        Err(unprotected("listen", &listen, lacks))
    }

    /// Parses the text of a file. An error has the number of the line, and what is wrong in it.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        parse(text)
    }

    /// Completes the flags with the settings of a file.
    pub fn with_file(self, file: Option<&Path>) -> Result<Self, Failure> {
        Ok(match file {
            Some(file) => self.or(read(file)?),
            None => self,
        })
    }
}

/// Smallest memory of a node: below it no memory is left for chunks beside rings and buffers.
pub(crate) const MEMORY_MIN: ByteCount = ByteCount(32 << 20);
/// Longest item of memcached: longer values are read in pieces, behind which no end can follow.
const ITEM_MAX: ByteCount = ByteCount((1 << 20) - 1);
/// The default port of a coordinator.
const COORDINATOR_PORT: u16 = 6_300;
/// The default port of Redis.
pub const DEFAULT_PORT: u16 = 6379;
/// Distance from a node's port to its port for cluster-aware clients (docs/commands.md).
pub const CLUSTER_OFFSET: u16 = 1_000;
/// Distance from a node's port to its port for clients of memcached, in a cluster of `dev`.
pub const MEMCACHED_OFFSET: u16 = 2_000;
/// Distance from a node's port to its port for peers.
pub const PEER_OFFSET: u16 = 10_000;

/// Reads settings from a TOML file.
///
/// # Errors
/// If it cannot be read, or something in it is wrong; then the error names the line.
pub fn read<T: DeserializeOwned>(file: &Path) -> Result<T, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure(format!("{}: {error}", file.display())))?;
    parse(&text).map_err(|(line, why)| Failure(format!("{}:{line}: {why}", file.display())))
}

/// Parses settings. An error has the number of the line, and what is wrong in it.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, (usize, String)> {
    toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start).min(text.len());
        let line = 1 + text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count();
        let key = text.lines().nth(line - 1).and_then(|line| {
            let (key, _) = line.split_once('=')?;
            Some(key.trim())
        });
        let why = error.message().trim();
        let why = match key {
            Some(key) if !why.contains(&format!("`{key}`")) => format!("`{key}`: {why}"),
            _ => why.to_owned(),
        };
        (line, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (usize, String) {
        parse::<NodeSettings>(text).unwrap_err()
    }

    #[test]
    fn a_file_is_read() {
        let text = "id = 3\nport = 7000\nmemory = \"256mb\"\nrebuild_rate = \"50mb\"\nlog_assist = \"on\"\n\
            coordinator = [\"a:1\", \"b:2\"]\nlog = \"debug\"\n";
        let settings: NodeSettings = parse(text).unwrap();
        assert_eq!(settings.id, Some(3));
        assert_eq!(settings.memory, Some(ByteCount(256 << 20)));
        assert_eq!(settings.rebuild_rate, Some(ByteCount(50 << 20)));
        assert_eq!(settings.log_assist, Some(Text(LogAssist::On)));
        assert_eq!(settings.coordinator.as_ref().unwrap().len(), 2);
        let [any, cluster, peer] = settings.listen().unwrap();
        assert_eq!((any.port(), cluster.port(), peer.port()), (7000, 8000, 17000));
        let coordinator: CoordinatorSettings =
            parse("scheme = \"6+3\"\nchunk = 4096\ndomains = [\"rack 1\", \"rack 2\"]\n").unwrap();
        assert_eq!(coordinator.domains, Some(vec!["rack 1".into(), "rack 2".into()]));
        assert_eq!(coordinator.scheme.unwrap().0.width(), 9);
        assert_eq!(coordinator.chunk, Some(ByteCount(4096)));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let (line, why) = wrong("id = 3\n\n# a comment\nprot = 7000\n");
        assert_eq!(line, 4);
        assert!(why.contains("`prot`") && why.contains("`port`"), "{why}");
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line() {
        for (value, part) in [
            ("memory = \"lots\"", "lots"),
            ("port = 70000", "70000"),
            ("port = \"x\"", "string"),
            ("bind = \"nowhere\"", "bind"),
            ("log = \"loud\"", "loud"),
            ("maxmemory_policy = \"allkeys\"", "volatile-ttl"),
            ("spare = 1", "spare"),
        ] {
            let (line, why) = wrong(&format!("id = 1\n{value}\n"));
            let key = value.split(' ').next().unwrap();
            assert_eq!(line, 2, "{value}");
            assert!(why.contains(part) && why.contains(key), "{value}: {why}");
        }
    }

    #[test]
    fn a_broken_file_is_an_error_with_its_line() {
        assert_eq!(wrong("id = 1\nport\n").0, 2);
        assert_eq!(wrong("id = 1\nid = 2\n").0, 2);
        let missing = read::<NodeSettings>(Path::new("no/such/file.toml")).unwrap_err();
        assert!(missing.0.starts_with("no/such/file.toml: "), "{missing}");
    }

    #[test]
    fn flags_are_stronger_than_the_file() {
        let file: NodeSettings = parse("id = 3\nport = 7000\n").unwrap();
        let flags = NodeSettings {
            port: Some(8000),
            ..NodeSettings::default()
        };
        let settings = flags.or(file);
        assert_eq!((settings.id, settings.port), (Some(3), Some(8000)));
    }

    #[test]
    fn what_no_node_can_work_with_is_refused() {
        let check = |text: &str| parse::<NodeSettings>(text).unwrap().check();
        let why = check("memory = \"1mb\"").unwrap_err();
        assert_eq!(why.0, "memory = 1.0 MB: a node needs at least 32.0 MB; raise it");
        assert!(check("clients_max = 0").unwrap_err().0.starts_with("clients_max = 0: "));
        assert_eq!(check("memory = \"32mb\"\nclients_max = 1\n"), Ok(()));
        assert_eq!(check(""), Ok(()));
    }

    #[test]
    fn no_port_is_open_to_other_machines_without_a_word_about_it() {
        let node = |text: &str| parse::<NodeSettings>(text).unwrap().check().map_err(|why| why.0);
        let beyond = "bind = \"10.0.0.1\"\n";
        let why = node(beyond).unwrap_err();
        assert!(
            why.contains("bind = 10.0.0.1") && why.contains("password_file") && why.contains("open = true"),
            "{why}"
        );
        let password = format!("{beyond}password_file = \"p\"\n");
        assert!(node(&password).unwrap_err().contains("Set secret_file"));
        assert!(
            node(&format!("{beyond}secret_file = \"s\"\n"))
                .unwrap_err()
                .contains("Set password_file")
        );
        for closed in [
            format!("{password}secret_file = \"s\"\n"),
            format!("{beyond}open = true\n"),
            "bind = \"127.0.0.9\"\n".into(),
            "bind = \"::1\"\n".into(),
        ] {
            assert_eq!(node(&closed), Ok(()), "{closed}");
        }
        for all in ["bind = \"0.0.0.0\"\n", "bind = \"::\"\n"] {
            assert!(node(all).is_err(), "{all}");
        }
        let coordinator = |text: &str| CoordinatorSettings::parse(text).unwrap().check().map_err(|why| why.0);
        let beyond = "listen = \"[::]:6300\"\n";
        let why = coordinator(beyond).unwrap_err();
        assert!(
            why.contains("listen = [::]:6300") && why.contains("Set secret_file, or open = true"),
            "{why}"
        );
        assert_eq!(coordinator(&format!("{beyond}secret_file = \"s\"\n")), Ok(()));
        assert_eq!(coordinator(&format!("{beyond}open = true\n")), Ok(()));
        assert_eq!(coordinator(""), Ok(()));
    }

    #[test]
    fn what_cannot_be_derived_is_said() {
        let high: NodeSettings = parse("port = 60000").unwrap();
        assert!(high.listen().unwrap_err().0.contains("peer_port"));
        let everywhere: NodeSettings = parse("bind = \"0.0.0.0\"").unwrap();
        assert!(everywhere.announced_host().unwrap_err().0.contains("`host`"));
    }
}
