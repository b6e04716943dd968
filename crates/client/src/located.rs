//! `Located`: the reply to `PARITAS.LOCATE` for a large value.

use crate::place::{Place, integer, number};
use crate::read::Ask;
use paritas_wire::resp::Reply;

/// The version of the reply that this client reads.
const VERSION: i64 = 1;
/// The longest tail that is accepted, in bytes. A node's are shorter.
const TAIL_BYTES_MAX: usize = 64 << 10;

/// Where the parts of a value are, and its tail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Located {
    pub(crate) place: Place,
    pub(crate) tail: Vec<u8>,
}

impl Located {
    /// Reads the reply. `None` if this client does not understand it, or the value is longer than `value_bytes_max`:
    /// the value is read by GET.
    pub(crate) fn of_reply(items: &[Reply<'_>], value_bytes_max: u64) -> Option<Self> {
        let [
            version,
            list,
            x,
            record,
            tail,
            positions,
            unit_bytes,
            holders,
            capabilities,
            ..,
        ] = items
        else {
            return None;
        };
        let tail = tail.bytes()?.to_vec();
        if integer(version)? != VERSION || tail.len() > TAIL_BYTES_MAX {
            return None;
        }
        let elements = [list, x, record, positions, unit_bytes, holders, capabilities];
        let place = Place::of_elements(elements, value_bytes_max)?;
        Some(Self { place, tail })
    }

    /// The length of the value in bytes.
    pub(crate) fn value_bytes(&self) -> u64 {
        self.place.record.body_bytes + self.tail.len() as u64
    }

    /// The command that asks for units of a part.
    pub(crate) fn ask(&self, ask: &Ask) -> Vec<Vec<u8>> {
        let mut words = self.place.name("PARITAS.UNITS", &ask.part).to_vec();
        words.push(number(u64::from(ask.first)));
        words.push(number(u64::from(ask.count)));
        words.push(self.place.capability(&ask.part).to_vec());
        words
    }
}
