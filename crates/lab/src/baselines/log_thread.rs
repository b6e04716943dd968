//! The thread of a log node, and the socket to it.

use super::log_node::LogNode;
use super::network::{Ask, Peer};
use paritas_paritylog::Counters;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Bytes of a message's header: kind, data chunk, stripe, offset, length.
const HEAD_BYTES: usize = 14;
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
const PUT: u8 = 0;
const DELTA: u8 = 1;
const GET: u8 = 2;
const SETTLE: u8 = 3;
const ACCESS: u8 = 4;

/// A log node on its own thread, at the other end of a socket. A message is answered when its data is in memory; disk
/// work that is due is done afterwards (§3.3.2).
#[derive(Debug)]
pub struct LogThread {
    socket: UnixStream,
}

impl LogThread {
    /// Starts the thread. It ends when this is dropped.
    pub fn start(node: LogNode) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        std::thread::spawn(move || {
            // An error closes the socket, so that the other end gets an error too.
            let _ = serve(node, theirs);
        });
        Ok(Self { socket: ours })
    }

    fn write_message(&mut self, (kind, index): (u8, u8), stripe: u32, offset: u32, bytes: &[u8]) -> io::Result<()> {
        let mut message = Vec::with_capacity(HEAD_BYTES + bytes.len());
        message.extend_from_slice(&[kind, index]);
        message.extend_from_slice(&stripe.to_le_bytes());
        message.extend_from_slice(&offset.to_le_bytes());
        message.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        message.extend_from_slice(bytes);
        self.socket.write_all(&message)
    }

    fn read_message(&mut self) -> io::Result<Option<Vec<u8>>> {
        read_payload(&mut self.socket).map(|bytes| Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

fn serve(mut node: LogNode, mut socket: UnixStream) -> io::Result<()> {
    loop {
        let mut head = [0; HEAD_BYTES - 4];
        socket.read_exact(&mut head)?;
        let bytes = read_payload(&mut socket)?;
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (stripe, offset, index) = (number(2), number(6), head[1]);
        let answer = match head[0] {
            PUT => node.keep(&Ask::PutParity(stripe, bytes)).map(|()| Vec::new())?,
            DELTA => {
                let xor = bytes;
                let delta = Ask::Delta {
                    stripe,
                    index,
                    offset,
                    xor,
                };
                node.keep(&delta).map(|()| Vec::new())?
            }
            GET => node.read(stripe)?.unwrap_or_default(),
            ACCESS => {
                node.set_access(Duration::from_micros(u64::from(offset)))?;
                Vec::new()
            }
            _ => words(node.settle_all()?),
        };
        socket.write_all(&(answer.len() as u32).to_le_bytes())?;
        socket.write_all(&answer)?;
        node.turn()?;
    }
}

fn read_payload(socket: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > PAYLOAD_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn words(c: Counters) -> Vec<u8> {
    let all = [c.writes, c.write_bytes, c.reads, c.read_bytes, c.folded, c.compacted];
    all.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn counters(bytes: &[u8]) -> Option<Counters> {
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| word.try_into().map(u64::from_le_bytes).ok());
    let mut next = || words.next().flatten();
    Some(Counters {
        writes: next()?,
        write_bytes: next()?,
        reads: next()?,
        read_bytes: next()?,
        folded: next()?,
        compacted: next()?,
    })
}

impl Peer for LogThread {
    fn send(&mut self, ask: &Ask) -> io::Result<()> {
        match ask {
            Ask::PutParity(stripe, chunk) => self.write_message((PUT, 0), *stripe, 0, chunk),
            Ask::Delta {
                stripe,
                index,
                offset,
                xor,
            } => self.write_message((DELTA, *index), *stripe, *offset, xor),
            Ask::GetParity(stripe) => self.write_message((GET, 0), *stripe, 0, &[]),
            _ => Err(io::Error::other("a log node stores parity only")),
        }
    }

    fn receive(&mut self, _: &Ask) -> io::Result<Option<Vec<u8>>> {
        self.read_message()
    }

    fn settle(&mut self) -> io::Result<Counters> {
        self.write_message((SETTLE, 0), 0, 0, &[])?;
        let answer = self.read_message()?.unwrap_or_default();
        counters(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn set_access(&mut self, access: Duration) -> io::Result<()> {
        self.write_message((ACCESS, 0), 0, access.as_micros() as u32, &[])?;
        self.read_message().map(drop)
    }
}
