//! Bytes that wait for a socket, because it accepts them more slowly than they are produced.

use crate::byte_queue::ByteQueue;
use std::io::{self, ErrorKind, Write};

/// Unwritten bytes that have passed their release test: they may leave whenever the socket accepts them.
#[derive(Default, Debug)]
pub(crate) struct Backlog {
    bytes: ByteQueue,
}

impl Backlog {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn spare_bytes(&self) -> usize {
        self.bytes.spare_bytes()
    }

    /// Writes once: the backlog, if any, followed by the first `ready` bytes of `fresh`. Bytes taken from `fresh` are
    /// removed from it. Returns true if everything ready was written; false means that the socket is full.
    pub(crate) fn write_once(&mut self, to: &mut impl Write, fresh: &mut Vec<u8>, ready: usize) -> io::Result<bool> {
        if self.is_empty() {
            let count = write(to, &fresh[..ready])?;
            if count == ready {
                remove_front(fresh, ready);
                return Ok(true);
            }
            if ready == fresh.len() {
                self.bytes.fill_from(fresh);
            } else {
                self.bytes.push(&fresh[..ready]);
                remove_front(fresh, ready);
            }
            self.bytes.take_front(count);
            return Ok(false);
        }
        self.hold(fresh, ready);
        let count = write(to, self.bytes.as_slice())?;
        self.bytes.take_front(count);
        Ok(self.is_empty())
    }

    /// Moves the first `ready` bytes of `fresh` into the backlog without writing.
    pub(crate) fn hold(&mut self, fresh: &mut Vec<u8>, ready: usize) {
        self.bytes.push(&fresh[..ready]);
        remove_front(fresh, ready);
    }

    /// Frees unused capacity.
    pub(crate) fn fit(&mut self) {
        self.bytes.fit();
    }

    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

fn remove_front(bytes: &mut Vec<u8>, count: usize) {
    if count == bytes.len() {
        bytes.clear();
    } else {
        bytes.drain(..count);
    }
}

/// Calls `write` once. Returns the number of bytes written; 0 if the socket is full.
fn write(to: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return Ok(0);
    }
    loop {
        return match to.write(bytes) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(count) => Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that accepts `room` bytes in each call.
    struct Narrow {
        room: usize,
        taken: Vec<u8>,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.room);
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_leave_in_order_and_only_those_released() {
        for room in 1..40 {
            let mut socket = Narrow {
                room,
                taken: Vec::new(),
            };
            let mut backlog = Backlog::default();
            let mut fresh = Vec::new();
            let mut expected = Vec::new();
            for round in 0..50_u8 {
                let released: Vec<u8> = (0..round % 23).map(|i| round ^ i).collect();
                fresh.extend_from_slice(&released);
                expected.extend_from_slice(&released);
                fresh.push(255);
                let ready = fresh.len() - 1;
                backlog.write_once(&mut socket, &mut fresh, ready).unwrap();
                assert_eq!(fresh, [255], "bytes that are not released stay");
                fresh.clear();
                assert_eq!(socket.taken.len() + backlog.len(), expected.len());
            }
            while !backlog.is_empty() {
                backlog.write_once(&mut socket, &mut fresh, 0).unwrap();
            }
            assert_eq!(socket.taken, expected, "room {room}");
        }
    }

    #[test]
    fn a_full_socket_keeps_everything() {
        let mut socket = Narrow {
            room: 0,
            taken: Vec::new(),
        };
        let mut backlog = Backlog::default();
        let mut fresh = b"abc".to_vec();
        assert!(!backlog.write_once(&mut socket, &mut fresh, 3).unwrap());
        assert_eq!((backlog.len(), fresh.len()), (3, 0));
    }
}
