//! A client of the whole cluster for long tasks: it uses one node, and another one if that fails.

use crate::Failure;
use crate::connection::{Connection, Login};
use paritas_control::status::{SlotMove, SlotMoveState, Status};
use paritas_wire::resp::Value;
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two attempts of a command that a takeover blocks.
const RETRY_EVERY: Duration = Duration::from_millis(20);
/// Time after which a wait is reported, and the interval of further reports.
const TELL_AFTER: Duration = Duration::from_secs(1);
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Fraction of the timeout after which a silent node counts as failed: for the first node, as no other is known yet,
/// and for later ones.
const FIRST_SILENT_PARTS: u32 = 3;
const OTHER_SILENT_PARTS: u32 = 15;

/// One of the cluster's nodes is asked, over one connection.
pub(super) struct Cluster {
    /// Addresses of the nodes that may be asked. The first one is in use.
    nodes: Vec<SocketAddr>,
    /// The first node that was used. The others have the same password.
    login: Login,
    connection: Connection,
    /// The database that commands are about, and the one that the connection has.
    database: u8,
    selected: u8,
    timeout: Duration,
}

/// What the coordinator reports about moves of slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Slots {
    /// It did not answer.
    Unknown,
    /// The latest move, if any.
    Known(Option<SlotMove>),
}

impl Slots {
    pub(super) fn are_moving(&self) -> bool {
        matches!(self, Self::Known(Some(last)) if last.state == SlotMoveState::Moving)
    }

    /// Whether slots have moved since `before`.
    pub(super) fn moved_since(&self, before: &Self) -> bool {
        matches!(self, Self::Known(Some(_))) && self != before
    }
}

impl Cluster {
    /// Connects through this node. The others are known once the coordinator has named them.
    ///
    /// # Errors
    /// If it does not answer, is not a node of Paritas, or this is not its port for all keys.
    pub(super) fn open(login: &Login, timeout: Duration) -> Result<Self, Failure> {
        let mut connection = Connection::open(login, timeout / FIRST_SILENT_PARTS)?;
        check(&mut connection, login.node)?;
        Ok(Self {
            nodes: vec![login.node],
            login: login.clone(),
            connection,
            database: 0,
            selected: 0,
            timeout,
        })
    }

    /// From now on commands are about this database.
    pub(super) fn select(&mut self, database: u8) {
        self.database = database;
    }

    /// Asks the coordinator which slots moved last, and which other nodes may be asked.
    pub(super) fn slots(&mut self) -> Slots {
        let status = self
            .ask(&[vec![vec![b"PARITAS.STATUS"]]])
            .map(|replies| replies.concat());
        let Ok([Value::Bulk(json)]) = status.as_deref() else {
            return Slots::Unknown;
        };
        let Ok(status) = serde_json::from_slice::<Status>(json) else {
            return Slots::Unknown;
        };
        for node in &status.nodes {
            for address in node.address.to_socket_addrs().into_iter().flatten() {
                if !self.nodes.contains(&address) {
                    self.nodes.push(address);
                }
            }
        }
        Slots::Known(status.slots)
    }

