//! Whether a process that is to end may do so now (P10.20).

use super::{Coordinator, CoordinatorOut, Note, send};
use crate::check::is_decodable;
use crate::message::{Refusal, ToAgent};
use crate::mutant::Mutant;
use crate::record::{Standing, StoredNode};
use crate::store::Store;
use paritas_base::configuration::{Assignment, Configuration};
use paritas_base::{Incarnation, NodeId, Position, Span, Time};
use paritas_protocol::LinkId;

/// All others have to prove within this time that they run: two heartbeats and their way.
const PROVEN_WITHIN: Span = Span::from_ms(600);

impl<S: Store> Coordinator<S> {
    /// Each time it is worked out anew: what was true at an earlier question may be over.
    pub(super) fn on_leave(&mut self, now: Time, link: LinkId, nonce: u64, out: &mut impl CoordinatorOut) {
        let of = self.registry.registered(link, nonce);
        // A process that was replaced may still have its link.
        let present = of.filter(|(node, _)| self.registry.presence_on(link, *node).is_some());
        let Some((node, incarnation)) = present else {
            send(out, link, &ToAgent::Refused(Refusal::RegisterAgain));
            return;
        };
        let waits = self.leave_waits_for(now, Time(0), node, incarnation);
        let process = (node, incarnation);
        let since = self
            .registry
            .ask_to_leave(now, link, process, waits.is_none(), PROVEN_WITHIN);
        let refused = waits
            .clone()
            .or_else(|| self.leave_waits_for(now, since, node, incarnation));
        if refused.is_none() {
            if !self.registry.may_leave(node, incarnation) {
                out.note(Note::MayLeave { node });
            }
            self.registry.let_leave(node);
        }
        if refused.is_some() && waits.is_none() {
            self.ping_since(now, since, out);
        }
        send(out, link, &ToAgent::MayLeave { refused });
    }

    /// Asks those for a proof that they run who have given none since then.
    fn ping_since(&self, now: Time, since: Time, out: &mut impl CoordinatorOut) {
        let unproven = self.registry.presences().values().filter(|p| p.proven_at() < since);
        for presence in unproven {
            send(out, presence.link, &ToAgent::Ping { at_ns: now.0 });
        }
    }

    /// Whether the node's present process was told that it may end, and is not known to have ended.
    pub(super) fn leaves(&self, node: &StoredNode) -> bool {
        let is_told = self.registry.may_leave(node.record.id, node.record.incarnation);
        is_told && !node.has_ended() && !self.broken.is(Mutant::LeaverCounts)
    }

    fn leave_waits_for(&self, now: Time, since: Time, node: NodeId, incarnation: Incarnation) -> Option<String> {
        // The records must be the newest: another coordinator may have replaced this one.
        let is_newest = matches!(self.records.standing(&self.store), Ok(Standing::Unchanged));
        if self.unsure || !is_newest {
            return Some("the coordinator cannot read its store, or another coordinator has replaced it".into());
        }
        if let Some(why) = self.obstacle() {
            return Some(format!("the coordinator {why}"));
        }
        let mut lists = self.records.lists.values();
        lists.find_map(|list| self.list_needs(now, since, node, incarnation, list))
    }

    /// Why a list cannot do without the process. A list without parity cannot in any case, so that waiting is of no
    /// use.
    fn list_needs(
        &self,
        now: Time,
        since: Time,
        node: NodeId,
        incarnation: Incarnation,
        list: &Configuration,
    ) -> Option<String> {
        if list.parity == 0 || list.held_by(node, incarnation).next().is_none() {
            return None;
        }
        let missing: Vec<usize> = (0..list.positions.len())
            .filter(|i| {
                let held = list.positions[*i];
                held.is_none_or(|a| (a.tenure.node, a.tenure.incarnation) == (node, incarnation))
                    || held.is_none_or(|a| !self.stays(now, since, list, Position(*i as u8), &a))
            })
            .collect();
        let data = missing.iter().filter(|i| **i < usize::from(list.data)).count();
        let parity = missing.len() - data;
        if is_decodable(data, parity, list.parity.into(), list.ack_quorum.into()) {
            return None;
        }
        let others = missing.iter().filter(|i| {
            list.positions[**i].is_none_or(|a| (a.tenure.node, a.tenure.incarnation) != (node, incarnation))
        });
        let others: Vec<String> = others
            .map(|i| match list.positions[*i] {
                Some(a) => format!("position {i} at {}", a.tenure.node),
                None => format!("position {i}"),
            })
            .collect();
        Some(format!(
            "list {} would lose data without this node: not whole, not proven to run, or also about to end are \
             {}",
            list.list.0,
            match others.is_empty() {
                true => "none, but the list has too little parity for the positions of this node".to_owned(),
                false => others.join(", "),
            }
        ))
    }

    /// Whether a position is there for as long as nothing else happens: it has all its data, and its holder certainly
    /// ran after `since`. A holder that died just before is not silent yet, and may still be heard (H62).
    fn stays(&self, now: Time, since: Time, list: &Configuration, position: Position, held: &Assignment) -> bool {
        let tenure = held.tenure;
        let known = self.records.nodes.get(&tenure.node);
        let Some(known) = known.filter(|n| n.record.incarnation == tenure.incarnation) else {
            return false;
        };
        let presence = self.registry.recorded(&known.record);
        let is_halted = |p: &super::Presence| p.halted().any(|r| (r.list, r.position) == (list.list, position));
        let is_proven = |p: &super::Presence| p.proven_at() >= since || self.broken.is(Mutant::LateFrameProves);
        let runs = presence.is_some_and(|p| p.well_at() > since && is_proven(p) && !is_halted(p));
        let is_ended = self.registry.ended().contains(&(tenure.node, tenure.incarnation));
        held.state.is_live() && runs && !is_ended && self.is_available(now, known) && !self.leaves(known)
    }
}
