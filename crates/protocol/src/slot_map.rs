//! The slot map of this node: the stream of each hash slot by the newest known configurations, and whether that
//! stream's owner serves the slot (P10.8).
//!
//! Configurations of two lists arrive one after the other, so two lists may claim a slot for a moment, or none. The
//! claim with the newer version of the map counts; without a claim, the last known one. The map only says where to send
//! a command: an owner serves the slots that its own list's configuration gives it, except those that it hands off.

use crate::lists::Lists;
use paritas_base::configuration::ClusterRecord;
use paritas_base::hash_slots::SlotRange;
use paritas_base::{OneSlot, SLOT_COUNT, StreamId};
use paritas_wire::command::KeySlots;

/// The stream of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotOwner {
    /// The stream that holds the slot.
    pub stream: StreamId,
    /// The configuration of that stream's list says so.
    claimed: bool,
    /// The slot is claimed and, if the owner is this node, it is not handing the slot off.
    pub served: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    last: u16,
    place: SlotOwner,
}

/// The streams of all slots.
#[derive(Debug)]
pub struct SlotMap {
    entries: Vec<Entry>,
    /// Grows when a slot changes its stream, or loses its claim.
    version: u64,
    /// The map must be rebuilt.
    stale: bool,
    keys: KeySlots,
}

impl SlotMap {
    /// By the cluster record. No slot is claimed or served yet.
    pub(crate) fn new(cluster: &ClusterRecord) -> Self {
        let entry = |(last, stream): &(u16, StreamId)| Entry {
            last: *last,
            place: SlotOwner {
                stream: *stream,
                claimed: false,
                served: false,
            },
        };
        Self {
            entries: cluster.slots.iter().map(entry).collect(),
            version: 0,
            stale: false,
            // Records with damaged rules are refused before.
            keys: KeySlots::new(&OneSlot::of(&cluster.more).unwrap_or_default()),
        }
    }

    /// The slot of a key of a database.
    #[inline]
    pub fn slot(&self, database: u8, key: &[u8]) -> u16 {
        self.keys.slot(database, key)
    }

    /// The slots of keys.
    pub(crate) const fn keys(&self) -> &KeySlots {
        &self.keys
    }

    /// The stream of a key of a database.
    pub fn stream_of_key(&self, database: u8, key: &[u8]) -> StreamId {
        self.stream_of(self.slot(database, key))
    }

    /// The stream of a slot, and whether it is served.
    #[inline]
    pub fn place(&self, slot: u16) -> SlotOwner {
        let at = self.entries.partition_point(|entry| entry.last < slot);
        self.entries[at].place
    }

    /// The stream of a slot.
    pub fn stream_of(&self, slot: u16) -> StreamId {
        self.place(slot).stream
    }

    /// Ranges of slots of one stream, each by its last slot, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, StreamId)> {
        self.entries.iter().map(|entry| (entry.last, entry.place.stream))
    }

    /// Whether every slot is claimed by a known configuration.
    pub fn is_whole(&self) -> bool {
        self.entries.iter().all(|entry| entry.place.claimed)
    }

    /// A number that changes when slots move.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A configuration or a hand-off has changed: [`Self::renew`] must rebuild the map.
    pub(crate) fn is_stale(&mut self) {
        self.stale = true;
    }

    /// Rebuilds the map if it is stale. True if slots have moved, or are served again.
    pub(crate) fn renew(&mut self, cluster: &ClusterRecord, lists: &Lists, freeze: bool) -> bool {
        if !core::mem::take(&mut self.stale) {
            return false;
        }
        let mut claims: Vec<(u64, StreamId, SlotRange)> = Vec::new();
        for list in lists.iter() {
            let slots = &list.configuration.slots;
            for range in slots.held(list.configuration.list, cluster) {
                let stream = StreamId {
                    list: list.configuration.list,
                    x: range.x,
                };
                claims.push((slots.version, stream, range));
            }
        }
        claims.sort_by_key(|(version, ..)| *version);
        let owners = || lists.iter().flat_map(|list| list.owners()).filter(|_| freeze);
        let frozen: Vec<_> = owners()
            .filter_map(|owner| Some((owner.stream(), owner.frozen()?)))
            .collect();
        // The borders of all claims and hand-offs divide the slots into ranges, here by their last slots.
        let divided = claims.iter().map(|(.., range)| (range.first, range.last));
        let divided = divided.chain(frozen.iter().map(|(_, range)| *range));
        let mut lasts: Vec<u16> = divided
            .flat_map(|(first, last)| [first.wrapping_sub(1), last])
            .collect();
        lasts.retain(|last| *last < SLOT_COUNT);
        lasts.extend(self.entries.iter().map(|entry| entry.last));
        lasts.sort_unstable();
        lasts.dedup();
        let entry = |last| Entry {
            last,
            place: SlotOwner {
                claimed: false,
                served: false,
                ..self.place(last)
            },
        };
        let mut entries: Vec<Entry> = lasts.into_iter().map(entry).collect();
        for (_, stream, range) in claims {
            let place = SlotOwner {
                stream,
                claimed: true,
                served: true,
            };
            fill(&mut entries, range.first, range.last, |at| *at = place);
        }
        for (own, (first, last)) in frozen {
            fill(&mut entries, first, last, |place| place.served &= place.stream != own);
        }
        let (mut moved, mut served) = (false, false);
        for entry in &entries {
            let before = self.place(entry.last);
            // A slot without a claim has moved to a list whose configuration is not known yet.
            moved |= before.stream != entry.place.stream || before.claimed && !entry.place.claimed;
            served |= !before.served && entry.place.served;
        }
        let mut joined: Vec<Entry> = Vec::with_capacity(entries.len());
        for entry in entries {
            match joined.last_mut() {
                Some(before) if before.place == entry.place => before.last = entry.last,
                _ => joined.push(entry),
            }
        }
        self.entries = joined;
        self.version += u64::from(moved);
        moved || served
    }
}

/// Changes the entries of the slots from `first` to `last`.
fn fill(entries: &mut [Entry], first: u16, last: u16, mut change: impl FnMut(&mut SlotOwner)) {
    let from = entries.partition_point(|entry| entry.last < first);
    let of = entries.iter_mut().skip(from).take_while(|entry| entry.last <= last);
    of.for_each(|entry| change(&mut entry.place));
}
