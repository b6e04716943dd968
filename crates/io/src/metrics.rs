//! Figures for Prometheus over HTTP, for any process: `GET /metrics`, one request a connection.
//!
//! A thread of its own serves a few connections, and asks its [`Source`] for the text. So a slow or hostile scraper
//! costs the process no more than a text a second.

mod request;
mod text;

use crate::clock;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};
use paritas_base::{Span, Time};
use request::{HEAD_BYTES_MAX, Request, parse};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
pub use text::{Kind, Text};

/// Gives the text; `None` if the process is too busy.
pub type Source = Box<dyn FnMut() -> Option<String> + Send>;

/// Most connections. One more closes the oldest, so that slow ones cannot keep others out.
const CONNECTIONS_MAX: usize = 8;
/// Most connections taken in one turn.
const ACCEPTS_MAX: usize = 16;
/// Longest life of a connection.
const LIFE: Span = Span::from_secs(10);
/// A text is given again for this long.
const FRESH: Span = Span::from_secs(1);
/// Most bytes of a connection that are read after its request. Closing it with unread bytes could cost the answer.
const REST_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 4 << 10;
const LISTENER: Token = Token(0);

/// Binds an address and starts the thread, which ends with the process. Returns the address, whose port the system may
/// have chosen.
///
/// # Errors
/// If the address is taken, or the system refuses a thread.
pub fn serve(listen: SocketAddr, source: Source) -> io::Result<SocketAddr> {
    let poll = Poll::new()?;
    let mut listener = TcpListener::bind(listen)?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let bound = listener.local_addr()?;
    let server = Server {
        poll,
        listener,
        source,
        fresh: None,
        connections: BTreeMap::new(),
        next: 1,
    };
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || server.run())?;
    Ok(bound)
}

struct Server {
    poll: Poll,
    listener: TcpListener,
    source: Source,
    /// The last text, and when it was made.
    fresh: Option<(Time, Arc<[u8]>)>,
    /// By token. A smaller token is an older connection.
    connections: BTreeMap<usize, Connection>,
    next: usize,
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    /// The answer: its head, its body, and how much of both is sent. `None` until the request is whole.
    answer: Option<(Vec<u8>, Arc<[u8]>, usize)>,
    /// The answer is sent, and the other side's end is waited for.
    is_answered: bool,
    /// Bytes that were read after the request.
    rest_bytes: usize,
    deadline: Time,
}

impl Server {
    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        let mut more_to_accept = false;
        loop {
            let now = clock::mono();
            self.connections.retain(|_, connection| now < connection.deadline);
            let next = self.connections.values().map(|connection| connection.deadline).min();
            let wait = next.map(|at| Duration::from_nanos((at - now).0) + Duration::from_millis(1));
            let wait = if more_to_accept { Some(Duration::ZERO) } else { wait };
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return tracing::error!(%error, "the metrics end");
                }
                _ => {}
            }
            for event in &events {
                match event.token() {
                    LISTENER => more_to_accept = true,
                    Token(id) => self.work(id),
                }
            }
            if more_to_accept {
                more_to_accept = self.accept();
            }
        }
    }

    /// Returns whether more may wait.
    fn accept(&mut self) -> bool {
        for _ in 0..ACCEPTS_MAX {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        tracing::warn!(%error, "a connection for metrics cannot be taken");
                    }
                    return false;
                }
            };
            if let Err(error) = watch(self.poll.registry(), &mut stream, self.next) {
                tracing::warn!(%error, "a connection for metrics cannot be watched");
                continue;
            }
            while self.connections.len() >= CONNECTIONS_MAX {
                self.connections.pop_first();
            }
            let connection = Connection {
                stream,
                input: Vec::new(),
                answer: None,
                is_answered: false,
                rest_bytes: 0,
                deadline: clock::mono() + LIFE,
            };
            self.connections.insert(self.next, connection);
            self.next += 1;
        }
        true
    }

    fn work(&mut self, id: usize) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let mut text = || fresh(&mut self.fresh, &mut self.source);
        if connection.work(&mut text).is_err() {
            self.connections.remove(&id);
        }
    }
}

fn watch(registry: &Registry, stream: &mut TcpStream, id: usize) -> io::Result<()> {
    registry.register(stream, Token(id), Interest::READABLE | Interest::WRITABLE)
}

/// The last text, if it is fresh, else a new one.
fn fresh(last: &mut Option<(Time, Arc<[u8]>)>, source: &mut Source) -> Option<Arc<[u8]>> {
    if let Some((at, text)) = last
        && clock::mono() - *at < FRESH
    {
        return Some(Arc::clone(text));
    }
    let text: Arc<[u8]> = source()?.into_bytes().into();
    *last = Some((clock::mono(), Arc::clone(&text)));
    Some(text)
}

impl Connection {
    /// Reads and writes what can be. An error ends the connection.
    fn work(&mut self, text: &mut dyn FnMut() -> Option<Arc<[u8]>>) -> io::Result<()> {
        loop {
            if self.flush()? {
                self.is_answered = true;
                self.stream.shutdown(Shutdown::Write)?;
            }
            let mut piece = [0; READ_BYTES];
            let count = match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            if self.answer.is_some() || self.is_answered {
                self.rest_bytes += count;
                if self.rest_bytes > REST_BYTES_MAX {
                    return Err(ErrorKind::InvalidData.into());
                }
                continue;
            }
            self.input.extend_from_slice(piece.get(..count).unwrap_or_default());
            if let Some(request) = parse(&self.input) {
                let (head, body) = answer(&request, text);
                self.input = Vec::new();
                self.answer = Some((head, body, 0));
            }
            debug_assert!(self.input.len() <= HEAD_BYTES_MAX + READ_BYTES);
        }
    }

    /// Returns whether the answer has just been sent to its end.
    fn flush(&mut self) -> io::Result<bool> {
        let Some((head, body, sent)) = &mut self.answer else {
            return Ok(false);
        };
        loop {
            let rest = match head.get(*sent..).filter(|rest| !rest.is_empty()) {
                Some(rest) => rest,
                None => body.get(*sent - head.len()..).unwrap_or_default(),
            };
            if rest.is_empty() {
                self.answer = None;
                return Ok(true);
            }
            match self.stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => *sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Head and body.
fn answer(request: &Request, text: &mut dyn FnMut() -> Option<Arc<[u8]>>) -> (Vec<u8>, Arc<[u8]>) {
    let (status, body) = match request {
        Request::Metrics { .. } => match text() {
            Some(text) => ("200 OK", text),
            None => (
                "503 Service Unavailable",
                Arc::from(&b"the process is too busy: try again\n"[..]),
            ),
        },
        Request::Wrong { status, why } => (*status, Arc::from(why.as_bytes())),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Allow: GET, HEAD\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = match request {
        Request::Metrics { head_only: true } => Arc::from(&b""[..]),
        _ => body,
    };
    (head.into_bytes(), body)
}

#[cfg(test)]
mod tests;
