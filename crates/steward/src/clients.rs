//! Clients' connections. Each has at most one command without an answer, and one answer that is not yet sent; what it
//! sends meanwhile waits in its socket. So what a client can make this process hold is bounded.

use crate::gate::{Gate, gate};
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use paritas_base::{Span, Time};
use paritas_wire::resp::{Args, Decoded, Limits, Password, ProtocolError, decode, decode_more, encode};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

/// Limits of a command: OPEN of a file with 65,536 nodes has many short words.
const LIMITS: Limits = Limits {
    bulk_bytes_max: 8 << 10,
    whole_bytes_max: 8 << 10,
    args_max: (1 << 16) + 16,
    inline_bytes_max: 8 << 10,
    request_bytes_max: 8 << 20,
    authenticated: true,
};
/// Limits of a command of a client that has not given the password.
const LIMITS_OUTSIDE: Limits = Limits::UNAUTHENTICATED;
/// Most bytes that all clients together have sent and that wait for the rest of their command.
const INPUT_ALL_MAX: usize = 64 << 20;
/// Most commands of one client in a turn.
const COMMANDS_MAX: usize = 64;
const READ_BYTES: usize = 16 << 10;
/// Most bytes that are read of a client after the error that ends it. Closing a socket with unread bytes resets the
/// connection, which can cost the client the error.
const DISCARDED_MAX: usize = 16 << 20;
/// Most connections taken in one turn.
const ACCEPTS_MAX: usize = 64;
/// A connection on which nothing happened for this long is closed.
const IDLE: Span = Span::from_secs(600);
/// The same without the password.
const IDLE_OUTSIDE: Span = Span::from_secs(60);
/// At most one warning of a wrong password in this time.
const WARN_EVERY: Span = Span::from_secs(10);
const SWEEP: Span = Span::from_secs(30);

/// Runs a command of a client. Appends the answer and returns true, or returns false if the answer comes later.
type Run<'a> = &'a mut dyn FnMut(usize, &[&[u8]], &mut Vec<u8>) -> bool;

/// As [`Run`], for one client. The flag says whether it has given the password, and the command may set it.
type Gated<'a> = &'a mut dyn FnMut(&mut bool, &[&[u8]], &mut Vec<u8>) -> bool;

/// Where a client is after a turn.
enum Outcome {
    /// It waits for its socket or for an answer.
    Waits,
    HasMore,
    Over,
}

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    args: Args,
    /// Whether the last decoding of `input` ended within a command.
    partial: bool,
    output: Vec<u8>,
    written: usize,
    /// A command waits for its answer.
    busy: bool,
    /// It has given the password, or needs none.
    is_in: bool,
    /// Its command was refused by its length, for want of the password; not yet counted.
    denied: bool,
    /// To be closed when the output is sent, and what it still sends is discarded.
    closing: bool,
    discarded_bytes: usize,
    active: Time,
}

#[derive(Debug)]
pub(crate) struct Clients {
    clients: BTreeMap<usize, Client>,
    /// Ids are never used again, so a late answer cannot go to another client.
    next_id: usize,
    count_max: usize,
    refused_count: u64,
    password: Option<Password>,
    /// Commands without the password, refused by name or by length, and wrong passwords.
    denied_count: u64,
    /// The number of denials when they were last logged, and the time.
    denied_logged: (u64, Time),
    input_bytes: usize,
    /// Clients that may have more to do than one turn takes.
    again: BTreeSet<usize>,
    next_sweep: Time,
}

impl Clients {
    /// Ids begin at `first`; smaller ones are the process's other tokens.
    pub(crate) fn new(first: usize, count_max: usize, password: Option<Password>) -> Self {
        Self {
            clients: BTreeMap::new(),
            next_id: first,
            count_max,
            refused_count: 0,
            password,
            denied_count: 0,
            denied_logged: (0, Time(0)),
            input_bytes: 0,
            again: BTreeSet::new(),
            next_sweep: Time(0),
        }
    }

    /// Number of connections.
    pub(crate) fn count(&self) -> usize {
        self.clients.len()
    }

