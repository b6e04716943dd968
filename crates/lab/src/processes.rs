//! Figures that the system has of processes: CPU time, and data sent on their connections.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::{RangeInclusive, Sub};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as unix, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Child processes. They end when this is dropped, or when the thread that started them ends.
#[derive(Debug, Default)]
pub(crate) struct Children(Vec<Child>);

impl Children {
    /// Starts a process.
    pub(crate) fn start<A: AsRef<OsStr>>(
        &mut self,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = A>,
        directory: &Path,
    ) -> io::Result<()> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&program).args(arguments);
        command.current_dir(directory).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let name = program.as_ref().to_string_lossy();
        let child = child.map_err(|error| io::Error::new(error.kind(), format!("{name}, by setpriv: {error}")))?;
        self.0.push(child);
        Ok(())
    }

    /// Runs a process to its end.
    ///
    /// # Errors
    /// If the process fails; the error has its output.
    pub(crate) fn complete(program: impl AsRef<OsStr>, arguments: &[&str], directory: &Path) -> io::Result<()> {
        let mut command = Command::new(&program);
        let output = command
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        let name = program.as_ref().to_string_lossy();
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!(
            "{name} {}: {}",
            arguments.join(" "),
            said.trim()
        )))
    }

    /// CPU time of all processes so far.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        self.0.iter().map(|child| cpu(child.id())).sum()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A process that has already ended is only waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Finds a port such that, at each of the offsets, `count` ports from it on are free. None of them is in the range that
/// the system assigns to clients.
pub(crate) fn free_ports(count: u16, offsets: &[(Ipv4Addr, u16)]) -> io::Result<u16> {
    let seed = std::process::id() as u16 % 64;
    let firsts = (0..64).map(|n| 13_000 + (seed + n) % 64 * 14);
    let is_free = |first: &u16| {
        let mut all = offsets
            .iter()
            .flat_map(|(ip, offset)| (0..count).map(move |n| (*ip, offset + n)));
        claim(*first) && all.all(|(ip, offset)| TcpListener::bind(SocketAddr::from((ip, first + offset))).is_ok())
    };
    let found = firsts.into_iter().find(is_free);
    found.ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no range of free ports was found"))
}

/// Takes a range of ports for this process until it ends. Between finding them free and using them, another process of
/// the lab could take them. The name is a socket's, which goes with the process.
fn claim(first: u16) -> bool {
    static OWN: Mutex<BTreeMap<u16, UnixListener>> = Mutex::new(BTreeMap::new());
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if own.contains_key(&first) {
        return true;
    }
    let name = unix::SocketAddr::from_abstract_name(format!("paritas-lab-ports-{first}"));
    match name.and_then(|name| UnixListener::bind_addr(&name)) {
        Ok(socket) => own.insert(first, socket).is_none(),
        Err(_) => false,
    }
}

/// CPU time of all threads of a process so far.
pub(crate) fn cpu(pid: u32) -> io::Result<Duration> {
    let mut total = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has ended meanwhile has no figure.
        let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        let ran: Option<u64> = text.split_whitespace().next().and_then(|field| field.parse().ok());
        total += ran.ok_or_else(|| io::Error::other(format!("/proc/{pid}/task has no times: {text:?}")))?;
    }
    Ok(Duration::from_nanos(total))
}

/// Data sent on connections, in both directions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Segments with data. With one request at a time, a message is one segment, unless it is longer than the system's
    /// largest segment, 64 KiB here.
    pub messages: u64,
    /// Bytes of data.
    pub bytes: u64,
}

impl Sub for Sent {
    type Output = Self;

    /// If a connection has ended meanwhile, its figures are gone, and the difference is at least 0.
    fn sub(self, earlier: Self) -> Self {
        Self {
            messages: self.messages.saturating_sub(earlier.messages),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

/// Data sent on all connections that others opened to these ports of this host.
pub(crate) fn sent(ports: RangeInclusive<u16>) -> io::Result<Sent> {
    let (first, last) = (ports.start(), ports.end());
    let filter = format!("( sport >= :{first} and sport <= :{last} )");
    let done = Command::new("ss")
        .args(["-t", "-i", "-n", "-H", "state", "established", &filter])
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("ss: {error}: is iproute2 installed?")))?;
    if !done.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()));
    }
    Ok(read(&String::from_utf8_lossy(&done.stdout)))
}

fn read(text: &str) -> Sent {
    let mut sent = Sent::default();
    for field in text.split_whitespace() {
        let number = |name: &str| field.strip_prefix(name).and_then(|rest| rest.parse::<u64>().ok());
        for name in ["data_segs_out:", "data_segs_in:"] {
            sent.messages += number(name).unwrap_or(0);
        }
        for name in ["bytes_sent:", "bytes_received:"] {
            sent.bytes += number(name).unwrap_or(0);
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_went_through_a_connection_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut here = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        let before = sent(port..=port).unwrap();
        here.write_all(&[1; 300]).unwrap();
        there.read_exact(&mut [0; 300]).unwrap();
        there.write_all(&[2; 20]).unwrap();
        here.read_exact(&mut [0; 20]).unwrap();
        let found = sent(port..=port).unwrap() - before;
        assert_eq!(
            found,
            Sent {
                messages: 2,
                bytes: 320
            }
        );
    }

    #[test]
    fn work_takes_cpu_time() {
        let own = std::process::id();
        let before = cpu(own).unwrap();
        let mut sum = 0_u64;
        // The loop ends on any machine, because CPU time only grows.
        while cpu(own).unwrap() - before < Duration::from_millis(2) {
            sum = (0..10_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(cpu(own).unwrap() > before);
    }
}
