//! The disk of a log node, in memory. It executes requests at once, or none while a test holds it.

use paritas_protocol::paritylog::{Bad, Io, IoId, Layout, Outcome, Settings, Space, Work};

/// The slots and the log of a log node.
#[derive(Default)]
pub struct Disk {
    slots: Vec<u8>,
    log: Vec<u8>,
    /// Requests that are not executed yet.
    pub waiting: Vec<Io>,
    /// Executes no request.
    pub held: bool,
    /// Fails each request.
    pub broken: bool,
}

/// Settings of a log with space for about `slots_max` chunks and a small buffer of waiting bytes.
pub(crate) fn settings(layout: Layout, data: u8, slots_max: u32) -> Settings {
    Settings {
        layout,
        chunk_bytes: 16 << 10,
        data_max: data.into(),
        block_bytes: 1,
        reserve_bytes: 16 << 10,
        slots_max,
        log_bytes: 32 << 20,
        flush_bytes: 64 << 10,
        buffer_max_bytes: 256 << 10,
    }
}

impl Disk {
    /// All that was ever written is lost.
    pub fn wipe(&mut self) {
        self.slots.fill(0);
        self.log.fill(0);
    }

    /// Executes the next request and returns its outcome.
    pub fn next_done(&mut self) -> Option<(IoId, Outcome)> {
        if self.held || self.waiting.is_empty() {
            return None;
        }
        let io = self.waiting.remove(0);
        if self.broken {
            return Some((io.id, Err(Bad)));
        }
        let bytes = match io.space {
            Space::Slots => &mut self.slots,
            Space::Log => &mut self.log,
        };
        let at = io.at as usize;
        let end = at
            + match &io.work {
                Work::Read(length) => *length,
                Work::Write(bytes) => bytes.len(),
            };
        bytes.resize(bytes.len().max(end), 0);
        let read = match io.work {
            Work::Read(_) => bytes[at..end].to_vec(),
            Work::Write(new) => {
                bytes[at..end].copy_from_slice(&new);
                Vec::new()
            }
        };
        Some((io.id, Ok(read)))
    }
}
