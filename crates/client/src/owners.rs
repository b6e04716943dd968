//! `Owners`: which node owns the keys of each hash slot, as far as this client knows. A command of a slot whose owner
//! is not known goes to *home*, the node that takes any key.
//!
//! A map of all slots is the reply to CLUSTER SLOTS. Single slots are learned by `-MOVED`. The cluster may have rules
//! that give a key another slot than its hash (`one_slot`): then the map is wrong for that key and right for others of
//! the slot. So a slot is learned once. If that is refused, too, its commands go home.

use paritas_base::{SLOT_COUNT, Span, Time};
use paritas_wire::resp::Reply;
use std::collections::BTreeMap;

/// The wait before the map is asked for again: at least, and as long as it tells nothing new.
const WAIT: (Span, Span) = (Span::from_secs(1), Span::from_secs(60));
/// The most addresses that are remembered.
const NAMES_MAX: usize = 1_024;
/// The longest address, in bytes.
const NAME_BYTES_MAX: usize = 300;
/// The longest name of a node, in bytes. It has 40.
const ID_BYTES_MAX: usize = 64;
/// The longest map, in bytes. One with a range for each slot is shorter.
pub(crate) const MAP_BYTES_MAX: usize = 4 << 20;

/// In place of the number of an address: nobody is known.
const NOBODY: u16 = u16::MAX;
/// In place of the number of an address: commands of the slot go home.
const HOME: u16 = u16::MAX - 1;

/// Hash slots with one owner.
struct Range {
    first: usize,
    last: usize,
    address: String,
    /// The name of the node.
    id: Vec<u8>,
}

/// The owners of all hash slots.
#[derive(Debug)]
pub(crate) struct Owners {
    /// Addresses.
    names: Vec<String>,
    /// By address: the name of the node there, if a map has told it.
    ids: BTreeMap<String, Vec<u8>>,
    /// By slot: the number of the address that the map names, or without a map `-MOVED`.
    named: Vec<u16>,
    /// By slot: the number of the address that `-MOVED` has named since then.
    learned: Vec<u16>,
    asked_at: Option<Time>,
    wait: Span,
    /// When what `-MOVED` has named was forgotten.
    cleared_at: Time,
}

impl Owners {
    pub(crate) fn new() -> Self {
        Self {
            names: Vec::new(),
            ids: BTreeMap::new(),
            named: vec![NOBODY; usize::from(SLOT_COUNT)],
            learned: vec![NOBODY; usize::from(SLOT_COUNT)],
            asked_at: None,
            wait: WAIT.0,
            cleared_at: Time(0),
        }
    }

    /// The address of the owner of a slot.
    pub(crate) fn of(&self, slot: u16) -> Option<&str> {
        let learned = self.learned.get(usize::from(slot)).copied()?;
        let number = match learned {
            NOBODY => self.named.get(usize::from(slot)).copied()?,
            learned => learned,
        };
        self.names.get(usize::from(number)).map(String::as_str)
    }

    /// Whether the node at an address may have this name.
    pub(crate) fn is_named(&self, address: &str, id: &[u8]) -> bool {
        self.ids.get(address).is_none_or(|known| known == id)
    }

    /// Whether the map is to be asked for now. If it is, the next time is later.
    pub(crate) fn may_ask(&mut self, now: Time) -> bool {
        let is_due = self.asked_at.is_none_or(|at| now >= at + self.wait);
        if is_due {
            self.asked_at = Some(now);
            self.wait = Span(2 * self.wait.0).min(WAIT.1);
        }
        is_due
    }

    /// The map is not asked for again soon: nodes do not tell it.
    pub(crate) fn rest(&mut self, now: Time) {
        (self.asked_at, self.wait) = (Some(now), WAIT.1);
    }

