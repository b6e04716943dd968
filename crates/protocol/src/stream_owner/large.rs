//! Large values of a stream (P14): which groups of parts are alive, values on their way to their holders, and bodies on
//! their way to readers.

mod body;
mod hotness;
mod import;
mod long_reply;
mod losses;
mod staged;
mod upload;

use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::parts::record_of;
use crate::rules::Fault;
use body::Bodies;
use hotness::Temperature;
pub(super) use import::{Imported, Taken};
use long_reply::LongReply;
pub use long_reply::STILL_WANTED;
use losses::Losses;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ConnId, Incarnation, NodeId, Position, Span, Term, Time};
use paritas_large::{Class, GroupId, Holder, Ledger, NotAlive, PartName, Record};
use paritas_store::RecordEvent;
use paritas_wire::peer::{AliveGroups, Groups, Message, PartState};
use staged::Staged;
pub use staged::StagedSoFar;
use std::collections::BTreeMap;
use std::sync::Arc;
pub(super) use upload::Made;
pub use upload::{LARGE_VALUE_BYTES_MAX, Piece};
use upload::{Overtaken, Uploading};

/// Time that a value or a body is kept although no command asks for it, in leases. A command that waits is run at least
/// once a lease.
const FORGOTTEN_LEASES: u64 = 3;

/// The command of a client that writes a large value. It names the value while the command waits and is run again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket {
    /// The node that the client is connected to.
    pub node: NodeId,
    /// The incarnation of that node: each numbers its clients from the start.
    pub incarnation: Incarnation,
    /// The client there.
    pub conn: ConnId,
    /// The number of the command.
    pub n: u64,
}

/// What writes a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Origin {
    /// A client's command.
    Command(Ticket),
    /// A client, ahead of its command (P14.13).
    Staged(Ticket),
    /// One of several values of a client's command: that in the argument with this number.
    Argument(Ticket, u32),
    /// The owner itself, which changes the class of a value by how often it is read (P14.15).
    Change,
    /// A hand-off of hash slots to this stream (P10.8); the number tells its values apart.
    Import(u64),
}

/// What an owner knows of large values.
#[derive(Debug)]
pub(super) struct Large {
    ledger: Ledger,
    uploads: BTreeMap<Origin, Uploading>,
    /// Commands that make values from others.
    overtaken: BTreeMap<Origin, Overtaken>,
    /// Values that come ahead of their commands.
    staged: BTreeMap<Ticket, Staged>,
    /// Replies that are read in pieces.
    long_replies: BTreeMap<Ticket, LongReply>,
    /// Number of the newest value that a hand-off has brought.
    import: u64,
    bodies: Bodies,
    losses: Losses,
    temperature: Temperature,
    /// Staged values whose object is in the store by now. Their staging ends when the ledger knows that.
    named: Vec<Arc<Record>>,
    /// The command for which keys were evicted last, and how many bytes for it.
    evicted: Option<(Ticket, u64)>,
    /// When unanswered messages are repeated.
    resend_at: Time,
}

impl Large {
    pub(super) fn new(term: Term, is_born: bool) -> Self {
        Self {
            ledger: Ledger::new(term, is_born),
            uploads: BTreeMap::new(),
            overtaken: BTreeMap::new(),
            staged: BTreeMap::new(),
            long_replies: BTreeMap::new(),
            import: 0,
            bodies: Bodies::default(),
            losses: Losses::default(),
            temperature: Temperature::default(),
            named: Vec::new(),
            evicted: None,
            resend_at: Time(0),
        }
    }

    fn is_busy(&self) -> bool {
        let any_value = !self.uploads.is_empty() || !self.staged.is_empty() || !self.overtaken.is_empty();
        any_value || !self.bodies.is_empty() || !self.long_replies.is_empty()
    }

    /// Bytes of values that are on their way, beside those in parts.
    pub(super) fn held_bytes(&self) -> usize {
        let staged: usize = self.staged.values().map(Staged::held_bytes).sum();
        let replies: usize = self.long_replies.values().map(LongReply::held_bytes).sum();
        self.bodies.held_bytes() + staged + replies + self.temperature.held_bytes()
    }

    pub(super) fn next_at(&self) -> Option<Time> {
        let resend_at = self.is_busy().then_some(self.resend_at);
        let others = self.losses.next_at().into_iter().chain(self.temperature.next_at());
        resend_at.into_iter().chain(others).min()
    }
}

