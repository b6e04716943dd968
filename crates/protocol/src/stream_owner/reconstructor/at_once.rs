//! Reconstructs an absent chunk in one round trip, the usual way (P5.7). `k` Live positions, owners and members, are
//! asked in the same turn for their latest chunks and their parities. Usually the chunks have the versions that the
//! parities stand for. Then the answers combine to the absent chunk; each is added to the sum directly from its frame.
//!
//! Otherwise (another version, a refusal, a wrong sum, no answer) the chunk is requested again in the order of P5.7:
//! parity first, then the sources at the parity's versions. The answers received here are not used then.

use super::{Reconstructor, StreamOwner, Task};
use crate::context::{Context, Shared};
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use crate::parameters::LogAssist;
use crate::source_chunk::SourceChunk;
use crate::stream_owner::Member;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{NodeId, Position, StreamId, Stripe, Version};
use paritas_code::{mul_add, sum};
use paritas_wire::peer::{Message, Parity};

/// A position that can be asked.
#[derive(Clone, Copy, Debug)]
struct Holder {
    position: Position,
    tenure: Tenure,
    /// Whether it is a log node's position.
    logged: bool,
}

/// The answers received for one chunk.
#[derive(Debug)]
pub(super) struct AtOnce {
    /// For each position, the coefficient of its chunk; 0 for positions that were not asked.
    weights: Vec<u8>,
    /// For each position, the version in its answer; `None` without an answer. For a member it is the version of the
    /// wanted chunk.
    come: Vec<Option<Version>>,
    /// Number of positions that were asked and have not answered.
    waiting: usize,
    /// Whether a log node was asked although enough nodes with memory were available.
    assisted: bool,
    /// The versions that the parities stand for, and their checksum of the absent chunk.
    parity: Option<(Vec<Version>, u32)>,
    /// The sum of the received products; empty until one that is not all zeros was received.
    bytes: Vec<u8>,
}

impl AtOnce {
    /// Whether this position was asked and has not answered.
    fn waits_for(&self, source: Position) -> bool {
        let asked = self.weights.get(source.index()).is_some_and(|weight| *weight != 0);
        asked && self.come.get(source.index()).is_some_and(Option::is_none)
    }

    fn add<O: Out>(&mut self, cx: &Context<'_, O>, source: Position, version: Version, bytes: &[u8]) {
        let (Some(weight), Some(come)) = (self.weights.get(source.index()), self.come.get_mut(source.index())) else {
            return;
        };
        *come = Some(version);
        self.waiting -= 1;
        if !bytes.is_empty() {
            self.bytes.resize(cx.shared.arena.chunk_bytes(), 0);
            mul_add(*weight, bytes, &mut self.bytes);
        }
    }
}

impl Reconstructor {
    /// The answers received under this id, if the chunk is being requested in one round trip.
    fn at_once(&mut self, stripe: Stripe, id: u64) -> Option<&mut AtOnce> {
        let task = self.tasks.get_mut(&stripe).filter(|t| t.id == id)?;
        task.at_once.as_mut()
    }

    pub(super) fn is_at_once(&mut self, stripe: Stripe, id: u64) -> bool {
        self.at_once(stripe, id).is_some()
    }
}

