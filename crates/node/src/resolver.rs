//! Resolves the addresses of peers on its own thread: a slow name server must delay neither the shard nor a heartbeat.
//! Names are resolved again periodically, because hosts move and a name server may not have answered.

use crate::Failure;
use paritas_base::NodeId;
use paritas_base::configuration::NodeRecord;
use paritas_io::{Mail, Mailbox, MailboxFull};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(5);
/// Time between two rounds of resolving.
const AGAIN: Duration = Duration::from_secs(5);

/// Passes node records on to a shard, with addresses.
#[derive(Debug)]
pub(crate) struct Resolver {
    records: Sender<Vec<NodeRecord>>,
}

impl Resolver {
    pub(crate) fn start(mailbox: Mailbox) -> Result<Self, Failure> {
        let (records, inbox) = channel();
        let look_up = |name: &str| name.to_socket_addrs().map(Iterator::collect);
        let post = move |mut message| {
            while let Err(MailboxFull(back)) = mailbox.post(message) {
                message = *back;
                thread::sleep(RETRY);
            }
        };
        let started = thread::Builder::new()
            .name("resolver".into())
            .spawn(move || run(&inbox, AGAIN, look_up, post));
        match started {
            Ok(_) => Ok(Self { records }),
            Err(error) => Err(Failure(format!("no thread for names: {error}"))),
        }
    }

    pub(crate) fn post(&self, records: Vec<NodeRecord>) {
        // The thread ends only when this end is dropped.
        let _ = self.records.send(records);
    }
}

