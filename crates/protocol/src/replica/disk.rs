//! What the disk of a log node's parity has done, and who waited for it (P11).

use super::Replica;
use crate::context::Context;
use crate::disk_log::{DiskLog, Wanted};
use crate::interface::Out;
use crate::lists::{List, Role};
use crate::mark::Mark;
use crate::parity_member::ParityBytes;
use paritas_base::{Clock, StreamId, Time};
use paritas_paritylog::{Content, IoId, Key, Outcome, ParityLog};
use paritas_store::Budget;

impl Replica {
    /// Gives it a disk, before its first event: its parity chunks are all there. What an earlier incarnation of the
    /// node has left in the log is used where it is still what the data says (P11.3), and dropped after a while.
    pub fn set_log(&mut self, log: ParityLog, now: Time) {
        self.shared.disk = Some(DiskLog::new(log, now + self.shared.parameters.stash));
    }

    /// Its log, if it has one.
    pub fn parity_log(&self) -> Option<&ParityLog> {
        self.shared.disk.as_ref().map(|disk| &disk.log)
    }

    /// The budget of its log's chunks.
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

    /// Before: members hold acks back while the disk is behind. After: they owe those acks, if it has caught up, and
    /// send them in [`Self::exchange`].
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

    /// After any event: chunks that the disk has lost, answers that it gave at once, and what it is to do.
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
        for (all, answer) in reads {
            for wanted in all {
                self.answer_read(now, wanted, answer.as_ref(), out);
            }
        }
    }

    fn answer_read(&mut self, now: Clock, wanted: Wanted, answer: Option<&(Content, Vec<u8>)>, out: &mut impl Out) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        let (Wanted::Parity { list, stripe, .. } | Wanted::Check { list, stripe }) = wanted;
        let Some((configuration, member)) = self.lists.get_mut(list).and_then(List::member_mut) else {
            return;
        };
        // The log gives what it holds now, and that is what the table says.
        let bytes = answer.filter(|(content, _)| member.table.versions(stripe).eq(content.versions.iter().copied()));
        let bytes = bytes.map(|(_, bytes)| bytes.as_slice());
        match wanted {
            Wanted::Parity { x, to, epoch, id, .. } => {
                // Who asked under another configuration asks again.
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
        }
    }
}
