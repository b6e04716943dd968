//! Connections that send batches and wait for their replies.

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The reply at the start of `bytes`: its length, and whether it has a value. `None` if the reply is not complete.
pub(crate) fn reply(bytes: &[u8], memcached: bool) -> io::Result<Option<(usize, bool)>> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let line = &bytes[..end];
    let number = |text: &[u8]| str::from_utf8(text).ok().and_then(|text| text.parse::<usize>().ok());
    let whole = |length: usize| (bytes.len() >= length).then_some(length);
    if memcached {
        return match line {
            b"HD" => Ok(Some((end + 2, true))),
            b"EN" => Ok(Some((end + 2, false))),
            _ if line.starts_with(b"VA ") => {
                let length = number(&line[3..]).ok_or_else(|| unexpected(line))?;
                Ok(whole(end + 2 + length + 2).map(|length| (length, true)))
            }
            _ => Err(unexpected(line)),
        };
    }
    match line.first() {
        Some(b'+' | b':') => Ok(Some((end + 2, true))),
        Some(b'$') if line == b"$-1" => Ok(Some((end + 2, false))),
        Some(b'_') => Ok(Some((end + 2, false))),
        Some(b'$') => {
            let length = number(&line[1..]).ok_or_else(|| unexpected(line))?;
            Ok(whole(end + 2 + length + 2).map(|length| (length, true)))
        }
        _ => Err(unexpected(line)),
    }
}

fn unexpected(line: &[u8]) -> io::Error {
    io::Error::other(format!("unexpected reply: {}", String::from_utf8_lossy(line)))
}

struct Connection {
    stream: TcpStream,
    /// Index of the node, as in `Batch`.
    node: usize,
    out: Vec<u8>,
    written: usize,
    in_: Vec<u8>,
    pending: usize,
    begun: Instant,
}

/// Fills `out` with the next batch for a node, and returns the number of its replies; 0 if nothing is left to send.
pub(crate) type Batch<'a> = dyn FnMut(usize, &mut Vec<u8>) -> io::Result<usize> + 'a;

#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) replies: u64,
    pub(crate) missing: u64,
    pub(crate) batches_us: Vec<u32>,
}

/// Sends batches: on each connection as soon as the previous batch is answered, or `per_second` batches in all.
pub(crate) fn drive(
    ports: &[u16],
    memcached: bool,
    per_second: Option<f64>,
    batch: &mut Batch<'_>,
) -> io::Result<Outcome> {
    let mut poll = Poll::new()?;
    let mut connections = Vec::new();
    for (at, &(node, port)) in number(ports).iter().enumerate() {
        // Connects before the stream is made non-blocking, so that a refused connection is an error here.
        let stream = std::net::TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry()
            .register(&mut stream, Token(at), Interest::READABLE | Interest::WRITABLE)?;
        let (out, in_) = (Vec::new(), Vec::new());
        connections.push(Connection {
            stream,
            node,
            out,
            written: 0,
            in_,
            pending: 0,
            begun: Instant::now(),
        });
    }
    let mut outcome = Outcome::default();
    let mut pace = Pace::new(per_second);
    let mut idle: VecDeque<usize> = (0..connections.len()).collect();
    let (mut busy, mut ended) = (0, false);
    let mut events = Events::with_capacity(1024);
    loop {
        pace.advance();
        while let Some(&at) = idle.front()
            && !ended
            && let Some(due) = pace.next()
        {
            ended = !connections[at].send(due, batch)?;
            if !ended || per_second.is_none() {
                idle.pop_front();
            }
            busy += usize::from(!ended);
            // Without a rate, another node may still have something to send.
            ended &= per_second.is_some();
        }
        if busy == 0 && (ended || per_second.is_none()) {
            return Ok(outcome);
        }
        poll.poll(&mut events, pace.timeout())?;
        for event in &events {
            let at = event.token().0;
            let connection = &mut connections[at];
            connection.flush()?;
            if connection.pending > 0 && connection.receive(memcached, &mut outcome)? {
                busy -= 1;
                idle.push_back(at);
            }
        }
    }
}

/// The times at which batches are due. If no connection is free, a batch waits, and its time includes the wait.
struct Pace {
    per_second: Option<f64>,
    start: Instant,
    begun: u64,
    due: VecDeque<Instant>,
}

impl Pace {
    fn new(per_second: Option<f64>) -> Self {
        Self {
            per_second,
            start: Instant::now(),
            begun: 0,
            due: VecDeque::new(),
        }
    }

    fn advance(&mut self) {
        if let Some(per_second) = self.per_second {
            let now = Instant::now();
            let until_now = ((now - self.start).as_secs_f64() * per_second) as u64;
            self.due
                .extend(std::iter::repeat_n(now, (until_now - self.begun) as usize));
            self.begun = until_now;
        }
    }

    fn next(&mut self) -> Option<Instant> {
        match self.per_second {
            Some(_) => self.due.pop_front(),
            None => Some(Instant::now()),
        }
    }

    /// The poll waits in whole milliseconds, so all batches that are due within one millisecond begin together.
    fn timeout(&self) -> Option<Duration> {
        self.per_second.map(|_| Duration::from_millis(1))
    }
}

/// The connections, each with the index of its node. Nodes are numbered in the order of their ports, and the same port
/// is the same node.
fn number(ports: &[u16]) -> Vec<(usize, u16)> {
    let mut distinct = ports.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    ports
        .iter()
        .map(|port| (distinct.partition_point(|other| other < port), *port))
        .collect()
}

impl Connection {
    fn send(&mut self, due: Instant, batch: &mut Batch<'_>) -> io::Result<bool> {
        self.out.clear();
        self.written = 0;
        self.pending = batch(self.node, &mut self.out)?;
        self.begun = due;
        self.flush()?;
        Ok(self.pending > 0)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(n) => self.written += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Whether the batch is answered completely.
    fn receive(&mut self, memcached: bool, outcome: &mut Outcome) -> io::Result<bool> {
        let mut block = [0; 64 << 10];
        loop {
            match self.stream.read(&mut block) {
                Ok(0) => return Err(io::Error::other("the server has closed a connection")),
                Ok(n) => self.in_.extend_from_slice(&block[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        let mut at = 0;
        while self.pending > 0 {
            let Some((length, found)) = reply(&self.in_[at..], memcached)? else {
                break;
            };
            at += length;
            self.pending -= 1;
            outcome.replies += 1;
            outcome.missing += u64::from(!found);
        }
        self.in_.drain(..at);
        if self.pending == 0 {
            outcome.batches_us.push(self.begun.elapsed().as_micros() as u32);
        }
        Ok(self.pending == 0)
    }
}
