//! Events of the disk of a log node: finished reads, and chunks and units that it has lost (P11).

use super::Replica;
use crate::context::Context;
use crate::disk_log::{DiskLog, Wanted};
use crate::interface::{Channel, Out};
use crate::lists::{List, Role};
use crate::mark::Mark;
use crate::parity_member::ParityBytes;
use paritas_base::{Clock, Incarnation, ListId, NodeId, StreamId, Time};
use paritas_large::PartId;
use paritas_paritylog::{Content, IoId, Key, Outcome, ParityLog};
use paritas_store::Budget;
use paritas_wire::peer::Message;
use std::collections::BTreeSet;

impl Replica {
    /// Gives the node a disk, before its first event: all its parity chunks are there. Chunks that an earlier
    /// incarnation left in the log are used if they stand for the versions of the data (P11.3), and dropped after a
    /// time.
    pub fn set_log(&mut self, log: ParityLog, now: Time) {
        self.shared.disk = Some(DiskLog::new(log, now + self.shared.parameters.stash));
    }

    /// The node's log, if it has one.
    pub fn parity_log(&self) -> Option<&ParityLog> {
        self.shared.disk.as_ref().map(|disk| &disk.log)
    }

    /// The budget of chunks in the log.
    pub fn disk_budget(&self) -> Option<&Budget> {
        self.shared.disk.as_ref().map(DiskLog::budget)
    }

    /// Chunks in the log that positions of this node use.
    pub fn logged_keys(&self) -> impl Iterator<Item = Key> {
        let members = self.lists.iter().filter_map(List::member);
        members.flat_map(|member| member.valid_stripes().filter_map(|stripe| member.disk_key(stripe)))
    }

    pub(super) fn on_disk(&mut self, id: IoId, outcome: Outcome) {
        let Some(disk) = &mut self.shared.disk else { return };
        disk.on_done(id, outcome);
    }

    /// Before: members hold acks back while the disk is behind. After: if the disk has caught up, those acks are due,
    /// and [`Self::exchange`] sends them.
    #[inline]
    pub fn unblock(&mut self) {
        if self.shared.disk.as_mut().is_some_and(DiskLog::frees_acks) {
            for (_, role) in self.lists.roles_mut() {
                if let Role::Member(member) = role {
                    member.owe_acks();
                }
            }
        }
    }

    /// After each event: marks chunks that the disk has lost, answers finished reads, and gives the driver its I/O.
    #[inline]
    pub(super) fn end_disk_event(&mut self, now: Clock, out: &mut impl Out) {
        let Some(disk) = &mut self.shared.disk else { return };
        let (lost, reads) = (disk.log.take_bad(), disk.take_reads());
        let failed = disk.log.has_failed();
        disk.hand_over(out);
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        let (units, lost): (Vec<Key>, Vec<Key>) = lost.into_iter().partition(|key| key.is_unit());
        // A lost unit that is being read is handled at the end of that read (`PositionParts::on_read`).
        let is_read = |key: &Key| reads.iter().any(|(read, ..)| read == key);
        let units: BTreeSet<Key> = units.into_iter().filter(|key| !is_read(key)).collect();
        for list in units.iter().map(|key| key.list).collect::<BTreeSet<ListId>>() {
            let parts = self.lists.get_mut(list).map(|list| &mut list.parts);
            for held in parts.into_iter().flatten() {
                held.lose_units(&mut cx, &units);
            }
        }
        for key in lost {
            if let Some((_, member)) = self.lists.get_mut(key.list).and_then(List::member_mut) {
                member.table.lose(cx.shared, key.stripe);
                cx.shared.scrub.bad += 1;
                cx.shared.scrub.repairs = true;
                cx.shared.scrub.next_at = now.mono;
            }
        }
        if failed {
            for (configuration, role) in self.lists.roles_mut() {
                if let Role::Member(member) = role {
                    let reason = "the disk of the parity log has failed: see the lines before".into();
                    cx.halt(configuration.list, member.position(), reason);
                }
            }
            return;
        }
        for (key, all, answer) in reads {
            for wanted in all {
                self.answer_read(now, key, wanted, answer.as_ref(), out);
            }
        }
    }

    fn answer_read(
        &mut self,
        now: Clock,
        key: Key,
        wanted: Wanted,
        answer: Option<&(Content, Vec<u8>)>,
        out: &mut impl Out,
    ) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        let (list, stripe) = match wanted {
            Wanted::Parity { list, stripe, .. } | Wanted::Check { list, stripe } => (list, stripe),
            Wanted::Unit { id, unit, to } => {
                if let Some(list) = self.lists.get_mut(key.list) {
                    let bytes = answer.map(|(_, bytes)| bytes.as_slice());
                    answer_unit(&mut cx, list, key, (id, unit), bytes, to);
                }
                return;
            }
        };
        let Some((configuration, member)) = self.lists.get_mut(list).and_then(List::member_mut) else {
            return;
        };
        // The log gives the chunk at the end of the read. It is valid if it has the versions of the table.
        let bytes = answer.filter(|(content, _)| member.table.versions(stripe).eq(content.versions.iter().copied()));
        let bytes = bytes.map(|(_, bytes)| bytes.as_slice());
        match wanted {
            Wanted::Parity { x, to, epoch, id, .. } => {
                // A peer that asked under another configuration asks again.
                if configuration.epoch == epoch {
                    cx.out.mark(Mark::ParityReadFromDisk);
                    let stream = StreamId { list, x };
                    member.answer_parity(
                        &mut cx,
                        configuration,
                        (stream, to),
                        (id, stripe),
                        ParityBytes::Read(bytes),
                    );
                }
            }
            Wanted::Check { .. } => member.on_checked_read(&mut cx, stripe, bytes),
            Wanted::Unit { .. } => {}
        }
    }
}

/// A unit of a large value has been read. `to`: who asked, and the number of the question; nobody if the scrub did.
fn answer_unit<O: Out>(
    cx: &mut Context<'_, O>,
    list: &mut List,
    key: Key,
    (id, unit): (PartId, u32),
    bytes: Option<&[u8]>,
    to: Option<(NodeId, Incarnation, u64)>,
) {
    let mut parts = list.parts.iter_mut();
    let found = parts.find_map(|held| held.on_read(cx, key, (id, unit), bytes));
    if let Some((node, incarnation, question)) = to {
        cx.out.mark(Mark::UnitReadFromDisk);
        let stream = StreamId {
            list: key.list,
            x: id.x,
        };
        let message = Message::UnitValue {
            id: question,
            unit: found,
        };
        let epoch = list.configuration.epoch;
        cx.send_to(node, incarnation, Channel::Bulk, stream, epoch, &message);
    }
}
