//! A client of Paritas, Redis or memcached that keeps many requests under way. It is simple, because its own time is
//! not measured.

use crate::servers::{Protocol, Servers};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

const REPLY_TIME_MAX: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 64 << 10;
/// Values are cut out of this many random bytes, at a changing offset.
const NOISE_BYTES: usize = 64 << 10;

/// An operation on one key; keys are numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads the key's value.
    Get(u64),
    /// Sets the key to a value of this many bytes.
    Set(u64, usize),
}

/// The result of a run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Outcome {
    /// Requests answered.
    pub count: u64,
    /// Answered requests whose key had no value.
    pub missing: u64,
    /// Answered requests that were refused because the key's owner was being replaced.
    pub refused: u64,
    /// Time of the whole run.
    pub time: Duration,
}

/// The result of one request.
enum Reply {
    Done,
    Missing,
    Refused,
}

/// Errors that may be returned while an owner is being replaced.
const REFUSALS: [&str; 3] = ["-TRYAGAIN ", "-UNCERTAIN ", "-CLUSTERDOWN "];

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    read: Vec<u8>,
    at: usize,
    /// For each reply not yet read: whether it is a value.
    due: Vec<bool>,
}

/// Connections to all servers.
pub struct Client {
    protocol: Protocol,
    owners: Vec<u16>,
    /// Connections to the same server are adjacent.
    connections: Vec<Connection>,
    each: usize,
    noise: Vec<u8>,
    turn: usize,
    key_bytes: usize,
    /// Whether refused requests are counted. If not, they are an error.
    pub may_be_refused: bool,
}

/// The text of a key, padded with zeros to this many bytes. The paper's keys have 24 bytes.
pub fn key_text(key: u64, bytes: usize) -> String {
    format!("{key:0bytes$}")
}

impl Client {
    /// Opens `each` connections to every server. Keys have `key_bytes` bytes.
    pub fn connect(servers: &Servers, each: usize, key_bytes: usize) -> io::Result<Self> {
        Self::of(
            servers.protocol,
            &servers.ports,
            servers.owners.clone(),
            each,
            key_bytes,
        )
    }

    /// Opens one connection to each of these ports, which serve any key.
    pub fn connect_any(servers: &Servers, ports: &[u16], key_bytes: usize) -> io::Result<Self> {
        let owners = (0..ports.len() as u16).cycle().take(servers.owners.len());
        Self::of(servers.protocol, ports, owners.collect(), 1, key_bytes)
    }

