//! A client connection to a node's client port: many commands at once, with their replies in order.

use crate::Failure;
use paritas_wire::resp::{self, ReplyDecoder, Value};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Most bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Longest reply that is accepted, in bytes.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// A blocking connection. A node that is silent for longer than `timeout` counts as lost.
#[derive(Debug)]
pub struct Connection {
    node: SocketAddr,
    stream: TcpStream,
    output: Vec<u8>,
    input: Vec<u8>,
    /// Number of bytes of `input` that were consumed.
    taken: usize,
    decoder: ReplyDecoder,
    lost: bool,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// If nobody answers within `timeout`.
    pub fn open(node: SocketAddr, timeout: Duration) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure(format!("{node} does not answer: {error}"));
        let stream = TcpStream::connect_timeout(&node, timeout).map_err(failed)?;
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self {
            node,
            stream,
            output: Vec::new(),
            input: Vec::new(),
            taken: 0,
            decoder: ReplyDecoder::new(),
            lost: false,
        })
    }

    /// Whether the connection is lost: the node has closed it, or is silent.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Queues a command. It is sent when a reply is asked for.
    pub fn send(&mut self, words: &[&[u8]]) {
        resp::encode::request(&mut self.output, words);
    }

    /// The reply to the oldest command that has none yet.
    ///
    /// # Errors
    /// If the connection is lost, or what comes is not a reply.
    pub fn reply(&mut self) -> Result<Value, Failure> {
        let node = self.node;
        if !self.output.is_empty() {
            let written = self.stream.write_all(&self.output);
            written.map_err(|error| self.fail(&error))?;
            self.output.clear();
        }
        loop {
            let rest = self.input.get(self.taken..).unwrap_or_default();
            match self.decoder.decode(rest) {
                Ok(Some((reply, bytes))) => {
                    let value = reply.to_value();
                    self.taken += bytes;
                    return Ok(value);
                }
                Ok(None) => {}
                Err(error) => return Err(Failure(format!("{node}: {error}: is it a node of Paritas?"))),
            }
            self.input.drain(..self.taken);
            self.taken = 0;
            let held = self.input.len();
            if held > REPLY_BYTES_MAX {
                return Err(Failure(format!(
                    "{node} answers with more than {REPLY_BYTES_MAX} bytes"
                )));
            }
            self.input.resize(held + READ_BYTES, 0);
            let read = loop {
                match self.stream.read(&mut self.input[held..]) {
                    // A process that was stopped and continued gets this error.
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    read => break read.map_err(|error| self.fail(&error))?,
                }
            };
            self.input.truncate(held + read);
            if read == 0 {
                self.lost = true;
                return Err(Failure(format!("{node} closed the connection")));
            }
        }
    }

    fn fail(&mut self, error: &std::io::Error) -> Failure {
        self.lost = true;
        Failure(format!("{} no longer answers: {error}", self.node))
    }
}
