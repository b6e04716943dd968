//! Where the parts of a value are, for a client that reads them (P14.17) or writes them (P14.18) itself.

use super::{Access, Stop, Ticket};
use crate::capability::Capability;
use crate::interface::Out;
use crate::parameters::ClientCoding;
use crate::parts::positions_in_memory;
use crate::stream_owner::records::decode_with_bytes;
use paritas_base::{NodeId, Position, StreamId};
use paritas_large::{Class, GroupId, Record};

/// What a client must know to read or write the body of a large value in its parts.
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
    /// What clients may do with parts themselves.
    pub fn client_coding(&self) -> ClientCoding {
        self.cx.shared.parameters.client_coding
    }

    /// Where the parts are that this record of an object names. `None` if the object is damaged. Nothing is pinned: who
    /// comes too late finds no part.
    pub fn located(&self, record: &[u8]) -> Option<Located> {
        let (record, record_bytes) = decode_with_bytes(record)?;
        Some(self.places_of(&record, record_bytes, Capability::to_read))
    }

    fn places_of(
        &self,
        record: &Record,
        record_bytes: Vec<u8>,
        capability: fn([u64; 2], StreamId, u64) -> Capability,
    ) -> Located {
        let shared = &*self.cx.shared;
        let stream = self.owner.stream();
        let holder = |position| self.configuration.tenure(Position(position)).map(|holder| holder.node);
        let hash_key = shared.cluster.hash_key;
        let capability = |group: GroupId| capability(hash_key, stream, group.bits()).bytes();
        Located {
            stream,
            record: record_bytes,
            unit_bytes: shared.arena.chunk_bytes(),
            holders: (0..positions_in_memory(self.cx, self.configuration))
                .map(holder)
                .collect(),
            capabilities: record.groups().flat_map(capability).collect(),
        }
    }

    /// A client will send the units of a value of `value_bytes` bytes to the holders itself: opens the parts.
    ///
    /// # Errors
    /// [`Stop::Wait`] until every holder has opened its part. A refusal if one does not.
    pub fn stage_by_client(
        &mut self,
        ticket: Ticket,
        key: &[u8],
        value_bytes: usize,
        class: Option<Class>,
    ) -> Result<Located, Stop> {
        self.check_large_limits(key.len(), value_bytes)?;
        self.admit()?;
        let here = self.owner.installed(self.configuration);
        let (records, key) = (&mut self.owner.records, (self.database, key));
        let staged = records.stage_by_client(self.cx, &here, ticket, key, value_bytes as u64, class);
        let record = self.sealed(ticket, value_bytes, staged)?;
        let mut record_bytes = Vec::new();
        record.encode(&mut record_bytes);
        Ok(self.places_of(&record, record_bytes, Capability::to_write))
    }

    /// The client has sent all units of what it has staged as `n`. The command that runs next under this ticket uses
    /// that value, as one that came ahead of it.
    ///
    /// # Errors
    /// A refusal if COMMIT does not fit what was staged. The value is given up then.
    pub fn commit_by_client(
        &mut self,
        (ticket, n): (Ticket, u64),
        key: &[u8],
        checks: &[u32],
        tail: &[u8],
    ) -> Result<(), Stop> {
        let here = self.owner.installed(self.configuration);
        let (records, key) = (&mut self.owner.records, (self.database, key));
        records.commit_by_client(self.cx, &here, (ticket, n), key, checks, tail)
    }
}
