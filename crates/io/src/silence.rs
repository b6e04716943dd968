//! A host that vanishes sends no end of stream. The options here make the system end a connection whose other end no
//! longer answers. For a link, the machine then receives `LinkDown`, dials again and resends what was not acknowledged.
//! A client's connection or a control line no longer takes a descriptor and memory.

use paritas_base::Span;
use std::io;
use std::os::fd::AsRawFd;

/// As Redis's `tcp-keepalive`: after this time without data from a client, the system probes it three times.
#[cfg(target_os = "linux")]
const CLIENT_IDLE: Span = Span::from_secs(300);
#[cfg(target_os = "linux")]
const CLIENT_PROBES: u64 = 3;

/// Ends the connection, with an error on the next read or write, once the other end's system has acknowledged nothing
/// for this time. That includes data, and probes sent after one second without data.
#[cfg(target_os = "linux")]
pub fn end_when_silent(stream: &impl AsRawFd, after: Span) -> io::Result<()> {
    let probes = libc::c_int::try_from(after.as_ms() / 1000)
        .unwrap_or(libc::c_int::MAX)
        .max(1);
    let timeout = libc::c_int::try_from(after.as_ms()).unwrap_or(libc::c_int::MAX);
    set_all(
        stream,
        &[
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, probes),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, timeout),
        ],
    )
}

/// Ends a client's connection once its host does not answer probes while idle. Unacknowledged data is not a reason,
/// because a client may read slowly.
#[cfg(target_os = "linux")]
pub(crate) fn end_when_gone(stream: &impl AsRawFd) -> io::Result<()> {
    let seconds = |ms: u64| libc::c_int::try_from(ms / 1000).unwrap_or(libc::c_int::MAX);
    set_all(
        stream,
        &[
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds(CLIENT_IDLE.as_ms())),
            (
                libc::IPPROTO_TCP,
                libc::TCP_KEEPINTVL,
                seconds(CLIENT_IDLE.as_ms() / CLIENT_PROBES),
            ),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, seconds(CLIENT_PROBES * 1000)),
        ],
    )
}

/// On other systems the system's own timeouts apply.
#[cfg(not(target_os = "linux"))]
pub fn end_when_silent(_: &impl AsRawFd, _: Span) -> io::Result<()> {
    Ok(())
}

/// On other systems the system's own timeouts apply.
#[cfg(not(target_os = "linux"))]
pub(crate) fn end_when_gone(_: &impl AsRawFd) -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
fn set_all(stream: &impl AsRawFd, options: &[(libc::c_int, libc::c_int, libc::c_int)]) -> io::Result<()> {
    options
        .iter()
        .try_for_each(|(level, option, value)| set(stream, *level, *option, *value))
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn set(stream: &impl AsRawFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `stream` is borrowed, and `value` outlives the call that reads it.
    let done = unsafe { libc::setsockopt(stream.as_raw_fd(), level, option, (&raw const value).cast(), size) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[allow(unsafe_code)]
    fn get(stream: &TcpStream, option: libc::c_int) -> libc::c_int {
        let mut value: libc::c_int = 0;
        let mut size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: both places are valid for writes, and `size` says how much the first one holds.
        let done = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                option,
                (&raw mut value).cast(),
                &raw mut size,
            )
        };
        assert_eq!(done, 0);
        value
    }

    #[test]
    fn the_system_has_been_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        end_when_silent(&stream, Span::from_secs(3)).unwrap();
        assert_eq!(get(&stream, libc::TCP_USER_TIMEOUT), 3000);
        assert_eq!(get(&stream, libc::TCP_KEEPIDLE), 1);
        assert_eq!(get(&stream, libc::TCP_KEEPCNT), 3);
    }

    #[test]
    fn a_client_has_as_long_as_with_redis() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        end_when_gone(&stream).unwrap();
        assert_eq!(get(&stream, libc::TCP_KEEPIDLE), 300);
        assert_eq!(get(&stream, libc::TCP_KEEPINTVL), 100);
        assert_eq!(get(&stream, libc::TCP_KEEPCNT), 3);
        assert_eq!(get(&stream, libc::TCP_USER_TIMEOUT), 0);
    }
}