    /// Sends requests of one or more commands each, and returns their replies in order. If a command was not answered,
    /// because of a takeover or a failed node, its whole request is sent again, for at most `timeout`. All commands
    /// used here may be done twice.
    ///
    /// # Errors
    /// If the timeout was not enough, or a command got another error.
    pub(super) fn ask(&mut self, requests: &[Vec<Vec<&[u8]>>]) -> Result<Vec<Vec<Value>>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let mut answered: Vec<Option<Vec<Value>>> = requests.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..requests.len()).collect();
        let mut together = requests.len();
        let mut told_at = Instant::now() + TELL_AFTER;
        while !left.is_empty() {
            // After an error, one request at a time: a node answers commands that wait for a takeover one after the
            // other.
            let now: Vec<usize> = left.iter().copied().take(together).collect();
            let refused = match self.send(requests, &now, &mut answered) {
                Err(lost) if self.connection.is_lost() => {
                    self.go_elsewhere(deadline, lost)?;
                    None
                }
                answers => answers?,
            };
            left.retain(|at| answered[*at].is_none());
            match refused {
                Some((at, error)) if Instant::now() >= deadline => {
                    let why = explained(&requests[at][0], &error);
                    return Err(Failure(format!("for {} s: {why}", self.timeout.as_secs())));
                }
                Some((_, error)) => {
                    if Instant::now() >= told_at {
                        eprintln!("waiting: {error}");
                        told_at += TELL_EVERY;
                    }
                    together = 1;
                    thread::sleep(RETRY_EVERY);
                }
                None => together = (2 * together).min(requests.len()),
            }
        }
        Ok(answered.into_iter().flatten().collect())
    }

    /// Sends these requests once and records their answers. Returns a request that was refused for now, and the error.
    fn send(
        &mut self,
        requests: &[Vec<Vec<&[u8]>>],
        now: &[usize],
        answered: &mut [Option<Vec<Value>>],
    ) -> Result<Option<(usize, String)>, Failure> {
        if self.selected != self.database {
            let number = self.database.to_string();
            let select: [&[u8]; 2] = [b"SELECT", number.as_bytes()];
            self.connection.send(&select);
            if let Value::Error(error) = self.connection.reply()? {
                return Err(Failure(explained(&select, &error)));
            }
            self.selected = self.database;
        }
        for at in now {
            for command in &requests[*at] {
                self.connection.send(command);
            }
        }
        let mut refused = None;
        for at in now {
            let mut replies = Vec::with_capacity(requests[*at].len());
            for command in &requests[*at] {
                match self.connection.reply()? {
                    Value::Error(error) if is_passing(&error) => refused = Some((*at, error)),
                    Value::Error(error) => return Err(Failure(explained(command, &error))),
                    value => replies.push(value),
                }
            }
            if replies.len() == requests[*at].len() {
                answered[*at] = Some(replies);
            }
        }
        Ok(refused)
    }

    /// Connects to the next node that answers; the present one is tried last.
    fn go_elsewhere(&mut self, deadline: Instant, lost: Failure) -> Result<(), Failure> {
        while Instant::now() < deadline {
            // Before connecting, because a node may accept and close at once.
            thread::sleep(RETRY_EVERY);
            for _ in 0..self.nodes.len() {
                self.nodes.rotate_left(1);
                if let Ok(connection) =
                    Connection::open(&self.login.at(self.nodes[0]), self.timeout / OTHER_SILENT_PARTS)
                {
                    (self.connection, self.selected) = (connection, 0);
                    return Ok(());
                }
            }
        }
        Err(lost)
    }
}

/// Checks that this is a node's port for all keys. The port for cluster clients serves the node's own keys only, and
/// the port for peers is for nodes only.
fn check(connection: &mut Connection, node: SocketAddr) -> Result<(), Failure> {
    connection.send(&[b"INFO", b"server"]);
    let answer = connection.reply();
    if let Ok(Value::Error(error)) = &answer
        && let Some(failure) = connection.explain(error)
    {
        return Err(failure);
    }
    let Ok(Value::Bulk(text)) = answer else {
        return Err(Failure(format!(
            "{node} does not answer as a node of Paritas does: give a node's port for all keys"
        )));
    };
    let says = |what: &str| text.windows(what.len()).any(|part| part == what.as_bytes());
    if !says("paritas_version:") {
        return Err(Failure(format!("{node} is not a node of Paritas")));
    }
    if says("redis_mode:cluster") {
        return Err(Failure(format!(
            "{node} is a port for cluster clients, where each node has its own keys only: give the node's other port"
        )));
    }
    Ok(())
}

/// Whether the error may pass: a takeover may cause it, or a rebuild, during which memory is short.
fn is_passing(error: &str) -> bool {
    let code = error.split(' ').next().unwrap_or_default();
    ["TRYAGAIN", "UNCERTAIN", "CLUSTERDOWN", "NOREPLICAS", "OOM"].contains(&code)
}

/// An error that stays, with the key that caused it.
fn explained(command: &[&[u8]], error: &str) -> String {
    match (error.split(' ').next(), command) {
        (Some("OOM"), _) => format!("{error}: there is no memory for the whole file; give the cluster more memory"),
        (_, [_, key, ..]) => format!("{}: {error}", key.escape_ascii()),
        _ => error.into(),
    }
}