    /// Number of connections that were refused.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// Number of commands without the password, and of wrong passwords.
    pub(crate) fn denied_count(&self) -> u64 {
        self.denied_count
    }

    /// Takes connections. Returns whether more may wait.
    pub(crate) fn accept(&mut self, now: Time, listener: &TcpListener, registry: &Registry) -> bool {
        for _ in 0..ACCEPTS_MAX {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        tracing::warn!(%error, "a connection cannot be taken");
                    }
                    return false;
                }
            };
            if self.clients.len() >= self.count_max {
                self.refused_count += 1;
                // The kernel takes so short a text at once.
                let _ = stream.write(b"-ERR max number of clients reached: raise clients_max of the steward\r\n");
                continue;
            }
            let id = self.next_id;
            self.next_id += 1;
            let interest = Interest::READABLE | Interest::WRITABLE;
            let ready = stream.set_nodelay(true);
            if let Err(error) = ready.and_then(|()| registry.register(&mut stream, Token(id), interest)) {
                tracing::warn!(%error, "a connection cannot be watched");
                continue;
            }
            self.clients.insert(
                id,
                Client {
                    stream,
                    input: Vec::new(),
                    args: Args::new(),
                    partial: false,
                    output: Vec::new(),
                    written: 0,
                    busy: false,
                    is_in: self.password.is_none(),
                    denied: false,
                    closing: false,
                    discarded_bytes: 0,
                    active: now,
                },
            );
        }
        true
    }

    /// Reads and writes what can be, and calls `run` for each whole command. It appends an answer and returns true, or
    /// returns false if `answer` will bring it.
    pub(crate) fn on_event(&mut self, now: Time, event: &Event, run: Run<'_>) {
        self.work(now, event.token().0, run);
    }

    /// The answer to the command that a client waits for.
    pub(crate) fn answer(&mut self, now: Time, id: usize, append: impl FnOnce(&mut Vec<u8>), run: Run<'_>) {
        if let Some(client) = self.clients.get_mut(&id).filter(|client| client.busy) {
            client.busy = false;
            append(&mut client.output);
            self.work(now, id, run);
        }
    }

    fn work(&mut self, now: Time, id: usize, run: Run<'_>) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.active = now;
        let before = client.input.len();
        // Clients without the password leave half of it to the others.
        let input_max = INPUT_ALL_MAX / if client.is_in { 1 } else { 2 };
        let room = input_max.saturating_sub(self.input_bytes - before);
        let (password, denied_count) = (self.password.as_ref(), &mut self.denied_count);
        // What the client asks before it has given the password is answered here.
        let mut gated = |is_in: &mut bool, words: &[&[u8]], out: &mut Vec<u8>| match gate(out, words, password, is_in) {
            Gate::Open => run(id, words, out),
            Gate::Answered => true,
            Gate::Denied => {
                *denied_count += 1;
                true
            }
        };
        let outcome = client.work(room, &mut gated);
        self.denied_count += u64::from(std::mem::take(&mut client.denied));
        self.input_bytes = self.input_bytes - before + client.input.len();
        match outcome {
            Outcome::Waits => {}
            Outcome::HasMore => {
                self.again.insert(id);
            }
            Outcome::Over => self.close(id),
        }
    }

    /// Whether clients have more to do at once.
    pub(crate) fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    /// Continues with clients that had more to do.
    pub(crate) fn resume(&mut self, now: Time, run: Run<'_>) {
        for id in std::mem::take(&mut self.again) {
            self.work(now, id, &mut *run);
        }
    }

    fn close(&mut self, id: usize) {
        if let Some(client) = self.clients.remove(&id) {
            // Dropping the stream ends its registration.
            self.input_bytes -= client.input.len();
        }
    }

    /// Closes connections on which nothing happens, and logs denials.
    pub(crate) fn sweep(&mut self, now: Time) {
        let (logged, at) = self.denied_logged;
        if self.denied_count > logged && now - at >= WARN_EVERY {
            let count = self.denied_count - logged;
            tracing::warn!(
                count,
                "commands without the password of password_file, or with a wrong one, are refused"
            );
            self.denied_logged = (self.denied_count, now);
        }
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + SWEEP;
        let idle = self.clients.iter().filter(|(_, client)| {
            let longest = if client.is_in && !client.closing {
                IDLE
            } else {
                IDLE_OUTSIDE
            };
            now - client.active > longest
        });
        let idle: Vec<usize> = idle.map(|(id, _)| *id).collect();
        for id in idle {
            self.close(id);
        }
    }
}