    fn of(protocol: Protocol, ports: &[u16], owners: Vec<u16>, each: usize, key_bytes: usize) -> io::Result<Self> {
        let mut connections = Vec::new();
        for port in ports {
            for _ in 0..each {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(REPLY_TIME_MAX))?;
                let (out, read, due) = (Vec::new(), Vec::new(), Vec::new());
                connections.push(Connection {
                    stream,
                    out,
                    read,
                    at: 0,
                    due,
                });
            }
        }
        let mut random = paritas_base::Prng::new(7);
        Ok(Self {
            protocol,
            owners,
            connections,
            each,
            // Letters, because Redis stores digits as a number.
            noise: (0..NOISE_BYTES).map(|_| b'a' + random.below(26) as u8).collect(),
            turn: 0,
            key_bytes,
            may_be_refused: false,
        })
    }

    /// Runs all operations, with at most `window` under way.
    pub fn run(&mut self, operations: impl IntoIterator<Item = Operation>, window: usize) -> io::Result<Outcome> {
        let mut operations = operations.into_iter().peekable();
        let began = Instant::now();
        let mut outcome = Outcome::default();
        while operations.peek().is_some() {
            for operation in operations.by_ref().take(window) {
                self.push(operation)?;
            }
            for connection in &mut self.connections {
                connection.stream.write_all(&connection.out)?;
                connection.out.clear();
            }
            for connection in &mut self.connections {
                for is_value in std::mem::take(&mut connection.due) {
                    outcome.count += 1;
                    match connection.reply(self.protocol, is_value, self.may_be_refused)? {
                        Reply::Done => {}
                        Reply::Missing => outcome.missing += 1,
                        Reply::Refused => outcome.refused += 1,
                    }
                }
            }
        }
        outcome.time = began.elapsed();
        Ok(outcome)
    }

    fn push(&mut self, operation: Operation) -> io::Result<()> {
        let (Operation::Get(key) | Operation::Set(key, _)) = operation;
        let text = key_text(key, self.key_bytes);
        let server = usize::from(self.owners[slot(text.as_bytes())]);
        self.turn += 1;
        let (turn, length) = (self.turn, text.len());
        let connection = &mut self.connections[server * self.each + turn % self.each];
        connection.due.push(matches!(operation, Operation::Get(_)));
        let out = &mut connection.out;
        match (self.protocol, operation) {
            (Protocol::Redis, Operation::Get(_)) => write!(out, "*2\r\n$3\r\nGET\r\n${length}\r\n{text}\r\n"),
            (Protocol::Memcached, Operation::Get(_)) => write!(out, "get {text}\r\n"),
            (protocol, Operation::Set(_, bytes)) => {
                if protocol == Protocol::Redis {
                    write!(out, "*3\r\n$3\r\nSET\r\n${length}\r\n{text}\r\n${bytes}\r\n")?;
                } else {
                    write!(out, "set {text} 0 0 {bytes}\r\n")?;
                }
                let from = turn * 31 % (NOISE_BYTES - bytes);
                out.extend_from_slice(&self.noise[from..from + bytes]);
                out.extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }
}

impl Connection {
    /// Reads the next reply.
    fn reply(&mut self, protocol: Protocol, is_value: bool, may_be_refused: bool) -> io::Result<Reply> {
        let line = self.line()?;
        let unexpected = || io::Error::other(format!("unexpected reply: {line:?}"));
        let length = match protocol {
            Protocol::Redis if line == "+OK" && !is_value => return Ok(Reply::Done),
            Protocol::Redis if line == "$-1" && is_value => return Ok(Reply::Missing),
            Protocol::Redis if may_be_refused && REFUSALS.iter().any(|text| line.starts_with(text)) => {
                return Ok(Reply::Refused);
            }
            Protocol::Redis => line.strip_prefix('$'),
            Protocol::Memcached if line == "STORED" && !is_value => return Ok(Reply::Done),
            Protocol::Memcached if line == "END" && is_value => return Ok(Reply::Missing),
            Protocol::Memcached => line.strip_prefix("VALUE ").and_then(|rest| rest.rsplit(' ').next()),
        };
        let length: usize = length.and_then(|text| text.parse().ok()).ok_or_else(unexpected)?;
        self.need(length + 2)?;
        self.at += length + 2;
        if protocol == Protocol::Memcached && self.line()? != "END" {
            return Err(unexpected());
        }
        Ok(Reply::Done)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut length = 0;
        loop {
            let rest = &self.read[self.at..];
            if let Some(end) = rest[length..].windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..length + end]).into_owned();
                self.at += length + end + 2;
                return Ok(line);
            }
            length = rest.len().saturating_sub(1);
            self.need(rest.len() + 1)?;
        }
    }

    /// Reads until `count` bytes are buffered.
    fn need(&mut self, count: usize) -> io::Result<()> {
        if self.at > READ_BYTES {
            self.read.drain(..self.at);
            self.at = 0;
        }
        let mut block = [0; READ_BYTES];
        while self.read.len() - self.at < count {
            match self.stream.read(&mut block)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => self.read.extend_from_slice(&block[..n]),
            }
        }
        Ok(())
    }
}

/// The hash slot of a key as in Redis Cluster: CRC16/XMODEM modulo 16,384.
pub(crate) fn slot(key: &[u8]) -> usize {
    let crc = key.iter().fold(0u16, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    usize::from(crc) % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!((slot(b"foo"), slot(b"123456789")), (12_182, 12_739));
    }

    #[test]
    fn keys_have_the_length_that_is_asked_for() {
        assert_eq!(key_text(42, 24), "000000000000000000000042");
        assert_eq!(key_text(1_234_567, 8), "01234567");
    }
}
