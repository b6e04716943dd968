//! A client connection to a node's client port: many commands at once, with their replies in order.

use crate::Failure;
use paritas_wire::resp::{self, Password, ReplyDecoder, Value};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Most bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Longest reply that is accepted, in bytes.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// A node, and the password that its clients must give.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// Its client port.
    pub node: SocketAddr,
    /// Its password, if there is one.
    pub password: Option<Password>,
}

impl Login {
    /// Another node with the same password.
    #[must_use]
    pub fn at(&self, node: SocketAddr) -> Self {
        Self { node, ..self.clone() }
    }
}

impl From<SocketAddr> for Login {
    fn from(node: SocketAddr) -> Self {
        Self { node, password: None }
    }
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

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
    /// Connects, and gives the password.
    ///
    /// # Errors
    /// If nobody answers within `timeout`, or the password is wrong.
    pub fn open(login: &Login, timeout: Duration) -> Result<Self, Failure> {
        let node = login.node;
        let failed = |error: std::io::Error| Failure(format!("{node} does not answer: {error}"));
        let stream = TcpStream::connect_timeout(&node, timeout).map_err(failed)?;
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut connection = Self {
            node,
            stream,
            output: Vec::new(),
            input: Vec::new(),
            taken: 0,
            decoder: ReplyDecoder::new(),
            lost: false,
        };
        if let Some(password) = &login.password {
            connection.send(&[b"AUTH", password.bytes()]);
            match connection.reply()? {
                // A node without a password takes everybody.
                Value::Error(error) if error == resp::errors::AUTH_WITHOUT_PASSWORD => {}
                Value::Error(error) if error == resp::errors::WRONGPASS => {
                    return Err(Failure(format!(
                        "{node} refuses the password: it must be the line of the node's password_file"
                    )));
                }
                Value::Error(error) => return Err(Failure(format!("{node}: {error}"))),
                _ => {}
            }
        }
        Ok(connection)
    }

    /// Whether the connection is lost: the node has closed it, or is silent.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// What to do about an error of a node, if the password is missing.
    pub(crate) fn explain(&self, error: &str) -> Option<Failure> {
        let node = self.node;
        (error == resp::errors::NOAUTH)
            .then(|| Failure(format!("{node} has a password: give its file by --password-file")))
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
