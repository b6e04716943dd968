//! What a caller's commands run with, while one event is handled.

use super::client::Client;
use paritas_base::Time;
use paritas_protocol::{Context, Lists, Out, ReplyBuf};

/// A caller whose commands run.
pub(crate) struct Call<'a, 'c, O: Out> {
    pub(crate) cx: &'a mut Context<'c, O>,
    pub(crate) lists: &'a mut Lists,
    pub(crate) client: &'a mut Client,
    pub(crate) turn: Turn,
}

/// A caller's replies while one event is handled.
pub(crate) struct Turn {
    pub(crate) bytes: Vec<u8>,
    /// Bytes at the front that may be seen.
    pub(crate) released: usize,
    pub(crate) deadline: Option<Time>,
}

impl Turn {
    /// Those of a client of this node, from its buffer.
    pub(crate) fn take(buffer: &mut ReplyBuf) -> Self {
        Self {
            bytes: core::mem::take(&mut buffer.bytes),
            released: buffer.released,
            deadline: buffer.deadline,
        }
    }

    /// Puts them back.
    pub(crate) fn put(self, buffer: &mut ReplyBuf) {
        buffer.bytes = self.bytes;
        (buffer.released, buffer.deadline) = (self.released, self.deadline);
    }

    /// Those of a client of a peer: what is released is sent to that peer at once.
    pub(crate) fn of_remote(client: &mut Client) -> Self {
        Self {
            bytes: core::mem::take(&mut client.remote.replies),
            released: 0,
            deadline: None,
        }
    }
}