fn run(
    inbox: &Receiver<Vec<NodeRecord>>,
    again: Duration,
    mut look_up: impl FnMut(&str) -> io::Result<Vec<SocketAddr>>,
    mut post: impl FnMut(Mail),
) {
    let mut names = Names::default();
    let mut records: Vec<NodeRecord> = Vec::new();
    let mut newer = None;
    loop {
        let came = newer.take().map_or_else(|| inbox.recv_timeout(again), Ok);
        match came {
            Ok(came) => {
                // Only the latest records count. Addresses without a name are passed on before any lookup.
                records = inbox.try_iter().last().unwrap_or(came);
                names.forget_others(&records);
                post(names.message(&records));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        for record in records.iter().filter(|record| literal(record).is_none()) {
            let name = &record.peer_address;
            if names.learn(record.id, name, look_up(name)) {
                post(names.message(&records));
            }
            newer = inbox.try_recv().ok();
            if newer.is_some() {
                break;
            }
        }
    }
}

fn literal(record: &NodeRecord) -> Option<SocketAddr> {
    record.peer_address.parse().ok()
}

/// The latest known address of each name. If a lookup fails, the name keeps its address.
#[derive(Default)]
struct Names {
    known: BTreeMap<String, SocketAddr>,
    /// Names for which the log says that they have no address.
    without: BTreeSet<String>,
}

impl Names {
    /// Updates the address of a name. Returns whether anything has changed.
    fn learn(&mut self, node: NodeId, name: &str, found: io::Result<Vec<SocketAddr>>) -> bool {
        let before = self.known.get(name).copied();
        let (found, error) = match found {
            Ok(found) => (found, "it has no address".to_owned()),
            Err(error) => (Vec::new(), error.to_string()),
        };
        // Servers return several addresses in any order. An address that is still among them is kept.
        let Some(address) = before
            .filter(|before| found.contains(before))
            .or_else(|| found.first().copied())
        else {
            if self.without.insert(name.to_owned()) {
                tracing::warn!(%node, name, %error, "a peer's name cannot be resolved: it is tried again");
            }
            return false;
        };
        if self.without.remove(name) {
            tracing::info!(%node, name, %address, "a peer's name can be resolved again");
        }
        self.known.insert(name.to_owned(), address);
        before != Some(address)
    }

    fn forget_others(&mut self, records: &[NodeRecord]) {
        let names: BTreeSet<&String> = records.iter().map(|record| &record.peer_address).collect();
        self.known.retain(|name, _| names.contains(name));
        self.without.retain(|name| names.contains(name));
    }

    fn message(&self, records: &[NodeRecord]) -> Mail {
        let address = |record| literal(record).or_else(|| self.known.get(&record.peer_address).copied());
        Mail::Nodes {
            records: records.to_vec(),
            peers: records
                .iter()
                .filter_map(|record| Some((record.id, address(record)?)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_base::Incarnation;
    use paritas_base::configuration::{NodeRole, NodeState};

    const TIMEOUT: Duration = Duration::from_secs(10);

    type Peers = Vec<(NodeId, SocketAddr)>;

    /// A resolver over a name server that gives one prepared answer to each question.
    struct Tried {
        records: Sender<Vec<NodeRecord>>,
        answers: Sender<io::Result<Vec<SocketAddr>>>,
        posted: Receiver<Peers>,
    }

    impl Tried {
        fn start() -> Self {
            let (records, inbox) = channel();
            let (answers, server) = channel::<io::Result<Vec<SocketAddr>>>();
            let (post, posted) = channel();
            let look_up = move |_: &str| server.recv().unwrap_or_else(|_| Ok(Vec::new()));
            let post = move |message| {
                if let Mail::Nodes { peers, .. } = message {
                    let _ = post.send(peers);
                }
            };
            thread::spawn(move || run(&inbox, Duration::from_millis(1), look_up, post));
            Self {
                records,
                answers,
                posted,
            }
        }

        fn answer(&self, found: &[&str]) {
            let found = found.iter().map(|address| address.parse().unwrap()).collect();
            self.answers.send(Ok(found)).unwrap();
        }

        fn next(&self) -> Vec<(u16, String)> {
            let peers = self.posted.recv_timeout(TIMEOUT).expect("nothing was posted in time");
            peers
                .iter()
                .map(|(node, address)| (node.0, address.to_string()))
                .collect()
        }
    }

    fn record(node: u16, address: &str) -> NodeRecord {
        NodeRecord {
            id: NodeId(node),
            incarnation: Incarnation(1),
            ordinal: 1,
            domain: node.to_string(),
            role: NodeRole::Member,
            state: NodeState::Up,
            pid: 1,
            client_address: address.to_owned(),
            cluster_address: address.to_owned(),
            peer_address: address.to_owned(),
            more: Default::default(),
        }
    }

    fn peers(expected: &[(u16, &str)]) -> Vec<(u16, String)> {
        expected
            .iter()
            .map(|(node, address)| (*node, (*address).to_owned()))
            .collect()
    }

    #[test]
    fn an_address_does_not_wait_for_another_nodes_name() {
        let tried = Tried::start();
        tried
            .records
            .send(vec![record(1, "host:1"), record(2, "10.0.0.2:2")])
            .unwrap();
        assert_eq!(tried.next(), peers(&[(2, "10.0.0.2:2")]));
        tried.answer(&["10.0.0.1:1"]);
        assert_eq!(tried.next(), peers(&[(1, "10.0.0.1:1"), (2, "10.0.0.2:2")]));
    }

    #[test]
    fn a_name_is_looked_up_until_it_is_found_and_whenever_it_moves() {
        let tried = Tried::start();
        tried.records.send(vec![record(1, "host:1")]).unwrap();
        assert_eq!(tried.next(), peers(&[]));
        tried.answers.send(Err(io::ErrorKind::TimedOut.into())).unwrap();
        tried.answer(&[]);
        tried.answer(&["10.0.0.1:1", "10.0.0.2:1"]);
        assert_eq!(tried.next(), peers(&[(1, "10.0.0.1:1")]));
        // The same addresses in another order, or no answer for now, change nothing.
        tried.answer(&["10.0.0.2:1", "10.0.0.1:1"]);
        tried.answers.send(Err(io::ErrorKind::TimedOut.into())).unwrap();
        tried.answer(&["10.0.0.3:1"]);
        assert_eq!(tried.next(), peers(&[(1, "10.0.0.3:1")]));
    }
}
