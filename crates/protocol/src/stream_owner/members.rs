//! The parity members of a stream as its owner sees them: what each has, what is sent again, and who is enough.

use super::log::StreamLog;
use super::probe::{Delay, Probe};
use super::takeover::SealAnswer;
use crate::context::Context;
use crate::interface::{Channel, Out, Proposal};
use crate::rules::Started;
use core::cmp::Reverse;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Epoch, NodeId, Position, Span, StreamId, Stripe, Term, Time};
use paritas_wire::peer::{Behind, Deltas, Message};

/// The most bytes of deltas sent to one member in one go.
pub(super) const SEND_BYTES_MAX: usize = 1 << 20;

/// One parity member as the owner sees it.
#[derive(Debug)]
pub struct Member {
    /// Its position.
    pub position: Position,
    /// Its tenure.
    pub tenure: Tenure,
    /// Its parity is on a disk: it is asked for parity only after the others.
    pub logged: bool,
    /// Live, not Filling.
    pub live: bool,
    /// It has answered in this term (P3.7).
    pub started: bool,
    /// It has every delta up to here.
    pub matched: u64,
    /// The end of its lease.
    pub lease_until: Time,
    /// When the newest lease request that it has answered was sent (P4.6).
    pub(super) confirmed: Time,
    /// The newest delta sent on the present session.
    pub(super) sent: u64,
    pub(super) resend: Resend,
    pub(super) granted: Granted,
    /// Its answer to `Seal`, until the cut.
    pub(super) seal: Option<SealAnswer>,
    pub(super) delay: Delay,
}

/// When deltas are sent to a member again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resend {
    /// When, if it has not answered by then.
    pub(super) at: Time,
    /// How long after that: doubled each time, up to a limit.
    pub(super) wait: Span,
    /// Since when an answer is outstanding.
    pub(super) owes_since: Option<Time>,
    /// When its silence was reported last (P10.2).
    reported_at: Time,
}

impl Resend {
    /// The next one is due at `at`, and a further one `wait` later.
    pub(super) fn schedule(&mut self, at: Time, wait: Span) {
        (self.at, self.wait) = (at, wait);
    }
}

/// What a member has granted (P8.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    /// Data stripes with smaller numbers may be used.
    pub(super) data_end: u32,
    /// Index stripes with smaller numbers may be used.
    pub(super) index_end: u32,
    /// The most bytes of deltas that it wants to keep for the stream.
    pub(super) window_bytes: u64,
}

/// Who sends: in every frame of an owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) stream: StreamId,
    pub(super) term: Term,
    pub(super) epoch: Epoch,
}

/// The members of the installed configuration.
#[derive(Debug, Default)]
pub(super) struct Members {
    list: Vec<Member>,
    /// The delta whose acks are timed.
    probe: Option<Probe>,
}

impl Members {
    #[inline]
    pub(super) fn as_slice(&self) -> &[Member] {
        &self.list
    }

