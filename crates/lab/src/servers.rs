//! Installed stores for comparison: Paritas, Valkey or Redis with replicas, and memcached, each as several processes.

use crate::baselines::paritas::{Paritas, Setup};
use crate::load::{Client, Operation};
use crate::processes::{Children, Sent, free_ports};
use crate::stage::Directory;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

const START_TIME_MAX: Duration = Duration::from_secs(30);
const ASK_TIME_MAX: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 16 << 20;
const SLOTS: usize = 16_384;
/// Number of keys asked for at the start: enough to reach every stream of some hundred.
const PROBES: u64 = 5_000;

/// The protocol of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// RESP, the protocol of Redis.
    Redis,
    /// The text protocol of memcached.
    Memcached,
}

/// Processes that serve keys. They end when this is dropped.
#[derive(Debug)]
pub struct Servers {
    /// The name in tables.
    pub name: String,
    pub(crate) protocol: Protocol,
    /// Ports for clients.
    pub(crate) ports: Vec<u16>,
    /// For each hash slot, the index of its owner's port.
    pub(crate) owners: Vec<u16>,
    paritas: Option<Paritas>,
    children: Children,
    _directory: Directory,
}

impl Servers {
    /// A cluster of Paritas with this scheme, on `nodes` nodes with `megabytes` MiB each.
    pub fn paritas(scheme: &str, nodes: u16, megabytes: u32) -> io::Result<Self> {
        Self::paritas_with_spares(scheme, nodes, 0, megabytes)
    }

    /// The same with spares, which wait to replace other nodes.
    pub fn paritas_with_spares(scheme: &str, nodes: u16, spares: u16, megabytes: u32) -> io::Result<Self> {
        Self::paritas_with_slow(scheme, nodes, spares, megabytes, None)
    }