    /// The reply to CLUSTER SLOTS. One that is not understood changes nothing.
    pub(crate) fn on_map(&mut self, now: Time, reply: &Reply<'_>) {
        let Some(ranges) = ranges(reply) else { return };
        if now >= self.cleared_at + WAIT.1 {
            self.cleared_at = now;
            self.learned.fill(NOBODY);
        }
        if self.names.len() >= NAMES_MAX / 2 {
            self.clear();
        }
        let known = self.names.iter().cloned().zip(0..);
        let mut numbers: BTreeMap<String, u16> = known.collect();
        let mut named = vec![NOBODY; usize::from(SLOT_COUNT)];
        self.ids.clear();
        for range in ranges {
            let Range {
                first,
                last,
                address,
                id,
            } = range;
            let next = numbers.len();
            if next >= NAMES_MAX && !numbers.contains_key(&address) {
                continue;
            }
            let number = *numbers.entry(address.clone()).or_insert(next as u16);
            self.ids.entry(address.clone()).or_insert(id);
            if usize::from(number) == self.names.len() {
                self.names.push(address);
            }
            if let Some(slots) = named.get_mut(first..=last) {
                slots.fill(number);
            }
        }
        let slots = self.learned.iter_mut().zip(&self.named).zip(&named);
        for ((learned, before), named) in slots {
            if before != named {
                (*learned, self.wait) = (NOBODY, WAIT.0);
            }
        }
        self.named = named;
    }

    /// A node with the address `from` has refused a key of a slot, and named this one.
    pub(crate) fn on_moved(&mut self, slot: u16, from: &str, to: Option<&str>) {
        let is_of_owner = self.of(slot) == Some(from);
        let number = to.and_then(|to| self.number_of(to)).unwrap_or(HOME);
        let slot = usize::from(slot);
        let (Some(named), Some(learned)) = (self.named.get_mut(slot), self.learned.get_mut(slot)) else {
            return;
        };
        match (*named, *learned) {
            (NOBODY, NOBODY) if number != HOME => *named = number,
            (named, NOBODY) if is_of_owner || ![named, HOME].contains(&number) => *learned = number,
            (_, NOBODY) => return,
            _ if is_of_owner => *learned = HOME,
            // Something newer is known.
            _ => return,
        }
        self.wait = WAIT.0;
    }

    /// An address is not that of an owner any more. Returns whether it was one.
    pub(crate) fn forget(&mut self, address: &str) -> bool {
        let Some(number) = self.names.iter().position(|name| name == address) else {
            return false;
        };
        let mut was_owner = false;
        for of in self.named.iter_mut().chain(&mut self.learned) {
            if usize::from(*of) == number {
                (*of, was_owner) = (NOBODY, true);
            }
        }
        if was_owner {
            self.wait = WAIT.0;
        }
        was_owner
    }

    fn number_of(&mut self, address: &str) -> Option<u16> {
        let found = self.names.iter().position(|name| name == address);
        let number = found.unwrap_or(self.names.len());
        if number >= NAMES_MAX {
            return None;
        }
        if number == self.names.len() {
            self.names.push(address.to_owned());
        }
        Some(number as u16)
    }

    fn clear(&mut self) {
        self.names.clear();
        self.named.fill(NOBODY);
        self.learned.fill(NOBODY);
    }
}

/// The ranges in a reply to CLUSTER SLOTS. `None` if it is not understood.
fn ranges(reply: &Reply<'_>) -> Option<Vec<Range>> {
    let Reply::Array(items) = reply else { return None };
    let mut left = usize::from(SLOT_COUNT);
    let range = |item: &Reply<'_>| {
        let Reply::Array(item) = item else { return None };
        let [Reply::Integer(first), Reply::Integer(last), Reply::Array(node), ..] = item.as_slice() else {
            return None;
        };
        let [host, Reply::Integer(port), id, ..] = node.as_slice() else {
            return None;
        };
        let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
        // No slot has two owners: so all ranges have a bounded length.
        left = left.checked_sub(last.checked_sub(first)?.checked_add(1)?)?;
        let host = std::str::from_utf8(host.bytes()?).ok()?;
        let address = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let id = id.bytes().filter(|id| id.len() <= ID_BYTES_MAX)?.to_vec();
        (last < usize::from(SLOT_COUNT) && is_address(&address)).then_some(Range {
            first,
            last,
            address,
            id,
        })
    };
    items.iter().map(range).collect()
}

/// The address in `MOVED slot host:port`.
pub(crate) fn moved_to(text: &[u8]) -> Option<&str> {
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    let (Some("MOVED"), Some(_), Some(address), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return None;
    };
    is_address(address).then_some(address)
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    !host.is_empty() && text.len() <= NAME_BYTES_MAX && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests;
