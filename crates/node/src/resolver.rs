//! Looks up peers' addresses on a thread of its own: a slow name server must hold up neither the shard nor a
//! heartbeat.

use crate::Failure;
use paritas_base::NodeId;
use paritas_base::configuration::NodeRecord;
use paritas_io::{Mail, Mailbox, MailboxFull};
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(5);

/// Passes node records on to a shard, with addresses.
#[derive(Debug)]
pub(crate) struct Resolver {
    records: Sender<Vec<NodeRecord>>,
}

impl Resolver {
    pub(crate) fn start(mailbox: Mailbox) -> Result<Self, Failure> {
        let (records, inbox) = channel::<Vec<NodeRecord>>();
        let run = move || {
            // Names that were looked up, so that one that cannot be for now keeps its last address.
            let mut known = BTreeMap::new();
            while let Ok(mut records) = inbox.recv() {
                // Only the newest counts.
                while let Ok(newer) = inbox.try_recv() {
                    records = newer;
                }
                let peers = records
                    .iter()
                    .filter_map(|record| Some((record.id, find(&mut known, record)?)))
                    .collect();
                let mut letter = Mail::Nodes { records, peers };
                while let Err(MailboxFull(back)) = mailbox.post(letter) {
                    letter = *back;
                    thread::sleep(RETRY);
                }
            }
        };
        match thread::Builder::new().name("resolver".into()).spawn(run) {
            Ok(_) => Ok(Self { records }),
            Err(error) => Err(Failure(format!("no thread for names: {error}"))),
        }
    }

    pub(crate) fn post(&self, records: Vec<NodeRecord>) {
        // Its thread ends only when this end is gone.
        let _ = self.records.send(records);
    }
}

fn find(known: &mut BTreeMap<(NodeId, String), SocketAddr>, record: &NodeRecord) -> Option<SocketAddr> {
    if let Ok(address) = record.peer_address.parse() {
        return Some(address);
    }
    let key = (record.id, record.peer_address.clone());
    match record
        .peer_address
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next())
    {
        Some(address) => {
            known.insert(key, address);
            Some(address)
        }
        None => known.get(&key).copied(),
    }
}
