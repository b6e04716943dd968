//! `Located`: the reply to `PARITAS.LOCATE` for a large value.

use crate::read::Ask;
use paritas_large::{Layout, Part, Placement, Record};
use paritas_wire::resp::Reply;

/// The version of the reply that this client reads.
const VERSION: i64 = 1;
/// Bytes of a capability.
const CAPABILITY_BYTES: usize = 8;
/// The longest tail that is accepted, in bytes. A node's are shorter.
const TAIL_BYTES_MAX: usize = 64 << 10;

/// Where the parts of a value are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Located {
    pub(crate) list: i64,
    pub(crate) x: i64,
    pub(crate) record: Record,
    pub(crate) tail: Vec<u8>,
    pub(crate) layout: Layout,
    pub(crate) placement: Placement,
    /// The addresses of the holders, by position. Empty if nobody holds it.
    holders: Vec<String>,
    /// The capability of the data group, then that of the other group.
    capabilities: Vec<u8>,
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
        let integer = |reply: &Reply<'_>| match reply {
            Reply::Integer(n) => Some(*n),
            _ => None,
        };
        if integer(version)? != VERSION {
            return None;
        }
        let bytes = record.bytes()?;
        let (record, used) = Record::decode(bytes)?;
        let tail = tail.bytes()?.to_vec();
        let unit_bytes = u32::try_from(integer(unit_bytes)?).ok()?;
        let is_unit = unit_bytes >= 64 && unit_bytes.is_multiple_of(64) && unit_bytes <= 1 << 20;
        let fits = record.body_bytes <= value_bytes_max && tail.len() <= TAIL_BYTES_MAX;
        if used != bytes.len() || !is_unit || !fits {
            return None;
        }
        let layout = record.layout(unit_bytes)?;
        let placement = record.placement(u8::try_from(integer(positions)?).ok()?).ok()?;
        let Reply::Array(holders) = holders else { return None };
        let address = |reply: &Reply<'_>| {
            let text = reply.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok());
            text.unwrap_or_default().to_owned()
        };
        let capabilities = capabilities.bytes()?.to_vec();
        (capabilities.len() == CAPABILITY_BYTES * record.groups().count()).then_some(Self {
            list: integer(list)?,
            x: integer(x)?,
            tail,
            layout,
            placement,
            holders: holders.iter().map(address).collect(),
            capabilities,
            record,
        })
    }

    /// The length of the value in bytes.
    pub(crate) fn value_bytes(&self) -> u64 {
        self.record.body_bytes + self.tail.len() as u64
    }

    /// The address of the holder of a part. `None` if nobody holds it, or a log node does.
    pub(crate) fn holder(&self, part: &Part) -> Option<&str> {
        let address = self.holders.get(usize::from(part.position))?;
        (!address.is_empty()).then_some(address)
    }

    /// The command that asks for units of a part.
    pub(crate) fn ask(&self, ask: &Ask) -> [Vec<u8>; 8] {
        let group = self.record.group_of(&ask.part);
        let at = usize::from(group != self.record.data_group) * CAPABILITY_BYTES;
        let capability = self.capabilities.get(at..at + CAPABILITY_BYTES).unwrap_or_default();
        let number = |n: u64| n.to_string().into_bytes();
        [
            b"PARITAS.UNITS".to_vec(),
            self.list.to_string().into_bytes(),
            self.x.to_string().into_bytes(),
            number(group.bits()),
            number(u64::from(ask.part.number)),
            number(u64::from(ask.first)),
            number(u64::from(ask.count)),
            capability.to_vec(),
        ]
    }
}
