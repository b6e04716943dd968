//! The slot map as this node has it: which stream each slot is of, by the newest configuration that it knows, and
//! whether that stream's owner would serve it (PROTOCOL 10.8).
//!
//! Configurations of two lists come one after the other, so two may claim a slot for a moment, or none. The claim of
//! the newer version of the map is followed; where there is none, the last one known. Either is only where to ask: an
//! owner serves what its own list's configuration says it holds, and nothing that it is handing off.

use crate::lists::Lists;
use paritas_base::configuration::ClusterRecord;
use paritas_base::slots::SlotRange;
use paritas_base::{SLOT_COUNT, Stream};

/// Where a slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) stream: Stream,
    /// That stream's list says so, and its owner, if it is here, is not about to hand it off.
    pub(crate) served: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    last: u16,
    place: Place,
}

/// All slots.
#[derive(Debug)]
pub(crate) struct SlotMap {
    entries: Vec<Entry>,
    /// Grows whenever a slot is another stream's than before.
    version: u64,
    /// Something that it is made of has changed.
    stale: bool,
}

impl SlotMap {
    /// As the lists began. Nobody is known to serve anything yet.
    pub(crate) fn new(cluster: &ClusterRecord) -> Self {
        let entry = |(last, stream): &(u16, Stream)| Entry {
            last: *last,
            place: Place {
                stream: *stream,
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
    pub(crate) fn place(&self, slot: u16) -> Place {
        let at = self.entries.partition_point(|entry| entry.last < slot);
        self.entries[at].place
    }

    /// The stream of a slot.
    pub(crate) fn stream_of(&self, slot: u16) -> Stream {
        self.place(slot).stream
    }

    /// Slots in a row of one stream: the last slot of each row.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u16, Stream)> {
        self.entries.iter().map(|entry| (entry.last, entry.place.stream))
    }

    /// By which one sees that slots have changed hands.
    pub(crate) fn version(&self) -> u64 {
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
        let mut places: Vec<Place> = Vec::with_capacity(SLOT_COUNT.into());
        for entry in &self.entries {
            let place = Place {
                served: false,
                ..entry.place
            };
            places.resize(usize::from(entry.last) + 1, place);
        }
        let mut claims: Vec<(u64, Stream, SlotRange)> = Vec::new();
        for list in lists.iter() {
            let slots = &list.configuration.slots;
            for range in slots.held(list.configuration.list, cluster) {
                let stream = Stream {
                    list: list.configuration.list,
                    x: range.x,
                };
                claims.push((slots.version, stream, range));
            }
        }
        claims.sort_by_key(|(version, ..)| *version);
        for (_, stream, range) in claims {
            let place = Place { stream, served: true };
            fill(&mut places, range.first, range.last, |slot| *slot = place);
        }
        for owner in lists.iter().flat_map(|list| list.owners()).filter(|_| freeze) {
            if let Some((first, last)) = owner.frozen() {
                let own = owner.stream();
                fill(&mut places, first, last, |place| place.served &= place.stream != own);
            }
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(self.entries.len());
        let (mut moved, mut served) = (false, false);
        for (slot, place) in (0..SLOT_COUNT).zip(places) {
            let before = self.place(slot);
            moved |= before.stream != place.stream;
            served |= !before.served && place.served;
            match entries.last_mut() {
                Some(entry) if entry.place == place => entry.last = slot,
                _ => entries.push(Entry { last: slot, place }),
            }
        }
        self.entries = entries;
        self.version += u64::from(moved);
        moved || served
    }
}

fn fill(places: &mut [Place], first: u16, last: u16, change: impl FnMut(&mut Place)) {
    let range = usize::from(first)..usize::from(last) + 1;
    places.get_mut(range).into_iter().flatten().for_each(change);
}
