//! What the system knows of processes: their CPU time, and what went through their connections.

use std::io;
use std::ops::{RangeInclusive, Sub};
use std::process::Command;
use std::time::Duration;

/// CPU time of all threads of a process so far.
pub(crate) fn cpu(pid: u32) -> io::Result<Duration> {
    let mut total = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // One that has ended meanwhile has no figure any more.
        let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        let ran: Option<u64> = text.split_whitespace().next().and_then(|field| field.parse().ok());
        total += ran.ok_or_else(|| io::Error::other(format!("/proc/{pid}/task has no times: {text:?}")))?;
    }
    Ok(Duration::from_nanos(total))
}

/// What went through connections, both ways.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Segments with data. One request at a time, a message that is no longer than the system's largest segment, 64 KiB
    /// here, is one.
    pub messages: u64,
    /// Bytes of data.
    pub bytes: u64,
}

impl Sub for Sent {
    type Output = Self;

    /// A connection that has ended meanwhile takes what went through it along.
    fn sub(self, earlier: Self) -> Self {
        Self {
            messages: self.messages.saturating_sub(earlier.messages),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

/// Through all connections that somebody else opened to these ports of this host.
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
        // Whatever the machine, that much is done some day.
        while cpu(own).unwrap() - before < Duration::from_millis(2) {
            sum = (0..10_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(cpu(own).unwrap() > before);
    }
}