/// The holders of all positions.
fn holders(configuration: &Configuration) -> Vec<Option<Holder>> {
    let held = configuration.positions.iter();
    held.map(|held| {
        held.map(|a| Holder {
            tenure: number_of(&a.tenure),
            is_live: a.state.is_live(),
        })
    })
    .collect()
}

/// A number that tells the tenures of one position apart.
fn number_of(tenure: &Tenure) -> u64 {
    u64::from(tenure.since.0)
}

impl StreamOwner {
    /// Whether `bytes` more bytes may be evicted for a command, at most `bytes_max` in all.
    pub(super) fn may_evict_for(&mut self, ticket: Ticket, bytes: u64, bytes_max: u64) -> bool {
        let before = self
            .large
            .evicted
            .filter(|(of, _)| *of == ticket)
            .map_or(0, |(_, bytes)| bytes);
        let after = before + bytes;
        self.large.evicted = Some((ticket, after));
        after <= bytes_max.max(bytes)
    }

    /// A value begins to be sent or read: unanswered messages are repeated from now on.
    fn begin_work<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        if !self.large.is_busy() {
            self.large.resend_at = cx.after(cx.shared.parameters.resend);
        }
    }

    /// Groups of parts that are alive.
    pub fn ledger(&self) -> &Ledger {
        &self.large.ledger
    }

    /// Tells the ledger which records were put and removed since the last call, and tells holders which groups are
    /// dead. `has_none`: no other holder has parts of the stream (P14.9).
    pub(super) fn settle_records<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        has_none: bool,
    ) {
        let seq = self.log.newest_seq();
        let large = &mut self.large;
        let counts_once = cx.rules().fault(Fault::CopyNotCounted);
        let mut events = self.store.take_record_events();
        // One delta may exchange the records of two keys: each is born again before it dies, so that none is dead in
        // between.
        if !events.contains(&RecordEvent::AllDied) {
            events.sort_by_key(|event| matches!(event, RecordEvent::Died(_)));
        }
        for event in events {
            let done = match event {
                RecordEvent::AllDied => {
                    large.ledger.on_all_removed(seq);
                    Ok(())
                }
                RecordEvent::Born(bytes) => match decode(&bytes) {
                    Some(record) if counts_once && large.ledger.is_named(record.data_group) => Ok(()),
                    _ => named(&mut large.ledger, &bytes, None),
                },
                RecordEvent::Died(bytes) => named(&mut large.ledger, &bytes, Some(seq)),
            };
            if let Err(NotAlive(group)) = done {
                let (list, x) = (self.stream.list, self.stream.x);
                cx.halt(
                    list,
                    x,
                    format!(
                        "P14.3: an object of {} names group {:x}, which is dead",
                        self.stream,
                        group.bits()
                    ),
                );
                return;
            }
        }
        for record in large.named.drain(..) {
            large.ledger.end_staging(&record);
        }
        if !large.ledger.has_learnt() {
            if cx.rules().fault(Fault::ListedBeforeLearnt) {
                large.ledger.on_learnt(0);
            } else if has_none {
                large.ledger.on_none_found();
            } else if self.phase == Phase::Serve && self.store.knows_records() {
                large.ledger.on_learnt(seq);
            }
        }
        if self.store.knows_records() {
            large.ledger.on_all_seen();
        }
        large.ledger.on_acked(match cx.rules().fault(Fault::FreedBeforeStable) {
            true => seq,
            false => self.log.stable(),
        });
        let dead = large.ledger.take_dead();
        for some in dead.chunks(Groups::COUNT_MAX) {
            self.send_dead(cx, configuration, some);
        }
    }

    fn send_dead<O: Out>(&self, cx: &mut Context<'_, O>, configuration: &Configuration, dead: &[GroupId]) {
        let mut ids = Vec::new();
        dead.iter().for_each(|group| Groups::push(&mut ids, group.bits()));
        let groups = Groups::new(&ids);
        let mut told: Vec<Tenure> = Vec::new();
        for tenure in configuration.positions.iter().flatten().map(|a| a.tenure) {
            if told.iter().all(|other| other.node != tenure.node) {
                told.push(tenure);
                cx.send(
                    &tenure,
                    Channel::Main,
                    self.stream,
                    configuration.epoch,
                    &Message::FreeGroups { groups },
                );
            }
        }
    }

    /// P14.6: a holder asks which groups are alive.
    pub(crate) fn on_read_groups<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: (NodeId, Incarnation),
        position: Position,
        tenure: Tenure,
        after: Option<u64>,
    ) {
        let is_holder = (tenure.node, tenure.incarnation) == from && configuration.tenure(position) == Some(tenure);
        if self.phase != Phase::Serve || !is_holder {
            return;
        }
        let after = after.and_then(GroupId::from_bits);
        let Some(page) = self.large.ledger.page(after, AliveGroups::COUNT_MAX) else {
            return;
        };
        let mut bytes = Vec::new();
        let hides_staged = cx.rules().fault(Fault::StagedUnlisted);
        for alive in page.alive.iter().filter(|alive| !(hides_staged && alive.is_staging)) {
            let mut record = Vec::new();
            alive.record.encode(&mut record);
            AliveGroups::push(&mut bytes, alive.group.bits(), alive.is_staging, &record);
        }
        let message = Message::AliveGroups {
            term: page.term,
            position,
            tenure,
            after: page.after.map(GroupId::bits),
            last: page.last.bits(),
            is_end: page.is_end,
            groups: AliveGroups::new(&bytes),
        };
        cx.send(&tenure, Channel::Main, self.stream, configuration.epoch, &message);
    }

    /// A holder speaks of a group. If that is dead, the holder is told so again (P14.5).
    pub(crate) fn answer_dead<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: (NodeId, Incarnation),
        name: PartName,
        state: PartState,
    ) {
        // The answers to single units would say the same many times.
        if matches!(state, PartState::Taken(_)) {
            return;
        }
        if name.group.term() != self.term() || self.large.ledger.is_alive(name.group) {
            return;
        }
        let mut ids = Vec::new();
        Groups::push(&mut ids, name.group.bits());
        let message = Message::FreeGroups {
            groups: Groups::new(&ids),
        };
        cx.send_to(
            from.0,
            from.1,
            Channel::Main,
            self.stream,
            configuration.epoch,
            &message,
        );
    }

    /// Repeats what was not answered, and forgets values that nobody waits for.
    pub(super) fn tend_large<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.tend_losses(cx, configuration);
        self.tend_hotness(cx, configuration);
        let now = cx.mono();
        if !self.large.is_busy() || now < self.large.resend_at {
            return;
        }
        self.large.resend_at = cx.after(cx.shared.parameters.resend);
        let forgotten = Span(FORGOTTEN_LEASES * cx.shared.parameters.lease.0);
        self.tend_uploads(cx, configuration, forgotten);
        self.tend_staged(cx, configuration, forgotten);
        self.tend_long_replies(cx, configuration, forgotten);
        self.tend_bodies(cx, configuration, forgotten);
    }

    /// Holders have changed, or a session is new: unanswered messages go again.
    pub(super) fn hurry_large(&mut self, now: Time) {
        if self.large.is_busy() {
            self.large.resend_at = now;
            self.wake.progress = true;
        }
    }
}

/// An object with this record was put into the store, or removed by the delta `removed_at`.
fn named(ledger: &mut Ledger, bytes: &[u8], removed_at: Option<u64>) -> Result<(), NotAlive> {
    // Bytes that are no record are those of a damaged chunk: the scrub repairs it.
    let Some(record) = decode(bytes) else {
        return Ok(());
    };
    match removed_at {
        None => ledger.on_named(&record),
        Some(seq) => ledger.on_unnamed(&record, seq),
    }
}

/// The record of an object, from its bytes without the length byte.
fn decode(bytes: &[u8]) -> Option<Arc<Record>> {
    let mut encoded = Vec::with_capacity(1 + bytes.len());
    encoded.push(u8::try_from(bytes.len()).ok()?);
    encoded.extend_from_slice(bytes);
    record_of(&encoded)
}

/// The class of a large value, from the record of its object; `None` if the record is damaged.
pub fn class_of(record: &[u8]) -> Option<Class> {
    decode(record).map(|record| record.class)
}

/// Length of the body of a large value in bytes, from the record of its object; 0 if the record is damaged.
pub fn body_bytes(record: &[u8]) -> u64 {
    decode(record).map_or(0, |record| record.body_bytes)
}
