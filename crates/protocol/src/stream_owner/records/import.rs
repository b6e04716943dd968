//! Large values that come with their hash slots from another stream (P10.8). Their bodies come piece by piece, ahead of
//! their objects, and are written to new groups of this stream.

use super::upload::place_of;
use super::{Installed, Origin, Records, decode};
use crate::context::Context;
use crate::interface::Out;
use crate::parts::placement_of;
use crate::stream_owner::Stop;
use crate::stream_owner::access::Refused;
use paritas_large::Record;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The values that a hand-off has brought, by their records at the source. A record names groups, whose ids are never
/// used again and whose parts never change. So two values with one record are the same.
#[derive(Debug, Default)]
pub(in crate::stream_owner) struct Imported {
    all: BTreeMap<Box<[u8]>, Value>,
}

#[derive(Debug)]
struct Value {
    /// Its number among the uploads.
    number: u64,
    /// Bytes of the body that are here.
    bytes: u64,
    /// Its record in this stream, once every holder has had its part.
    record: Option<Arc<Record>>,
    /// An object of this stream names it.
    is_named: bool,
    /// The newest attempt of the source that has spoken of it.
    round: u32,
}

impl Imported {
    pub(in crate::stream_owner) fn held_bytes(&self) -> usize {
        let all = self.all.iter();
        all.map(|(record, _)| record.len() + size_of::<Value>()).sum()
    }
}

/// What became of a piece of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::stream_owner) enum Taken {
    /// Further pieces are wanted.
    Piece,
    /// Every holder has its part.
    Whole,
}

impl Records {
    /// Takes a piece of a body, or more of it.
    pub(in crate::stream_owner) fn take_in_body<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        imported: &mut Imported,
        round: u32,
        record: &[u8],
        (offset, bytes): (u64, &[u8]),
    ) -> Result<Taken, Refused> {
        let source = decode(record).ok_or(Refused::Unknown)?;
        let known = imported.all.get_mut(record);
        if let Some(value) = known.filter(|value| value.record.is_some()) {
            value.round = round;
            return Ok(Taken::Whole);
        }
        // An earlier attempt has ended within it, or its parts were lost.
        let known = imported.all.get(record);
        let is_again = known.is_none_or(|value| value.round != round || value.bytes < offset);
        if is_again && offset > 0 {
            return Err(Refused::Unknown);
        }
        if is_again {
            self.forget_import(imported, record);
            let number = self.begin_import(cx, here, &source)?;
            let value = Value {
                number,
                bytes: 0,
                record: None,
                is_named: false,
                round,
            };
            imported.all.insert(record.into(), value);
        }
        let Some(value) = imported.all.get_mut(record) else {
            return Err(Refused::Unknown);
        };
        let of = Origin::Import(value.number);
        match self.send_value(cx, here, of, offset, bytes) {
            // The same blocks have the same checks: the bytes are those of the source.
            Ok(own) if own.checks == source.checks => {
                value.record = Some(own);
                Ok(Taken::Whole)
            }
            Ok(_) => {
                self.forget_import(imported, record);
                Err(Refused::Unknown)
            }
            Err(Stop::Wait) => {
                let Some(uploading) = self.uploads.get(&of) else {
                    // Too many holders were lost: it is sent again.
                    imported.all.remove(record);
                    return Err(Refused::Unknown);
                };
                value.bytes = uploading.sent_bytes;
                let is_taken = value.bytes >= offset + bytes.len() as u64;
                match is_taken && !uploading.is_sent() {
                    true => Ok(Taken::Piece),
                    false => Err(Refused::Wait),
                }
            }
            Err(Stop::Refused(_)) => {
                imported.all.remove(record);
                Err(Refused::NoRoom)
            }
        }
    }

    fn begin_import<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        source: &Record,
    ) -> Result<u64, Refused> {
        let x = place_of(cx, here, source.class);
        let placement = placement_of(cx, here.configuration, source.class, x);
        let placement = placement.map_err(|_| Refused::NoRoom)?;
        let ledger = &mut self.ledger;
        let staged = ledger.stage(source.class, placement.first(), placement.logged(), source.body_bytes);
        let staged = staged.ok_or(Refused::NoRoom)?;
        self.import += 1;
        let number = self.import;
        self.begin_upload(cx, here, Origin::Import(number), &[], staged)?;
        Ok(number)
    }

    /// The record that an object of this stream may have whose record at the source is this one.
    ///
    /// # Errors
    /// [`Refused::Unknown`] if the body is not here.
    pub(in crate::stream_owner) fn imported_record<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        imported: &mut Imported,
        record: &[u8],
    ) -> Result<Arc<Record>, Refused> {
        let Some((value, own)) = imported.all.get(record).and_then(|v| Some((v, v.record.as_ref()?))) else {
            return Err(Refused::Unknown);
        };
        let found = if value.is_named {
            // Another key has the same value (COPY). The ledger may not know yet that an object names its groups. If
            // none does any more, they may be dead soon.
            let ledger = &self.ledger;
            let is_alive = own.groups().all(|group| ledger.is_named(group)) || ledger.is_staging(own);
            if is_alive {
                Ok(own.clone())
            } else {
                Err(Refused::Unknown)
            }
        } else {
            // Holders may have changed since.
            let of = Origin::Import(value.number);
            match self.send_value(cx, here, of, own.body_bytes, &[]) {
                Ok(record) => Ok(record),
                Err(Stop::Wait) if self.uploads.contains_key(&of) => Err(Refused::Wait),
                Err(_) => Err(Refused::Unknown),
            }
        };
        if found == Err(Refused::Unknown) {
            self.forget_import(imported, record);
        }
        found
    }

    /// An object names it.
    pub(in crate::stream_owner) fn on_imported_named(&mut self, imported: &mut Imported, record: &[u8]) {
        if let Some(value) = imported.all.get_mut(record) {
            value.is_named = true;
            self.end_upload_of(Origin::Import(value.number), true);
        }
    }

    fn forget_import(&mut self, imported: &mut Imported, record: &[u8]) {
        if let Some(value) = imported.all.remove(record) {
            self.end_upload_of(Origin::Import(value.number), false);
        }
    }

    /// Another attempt begins: forgets values of which the one before has not spoken, and those that objects had. The
    /// objects are removed.
    pub(in crate::stream_owner) fn keep_imported(&mut self, imported: &mut Imported, round: u32) {
        let is_kept = |value: &Value| value.round == round && !value.is_named;
        let over = imported.all.iter().filter(|(_, value)| !is_kept(value));
        let over: Vec<Box<[u8]>> = over.map(|(record, _)| record.clone()).collect();
        for record in over {
            self.forget_import(imported, &record);
        }
    }

    /// The hand-off is over. What no object names dies.
    pub(in crate::stream_owner) fn end_imports(&mut self) {
        let all = self.uploads.keys();
        let over: Vec<Origin> = all.filter(|of| matches!(of, Origin::Import(_))).copied().collect();
        for of in over {
            self.end_upload_of(of, false);
        }
    }
}
