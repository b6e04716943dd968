//! The usual way to an absent chunk, in one round trip (PROTOCOL 5.7): where every other data position is Live, the
//! owners are asked for their latest chunks in the same turn as a member for its parity. Mostly those are what the
//! parity stands for, and then what has come is the chunk; each part is added up straight from its frame.
//!
//! Whatever is not so (another version, a refusal, a wrong sum, silence) is nobody's fault, and the chunk is asked for
//! anew in the order of 5.7: parity first, then sources at its versions. Nothing that came here is used then.

use super::{Materialiser, StreamOwner, Task};
use crate::context::{Context, Shared};
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use crate::parameters::{LogAssist, Mutant};
use crate::source::Source;
use crate::stream_owner::Member;
use paritas_base::configuration::{Configuration, PositionState};
use paritas_base::{NodeId, Position, Stream, Stripe, Version};
use paritas_code::{mul_add, sum};
use paritas_wire::peer::{Message, Parity};

/// What has come of one chunk's sources.
#[derive(Debug)]
pub(super) struct AtOnce {
    /// The member that was asked for its parity.
    member: Position,
    /// It is a log node's, and one in memory is Live.
    assisted: bool,
    /// The versions that the parity stands for, and the sum it tells of the chunk.
    parity: Option<(Vec<Version>, u32)>,
    /// Per data position, of what has come.
    versions: Vec<Option<Version>>,
    /// What has come, added up; empty until something that is not all zeros has.
    bytes: Vec<u8>,
}

impl AtOnce {
    fn add<O: Out>(&mut self, cx: &Context<'_, O>, wanted: Position, source: Position, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes.resize(cx.shared.arena.chunk_bytes(), 0);
        let code = &cx.shared.code;
        let parity = self.member.0 - code.scheme().data();
        mul_add(code.weight(wanted.0, parity, source.0), bytes, &mut self.bytes);
    }
}

impl Materialiser {
    /// What is being asked for in one round trip under this id.
    fn at_once(&mut self, stripe: Stripe, id: u64) -> Option<&mut AtOnce> {
        let task = self.tasks.get_mut(&stripe).filter(|t| t.id == id)?;
        task.at_once.as_mut()
    }

    pub(super) fn is_at_once(&mut self, stripe: Stripe, id: u64) -> bool {
        self.at_once(stripe, id).is_some()
    }
}

impl StreamOwner {
    /// The member to ask for its parity, and whether it is a log node's beside a Live one in memory. Commands wait for
    /// the first by use; the background takes what log nodes can give too.
    fn supplier<O: Out>(&self, cx: &mut Context<'_, O>, stripe: Stripe, background: bool) -> Option<(&Member, bool)> {
        let assist = cx.shared.parameters.log_assist;
        let mut live = self.members_by_use().filter(|m| m.live);
        let first = live.next()?;
        if !background || assist == LogAssist::Off {
            return Some((first, false));
        }
        let logs = live.filter(|m| m.logged && m.started && m.matched >= self.cut());
        let candidates: Vec<&Member> = core::iter::once(first).chain(logs).collect();
        let at = match assist {
            LogAssist::Auto => {
                let nodes: Vec<NodeId> = candidates.iter().map(|m| m.tenure.node).collect();
                let Shared {
                    suppliers, parameters, ..
                } = &mut *cx.shared;
                suppliers.choose(&nodes, cx.now.mono, parameters.resend)
            }
            _ => (stripe.number() as usize + self.stream().x.index()) % candidates.len(),
        };
        let member = candidates.get(at)?;
        Some((member, member.logged && !first.logged))
    }

