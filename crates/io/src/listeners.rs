//! The sockets a shard listens on.

use mio::net::{TcpListener, TcpStream};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

/// The bound sockets of one shard: for clients of any key, for cluster-aware clients, for peers, and
/// for clients of memcached if they have a port.
#[derive(Debug)]
pub struct Listeners {
    pub(crate) any: TcpListener,
    pub(crate) cluster: TcpListener,
    pub(crate) peer: TcpListener,
    pub(crate) memcached: Option<TcpListener>,
}

impl Listeners {
    /// Listens on these addresses. An error names the address on which it could not.
    pub fn bind(any: SocketAddr, cluster: SocketAddr, peer: SocketAddr) -> Result<Self, (SocketAddr, io::Error)> {
        let bind = |address| TcpListener::bind(address).map_err(|error| (address, error));
        Ok(Self {
            any: bind(any)?,
            cluster: bind(cluster)?,
            peer: bind(peer)?,
            memcached: None,
        })
    }

    /// Listens on one more address, for clients of memcached.
    ///
    /// # Errors
    /// If it cannot.
    pub fn bind_memcached(&mut self, address: SocketAddr) -> io::Result<()> {
        self.memcached = Some(TcpListener::bind(address)?);
        Ok(())
    }

    /// The first three addresses as bound. They differ from the requested ones if a port was 0.
    pub fn addresses(&self) -> io::Result<[SocketAddr; 3]> {
        Ok([
            self.any.local_addr()?,
            self.cluster.local_addr()?,
            self.peer.local_addr()?,
        ])
    }
}

/// The result of one attempt to accept a connection.
pub(crate) enum Accepted {
    One(TcpStream),
    /// No connection waits.
    Empty,
    /// Out of descriptors or memory. Waiting connections stay queued; the caller tries again later.
    Exhausted(io::Error),
}

pub(crate) fn accept(listener: &TcpListener) -> Accepted {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                // Replies are written whole, once a turn, so waiting for more bytes would only delay them.
                let _ = stream.set_nodelay(true);
                return Accepted::One(stream);
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Accepted::Empty,
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => return Accepted::Exhausted(error),
            },
        }
    }
}
