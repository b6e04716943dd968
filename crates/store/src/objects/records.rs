//! Records that enter and leave the stream, for the owner's ledger of large values.
//!
//! A record is opaque here. A birth or death is reported with the change that causes it, so it belongs to the delta of
//! that change. Compaction and growth report nothing.

use super::ObjectStore;
use super::space::Use;
use crate::Arena;
use crate::object::Head;
use paritas_base::Stripe;

/// A change of the live objects that have a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordEvent {
    /// There is one more object with this record: it was written, or found in a chunk that was learnt after a takeover.
    Born(Box<[u8]>),
    /// There is one object with this record less: it was replaced, deleted, evicted, or its time was over. It was
    /// reported as born before. If the same change puts a new object under the key, that birth comes first, so that a
    /// record that stays is never without an object.
    Died(Box<[u8]>),
    /// FLUSHALL: no object is left. Every record that was reported as born and not as dead has died. If an object with
    /// a record is spared, its record is born again after this.
    AllDied,
}

/// The records of learnt chunks, and what happened to them.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Number of records reported as born and not as dead.
    live: u64,
    /// Not yet taken by the owner. An owner that writes records must take them after each delta.
    events: Vec<RecordEvent>,
}

impl Records {
    /// An object was written or learnt; the record is empty if it has none.
    #[inline]
    pub(super) fn born(&mut self, record: &[u8]) {
        if !record.is_empty() {
            self.live += 1;
            self.events.push(RecordEvent::Born(record.into()));
        }
    }

    fn died(&mut self, record: &[u8]) {
        debug_assert!(self.live > 0, "a record dies that was not born");
        self.live = self.live.saturating_sub(1);
        self.events.push(RecordEvent::Died(record.into()));
    }

    pub(super) fn all_died(&mut self) {
        if self.live > 0 {
            self.live = 0;
            self.events.push(RecordEvent::AllDied);
        }
    }
}

impl ObjectStore {
    /// Takes the births and deaths since the last call, in their order. Without records this is an empty `Vec`.
    ///
    /// After a takeover, a chunk's records are born when it is learnt: `housekeep` learns one resident chunk a call.
    /// Objects that die before that are reported neither as born nor as dead. So what was reported says which records
    /// are alive only once [`ObjectStore::knows_records`] is true.
    pub fn take_record_events(&mut self) -> Vec<RecordEvent> {
        core::mem::take(&mut self.records.events)
    }

    /// Whether [`Self::take_record_events`] would return any.
    pub fn has_record_events(&self) -> bool {
        !self.records.events.is_empty()
    }

    /// Number of records reported as born and not as dead.
    pub fn record_count(&self) -> u64 {
        self.records.live
    }

    /// Whether every chunk has been learnt, so that all records were reported. Once true, it stays true. A chunk is
    /// learnt while it and all index pages are resident; one that is dropped before that must become resident again.
    /// Its bytes are not checked: if they were wrong, so is what was reported, and it is not corrected.
    pub fn knows_records(&self) -> bool {
        let learnt = |(stripe, live): &&(Stripe, Option<u32>)| {
            !stripe.is_index() && live.is_some() && self.space.used(stripe.number()) == Use::Unknown
        };
        let learnt_aside = self.aside.iter().filter(learnt).count();
        self.chunks.directory_known() && self.space.unknown_count() as usize == learnt_aside
    }

    /// Reports the death of an object's record. Before its chunk was learnt, its birth has not been reported either.
    #[cold]
    pub(super) fn record_died(&mut self, arena: &Arena, locator: u32, head: &Head) {
        let (number, _) = self.split(locator);
        if !self.space.is_counted(number) {
            return;
        }
        if let Ok(Some(chunk)) = self.chunks.bytes(arena, Stripe::data(number))
            && let Some(record) = head.record(chunk)
        {
            self.records.died(record);
        }
    }
}
