//! Large values of a stream (P14). Objects name them by records. [`Records`] has the groups of parts that are alive,
//! values on their way to their holders, bodies that commands read, and pins of values that nodes of clients read. What
//! reads or writes objects, or evicts keys, is a method of the owner: `staged`, `losses` and `hotness` have both.

mod by_client;
mod hotness;
mod import;
mod losses;
mod pins;
mod read;
mod staged;
mod upload;

use super::{Installed, Phase, StreamOwner};
use crate::bodies::{Bodies, FORGOTTEN_LEASES};
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::parts::{PositionParts, record_of};
use crate::rules::Fault;
use by_client::ByClient;
use hotness::Temperature;
pub(super) use import::{Imported, Taken};
use losses::Losses;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ConnId, Incarnation, NodeId, PartState, Position, Span, StreamId, Term, Time};
use paritas_large::{Class, Fingerprint, GroupId, Holder, Ledger, NotAlive, PartName, Record};
use paritas_store::RecordEvent;
use paritas_wire::peer::{AliveGroups, Groups, Message};
use pins::Pinned;
use staged::Staged;
pub use staged::StagedSoFar;
use std::collections::BTreeMap;
use std::sync::Arc;
pub use upload::{LARGE_VALUE_BYTES_MAX, Piece};
pub(super) use upload::{Made, class_of_new};
use upload::{Overtaken, Uploading};

/// A command of a client. It names the large value that the command writes while it waits and is run again, and the one
/// that it has answered with while the client reads that.
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
    /// A client that sends the units to the holders itself (P14.18).
    ByClient(Ticket),
    /// One of several values of a client's command: that in the argument with this number.
    Argument(Ticket, u32),
    /// The owner itself, which changes the class of a value by how often it is read (P14.15).
    Change,
    /// A hand-off of hash slots to this stream (P10.8); the number tells its values apart.
    Import(u64),
}

/// What the large values of a stream have woken.
#[derive(Clone, Copy, Default, Debug)]
struct Woken {
    /// Commands that wait for them.
    progress: bool,
    /// A hand-off that waits for them.
    hand_off: bool,
}

/// What the ledger is told of a turn.
pub(super) struct TurnEnd {
    /// Records that were put and removed since the last time.
    pub(super) events: Vec<RecordEvent>,
    /// The newest delta, and the newest one that every member has.
    pub(super) seq: u64,
    pub(super) stable: u64,
    /// Every chunk was read: no further records are in the store.
    pub(super) knows_records: bool,
    pub(super) serves: bool,
    /// No other holder has parts of the stream (P14.9).
    pub(super) has_none: bool,
}

/// What an owner knows of large values.
#[derive(Debug)]
pub(super) struct Records {
    ledger: Ledger,
    uploads: BTreeMap<Origin, Uploading>,
    /// Commands that make values from others.
    overtaken: BTreeMap<Origin, Overtaken>,
    /// Values that come ahead of their commands.
    staged: BTreeMap<Ticket, Staged>,
    /// Values whose units clients send to the holders: by their STAGE, then by their COMMIT.
    by_client: BTreeMap<Ticket, ByClient>,
    /// Values that nodes of clients read.
    pins: BTreeMap<Ticket, Pinned>,
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
    woken: Woken,
}

impl Records {
    pub(super) fn new(stream: StreamId, term: Term, is_born: bool) -> Self {
        Self {
            ledger: Ledger::new(term, is_born),
            uploads: BTreeMap::new(),
            overtaken: BTreeMap::new(),
            staged: BTreeMap::new(),
            by_client: BTreeMap::new(),
            pins: BTreeMap::new(),
            import: 0,
            bodies: Bodies::new(stream),
            losses: Losses::default(),
            temperature: Temperature::default(),
            named: Vec::new(),
            evicted: None,
            resend_at: Time(0),
            woken: Woken::default(),
        }
    }

    fn is_busy(&self) -> bool {
        let any_value = !self.uploads.is_empty() || !self.staged.is_empty() || !self.overtaken.is_empty();
        any_value || !self.by_client.is_empty() || !self.bodies.is_empty() || !self.pins.is_empty()
    }

    /// Bytes of values that are on their way, beside those in parts.
    pub(super) fn held_bytes(&self) -> usize {
        let staged: usize = self.staged.values().map(Staged::held_bytes).sum();
        let by_client: usize = self.by_client.values().map(ByClient::held_bytes).sum();
        self.bodies.held_bytes() + staged + by_client + self.temperature.held_bytes()
    }