impl StreamOwner {
    /// The `k` positions to ask: the other owners that are Live and reachable, and then members in the order of
    /// `members_by_use`. `None` if there are too few. A background rebuild may ask log nodes in place of any of these.
    /// The flag says that it does although enough nodes with memory are available.
    fn holders<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stripe: Stripe,
        background: bool,
    ) -> Option<(Vec<Holder>, bool)> {
        let (me, needed) = (self.stream().x, usize::from(configuration.data));
        let others = configuration.data_positions().filter(|y| *y != me);
        let live = others.filter_map(|position| {
            let held = configuration.at(position)?;
            let can_give = held.state.is_live() && cx.reaches(&held.tenure, Channel::Bulk);
            can_give.then_some(Holder {
                position,
                tenure: held.tenure,
                logged: false,
            })
        });
        let mut holders: Vec<Holder> = live.collect();
        let mut members = self
            .members_by_use()
            .filter(|m| m.live && cx.reaches(&m.tenure, Channel::Bulk));
        let holder = |member: &Member| Holder {
            position: member.position,
            tenure: member.tenure,
            logged: member.logged,
        };
        while holders.len() < needed {
            holders.push(holder(members.next()?));
        }
        let enough_in_memory = holders.iter().all(|h| !h.logged);
        let assist = cx.shared.parameters.log_assist;
        if background && assist != LogAssist::Off {
            let logs = members.filter(|m| m.logged && m.started && m.matched >= self.cut());
            holders.extend(logs.map(holder));
        }
        if holders.len() == needed {
            return Some((holders, false));
        }
        let chosen = if assist == LogAssist::Auto {
            let nodes: Vec<NodeId> = holders.iter().map(|h| h.tenure.node).collect();
            let Shared {
                suppliers, parameters, ..
            } = &mut *cx.shared;
            suppliers.choose(&nodes, needed, cx.now.mono, parameters.resend)
        } else {
            // Takes the positions in rotation, so that each is asked equally often.
            let first = stripe.number() as usize * needed + me.index();
            (0..needed).map(|i| (first + i) % holders.len()).collect()
        };
        let chosen: Vec<Holder> = chosen.into_iter().filter_map(|at| holders.get(at).copied()).collect();
        let assisted = enough_in_memory && chosen.iter().any(|h| h.logged);
        Some((chosen, assisted))
    }

    /// Asks all positions in the same turn. False if too few are available.
    pub(super) fn ask_at_once<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stripe: Stripe,
        background: bool,
    ) -> bool {
        let me = self.stream().x;
        let Some((holders, assisted)) = self.holders(cx, configuration, stripe, background) else {
            return false;
        };
        let positions: Vec<u8> = holders.iter().map(|h| h.position.0).collect();
        let Ok(weights) = cx.shared.code.weights(&positions, me.0) else {
            return false;
        };
        let (list, epoch, id) = (configuration.list, configuration.epoch, cx.next_request_id());
        for holder in &holders {
            let is_owner = configuration.is_data(holder.position);
            let (x, message) = if is_owner {
                (holder.position, Message::ReadChunk { id, stripe, want: None })
            } else {
                (me, Message::ReadParity { id, stripe })
            };
            if !cx.send(&holder.tenure, Channel::Bulk, StreamId { list, x }, epoch, &message) {
                return false;
            }
        }
        if background && cx.shared.parameters.log_assist == LogAssist::Auto && cx.shared.cluster.logged > 0 {
            let Shared {
                suppliers, parameters, ..
            } = &mut *cx.shared;
            for holder in &holders {
                suppliers.asked(holder.tenure.node, id, cx.now.mono, parameters.resend);
            }
        }
        let retry_at = cx.after(cx.shared.parameters.resend);
        let mut task = Task::new(id, retry_at);
        task.at_once = Some(AtOnce {
            come: vec![None; weights.len()],
            weights,
            waiting: holders.len(),
            assisted,
            parity: None,
            bytes: Vec::new(),
        });
        self.rebuild.reconstructor.insert(stripe, task);
        true
    }

    /// Handles a member's parity; `None` if the member cannot give it.
    pub(super) fn on_parity_at_once<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        (from, id): (Position, u64),
        stripe: Stripe,
        parity: Option<Parity<'_>>,
    ) {
        let me = self.stream().x;
        let rules = cx.rules();
        let Some(at_once) = self.rebuild.reconstructor.at_once(stripe, id) else {
            return;
        };
        if !at_once.waits_for(from) {
            return;
        }
        let Some(parity) = parity else {
            return self.ask_parities(cx, configuration, stripe, 0, false);
        };
        let (versions, _) = at_once
            .parity
            .get_or_insert_with(|| (parity.versions.iter().collect(), parity.sum));
        if !rules.parities_fit(parity.versions.iter(), versions.iter().copied()) {
            return self.ask_parities(cx, configuration, stripe, 0, false);
        }
        let version = versions[me.index()];
        at_once.add(cx, from, version, parity.bytes);
        self.try_sum(cx, configuration, (id, stripe));
    }

    /// Handles another owner's latest chunk; `None` if the owner cannot give it.
    pub(super) fn on_source_at_once<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        (y, id): (Position, u64),
        stripe: Stripe,
        source: Option<SourceChunk<'_>>,
    ) {
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let Some(at_once) = self.rebuild.reconstructor.at_once(stripe, id) else {
            return;
        };
        if !at_once.waits_for(y) {
            return;
        }
        let fits = |source: &SourceChunk<'_>| source.bytes.is_empty() || source.bytes.len() == chunk_bytes;
        let Some(source) = source.filter(fits) else {
            return self.ask_parities(cx, configuration, stripe, 0, false);
        };
        if !cx.rules().may_use(source.has_its_sum()) {
            // The checksum does not fit: the owner's memory is wrong (P9.1).
            cx.shared.bad_sums += 1;
            return self.ask_parities(cx, configuration, stripe, 0, false);
        }
        at_once.add(cx, y, source.version, source.bytes);
        self.try_sum(cx, configuration, (id, stripe));
    }

    /// P5.7c, P5.9: once all have answered, at exactly the versions that the parities stand for, the sum is the chunk.
    fn try_sum<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, (id, stripe): (u64, Stripe)) {
        let me = self.stream().x;
        let rules = cx.rules();
        let Some(at_once) = self.rebuild.reconstructor.at_once(stripe, id) else {
            return;
        };
        let Some((versions, reported)) = &at_once.parity else {
            return;
        };
        let (version, reported) = (versions[me.index()], *reported);
        let mut of_owners = versions.iter().zip(&at_once.come);
        if of_owners.any(|(stood_for, come)| come.is_some_and(|come| !rules.source_fits(come, *stood_for))) {
            return self.ask_parities(cx, configuration, stripe, 0, false);
        }
        if version == Version::ZERO {
            return self.install(cx, stripe, version, 0, &[]);
        }
        if at_once.waiting > 0 {
            return;
        }
        let (mut bytes, assisted) = (core::mem::take(&mut at_once.bytes), at_once.assisted);
        let parities = at_once
            .come
            .iter()
            .skip(usize::from(configuration.data))
            .flatten()
            .count();
        bytes.resize(cx.shared.arena.chunk_bytes(), 0);
        let found = sum::of(&bytes);
        if !rules.is_reported_sum(found, [reported].into_iter()) {
            cx.shared.bad_sums += 1;
            return self.ask_parities(cx, configuration, stripe, 0, true);
        }
        if parities > 1 {
            cx.out.mark(Mark::ParitiesAtOnce);
        }
        if assisted {
            cx.out.mark(Mark::LogAssisted);
            cx.shared.suppliers.assisted += 1;
        }
        self.install(cx, stripe, version, found, &bytes);
    }
}
