//! Requests of an operator to the coordinator itself: orders that can lose data, and its status when no node answers.

use crate::agent::first_that_answers;
use crate::connection::Login;
use crate::{Failure, line, status};
use paritas_base::{ListId, NodeId};
use paritas_control::message::{
    MESSAGE_VERSION, Order, Settings, TO_AGENT_BYTES_MAX, TO_COORDINATOR_BYTES_MAX, ToAgent, ToCoordinator, decode,
    encode, split,
};
use paritas_control::status::Status;
use paritas_io::door::{Door, SharedSecrets};
use paritas_wire::greeting::{Process, Role, Secrets};
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

/// Interval of checks whether a list has begun again.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longest time to wait for the store.
const ORDER_TIMEOUT: Duration = Duration::from_secs(20);

/// A coordinator, and the secret of its cluster. Without one it takes an operator on its own machine only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Whom {
    /// Its address.
    pub coordinator: SocketAddr,
    /// The cluster's secrets, if there are some.
    pub secrets: Secrets,
}

/// A connection to a coordinator.
#[derive(Debug)]
struct Connection {
    coordinator: SocketAddr,
    stream: TcpStream,
    input: Vec<u8>,
}

impl Connection {
    fn open(whom: &Whom, timeout: Duration) -> Result<Self, Failure> {
        let coordinator = whom.coordinator;
        let failed = |error| Failure(format!("coordinator {coordinator}: {error}"));
        let secrets = SharedSecrets::default();
        secrets.replace(whom.secrets.clone());
        let door = Door::new(Role::Operator, Process::NONE, MESSAGE_VERSION.into(), secrets);
        let mut stream = TcpStream::connect_timeout(&coordinator, timeout).map_err(failed)?;
        let called = line::call(&mut stream, &door, 0, timeout);
        called.map_err(|why| Failure(format!("coordinator {coordinator}: {why}")))?;
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        let input = Vec::new();
        Ok(Self {
            coordinator,
            stream,
            input,
        })
    }

