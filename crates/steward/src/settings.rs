//! The settings of a steward, from one TOML file (`docs/files.md`).

use paritas_base::Span;
use paritas_files::geometry::{BLOCK_BYTES, SUB_BYTES};
use paritas_files::request::is_mount_name;
use paritas_files::steward::Settings;
use paritas_files::{Admission, Estimator, Eviction, Prediction};
use paritas_node::settings::LogLevel;
use paritas_node::{ByteCount, Failure, Text};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Port of a steward if none is set.
pub const DEFAULT_PORT: u16 = 16385;
/// Most mounts of a process: each has two or three threads.
const MOUNTS_MAX: usize = 64;
const BLOCKS_MAX: u64 = 1 << 20;
const CLIENTS_MAX: usize = 4096;
/// Most NameNodes of a mount.
const NAMENODES_MAX: usize = 8;

/// The file.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct StewardSettings {
    /// Address to listen on.
    pub listen: Option<SocketAddr>,
    /// Address by which clients reach this steward.
    pub advertise: Option<String>,
    /// Most client connections.
    pub clients_max: Option<usize>,
    /// File with the password that clients must give; none: everybody is served.
    pub password_file: Option<PathBuf>,
    /// Listen where other machines can connect, although clients need no password, or metrics are served.
    pub open: Option<bool>,
    /// Address to serve metrics on; none: they are not served.
    pub metrics_listen: Option<SocketAddr>,
    /// What to log.
    pub log: Option<Text<LogLevel>>,
    /// Mounts by name.
    #[serde(default)]
    pub mount: BTreeMap<String, MountSettings>,
}

/// One mount.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct MountSettings {
    /// Address of the cache store, host:port.
    pub cache: String,
    /// File with the password of the cache store.
    pub cache_password_file: Option<PathBuf>,
    /// `http://host:port` of NameNodes, separated by commas; none: DataNodes are not asked for their counters.
    pub namenode_http: Option<String>,
    /// Blocks of the cache.
    pub blocks: u64,
    /// Bytes of such a block.
    pub block: Option<ByteCount>,
    /// Bytes of a parity subblock.
    pub subblock: Option<ByteCount>,
    /// Which files are cached while no node is slow.
    pub admission: Option<Text<Admission>>,
    /// Which file is evicted.
    pub eviction: Option<Text<Eviction>>,
    /// Which nodes are stragglers.
    pub estimator: Option<Text<Estimator>>,
    /// Milliseconds between two estimates.
    pub period_ms: Option<u64>,
    /// Percent of the blocks that parity made ahead of readers may take, each time a node becomes slow.
    pub prefetch: Option<u8>,
    /// Which files' parity is made ahead first.
    pub prediction: Option<Text<Prediction>>,
}

impl StewardSettings {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let settings: Self = paritas_node::settings::read(file)?;
        let checked = settings.check();
        checked.map_err(|why| Failure(format!("{}: {why}", file.display())))?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        if self.mount.is_empty() {
            return Err("there is no mount: add a table such as [mount.lake]".to_owned());
        }
        if self.mount.len() > MOUNTS_MAX {
            return Err(format!("{} mounts, at most {MOUNTS_MAX} are allowed", self.mount.len()));
        }
        within("clients_max", self.clients_max() as u64, 1..=65_536)?;
        let advertised = self.advertise.as_deref();
        if let Some(wrong) = advertised.filter(|address| !is_address(address)) {
            return Err(format!("advertise: `{wrong}` is not host:port"));
        }
        if advertised.is_none() && self.listen().ip().is_unspecified() {
            let listen = self.listen();
            return Err(format!(
                "listen is {listen}: set advertise to the host:port by which clients reach this steward"
            ));
        }
        let is_open = |address: SocketAddr| !address.ip().to_canonical().is_loopback() && self.open != Some(true);
        let listen = self.listen();
        if self.password_file.is_none() && is_open(listen) {
            return Err(format!(
                "listen is {listen}: whoever reaches it could read every file name and change what is cached. Set \
                 password_file, or open = true if only machines that you trust reach it"
            ));
        }
        if let Some(metrics) = self.metrics_listen.filter(|metrics| is_open(*metrics)) {
            return Err(format!(
                "metrics_listen is {metrics}: whoever reaches it could read the figures, which have no password. Set \
                 open = true if only machines that you trust reach it"
            ));
        }
        for (name, mount) in &self.mount {
            if !is_mount_name(name) {
                return Err(format!(
                    "[mount.{name}]: a name has 1 to 64 letters, digits, `-`, `_` and `.`"
                ));
            }
            mount.check().map_err(|why| format!("[mount.{name}]: {why}"))?;
        }
        Ok(())
    }

    /// Address to listen on.
    pub fn listen(&self) -> SocketAddr {
        let default = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT);
        self.listen.unwrap_or(default)
    }

    /// Most client connections.
    pub fn clients_max(&self) -> usize {
        self.clients_max.unwrap_or(CLIENTS_MAX)
    }
}