    /// The same with a node that can be made slow.
    pub fn paritas_with_slow(
        scheme: &str,
        nodes: u16,
        spares: u16,
        megabytes: u32,
        slow: Option<u16>,
    ) -> io::Result<Self> {
        let binary = std::env::current_exe()?;
        let paritas = Paritas::start(Setup {
            megabytes,
            spares,
            slow,
            ..Setup::new(&binary, scheme, nodes)
        })?;
        let ports: Vec<u16> = paritas.cluster_ports().collect();
        let said = ask(ports[0], "*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n")?;
        let servers = Self {
            name: format!("Paritas {scheme}"),
            protocol: Protocol::Redis,
            owners: owners(&said, &ports)?,
            ports,
            paritas: Some(paritas),
            children: Children::default(),
            _directory: Directory::new()?,
        };
        // Waits until every owner serves.
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            let probe = |mut client: Client| client.run((0..PROBES).map(Operation::Get), PROBES as usize);
            match Client::connect(&servers, 1, 24).and_then(probe) {
                Ok(_) => return Ok(servers),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// `count` servers of Valkey, or of Redis if Valkey is not installed, with `replicas` replicas each.
    pub fn redis(count: u16, replicas: u16) -> io::Result<Self> {
        let (program, name) = match installed("valkey-server") {
            true => ("valkey-server", "Valkey"),
            false => ("redis-server", "Redis"),
        };
        let name = match replicas {
            0 => name.to_owned(),
            _ => format!("{name} {} copies", replicas + 1),
        };
        let all = count * (1 + replicas);
        let mut servers = Self::empty(name, Protocol::Redis, count, all)?;
        let first = servers.ports[0];
        for n in 0..all {
            let (port, master) = ((first + n).to_string(), (first + n % count).to_string());
            let mut arguments = vec![
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ];
            arguments.extend(["--repl-diskless-sync-delay", "0", "--repl-diskless-load", "swapdb"]);
            if n >= count {
                arguments.extend(["--replicaof", "127.0.0.1", &master]);
            }
            servers.children.start(program, arguments, servers._directory.path())?;
        }
        for n in 0..all {
            let up = if n >= count {
                "master_link_status:up"
            } else {
                "tcp_port:"
            };
            servers.until_says(first + n, "*1\r\n$4\r\nINFO\r\n", up)?;
        }
        Ok(servers)
    }

    /// `count` memcached servers, with one thread each.
    pub fn memcached(count: u16) -> io::Result<Self> {
        let mut servers = Self::empty("memcached".to_owned(), Protocol::Memcached, count, count)?;
        let user = ["-u", "nobody"];
        for port in servers.ports.clone() {
            let port = port.to_string();
            let arguments = ["-U", "0", "-t", "1", "-m", "1024", "-l", "127.0.0.1", "-p", &port];
            // If it is not root, memcached ignores the user.
            let arguments = arguments.iter().chain(&user);
            servers
                .children
                .start("memcached", arguments, servers._directory.path())?;
        }
        for port in servers.ports.clone() {
            servers.until_says(port, "version\r\n", "VERSION")?;
        }
        Ok(servers)
    }

    /// Servers with equal shares of the hash slots.
    fn empty(name: String, protocol: Protocol, count: u16, ports: u16) -> io::Result<Self> {
        let first = free_ports(ports, &[(Ipv4Addr::LOCALHOST, 0)])?;
        Ok(Self {
            name,
            protocol,
            ports: (first..first + count).collect(),
            owners: (0..SLOTS)
                .map(|slot| (slot * usize::from(count) / SLOTS) as u16)
                .collect(),
            paritas: None,
            children: Children::default(),
            _directory: Directory::new()?,
        })
    }

    fn until_says(&self, port: u16, question: &str, answer: &str) -> io::Result<()> {
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            match ask(port, question) {
                Ok(said) if said.contains(answer) => return Ok(()),
                _ if Instant::now() > deadline => {
                    return Err(io::Error::other(format!("{} does not start on port {port}", self.name)));
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// CPU time of all processes so far.
    pub fn cpu(&self) -> io::Result<Duration> {
        match &self.paritas {
            Some(paritas) => paritas.cpu(),
            None => self.children.cpu(),
        }
    }

    /// Data that nodes of Paritas have sent each other so far.
    pub fn sent(&self) -> io::Result<Sent> {
        self.paritas.as_ref().map_or_else(|| Ok(Sent::default()), Paritas::sent)
    }

    /// Ports of Paritas's nodes, spares included, that serve any key. Empty for other systems.
    pub fn any_ports(&self) -> Vec<u16> {
        let paritas = self.paritas.iter();
        paritas.flat_map(|paritas| paritas.any_ports()).collect()
    }

    /// Makes the slow node of a Paritas cluster slow, or normal again.
    pub fn set_slow(&self, is_slow: bool) {
        if let Some(paritas) = &self.paritas {
            paritas.set_slow(is_slow);
        }
    }

    /// The status of a Paritas cluster, as JSON.
    pub fn status(&self) -> io::Result<String> {
        let paritas = self.paritas.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        ask(*paritas.any_ports().start(), "*1\r\n$14\r\nPARITAS.STATUS\r\n")
    }
}

fn installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(program).is_file())
}

/// Asks a question. The answer is the text of a bulk string, or a line.
pub(crate) fn ask(port: u16, question: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(ASK_TIME_MAX))?;
    stream.write_all(question.as_bytes())?;
    let mut read = Vec::new();
    let mut block = [0; 4096];
    loop {
        if let Some(end) = read.windows(2).position(|pair| pair == b"\r\n") {
            let line = String::from_utf8_lossy(&read[..end]).into_owned();
            let Some(length) = line.strip_prefix('$').and_then(|text| text.parse::<usize>().ok()) else {
                return Ok(line);
            };
            if length > ANSWER_BYTES_MAX {
                return Err(io::Error::other("an answer of more than 16 MiB"));
            }
            if let Some(text) = read.get(end + 2..end + 2 + length) {
                return Ok(String::from_utf8_lossy(text).into_owned());
            }
        }
        match stream.read(&mut block)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => read.extend_from_slice(&block[..n]),
        }
    }
}

/// From CLUSTER NODES: for each hash slot, the index of its owner's port among these.
fn owners(said: &str, ports: &[u16]) -> io::Result<Vec<u16>> {
    let mut owners = vec![u16::MAX; SLOTS];
    for line in said.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let address = fields
            .get(1)
            .and_then(|field| field.split('@').next()?.rsplit(':').next());
        let port: Option<u16> = address.and_then(|port| port.parse().ok());
        let Some(owner) = port.and_then(|port| ports.iter().position(|known| *known == port)) else {
            continue;
        };
        for range in fields.iter().skip(8) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
                let slots = owners.get_mut(first..=last).ok_or(io::ErrorKind::InvalidData)?;
                slots.fill(owner as u16);
            }
        }
    }
    match owners.contains(&u16::MAX) {
        true => Err(io::Error::other(format!("slots without an owner: {said}"))),
        false => Ok(owners),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_read_from_what_the_cluster_says() {
        let said = "aa 127.0.0.1:7@8 myself,master - 0 0 1 connected 0-99 101\nbb 127.0.0.1:9@9 master - 0 0 1 \
                    connected 100 102-16383\n";
        let found = owners(said, &[9, 7]).unwrap();
        assert_eq!((found[0], found[100], found[101], found[16_383]), (1, 0, 1, 0));
        assert!(owners(said, &[9]).is_err());
    }
}
