//! A TCP port that is kept for another process.

use rustix::fd::OwnedFd;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use std::io;
use std::net::SocketAddr;

/// A port that is bound, and on which no process listens yet. As long as this value exists, the system gives the port
/// to no process that asks for any free port, and to no outgoing connection. A process that asks for exactly this port,
/// with `SO_REUSEADDR` as `std` and `mio` set it, can listen on it. Until then connections to it are refused. Linux
/// guarantees this (`inet_csk_get_port`).
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl ReservedPort {
    /// Reserves the port of this address. With port 0, the system chooses one.
    ///
    /// # Errors
    /// If another process uses it, or this one may not.
    pub fn new(address: SocketAddr) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)?;
        Ok(Self {
            address: SocketAddr::try_from(getsockname(&socket)?)?,
            _socket: socket,
        })
    }

    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    const ANY: &str = "127.0.0.1:0";

    fn reserve(address: &str) -> ReservedPort {
        ReservedPort::new(address.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_reserved_port_can_be_listened_on_again_and_again() {
        for address in [ANY, "[::1]:0"] {
            let port = reserve(address);
            assert_ne!(port.address().port(), 0);
            for _ in 0..2 {
                let refused = TcpStream::connect(port.address()).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
                let listener = TcpListener::bind(port.address()).unwrap();
                let client = TcpStream::connect(port.address()).unwrap();
                // The side that closes first leaves the port in TIME_WAIT.
                drop(listener.accept().unwrap());
                drop(client);
            }
        }
    }

    #[test]
    fn a_port_on_which_a_process_listens_is_refused() {
        let listener = TcpListener::bind(ANY).unwrap();
        let taken = ReservedPort::new(listener.local_addr().unwrap()).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn the_system_gives_a_reserved_port_to_nobody_else() {
        let kept: Vec<ReservedPort> = (0..200).map(|_| reserve(ANY)).collect();
        let mut ports: Vec<u16> = kept.iter().map(|port| port.address().port()).collect();
        let listeners: Vec<TcpListener> = (0..200).map(|_| TcpListener::bind(ANY).unwrap()).collect();
        ports.extend(listeners.iter().map(|listener| listener.local_addr().unwrap().port()));
        let before = ports.len();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), before);
    }
}