    #[inline]
    pub(super) fn iter(&self) -> core::slice::Iter<'_, Member> {
        self.list.iter()
    }

    pub(super) fn iter_mut(&mut self) -> core::slice::IterMut<'_, Member> {
        self.list.iter_mut()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Where the member with this tenure is in the list.
    pub(super) fn index_of(&self, tenure: Tenure) -> Option<usize> {
        self.list.iter().position(|m| m.tenure == tenure)
    }

    #[inline]
    pub(super) fn find_mut(&mut self, tenure: Tenure) -> Option<&mut Member> {
        self.list.iter_mut().find(|m| m.tenure == tenure)
    }

    pub(super) fn list_and_probe(&mut self) -> (&mut [Member], &mut Option<Probe>) {
        (&mut self.list, &mut self.probe)
    }

    // --- configurations --------------------------------------------------------------------------------------------

    /// Takes the members of a configuration. Those of the same tenure keep what is known of them, except answers to
    /// `Seal`, which were from another epoch.
    pub(super) fn install<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, born: bool) {
        let mut before = core::mem::take(&mut self.list);
        for (position, assignment) in configuration.members() {
            let same = |m: &Member| m.position == position && m.tenure == assignment.tenure;
            let mut member = match before.iter().position(same) {
                Some(at) => before.swap_remove(at),
                None => Member {
                    position,
                    tenure: assignment.tenure,
                    logged: cx.shared.cluster.is_logged(position),
                    live: false,
                    started: born && configuration.is_born(&assignment.tenure),
                    matched: 0,
                    lease_until: Time(0),
                    confirmed: Time(0),
                    sent: 0,
                    resend: Resend::default(),
                    granted: Granted {
                        data_end: 0,
                        index_end: 0,
                        window_bytes: u64::MAX,
                    },
                    seal: None,
                    delay: Delay::default(),
                },
            };
            member.live = assignment.state.is_live();
            member.seal = None;
            // What was sent under the older epoch may have been refused: send it again at once.
            member.sent = member.matched;
            member.resend.schedule(cx.mono(), cx.shared.parameters.resend);
            self.list.push(member);
        }
        self.probe = None;
    }

    /// A session with a node begins: messages that the previous one may have lost are sent again.
    pub(super) fn on_session_up(&mut self, now: Time, wait: Span, node: NodeId) {
        for member in self.list.iter_mut().filter(|m| m.tenure.node == node) {
            member.sent = member.matched;
            member.resend.schedule(now, wait);
        }
    }

    // --- quorums ---------------------------------------------------------------------------------------------------

    #[inline]
    pub(super) fn live_count(&self) -> usize {
        self.list.iter().filter(|m| m.live).count()
    }

    /// Members that must have a delta before it is acknowledged.
    pub(super) fn ack_quorum(&self, configuration: &Configuration) -> usize {
        usize::from(configuration.ack_quorum).min(self.list.len())
    }

    /// The newest delta of `log` that a quorum has (P3.7).
    pub(super) fn acked<O: Out>(
        &self,
        cx: &Context<'_, O>,
        configuration: &Configuration,
        log: &StreamLog,
    ) -> Option<u64> {
        if self.list.is_empty() {
            return Some(log.seq());
        }
        let started = self.list.iter().filter(|m| m.started).map(|m| Started {
            live: m.live,
            leased: m.lease_until > cx.now.mono,
            matched: m.matched,
        });
        cx.rules().acked(started, self.ack_quorum(configuration))
    }

    /// The newest delta of `log` that every member has (P3.8).
    pub(super) fn stable(&self, log: &StreamLog) -> u64 {
        if self.list.is_empty() {
            log.acked()
        } else if self.list.iter().all(|m| m.started) {
            self.list
                .iter()
                .map(|m| m.matched)
                .min()
                .unwrap_or_else(|| log.stable())
        } else {
            log.stable()
        }
    }

    /// The members in the order in which they are asked for parity: first those that are Live, with a log that reaches
    /// the cut, in memory, and least behind.
    pub(super) fn by_use(&self, cut: u64) -> impl Iterator<Item = &Member> {
        let mut members: Vec<&Member> = self.list.iter().collect();
        members.sort_by_key(|m| (!m.live, !m.started || m.matched < cut, m.logged, Reverse(m.matched)));
        members.into_iter()
    }

    /// Data and index stripes with smaller numbers are granted by every member (P8.2).
    pub(super) fn granted_ends(&self) -> (u32, u32) {
        let data = self.list.iter().map(|m| m.granted.data_end).min();
        let index = self.list.iter().map(|m| m.granted.index_end).min();
        (data.unwrap_or(Stripe::NUMBER_MAX), index.unwrap_or(Stripe::NUMBER_MAX))
    }

    /// The most bytes of deltas that every member wants to keep.
    #[inline]
    pub(super) fn window_bytes(&self) -> u64 {
        self.list
            .iter()
            .map(|m| m.granted.window_bytes)
            .min()
            .unwrap_or(u64::MAX)
    }

    // --- sending ---------------------------------------------------------------------------------------------------

    /// Sends a member the deltas after the newest one sent to it, until they are more than `bytes_max` bytes. True if
    /// nothing stopped it.
    pub(super) fn send_deltas<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        log: &StreamLog,
        sender: Sender,
        at: usize,
        bytes_max: usize,
    ) -> bool {
        let (now, wait) = (cx.mono(), cx.shared.parameters.resend);
        let member = &mut self.list[at];
        let mut bytes = 0;
        for record in log.ring().after(member.sent) {
            if record.seq != member.sent + 1 {
                cx.halt(
                    sender.stream.list,
                    sender.stream.x,
                    format!(
                        "I5: {} no longer has delta {} for position {}",
                        sender.stream,
                        member.sent + 1,
                        member.position.0
                    ),
                );
                return false;
            }
            let delta = Message::Delta {
                term: sender.term,
                seq: record.seq,
                sent: now,
                stable: Behind::new(log.stable(), record.seq),
                extents: record.extents,
            };
            if !cx.send(&member.tenure, Channel::Main, sender.stream, sender.epoch, &delta) {
                return false;
            }
            member.sent = record.seq;
            if member.resend.owes_since.is_none() {
                member.resend.owes_since = Some(now);
                member.resend.schedule(now + wait, wait);
            }
            bytes += record.extents.len();
            if bytes > bytes_max {
                break;
            }
        }
        true
    }

    /// Sends a message to every member.
    pub(super) fn send_all<O: Out>(&self, cx: &mut Context<'_, O>, sender: Sender, message: &Message<'_>) {
        for member in &self.list {
            cx.send(&member.tenure, Channel::Main, sender.stream, sender.epoch, message);
        }
    }

    /// Sends a member again deltas that it has not answered in time. True if deltas were sent and nothing stopped it.
    pub(super) fn resend<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        log: &StreamLog,
        sender: Sender,
        at: usize,
    ) -> bool {
        let now = cx.mono();
        let (wait_max, report) = (cx.shared.parameters.resend_max, cx.shared.parameters.silence_report);
        let member = &mut self.list[at];
        let behind = !member.started || member.matched < log.seq();
        if !behind || now < member.resend.at {
            return false;
        }
        let wait = member.resend.wait;
        member.resend.schedule(now + wait, Span((wait.0 * 2).min(wait_max.0)));
        let since = *member.resend.owes_since.get_or_insert(now);
        if now - since > report && now - member.resend.reported_at > report {
            member.resend.reported_at = now;
            cx.propose(Proposal::ReportSilent {
                node: member.tenure.node,
                incarnation: member.tenure.incarnation,
            });
        }
        if member.started {
            // One delta is enough: the answer to it says what else must be sent again. Links seldom lose anything.
            member.sent = member.matched;
            return self.send_deltas(cx, log, sender, at, 0);
        }
        let base = cx.rules().sync_base(log.stable(), log.acked());
        let mut deltas = Vec::new();
        for record in log.ring().after(base) {
            Deltas::push(&mut deltas, record.term, record.seq, record.extents);
        }
        let message = Message::Sync {
            term: sender.term,
            base,
            top: log.seq(),
            deltas: Deltas::new(&deltas),
        };
        cx.send(&member.tenure, Channel::Main, sender.stream, sender.epoch, &message);
        false
    }
}