    pub(super) fn next_at(&self) -> Option<Time> {
        let resend_at = match self.bodies.has_own() {
            true => Some(Time(0)),
            false => self.is_busy().then_some(self.resend_at),
        };
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

impl Records {
    /// Groups of parts that are alive.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether `bytes` more bytes may be evicted for a command, at most `bytes_max` in all.
    pub(super) fn may_evict_for(&mut self, ticket: Ticket, bytes: u64, bytes_max: u64) -> bool {
        let before = self.evicted.filter(|(of, _)| *of == ticket);
        let after = before.map_or(0, |(_, bytes)| bytes) + bytes;
        self.evicted = Some((ticket, after));
        after <= bytes_max.max(bytes)
    }

    /// A value begins to be sent or read: unanswered messages are repeated from now on.
    fn begin_work<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        if !self.is_busy() {
            self.resend_at = cx.after(cx.shared.parameters.resend);
        }
    }

    /// Holders have changed, or a session is new: unanswered messages go again.
    pub(super) fn hurry(&mut self, now: Time) {
        if self.is_busy() {
            self.resend_at = now;
            self.woken.progress = true;
        }
    }

    /// Whether something has moved that a stalled command may wait for.
    pub(super) fn has_progress(&self) -> bool {
        self.woken.progress
    }

    /// The same, and forgets it.
    pub(super) fn take_progress(&mut self) -> bool {
        core::mem::take(&mut self.woken.progress)
    }

    // --- groups --------------------------------------------------------------------------------------------------

    /// Tells the ledger which records were put and removed, and tells holders which groups are dead.
    pub(super) fn settle<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>, turn: TurnEnd) {
        let counts_once = cx.rules().fault(Fault::CopyNotCounted);
        let mut events = turn.events;
        // One delta may exchange the records of two keys: each is born again before it dies, so that none is dead in
        // between.
        if !events.contains(&RecordEvent::AllDied) {
            events.sort_by_key(|event| matches!(event, RecordEvent::Died(_)));
        }
        for event in events {
            let done = match event {
                RecordEvent::AllDied => {
                    self.ledger.on_all_removed(turn.seq);
                    Ok(())
                }
                RecordEvent::Born(bytes) => match decode(&bytes) {
                    Some(record) if counts_once && self.ledger.is_named(record.data_group) => Ok(()),
                    _ => named(&mut self.ledger, &bytes, None),
                },
                RecordEvent::Died(bytes) => named(&mut self.ledger, &bytes, Some(turn.seq)),
            };
            if let Err(NotAlive(group)) = done {
                let (list, x) = (here.stream.list, here.stream.x);
                let (stream, group) = (here.stream, group.bits());
                let text = format!("P14.3: an object of {stream} names group {group:x}, which is dead");
                cx.halt(list, x, text);
                return;
            }
        }
        for record in self.named.drain(..) {
            self.ledger.end_staging(&record);
        }
        if !self.ledger.has_learnt() {
            if cx.rules().fault(Fault::ListedBeforeLearnt) {
                self.ledger.on_learnt(0);
            } else if turn.has_none {
                self.ledger.on_none_found();
            } else if turn.serves && turn.knows_records {
                self.ledger.on_learnt(turn.seq);
            }
        }
        if turn.knows_records {
            self.ledger.on_all_seen();
        }
        self.ledger.on_acked(match cx.rules().fault(Fault::FreedBeforeStable) {
            true => turn.seq,
            false => turn.stable,
        });
        let dead = self.ledger.take_dead();
        for some in dead.chunks(Groups::COUNT_MAX) {
            send_dead(cx, here, some);
        }
    }

    /// P14.6: a holder asks which groups are alive.
    pub(super) fn on_read_groups<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        position: Position,
        tenure: Tenure,
        after: Option<u64>,
    ) {
        let after = after.and_then(GroupId::from_bits);
        let Some(page) = self.ledger.page(after, AliveGroups::COUNT_MAX) else {
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
        cx.send(&tenure, Channel::Main, here.stream, here.configuration.epoch, &message);
    }

    /// A holder speaks of a group. If that is dead, the holder is told so again (P14.5).
    fn answer_dead<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        (node, incarnation): (NodeId, Incarnation),
        name: PartName,
        state: PartState,
    ) {
        // The answers to single units would say the same many times.
        if matches!(state, PartState::Taken(_)) {
            return;
        }
        if name.group.term() != here.term || self.ledger.is_alive(name.group) {
            return;
        }
        let mut ids = Vec::new();
        Groups::push(&mut ids, name.group.bits());
        let message = Message::FreeGroups {
            groups: Groups::new(&ids),
        };
        let epoch = here.configuration.epoch;
        cx.send_to(node, incarnation, Channel::Main, here.stream, epoch, &message);
    }
}

fn send_dead<O: Out>(cx: &mut Context<'_, O>, here: &Installed<'_>, dead: &[GroupId]) {
    let mut ids = Vec::new();
    dead.iter().for_each(|group| Groups::push(&mut ids, group.bits()));
    let groups = Groups::new(&ids);
    let message = Message::FreeGroups { groups };
    let mut told: Vec<Tenure> = Vec::new();
    for tenure in here.configuration.positions.iter().flatten().map(|a| a.tenure) {
        if told.iter().all(|other| other.node != tenure.node) {
            told.push(tenure);
            cx.send(&tenure, Channel::Main, here.stream, here.configuration.epoch, &message);
        }
    }
}

impl StreamOwner {
    /// Groups of parts that are alive.
    pub fn ledger(&self) -> &Ledger {
        self.records.ledger()
    }

