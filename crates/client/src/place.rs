//! `Place`: where the parts of a value are, as the owner of its key tells it.

use paritas_large::{GroupId, Layout, Part, Placement, Record};
use paritas_wire::resp::Reply;

/// Bytes of a capability.
const CAPABILITY_BYTES: usize = 8;

/// Where the parts of a value are, or are to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    list: i64,
    x: i64,
    pub(crate) record: Record,
    pub(crate) layout: Layout,
    pub(crate) placement: Placement,
    /// The addresses of the holders, by position. Empty if nobody holds it.
    holders: Vec<String>,
    /// The capability of the data group, then that of the other group.
    capabilities: Vec<u8>,
}

impl Place {
    /// Reads the elements of a reply: list, x, record, positions, bytes of a unit, holders, capabilities. `None` if
    /// this client does not understand them, or the body is longer than `body_bytes_max`.
    pub(crate) fn of_elements(elements: [&Reply<'_>; 7], body_bytes_max: u64) -> Option<Self> {
        let [list, x, record, positions, unit_bytes, holders, capabilities] = elements;
        let bytes = record.bytes()?;
        let (record, used) = Record::decode(bytes)?;
        let unit_bytes = u32::try_from(integer(unit_bytes)?).ok()?;
        let is_unit = unit_bytes >= 64 && unit_bytes.is_multiple_of(64) && unit_bytes <= 1 << 20;
        if used != bytes.len() || !is_unit || record.body_bytes > body_bytes_max {
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
            layout,
            placement,
            holders: holders.iter().map(address).collect(),
            capabilities,
            record,
        })
    }

    /// The address of the holder of a part. `None` if nobody holds it, or a log node does.
    pub(crate) fn holder(&self, part: &Part) -> Option<&str> {
        let address = self.holders.get(usize::from(part.position))?;
        (!address.is_empty()).then_some(address)
    }

    /// The words that name a part in a command: list, x, group, part. The first is the command's name.
    pub(crate) fn name(&self, command: &str, part: &Part) -> [Vec<u8>; 5] {
        [
            command.as_bytes().to_vec(),
            self.list.to_string().into_bytes(),
            self.x.to_string().into_bytes(),
            number(self.group_of(part).bits()),
            number(u64::from(part.number)),
        ]
    }

    /// The capability of the group of a part.
    pub(crate) fn capability(&self, part: &Part) -> &[u8] {
        let at = usize::from(self.group_of(part) != self.record.data_group) * CAPABILITY_BYTES;
        self.capabilities.get(at..at + CAPABILITY_BYTES).unwrap_or_default()
    }

    fn group_of(&self, part: &Part) -> GroupId {
        self.record.group_of(part)
    }
}

/// A reply that is an integer.
pub(crate) fn integer(reply: &Reply<'_>) -> Option<i64> {
    match reply {
        Reply::Integer(n) => Some(*n),
        _ => None,
    }
}

/// A number as a word of a command.
pub(crate) fn number(n: u64) -> Vec<u8> {
    n.to_string().into_bytes()
}
