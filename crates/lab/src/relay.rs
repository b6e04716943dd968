//! A relay that counts what goes through it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const READ_BYTES: usize = 256 << 10;

/// What went through, in both directions.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Bytes.
    pub(crate) bytes: AtomicU64,
    /// Reads that brought a value's worth or more: with one request at a time, messages with a value.
    pub(crate) large: AtomicU64,
}

/// Whoever dials `listen` reaches `target`. Its threads end with the process, each connection's when one side closes.
pub(crate) fn start(listen: SocketAddr, target: SocketAddr, large: usize, traffic: Arc<Traffic>) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    thread::spawn(move || {
        for here in listener.incoming().map_while(Result::ok) {
            // A dial that fails looks like a connection that closes.
            let Ok(there) = TcpStream::connect(target) else {
                continue;
            };
            for (from, to) in [(&here, &there), (&there, &here)] {
                if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
                    let _ = to.set_nodelay(true);
                    let traffic = Arc::clone(&traffic);
                    thread::spawn(move || pass(from, to, large, &traffic));
                }
            }
        }
    });
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream, large: usize, traffic: &Traffic) {
    let mut bytes = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        traffic.bytes.fetch_add(count as u64, Ordering::Relaxed);
        traffic.large.fetch_add(u64::from(count >= large), Ordering::Relaxed);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // The other side may have closed it already.
    let _ = to.shutdown(Shutdown::Both);
}