    /// Records of the values that are pinned for readers (P14.21).
    pub fn pinned(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.records.pinned()
    }

    /// What the records have woken is passed on.
    fn pass_on_woken(&mut self, now: Time) {
        if core::mem::take(&mut self.records.woken.hand_off) {
            self.hand_offs.hurry(now);
        }
    }

    /// The ledger learns what this turn has put and removed.
    pub(super) fn settle_records<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        has_none: bool,
    ) {
        let turn = TurnEnd {
            events: self.store.take_record_events(),
            seq: self.log.newest_seq(),
            stable: self.log.stable(),
            knows_records: self.store.knows_records(),
            serves: self.phase == Phase::Serve,
            has_none,
        };
        self.records.settle(cx, &self.installed(configuration), turn);
    }

    /// P14.2: how far a part is at its holder.
    pub(crate) fn on_part_state<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: (NodeId, Incarnation),
        name: PartName,
        question: u32,
        said: (PartState, Option<&Fingerprint>),
    ) {
        let here = self.installed(configuration);
        let staged = self.records.on_part_state(cx, &here, from, name, question, said);
        self.pass_on_woken(cx.now.mono);
        if let Some(ticket) = staged {
            self.go_on_staged(cx, configuration, ticket, false);
        }
    }

    /// The answer to a request for a unit. False if this owner did not ask.
    pub(crate) fn on_body_unit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        id: u64,
        unit: Option<(u32, &[u8])>,
    ) -> bool {
        let here = self.installed(configuration);
        let is_mine = self.records.on_unit(cx, &here, id, unit);
        self.pass_on_woken(cx.now.mono);
        is_mine
    }

    /// Units of bodies that this node keeps itself are read among its parts of the list.
    pub(crate) fn read_own_units<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        parts: &mut [PositionParts],
    ) {
        if self.records.bodies.has_own() {
            let here = self.installed(configuration);
            self.records.read_own_units(cx, &here, parts);
            self.pass_on_woken(cx.now.mono);
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
        if self.phase == Phase::Serve && is_holder {
            let here = self.installed(configuration);
            self.records.on_read_groups(cx, &here, position, tenure, after);
        }
    }

    /// A holder speaks of a group in a message of an older epoch. If the group is dead, the holder is told so again.
    pub(crate) fn answer_dead<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: (NodeId, Incarnation),
        name: PartName,
        state: PartState,
    ) {
        self.records
            .answer_dead(cx, &self.installed(configuration), from, name, state);
    }

    /// A command of several values has ended: those that no object names are given up.
    pub fn end_arguments(&mut self, ticket: Ticket) {
        self.records.end_arguments(ticket);
    }

    /// This connection of a client of this node has ended: what it has staged is given up (P14.18).
    pub fn end_by_client(&mut self, of: Ticket) {
        self.records.end_by_client(of);
    }

    /// The value that this command has answered with is still wanted.
    pub fn keep_pinned(&mut self, now: Time, configuration: &Configuration, ticket: Ticket, is_stuck: bool) {
        self.records.keep_pinned(now, configuration.parity, ticket, is_stuck);
    }

    /// That value was read to its end, or its client has gone.
    pub fn end_pin(&mut self, ticket: Ticket) {
        self.records.end_pin(ticket);
    }

    /// Bodies that are read are dropped: the role ends.
    pub(crate) fn drop_bodies<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        self.records.drop_bodies(cx);
    }

    /// Repeats what was not answered, and forgets values that nobody waits for.
    pub(super) fn tend_large<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.tend_losses(cx, configuration);
        self.tend_hotness(cx, configuration);
        let now = cx.mono();
        if !self.records.is_busy() || now < self.records.resend_at {
            return;
        }
        self.records.resend_at = cx.after(cx.shared.parameters.resend);
        let forgotten = Span(FORGOTTEN_LEASES * cx.shared.parameters.lease.0);
        let here = self.installed(configuration);
        self.records.tend_by_client(cx, &here);
        self.records.tend_uploads(cx, &here, forgotten);
        self.tend_staged(cx, configuration, forgotten);
        self.records.tend_pins(now, forgotten);
        self.records.tend_bodies(cx, &here, forgotten);
        self.pass_on_woken(now);
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
    decode_with_bytes(bytes).map(|(record, _)| record)
}

/// The same, and its bytes with the length byte.
pub(super) fn decode_with_bytes(bytes: &[u8]) -> Option<(Arc<Record>, Vec<u8>)> {
    let mut encoded = Vec::with_capacity(1 + bytes.len());
    encoded.push(u8::try_from(bytes.len()).ok()?);
    encoded.extend_from_slice(bytes);
    Some((record_of(&encoded)?, encoded))
}

/// The class of a large value, from the record of its object; `None` if the record is damaged.
pub fn class_of(record: &[u8]) -> Option<Class> {
    decode(record).map(|record| record.class)
}

/// Length of the body of a large value in bytes, from the record of its object; 0 if the record is damaged.
pub fn body_bytes(record: &[u8]) -> u64 {
    decode(record).map_or(0, |record| record.body_bytes)
}
