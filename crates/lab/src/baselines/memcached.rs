//! Real memcached processes, with a connection to each over the text protocol.

use super::network::{Ask, Peer};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Largest value that a node may store and send, in bytes.
const VALUE_BYTES_MAX: usize = 8 << 20;
/// Largest item that memcached takes unless it is told otherwise, in bytes, header included.
const ITEM_BYTES_USUAL: usize = 1 << 20;
const START_TIME_MAX: Duration = Duration::from_secs(10);
const REPLY_TIME_MAX: Duration = Duration::from_secs(10);

/// The processes, in a directory of their own. They end when this is dropped, or when the thread that started them
/// ends.
#[derive(Debug)]
pub struct Memcached {
    children: Vec<Child>,
    sockets: Vec<PathBuf>,
}

impl Memcached {
    /// Starts `count` processes with `megabytes` MiB each, for values of `value_bytes`.
    pub fn start(directory: &Path, count: usize, megabytes: usize, value_bytes: usize) -> io::Result<Self> {
        let mut started = Self {
            children: Vec::new(),
            sockets: Vec::new(),
        };
        // memcached refuses to run as root unless a user is named.
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        for node in 0..count {
            let socket = directory.join(format!("node-{node}"));
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "memcached", "-U", "0", "-t", "1", "-s"]);
            command.arg(&socket).arg("-m").arg(megabytes.to_string());
            if value_bytes > ITEM_BYTES_USUAL / 2 {
                command.args(["-I", "16m"]);
            }
            if is_root {
                command.args(["-u", "root"]);
            }
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("memcached, by setpriv: {error}: are both installed?"),
                )
            })?;
            started.children.push(child);
            started.sockets.push(socket);
        }
        Ok(started)
    }

    /// Ends a process. What it has is lost, and every later message to it is an error.
    pub fn end(&mut self, node: usize) -> io::Result<()> {
        self.children[node].kill()?;
        self.children[node].wait().map(drop)
    }

    /// Opens a connection to each process.
    pub fn connect(&mut self) -> io::Result<Vec<Connection>> {
        let deadline = Instant::now() + START_TIME_MAX;
        let mut connections = Vec::new();
        for (child, socket) in self.children.iter_mut().zip(&self.sockets) {
            let stream = loop {
                match UnixStream::connect(socket) {
                    Ok(stream) => break stream,
                    Err(error) if Instant::now() > deadline => return Err(error),
                    Err(_) => {
                        if let Some(status) = child.try_wait()? {
                            return Err(io::Error::other(format!("memcached has ended: {status}")));
                        }
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            };
            stream.set_read_timeout(Some(REPLY_TIME_MAX))?;
            connections.push(Connection {
                stream: BufReader::with_capacity(64 << 10, stream),
                line: String::new(),
                message: Vec::new(),
            });
        }
        Ok(connections)
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        for child in &mut self.children {
            // A process that has already ended is only waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A connection to one node.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<UnixStream>,
    line: String,
    message: Vec<u8>,
}

impl Connection {
    fn write_message(&mut self, head: &str, value: Option<&[u8]>) -> io::Result<()> {
        self.message.clear();
        self.message.extend_from_slice(head.as_bytes());
        self.message.extend_from_slice(b"\r\n");
        if let Some(value) = value {
            self.message.extend_from_slice(value);
            self.message.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&self.message)
    }

    fn read_line(&mut self) -> io::Result<&str> {
        self.line.clear();
        self.stream.read_line(&mut self.line)?;
        Ok(self.line.trim_end())
    }

    fn read_value(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.read_line()?;
        if line == "END" {
            return Ok(None);
        }
        let length = line.strip_prefix("VALUE ").and_then(|rest| rest.rsplit(' ').next());
        let length = length.and_then(|length| length.parse().ok());
        let Some(length) = length.filter(|length| *length <= VALUE_BYTES_MAX) else {
            return Err(io::Error::other(format!("memcached answers {line:?}")));
        };
        let mut value = vec![0; length];
        self.stream.read_exact(&mut value)?;
        self.read_line()?;
        match self.read_line()? {
            "END" => Ok(Some(value)),
            line => Err(io::Error::other(format!("memcached answers {line:?}"))),
        }
    }
}

impl Peer for Connection {
    fn send(&mut self, ask: &Ask) -> io::Result<()> {
        match ask {
            Ask::Get(name) => self.write_message(&format!("get {name}"), None),
            Ask::Set(name, value) => self.write_message(&format!("set {name} 0 0 {}", value.len()), Some(value)),
            Ask::SetQuietly(name, value) => {
                self.write_message(&format!("set {name} 0 0 {} noreply", value.len()), Some(value))
            }
            Ask::Delete(name) => self.write_message(&format!("delete {name} noreply"), None),
            Ask::PutParity(..) | Ask::Delta { .. } | Ask::GetParity(_) => Err(io::Error::other("memcached has no log")),
        }
    }

    fn receive(&mut self, ask: &Ask) -> io::Result<Option<Vec<u8>>> {
        if matches!(ask, Ask::Get(_)) {
            return self.read_value();
        }
        match self.read_line()? {
            "STORED" => Ok(None),
            line => Err(io::Error::other(format!("memcached answers {line:?}"))),
        }
    }

    /// The value `bytes` of its `stats`: items with their headers and keys.
    fn stored_bytes(&mut self) -> io::Result<u64> {
        self.write_message("stats", None)?;
        let mut found = None;
        loop {
            let line = self.read_line()?;
            if line == "END" {
                return found.ok_or_else(|| io::Error::other("memcached does not report its stored bytes"));
            }
            if line.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(bytes) = line.strip_prefix("STAT bytes ") {
                found = bytes.parse().ok();
            }
        }
    }
}