    fn ask(&mut self, message: &ToCoordinator) -> Result<ToAgent, Failure> {
        let frame = encode(message, TO_COORDINATOR_BYTES_MAX).map_err(|error| self.fail(error))?;
        self.stream.write_all(&frame).map_err(|error| self.fail(error))?;
        let mut read = [0; 4096];
        loop {
            if let Some(length) = split(&self.input, TO_AGENT_BYTES_MAX).map_err(|error| self.fail(error))? {
                let answer = decode(&self.input[..length], TO_AGENT_BYTES_MAX).map_err(|error| self.fail(error));
                self.input.drain(..length);
                return answer;
            }
            match self.stream.read(&mut read) {
                Ok(0) => return Err(self.fail("it closed the connection: is it a coordinator, of this version?")),
                Ok(count) => self.input.extend_from_slice(&read[..count]),
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    fn fail(&self, error: impl fmt::Display) -> Failure {
        Failure(format!("coordinator {}: {error}", self.coordinator))
    }

    fn unexpected(&self, answer: &ToAgent) -> Failure {
        match answer {
            ToAgent::Refused(refusal) => self.fail(refusal),
            _ => self.fail("it sent an unexpected answer"),
        }
    }
}

/// The coordinator of a node's cluster, as the node says.
///
/// # Errors
/// If the node does not say it, or no coordinator is there.
pub fn find_coordinator(node: &Login, timeout: Duration) -> Result<SocketAddr, Failure> {
    let other_ways = "give --port (and --host) of a node that answers, or --coordinator ADDRESS";
    let status = status::ask(node, timeout).map_err(|Failure(why)| {
        Failure(format!(
            "{node} does not say where the coordinator is: {why}; or {other_ways}"
        ))
    })?;
    let name = status.coordinator_address;
    let failed = |error| {
        Failure(format!(
            "coordinator {name}, which {node} names: {error}; --coordinator ADDRESS names another"
        ))
    };
    let addresses: Vec<SocketAddr> = name.to_socket_addrs().map_err(failed)?.collect();
    let stream = first_that_answers(&addresses).map_err(failed)?;
    stream.peer_addr().map_err(failed)
}

/// Asks the coordinator itself for the status of the cluster.
pub fn ask_status(whom: &Whom, timeout: Duration) -> Result<Status, Failure> {
    let mut connection = Connection::open(whom, timeout)?;
    match connection.ask(&ToCoordinator::Status { n: 0 })? {
        ToAgent::StatusReport { status, .. } => Ok(Status {
            coordinator_address: whom.coordinator.to_string(),
            ..*status
        }),
        other => Err(connection.unexpected(&other)),
    }
}

/// Gives an order. Prints what it does, or what it would lose.
///
/// # Errors
/// If the order is refused, or the coordinator does not answer.
pub fn give(whom: &Whom, order: Order, confirmed: bool) -> Result<bool, Failure> {
    let mut connection = Connection::open(whom, ORDER_TIMEOUT)?;
    match connection.ask(&ToCoordinator::Order { n: 0, order, confirmed })? {
        ToAgent::Said {
            answer: Ok((done, lines)),
            ..
        } => {
            crate::print(lines.join("\n"))?;
            if !done {
                crate::print("nothing is changed: repeat the command with --yes to do it")?;
            }
            Ok(done)
        }
        ToAgent::Said { answer: Err(why), .. } => Err(Failure(why)),
        other => Err(connection.unexpected(&other)),
    }
}

/// Waits until none of these lists is lost. If no list is named, waits until no list at all is lost.
///
/// # Errors
/// If a list is still lost after `timeout`; the text says what the coordinator waits for.
pub fn await_reset(whom: &Whom, lists: &[ListId], timeout: Duration) -> Result<(), Failure> {
    let until = Instant::now() + timeout;
    loop {
        let status = ask_status(whom, ORDER_TIMEOUT)?;
        let lost = &status.trouble.lost;
        if !lost.iter().any(|list| lists.is_empty() || lists.contains(list)) {
            return crate::print("done: the lists have begun again empty");
        }
        if Instant::now() >= until {
            let words = status.coordinator.join("\n");
            return Err(Failure(format!(
                "not done yet, but the order stands. The coordinator says:\n{words}"
            )));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Prints a status, as text or as JSON.
pub fn print_status(status: &Status, json: bool) -> Result<(), Failure> {
    match json {
        true => crate::print(serde_json::to_string(status).unwrap_or_default()),
        false => crate::print(status::describe(status)),
    }
}

/// A setting with its new value, such as `suspicion_ms=2000`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assignment(Settings);

impl FromStr for Assignment {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}`: write NAME=VALUE, such as suspicion_ms=2000"))?;
        let mut settings = Settings::default();
        match name {
            "suspicion_ms" => {
                let ms = value.parse();
                settings.suspicion_ms =
                    Some(ms.map_err(|_| format!("suspicion_ms: `{value}` is not a number of milliseconds"))?);
            }
            "lost_policy" => settings.lost_policy = Some(value.parse()?),
            _ => {
                return Err(format!(
                    "`{name}` cannot be changed in an existing cluster: only suspicion_ms and lost_policy can"
                ));
            }
        }
        Ok(Self(settings))
    }
}

/// Merges several settings.
///
/// # Errors
/// If one is given twice.
pub fn settings(assignments: &[Assignment]) -> Result<Settings, Failure> {
    let mut all = Settings::default();
    for Assignment(one) in assignments {
        let twice = |name: &str| Failure(format!("{name} is given twice"));
        if one.suspicion_ms.is_some() && all.suspicion_ms.is_some() {
            return Err(twice("suspicion_ms"));
        }
        if one.lost_policy.is_some() && all.lost_policy.is_some() {
            return Err(twice("lost_policy"));
        }
        all.suspicion_ms = all.suspicion_ms.or(one.suspicion_ms);
        all.lost_policy = all.lost_policy.or(one.lost_policy);
    }
    Ok(all)
}

/// The order to let lost lists begin again empty.
pub fn reset_lists(lists: &[u16]) -> (Order, Vec<ListId>) {
    let lists: Vec<ListId> = lists.iter().map(|list| ListId(*list)).collect();
    (Order::ResetLists { lists: lists.clone() }, lists)
}

/// The order to count the processes of nodes as ended.
pub fn fence(nodes: impl Iterator<Item = NodeId>) -> Order {
    Order::Fence { nodes: nodes.collect() }
}

/// The order to change settings.
pub fn set(settings: Settings) -> Order {
    Order::Set(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_named() {
        let read = |text: &str| text.parse::<Assignment>();
        assert_eq!(read("suspicion_ms=2000").unwrap().0.suspicion_ms, Some(2000));
        assert!(read("lost_policy=reset").unwrap().0.lost_policy.is_some());
        for (wrong, says) in [
            ("suspicion_ms", "NAME=VALUE"),
            ("suspicion_ms=soon", "milliseconds"),
            ("suspicion_ms=-1", "milliseconds"),
            ("lost_policy=maybe", "stop or reset"),
            ("lease_ms=5000", "cannot be changed"),
        ] {
            let why = read(wrong).unwrap_err();
            assert!(why.contains(says), "{wrong}: {why}");
        }
        let twice = [read("suspicion_ms=2000").unwrap(); 2];
        assert!(settings(&twice).unwrap_err().0.contains("twice"));
    }
}
