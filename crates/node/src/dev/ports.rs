//! The ports of a cluster of `dev`. Clients use those derived from `--port`; the system chooses the others. All are
//! reserved before any process runs, and stay reserved while a process is down, because its next process uses the same.

use super::Plan;
use crate::Failure;
use crate::settings::{CLUSTER_OFFSET, MEMCACHED_OFFSET};
use paritas_io::ReservedPort;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub(crate) const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Most ports that an error names.
const NAMED_MAX: usize = 3;

/// Reserved until dropped.
#[derive(Debug)]
pub(crate) struct Ports {
    _clients: Vec<ReservedPort>,
    /// By node.
    peers: Vec<ReservedPort>,
    coordinator: ReservedPort,
}

impl Ports {
    pub(crate) fn reserve(plan: &Plan) -> Result<Self, Failure> {
        // The clients' ports come first, so that the system does not choose one of them for another purpose.
        let clients = Self::reserve_clients(plan)?;
        let chosen = || {
            ReservedPort::new(SocketAddr::new(HOST, 0))
                .map_err(|error| Failure(format!("the system provides no free port on {HOST}: {error}")))
        };
        Ok(Self {
            _clients: clients,
            peers: (0..plan.count()).map(|_| chosen()).collect::<Result<_, _>>()?,
            coordinator: chosen()?,
        })
    }

    fn reserve_clients(plan: &Plan) -> Result<Vec<ReservedPort>, Failure> {
        let mut reserved = Vec::new();
        let mut taken = Vec::new();
        for node in 0..plan.count() {
            let addresses = [
                (plan.any_address(node), "any client"),
                (plan.cluster_address(node), "cluster-aware clients"),
                (plan.memcached_address(node), "clients of memcached"),
            ];
            for (address, users) in addresses {
                match ReservedPort::new(address) {
                    Ok(port) => reserved.push(port),
                    Err(error) => taken.push((node, address.port(), users, error)),
                }
            }
        }
        if taken.is_empty() {
            return Ok(reserved);
        }
        Err(Failure(not_had(&taken)))
    }

    pub(crate) fn peer(&self, node: u16) -> SocketAddr {
        self.peers[usize::from(node)].address()
    }

    pub(crate) fn coordinator(&self) -> SocketAddr {
        self.coordinator.address()
    }
}

fn not_had(taken: &[(u16, u16, &str, io::Error)]) -> String {
    let named: Vec<String> = taken
        .iter()
        .take(NAMED_MAX)
        .map(|(node, port, users, error)| format!("port {port}, for {users} of node {node} ({error})"))
        .collect();
    let more = match taken.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!(
        "cannot reserve {}{more}. Choose another --port: node i uses --port + i, --port + {CLUSTER_OFFSET} + i and \
         --port + {MEMCACHED_OFFSET} + i",
        named.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::plan::tests::settings;
    use std::net::TcpListener;
    use std::ops::Range;

    /// A plan whose client ports were free a moment ago. Tests run beside each other: each takes a range of its own.
    fn plan(nodes: u16, range: Range<u16>) -> Plan {
        let from = range.step_by(50).find(|port| {
            let ports =
                (0..nodes).flat_map(|node| [0, CLUSTER_OFFSET, MEMCACHED_OFFSET].map(|offset| port + offset + node));
            ports
                .map(|port| ReservedPort::new((HOST, port).into()))
                .all(|port| port.is_ok())
        });
        Plan::checked(&settings(nodes, "1+0", from.unwrap())).unwrap()
    }

    #[test]
    fn every_process_has_a_port_of_its_own() {
        let plan = plan(3, 10_000..19_000);
        let ports = Ports::reserve(&plan).unwrap();
        let mut all: Vec<SocketAddr> = (0..3)
            .flat_map(|node| {
                let clients = [
                    plan.any_address(node),
                    plan.cluster_address(node),
                    plan.memcached_address(node),
                ];
                clients.into_iter().chain([ports.peer(node)])
            })
            .chain([ports.coordinator()])
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 13);
    }

    #[test]
    fn a_taken_port_is_named_with_its_user_and_the_flag() {
        let plan = plan(6, 20_000..29_000);
        let _taken = TcpListener::bind(plan.cluster_address(2)).unwrap();
        let why = Ports::reserve(&plan).unwrap_err().0;
        let port = plan.cluster_address(2).port();
        assert!(
            why.contains(&format!("port {port}, for cluster-aware clients of node 2 (")),
            "{why}"
        );
        assert!(why.contains("another --port") && !why.contains("more"), "{why}");
        let _others: Vec<_> = (0..4)
            .map(|node| TcpListener::bind(plan.any_address(node)).unwrap())
            .collect();
        let why = Ports::reserve(&plan).unwrap_err().0;
        assert!(
            why.contains("for any client of node 0") && why.contains("; and 2 more. "),
            "{why}"
        );
    }
}
