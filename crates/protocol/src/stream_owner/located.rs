//! Where the parts of a value are, for a client that reads them itself (P14.17).

use super::Access;
use super::records::decode_with_bytes;
use crate::capability::Capability;
use crate::interface::Out;
use crate::parameters::ClientCoding;
use crate::parts::positions_in_memory;
use paritas_base::{NodeId, Position, StreamId};
use paritas_large::GroupId;

/// What a client must know to read the body of a large value from its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    /// The stream of the key.
    pub stream: StreamId,
    /// The record, with its length byte.
    pub record: Vec<u8>,
    /// Bytes of a unit.
    pub unit_bytes: usize,
    /// Who holds each position in memory; `None`: nobody.
    pub holders: Vec<Option<NodeId>>,
    /// A capability for each group of the record, in its order.
    pub capabilities: Vec<u8>,
}

impl<O: Out> Access<'_, '_, O> {
    /// Whether clients may read parts themselves.
    pub fn client_coding(&self) -> ClientCoding {
        self.cx.shared.parameters.client_coding
    }

    /// Where the parts are that this record of an object names. `None` if the object is damaged. Nothing is pinned: who
    /// comes too late finds no part.
    pub fn located(&self, record: &[u8]) -> Option<Located> {
        let (record, record_bytes) = decode_with_bytes(record)?;
        let shared = &*self.cx.shared;
        let stream = self.owner.stream();
        let holder = |position| self.configuration.tenure(Position(position)).map(|holder| holder.node);
        let hash_key = shared.cluster.hash_key;
        let capability = |group: GroupId| Capability::to_read(hash_key, stream, group.bits()).bytes();
        Some(Located {
            stream,
            record: record_bytes,
            unit_bytes: shared.arena.chunk_bytes(),
            holders: (0..positions_in_memory(self.cx, self.configuration))
                .map(holder)
                .collect(),
            capabilities: record.groups().flat_map(capability).collect(),
        })
    }
}
