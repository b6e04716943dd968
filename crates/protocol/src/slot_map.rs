//! The slot map as this node has it: which stream each slot is of, by the newest configuration that it knows, and
//! whether that stream's owner would serve it (P10.8).
//!
//! Configurations of two lists come one after the other, so two may claim a slot for a moment, or none. The claim of
//! the newer version of the map is followed; where there is none, the last one known. Either is only where to ask: an
//! owner serves what its own list's configuration says it holds, and nothing that it is handing off.

use crate::lists::Lists;
use paritas_base::configuration::ClusterRecord;
use paritas_base::hash_slots::SlotRange;
use paritas_base::{SLOT_COUNT, StreamId};

/// Where a slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotOwner {
    /// The stream that holds the slot.
    pub stream: StreamId,
    /// That stream's list says so.
    claimed: bool,
    /// And its owner, if it is here, is not about to hand it off.
    pub served: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    last: u16,
    place: SlotOwner,
}

/// All slots.
#[derive(Debug)]
pub struct SlotMap {
    entries: Vec<Entry>,
    /// Grows whenever a slot is another stream's than before, or about to be.
    version: u64,
    /// Something that it is made of has changed.
    stale: bool,
}

impl SlotMap {
    /// As the lists began. Nobody is known to serve anything yet.
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
        }
    }

    /// Where a slot is.
    #[inline]
    pub fn place(&self, slot: u16) -> SlotOwner {
        let at = self.entries.partition_point(|entry| entry.last < slot);
        self.entries[at].place
    }

    /// The stream of a slot.
    pub fn stream_of(&self, slot: u16) -> StreamId {
        self.place(slot).stream
    }

    /// Slots in a row of one stream: the last slot of each row.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, StreamId)> {
        self.entries.iter().map(|entry| (entry.last, entry.place.stream))
    }

    /// Whether each slot is some stream's by the configurations that are known here.
    pub fn is_whole(&self) -> bool {
        self.entries.iter().all(|entry| entry.place.claimed)
    }

    /// By which one sees that slots have changed hands.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What it is made of has changed: [`Self::renew`] is due.
    pub(crate) fn is_stale(&mut self) {
        self.stale = true;
    }

    /// Makes it anew if need be. True if slots have changed hands, or are served again.
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
        // Ranges that none of all these divides, by their last slots.
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
            // One that a list holds no more has gone to another, of which nothing is known yet.
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

/// Changes the entries that make up these slots.
fn fill(entries: &mut [Entry], first: u16, last: u16, mut change: impl FnMut(&mut SlotOwner)) {
    let from = entries.partition_point(|entry| entry.last < first);
    let of = entries.iter_mut().skip(from).take_while(|entry| entry.last <= last);
    of.for_each(|entry| change(&mut entry.place));
}