impl Client {
    /// Sends, runs and reads until the sockets or an answer must be waited for.
    fn work(&mut self, room: usize, run: Gated<'_>) -> Outcome {
        for _ in 0..COMMANDS_MAX {
            match self.flush() {
                Ok(true) => {}
                Ok(false) => return Outcome::Waits,
                Err(_) => return Outcome::Over,
            }
            if self.closing {
                return self.discard();
            }
            if self.busy {
                // Nothing more is read: mio reports only new bytes, so the answer continues here.
                return Outcome::Waits;
            }
            if self.run_one(run) {
                continue;
            }
            let held = self.input.len();
            if held > room {
                let text = "ERR too many unfinished commands of all clients: try again later";
                encode::error(&mut self.output, text);
                self.closing = true;
                continue;
            }
            self.input.resize(held + READ_BYTES, 0);
            let read = self.stream.read(self.input.get_mut(held..).unwrap_or_default());
            self.input.truncate(held + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Outcome::Over,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.input.is_empty() && self.input.capacity() > 4 * READ_BYTES {
                        self.input = Vec::new();
                    }
                    return Outcome::Waits;
                }
                Err(_) => return Outcome::Over,
            }
        }
        Outcome::HasMore
    }

    /// Discards what a client sends after the error that ends it, until it closes its side too.
    fn discard(&mut self) -> Outcome {
        self.input = Vec::new();
        // It sees the end of the answers at once. An error here means that it is gone, and the read below says so too.
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut bytes = [0; READ_BYTES];
        for _ in 0..COMMANDS_MAX {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Outcome::Over,
                Ok(count) => self.discarded_bytes += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Outcome::Waits,
                Err(_) => return Outcome::Over,
            }
            if self.discarded_bytes > DISCARDED_MAX {
                return Outcome::Over;
            }
        }
        Outcome::HasMore
    }

    /// Runs the first command of the input, if it is whole.
    fn run_one(&mut self, run: Gated<'_>) -> bool {
        let limits = if self.is_in { &LIMITS } else { &LIMITS_OUTSIDE };
        let decoded = match self.partial {
            true => decode_more(&self.input, limits, &mut self.args),
            false => decode(&self.input, limits, &mut self.args),
        };
        match decoded {
            Ok(Decoded::Complete { consumed }) => {
                self.partial = false;
                let words: Vec<&[u8]> = self.args.list(&self.input).iter().collect();
                if !words.is_empty() {
                    self.busy = !run(&mut self.is_in, &words, &mut self.output);
                }
                self.input.drain(..consumed);
                true
            }
            Ok(Decoded::Incomplete { .. }) => {
                self.partial = !self.input.is_empty();
                false
            }
            // No argument is longer than the limit of whole ones.
            Ok(Decoded::Long { .. }) => {
                ProtocolError::InvalidBulkLength.append_to(&mut self.output);
                self.closing = true;
                true
            }
            Err(error) => {
                error.append_to(&mut self.output);
                // FILES.OPEN of a file of two blocks is already that long.
                self.denied = matches!(
                    error,
                    ProtocolError::UnauthenticatedMultibulkLength | ProtocolError::UnauthenticatedBulkLength
                );
                self.closing = true;
                true
            }
        }
    }

    /// Returns whether everything is sent.
    fn flush(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        self.output.clear();
        if self.output.capacity() > 4 * READ_BYTES {
            self.output = Vec::new();
        }
        Ok(true)
    }
}
