//! A refill with a parity of a log node (LogECMem §5.3). The owner of one data chunk is not asked. Its chunk is
//! computed from the parity of the log node, called the lender, and the other data chunks.
//!
//! The computed chunk counts as if its owner had sent it (P6.3): at the version that the lender's parity stands for, as
//! of the last delta in the lender's log of that stream, and of that log's term. P6.3 then holds unchanged if all other
//! chunks have the versions that the parity stands for (P5.7c), and if the lender's log is not behind. If not, or if
//! the lender refuses, is late or sends a wrong parity, all owners are asked again.

use super::{Chunk, Fetch};
use crate::context::{Context, Shared};
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use crate::parameters::LogAssist;
use crate::parity_member::ParityMember;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Incarnation, NodeId, Position, StreamId, Stripe, Version};
use paritas_code::{mul_add, sum};
use paritas_wire::peer::{Message, Parity};

/// The parity of a log node that replaces one data chunk of a fetch.
#[derive(Debug)]
pub(super) struct Substitute {
    /// The data position whose owner is not asked.
    spared: Position,
    position: Position,
    lender: Tenure,
    /// For each position, the coefficient of its chunk in the computed chunk.
    weights: Vec<u8>,
    /// The last delta in this member's log of the spared position's stream when the fetch began. Deltas up to it were
    /// not buffered. An owner's answer contains them; that of a lender whose log is behind may not.
    began_at: u64,
    /// The versions that the parity stands for, once it was received.
    versions: Option<Vec<Version>>,
    /// The sum so far of the products that make up the chunk.
    chunk: Vec<u8>,
}

impl Substitute {
    pub(super) fn spares(&self, x: Position) -> bool {
        self.spared == x
    }

    /// Adds one of the sources to the computed chunk.
    pub(super) fn add(&mut self, shared: &Shared, source: Position, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.chunk.resize(shared.arena.chunk_bytes(), 0);
            let weight = self.weights.get(source.index()).copied().unwrap_or_default();
            mul_add(weight, bytes, &mut self.chunk);
        }
    }

    pub(super) fn ask<O: Out>(&self, cx: &mut Context<'_, O>, configuration: &Configuration, id: u64, stripe: Stripe) {
        let stream = StreamId {
            list: configuration.list,
            x: self.spared,
        };
        let message = Message::ReadParity { id, stripe };
        cx.send(&self.lender, Channel::Bulk, stream, configuration.epoch, &message);
    }
}

impl ParityMember {
    /// Chooses the data chunk that is not fetched from its owner, and the lender whose parity replaces it, if any. The
    /// chunk rotates with the stripe; `log_assist` decides about the lender.
    pub(super) fn borrow<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stripe: Stripe,
        id: u64,
    ) -> Option<Substitute> {
        let assist = cx.shared.parameters.log_assist;
        let spared = Position((stripe.number() % u32::from(configuration.data.max(1))) as u8);
        let owner = configuration.tenure(spared)?;
        let lends = |position: Position| position != self.position() && cx.shared.cluster.is_logged(position);
        let lenders: Vec<(Position, Tenure)> = configuration
            .members()
            .filter(|(position, a)| a.state.is_live() && lends(*position))
            .map(|(position, a)| (position, a.tenure))
            .collect();
        if lenders.is_empty() || assist == LogAssist::Off {
            return None;
        }
        let at = match assist {
            LogAssist::Auto => {
                let nodes: Vec<NodeId> = core::iter::once(owner.node)
                    .chain(lenders.iter().map(|(_, tenure)| tenure.node))
                    .collect();
                let now = cx.now.mono;
                let Shared {
                    suppliers, parameters, ..
                } = &mut *cx.shared;
                let at = *suppliers.choose(&nodes, 1, now, parameters.resend).first()?;
                suppliers.asked(*nodes.get(at)?, id, now, parameters.resend);
                at
            }
            _ => (stripe.number() / u32::from(configuration.data.max(1))) as usize % (lenders.len() + 1),
        };
        let (position, lender) = *lenders.get(at.checked_sub(1)?)?;
        let others = configuration.data_positions().filter(|y| *y != spared);
        let sources: Vec<u8> = others.chain([position]).map(|p| p.0).collect();
        Some(Substitute {
            spared,
            position,
            lender,
            weights: cx.shared.code.weights(&sources, spared.0).ok()?,
            began_at: self.log(spared)?.recv,
            versions: None,
            chunk: Vec::new(),
        })
    }

    /// Handles the lender's answer.
    pub(crate) fn on_substitute<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        (from, x): ((NodeId, Incarnation), Position),
        (id, stripe): (u64, Stripe),
        parity: Option<Parity<'_>>,
    ) {
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let Some(fetch) = self.refill.fetches.get_mut(&stripe).filter(|f| f.id == id) else {
            return;
        };
        let Some(substitute) = &mut fetch.substitute else {
            return;
        };
        let is_it = substitute.spared == x && (substitute.lender.node, substitute.lender.incarnation) == from;
        if !is_it || substitute.versions.is_some() {
            return;
        }
        let fits = |parity: &Parity<'_>| {
            parity.versions.count() == usize::from(configuration.data)
                && (parity.bytes.is_empty() || parity.bytes.len() == chunk_bytes)
                && parity.recv >= substitute.began_at
        };
        let Some(parity) = parity.filter(fits) else {
            return self.ask_owners(cx, configuration, stripe);
        };
        let versions: Vec<Version> = parity.versions.iter().collect();
        if let (Some(slot), Some(version)) = (fetch.replies.get_mut(x.index()), versions.get(x.index())) {
            *slot = Some(Chunk {
                version: *version,
                sum: parity.sum,
                as_of: parity.recv,
                term: parity.term,
            });
        }
        substitute.add(cx.shared, substitute.position, parity.bytes);
        substitute.versions = Some(versions);
    }

    /// Begins the fetch again with every owner, because the lender's parity cannot be used. The buffered deltas can be
    /// dropped: the chunks that the owners send from now on contain them.
    pub(super) fn ask_owners<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stripe: Stripe,
    ) {
        let fetch = Fetch::new(cx, configuration);
        self.ask_chunks(cx, configuration, stripe, &fetch);
        self.refill.fetches.insert(stripe, fetch);
    }

    /// Called when all answers are here. If a lender was used, checks its parity and adds the computed chunk to the
    /// new parity. False if the lender's parity cannot be used.
    pub(super) fn settle_substitute<O: Out>(&self, cx: &mut Context<'_, O>, fetch: &mut Fetch) -> bool {
        let Some(mut substitute) = fetch.substitute.take() else {
            return true;
        };
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let come = fetch.replies.iter().flatten().map(|chunk| chunk.version);
        let rules = cx.rules();
        if !rules.substitute_fits(substitute.versions.map(Vec::into_iter), come) {
            return false;
        }
        substitute.chunk.resize(chunk_bytes, 0);
        let reported = fetch.replies.get(substitute.spared.index()).and_then(Option::as_ref);
        if !rules.may_use(reported.is_some_and(|reported| reported.sum == sum::of(&substitute.chunk))) {
            cx.shared.bad_sums += 1;
            return false;
        }
        fetch.parity.resize(chunk_bytes, 0);
        let coefficient = cx.shared.code.coefficient(substitute.spared.0, self.parity());
        mul_add(coefficient, &substitute.chunk, &mut fetch.parity);
        cx.out.mark(Mark::RefillAssisted);
        cx.shared.suppliers.assisted += 1;
        true
    }
}
