//! `Staged`: the reply to `PARITAS.STAGE`.

use crate::place::{Place, integer};
use paritas_wire::resp::Reply;

/// The version of the reply that this client reads.
const VERSION: i64 = 1;
/// The most bytes of one `PARITAS.PUT`.
const PUT_BYTES_MAX: u32 = 512 << 10;
/// The longest tail that is sent, in bytes. A node asks for shorter ones.
const TAIL_BYTES_MAX: u64 = 64 << 10;

/// Where the parts of a value are to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Staged {
    /// It names the value on its connection.
    pub(crate) number: i64,
    pub(crate) place: Place,
}

impl Staged {
    /// Reads the reply for a value of this length. `None` if this client does not understand it, or cannot write all of
    /// these parts: a node encodes the value.
    pub(crate) fn of_reply(items: &[Reply<'_>], value_bytes: u64) -> Option<Self> {
        let [
            version,
            number,
            list,
            x,
            record,
            positions,
            unit_bytes,
            holders,
            capabilities,
            ..,
        ] = items
        else {
            return None;
        };
        if integer(version)? != VERSION {
            return None;
        }
        let elements = [list, x, record, positions, unit_bytes, holders, capabilities];
        let place = Place::of_elements(elements, value_bytes)?;
        let is_short = value_bytes - place.record.body_bytes <= TAIL_BYTES_MAX;
        let fits = is_short && place.layout.unit_bytes() <= PUT_BYTES_MAX;
        let is_held = place.placement.parts().all(|part| place.holder(&part).is_some());
        (place.record.may_be_by_client() && fits && is_held).then_some(Self {
            number: integer(number)?,
            place,
        })
    }

    /// The number in a reply of any version.
    pub(crate) fn number_of(items: &[Reply<'_>]) -> Option<i64> {
        integer(items.get(1)?)
    }
}