impl MountSettings {
    fn check(&self) -> Result<(), String> {
        if !is_address(&self.cache) {
            return Err(format!("cache: `{}` is not host:port", self.cache));
        }
        if self.namenode_http.is_some() {
            check_namenodes(&self.namenodes()).map_err(|why| format!("namenode_http: {why}"))?;
        }
        let machine = self.machine();
        within("blocks", machine.blocks, 1..=BLOCKS_MAX)?;
        within("block", machine.block_bytes, BLOCK_BYTES)?;
        within("subblock", machine.sub_bytes, SUB_BYTES)?;
        within("prefetch", u64::from(machine.prefetch_percent), 0..=100)?;
        within("period_ms", machine.period.as_ms(), 100..=60_000)
    }

    /// `http://host:port` of each NameNode.
    pub(crate) fn namenodes(&self) -> Vec<String> {
        let text = self.namenode_http.as_deref().into_iter();
        let each = text.flat_map(|text| text.split(',')).map(str::trim);
        each.map(|url| url.trim_end_matches('/').to_owned()).collect()
    }

    /// The settings of the machine.
    pub fn machine(&self) -> Settings {
        Settings {
            blocks: self.blocks,
            block_bytes: self.block.map_or(128 << 20, |bytes| bytes.0),
            sub_bytes: self.subblock.map_or(1 << 20, |bytes| bytes.0),
            admission: self.admission.map_or(Admission::OnAccess, |text| text.0),
            eviction: self.eviction.map_or(Eviction::Lfu, |text| text.0),
            estimator: self.estimator.map_or(Estimator::Mad, |text| text.0),
            period: Span::from_ms(self.period_ms.unwrap_or(1500).min(1 << 32)),
            prefetch_percent: self.prefetch.unwrap_or(40),
            prediction: self.prediction.map_or(Prediction::Recency, |text| text.0),
        }
    }
}

fn within(name: &str, value: u64, allowed: std::ops::RangeInclusive<u64>) -> Result<(), String> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(format!(
        "{name} is {value}, it must be {} to {}",
        allowed.start(),
        allowed.end()
    ))
}

fn check_namenodes(urls: &[String]) -> Result<(), String> {
    if urls.len() > NAMENODES_MAX {
        return Err(format!("{} NameNodes, at most {NAMENODES_MAX} are allowed", urls.len()));
    }
    for url in urls {
        if url.starts_with("https:") {
            return Err(format!("`{url}`: HTTPS is not supported"));
        }
        let address = url.strip_prefix("http://");
        if !address.is_some_and(is_address) {
            return Err(format!("`{url}` is not http://host:port"));
        }
    }
    Ok(())
}

/// Whether a text is host:port, and fits in an error reply.
pub(crate) fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    let port = parts.and_then(|(_, port)| port.parse::<u16>().ok());
    // The others would choose another part of a URL: a NameNode tells addresses too.
    let printable = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"/?#@".contains(&byte));
    text.len() <= 256
        && printable
        && port.is_some_and(|port| port > 0)
        && parts.is_some_and(|(host, _)| !host.is_empty())
}
