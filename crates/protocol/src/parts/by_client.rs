//! Units that a client sends to their holder (P14.18).

use super::{PositionParts, Said, writing};
use crate::context::Context;
use crate::interface::Out;
use crate::lists::{List, Lists};
use paritas_base::{PartState, Position, StreamId};
use paritas_large::{FingerprintKey, PartId, PartName, Put, Record};

impl PositionParts {
    /// The key of the fingerprints of this value (P14.20).
    pub(super) fn fingerprint_key<O: Out>(&self, cx: &Context<'_, O>, x: Position, record: &Record) -> FingerprintKey {
        let stream = StreamId { list: self.at.0, x };
        FingerprintKey::new(cx.shared.cluster.hash_key, stream, record.data_group)
    }

    fn on_put_by_client<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        id: PartId,
        unit: u32,
        bytes: &[u8],
    ) -> Option<Put> {
        self.keeper.on_put_by_client(&mut writing(cx, self.at), id, unit, bytes)
    }
}

impl Lists {
    /// A client sends units of a part, from this one on. Returns how many units of the part are here now. The owner is
    /// told when the part is kept, or broken.
    ///
    /// `None`: no such part is open for a client here, these bytes are no units of it, or one of them is wrong.
    pub fn put_units<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        stream: StreamId,
        name: PartName,
        unit: u32,
        bytes: &[u8],
    ) -> Option<u32> {
        let id = PartId { x: stream.x, name };
        // A list whose parts are not here is not woken.
        self.get(stream.list)?.parts.first()?;
        let List {
            configuration, parts, ..
        } = self.get_mut(stream.list)?;
        let mut parts = parts.iter_mut();
        let (put, held) = parts.find_map(|held| Some((held.on_put_by_client(cx, id, unit, bytes)?, held)))?;
        let (count, said) = match put {
            Put::Here(count) => return Some(count),
            Put::Kept(count, check, fingerprint) => {
                let said = Said {
                    state: PartState::Kept(check),
                    fingerprint: Some(fingerprint),
                };
                (Some(count), said)
            }
            Put::Broken => (None, PartState::Broken.into()),
        };
        if let Some(owner) = configuration.tenure(stream.x) {
            let to = (owner.node, owner.incarnation);
            held.answer_put(cx, configuration, id, to, said);
        }
        count
    }
}
