//! WAIT.

use paritas_protocol::Lists;
use paritas_wire::resp::{ArgList, encode, errors, parse_integer};

/// WAIT. A write is answered only when the ack quorum of its list has it: every parity member, or `ack_quorum` of them.
/// So there is nothing left to wait for. Replies with the number of Live parity members of the list that has the
/// fewest.
pub(crate) fn wait(lists: &Lists, out: &mut Vec<u8>, args: ArgList<'_>) {
    if parse_integer(args.arg(1)).is_none() {
        return encode::error(out, errors::NOT_AN_INTEGER);
    }
    match parse_integer(args.arg(2)) {
        None => return encode::error(out, errors::TIMEOUT_NOT_AN_INTEGER),
        Some(..0) => return encode::error(out, errors::TIMEOUT_NEGATIVE),
        Some(_) => {}
    }
    let live = lists
        .iter()
        .map(|list| list.configuration.members().filter(|(_, a)| a.state.is_live()).count());
    encode::integer(out, live.min().unwrap_or(0) as i64);
}
