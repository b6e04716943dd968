//! PARITAS.LOCATE: tells where the parts of a large value are, so that the client reads them itself (P14.17). It is a
//! read of the whole value. Other values are answered as by GET.

use super::strings::append_value_or_null;
use super::{LargeValue, Operation, Stop};
use paritas_protocol::{ClientCoding, Located, Out};
use paritas_wire::resp::{encode, errors};

/// The version of the reply (docs/formats/large.md).
const VERSION: i64 = 1;
/// Elements of the reply.
const ELEMENTS: usize = 9;

impl<O: Out> Operation<'_, '_, O> {
    pub(crate) fn locate(&mut self) -> Result<(), Stop> {
        if self.access.client_coding() == ClientCoding::Off {
            return Err(Stop::Error(errors::CLIENT_CODING_OFF));
        }
        let proto = self.proto();
        let large = self.look_string(1, |object, reply| {
            let large = object.and_then(LargeValue::of);
            if large.is_none() {
                append_value_or_null(reply, object, proto);
            }
            Ok(large)
        })?;
        let Some(large) = large else { return Ok(()) };
        // A damaged object may be repaired.
        let located = self.access.located(&large.record).ok_or(Stop::Wait)?;
        self.note_read(1, &large, large.seen.bytes as u64);
        encode::array_header(self.reply, ELEMENTS);
        encode::integer(self.reply, VERSION);
        self.append_places(&located, Some(&large.tail));
        Ok(())
    }

    /// What a client must know to reach the parts. `tail`: that of a value that is read.
    pub(super) fn append_places(&mut self, located: &Located, tail: Option<&[u8]>) {
        let proto = self.proto();
        let Self { reply, nodes, .. } = self;
        encode::integer(reply, located.stream.list.0.into());
        encode::integer(reply, located.stream.x.0.into());
        encode::bulk(reply, &located.record);
        if let Some(tail) = tail {
            encode::bulk(reply, tail);
        }
        encode::integer(reply, located.holders.len() as i64);
        encode::integer(reply, located.unit_bytes as i64);
        encode::array_header(reply, located.holders.len());
        for holder in &located.holders {
            match nodes.iter().find(|node| Some(node.id) == *holder) {
                Some(node) => encode::bulk(reply, node.cluster_address.as_bytes()),
                None => encode::null(reply, proto),
            }
        }
        encode::bulk(reply, &located.capabilities);
    }
}
