//! Parts whose units come from a client (P14.18). What the client says is not believed: a part is taken only if it may
//! be the part of some value, and its fingerprint tells the owner whether it belongs to the others (P14.20).

use super::{Held, Keeper, PartId, State, Units};
use crate::fingerprint::Fingerprint;
use crate::{Content, Part, Record};
use paritas_base::PartState;

/// What became of a part that a client has sent units of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Put {
    /// It has this number of units. More are to come, or it was kept before.
    Here(u32),
    /// It has all its units, of this number, and is kept: its check and its fingerprint.
    Kept(u32, u32, Box<Fingerprint>),
    /// A unit was wrong, or there is no memory for it. The part is dropped.
    Broken,
}

impl<U: core::fmt::Debug> Keeper<U> {
    /// A client sends units of a part, from this one on: whole units, one after the other. Those that are here are
    /// passed over. If the first one is not the next and not here, nothing is taken.
    ///
    /// `None`: no such part is open for a client, or these bytes are no units of it. Nothing is changed.
    pub fn on_put_by_client<M: Units<Unit = U>>(
        &mut self,
        memory: &mut M,
        id: PartId,
        unit: u32,
        bytes: &[u8],
    ) -> Option<Put> {
        let unit_bytes = memory.unit_bytes();
        let held = self.parts.get(&id)?;
        let count = held.units.len() as u32;
        let is_kept = match &held.state {
            State::Open(_, Some(_)) => false,
            // The answer to the last unit may have been lost on its way to the client.
            State::Kept | State::Wrong(_) => true,
            State::Open(_, None) | State::Making(_) => return None,
        };
        if !held.are_units(unit, bytes, unit_bytes) {
            return None;
        }
        if is_kept || unit > count {
            return Some(Put::Here(count));
        }
        let mut rest = bytes;
        for number in unit.. {
            let Some(held) = self.parts.get_mut(&id) else { break };
            let length = held.length_of(number, unit_bytes).unwrap_or_default() as usize;
            let Some((bytes, later)) = rest.split_at_checked(length).filter(|(bytes, _)| !bytes.is_empty()) else {
                break;
            };
            rest = later;
            if number < count {
                continue;
            }
            if !is_within_body(&held.record, &held.part, number, bytes, unit_bytes) {
                self.drop_part(memory, &id);
                return Some(Put::Broken);
            }
            let State::Open(_, Some(folding)) = &mut held.state else {
                break;
            };
            folding.push(bytes);
            let is_last = number + 1 == held.count(unit_bytes);
            let fingerprint = is_last.then(|| held.folded()).flatten();
            match (self.take(memory, &id, bytes), fingerprint) {
                (PartState::Kept(check), Some(fingerprint)) => {
                    let fingerprint = Box::new(fingerprint);
                    if let Some(held) = self.parts.get_mut(&id) {
                        held.fingerprint = Some(fingerprint.clone());
                    }
                    return Some(Put::Kept(number + 1, check, fingerprint));
                }
                (PartState::Taken(_), _) => {}
                _ => return Some(Put::Broken),
            }
        }
        let count = self.parts.get(&id).map(|held| held.units.len() as u32);
        count.map(Put::Here)
    }

    /// The fingerprint of a part that is kept and whose units a client has sent. `None` too once an object names it.
    pub fn fingerprint(&self, id: &PartId) -> Option<&Fingerprint> {
        self.parts.get(id)?.fingerprint.as_deref()
    }
}

impl<U> Held<U> {
    /// Units of the whole part.
    fn count(&self, unit_bytes: u32) -> u32 {
        self.units.len() as u32 + self.missing(unit_bytes) as u32
    }

    /// Whether these bytes are whole units of the part, from this one on, and at least one.
    fn are_units(&self, unit: u32, bytes: &[u8], unit_bytes: u32) -> bool {
        let mut rest = bytes.len() as u64;
        let mut unit = unit;
        while let Some(length) = self
            .length_of(unit, unit_bytes)
            .filter(|length| *length > 0 && rest > 0)
        {
            let Some(later) = rest.checked_sub(u64::from(length)) else {
                return false;
            };
            (rest, unit) = (later, unit + 1);
        }
        rest == 0 && !bytes.is_empty()
    }

    fn folded(&self) -> Option<Fingerprint> {
        match &self.state {
            State::Open(_, Some(folding)) => Some(folding.fingerprint()),
            _ => None,
        }
    }
}

/// Whether a unit has zeros alone behind the end of the body. Readers take them for granted, and whoever makes the part
/// again makes zeros there. A parity has a combination of all blocks: if the blocks have zeros, its fingerprint shows
/// whether it does.
fn is_within_body(record: &Record, part: &Part, unit: u32, bytes: &[u8], unit_bytes: u32) -> bool {
    let Some(layout) = record.layout(unit_bytes) else {
        return false;
    };
    let of_body = match part.content {
        Content::Whole => unit,
        Content::Block(i) => unit * u32::from(layout.data()) + u32::from(i),
        Content::Parity(_) => return true,
    };
    let range = layout.unit_range(of_body);
    let padding = bytes.get((range.end - range.start) as usize..).unwrap_or_default();
    padding.iter().all(|byte| *byte == 0)
}