    /// Asks for all at the same time. False if some would not answer.
    pub(super) fn ask_at_once<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stripe: Stripe,
        background: bool,
    ) -> bool {
        let me = self.stream().x;
        let others = || configuration.data_positions().filter(|y| *y != me);
        let live = |y| configuration.at(y).filter(|a| a.state == PositionState::Live);
        if others().any(|y| live(y).is_none()) {
            return false;
        }
        let Some((member, assisted)) = self.supplier(cx, stripe, background) else {
            return false;
        };
        let (member, position) = (member.tenure, member.position);
        let (list, epoch, id) = (configuration.list, configuration.epoch, cx.next_request_id());
        let mut asked = cx.send(
            &member,
            Channel::Bulk,
            self.stream(),
            epoch,
            &Message::ReadParity { id, stripe },
        );
        for y in others() {
            let message = Message::ReadChunk { id, stripe, want: None };
            asked &= live(y).is_some_and(|a| cx.send(&a.tenure, Channel::Bulk, Stream { list, x: y }, epoch, &message));
        }
        if !asked {
            return false;
        }
        if background && cx.shared.parameters.log_assist == LogAssist::Auto {
            cx.shared.suppliers.asked(member.node, id, cx.now.mono);
        }
        let retry_at = cx.after(cx.shared.parameters.resend);
        let mut task = Task::new(id, retry_at);
        task.at_once = Some(AtOnce {
            member: position,
            assisted,
            parity: None,
            versions: configuration.data_positions().map(|_| None).collect(),
            bytes: Vec::new(),
        });
        self.materialiser.insert(stripe, task);
        true
    }

    /// The member's parity: `None` if it is of no use.
    pub(super) fn on_parity_at_once<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        (from, id): (Position, u64),
        stripe: Stripe,
        parity: Option<Parity<'_>>,
    ) {
        let me = self.stream().x;
        let Some(at_once) = self.materialiser.at_once(stripe, id) else {
            return;
        };
        if from != at_once.member || at_once.parity.is_some() {
            return;
        }
        let Some(parity) = parity else {
            return self.ask_parities(cx, configuration, stripe, 0, false);
        };
        at_once.parity = Some((parity.versions.iter().collect(), parity.sum));
        at_once.add(cx, me, from, parity.bytes);
        self.try_sum(cx, configuration, (id, stripe));
    }

    /// Another owner's latest chunk: `None` if it could not give it.
    pub(super) fn on_source_at_once<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        (y, id): (Position, u64),
        stripe: Stripe,
        source: Option<Source<'_>>,
    ) {
        let (me, chunk_bytes) = (self.stream().x, cx.shared.arena.chunk_bytes());
        let any_version = cx.breaks(Mutant::NoVersionMatch);
        let Some(at_once) = self.materialiser.at_once(stripe, id) else {
            return;
        };
        let Some(version @ None) = at_once.versions.get_mut(y.index()) else {
            return;
        };
        let fits = |source: &Source<'_>| source.bytes.is_empty() || source.bytes.len() == chunk_bytes;
        let Some(source) = source.filter(fits) else {
            return self.ask_parities(cx, configuration, stripe, 0, false);
        };
        if !source.has_its_sum() && !any_version {
            // Its owner's memory is wrong (9.1).
            cx.shared.bad_sums += 1;
            return self.ask_parities(cx, configuration, stripe, 0, false);
        }
        *version = Some(source.version);
        at_once.add(cx, me, y, source.bytes);
        self.try_sum(cx, configuration, (id, stripe));
    }

    /// 5.7c, 5.9: if all has come, and at exactly the versions that the parity stands for, it is the chunk.
    fn try_sum<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, (id, stripe): (u64, Stripe)) {
        let me = self.stream().x;
        let match_versions = !cx.breaks(Mutant::NoVersionMatch);
        let Some(at_once) = self.materialiser.at_once(stripe, id) else {
            return;
        };
        let Some((versions, told)) = &at_once.parity else {
            return;
        };
        let of_others = || {
            versions
                .iter()
                .zip(&at_once.versions)
                .enumerate()
                .filter(|(y, _)| *y != me.index())
        };
        let (version, told) = (versions[me.index()], *told);
        if of_others().any(|(_, (stood_for, come))| match_versions && come.is_some_and(|come| come != *stood_for)) {
            return self.ask_parities(cx, configuration, stripe, 0, false);
        }
        if version == Version::ZERO {
            return self.install(cx, stripe, version, 0, &[]);
        }
        if of_others().any(|(_, (_, come))| come.is_none()) {
            return;
        }
        let (mut bytes, assisted) = (core::mem::take(&mut at_once.bytes), at_once.assisted);
        bytes.resize(cx.shared.arena.chunk_bytes(), 0);
        let found = sum::of(&bytes);
        if found != told && match_versions {
            cx.shared.bad_sums += 1;
            return self.ask_parities(cx, configuration, stripe, 0, true);
        }
        if assisted {
            cx.out.mark(Mark::LogAssisted);
            cx.shared.suppliers.assisted += 1;
        }
        self.install(cx, stripe, version, found, &bytes);
    }
}
