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
use std::collections::BTreeSet;

/// All others have to prove within this time that they run. The process asks again after each heartbeat.
const PROVEN_WITHIN: Span = Span::from_ms(600);

/// What a process that is to end waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Waits {
    /// Something that has to change first.
    For(String),
    /// Nothing is known to be in its way, but this holder has not proven yet that it runs.
    Proof(String),
}

impl<S: Store> Coordinator<S> {
    /// Each time it is worked out anew: what was true at an earlier question may be over.
    pub(super) fn on_leave(&mut self, now: Time, link: LinkId, nonce: u64, out: &mut impl CoordinatorOut) {
        let of = self.registry.registered(link, nonce);
        // A process that was replaced may still have its link.
        let present = of.filter(|(node, _)| self.registry.presence_on(link, *node).is_some());
        let Some(process) = present else {
            send(out, link, &ToAgent::Refused(Refusal::RegisterAgain));
            return;
        };
        let since = self.registry.ask_to_leave(now, link, process, PROVEN_WITHIN);
        let refused = match self.leave_waits_for(now, since, process) {
            Err(Waits::For(why)) => {
                // Proofs count from when nothing else is in its way.
                self.registry.ask_anew(now, process.0);
                Some(why)
            }
            Err(Waits::Proof(why)) => {
                let held = self.lists_of(process).flat_map(|list| list.positions.iter().flatten());
                let holders: BTreeSet<NodeId> = held.map(|a| a.tenure.node).collect();
                self.ask_for_proofs(now, since, |node| holders.contains(&node), out);
                Some(why)
            }
            Ok(()) => {
                if !self.registry.may_leave(process.0, process.1) {
                    out.note(Note::MayLeave { node: process.0 });
                }
                self.registry.let_leave(process.0);
                None
            }
        };
        send(out, link, &ToAgent::MayLeave { refused });
    }

    /// Asks each of these nodes' processes once for a proof that it ran after `since`.
    pub(super) fn ask_for_proofs(
        &mut self,
        now: Time,
        since: Time,
        of: impl Fn(NodeId) -> bool,
        out: &mut impl CoordinatorOut,
    ) {
        let asked = self.registry.presences_mut().filter(|(node, _)| of(**node));
        for presence in asked.map(|(_, presence)| presence).filter(|p| p.needs_ping(since)) {
            presence.note_ping(now);
            send(out, presence.link, &ToAgent::Ping { at_ns: now.0 });
        }
    }

    /// Whether the node's present process was told that it may end, and is not known to have ended.
    pub(super) fn leaves(&self, node: &StoredNode) -> bool {
        let is_told = self.registry.may_leave(node.record.id, node.record.incarnation);
        is_told && !node.has_ended() && !self.broken.is(Mutant::LeaverCounts)
    }

    fn leave_waits_for(&self, now: Time, since: Time, process: (NodeId, Incarnation)) -> Result<(), Waits> {
        // The records must be the newest: another coordinator may have replaced this one.
        let is_newest = matches!(self.records.standing(&self.store), Ok(Standing::Unchanged));
        if self.unsure || !is_newest {
            let why = "the coordinator cannot read its store, or another coordinator has replaced it";
            return Err(Waits::For(why.into()));
        }
        if let Some(why) = self.obstacle() {
            return Err(Waits::For(format!("the coordinator {why}")));
        }
        let mut unproven = Ok(());
        for list in self.lists_of(process) {
            match self.list_waits_for(now, since, process, list) {
                Err(Waits::Proof(why)) => unproven = Err(Waits::Proof(why)),
                decided => decided?,
            }
        }
        unproven
    }

    /// The lists in which the process holds a position. A list without parity cannot do without the process in any
    /// case, so that waiting is of no use.
    fn lists_of(&self, (node, incarnation): (NodeId, Incarnation)) -> impl Iterator<Item = &Configuration> {
        let lists = self.records.lists.values().filter(|list| list.parity > 0);
        lists.filter(move |list| list.held_by(node, incarnation).next().is_some())
    }

    /// All other positions of a list in which the process holds one must be there.
    fn list_waits_for(
        &self,
        now: Time,
        since: Time,
        process: (NodeId, Incarnation),
        list: &Configuration,
    ) -> Result<(), Waits> {
        let is_own = |a: &Assignment| (a.tenure.node, a.tenure.incarnation) == process;
        let own: Vec<usize> = (0..list.positions.len())
            .filter(|i| list.positions[*i].as_ref().is_some_and(is_own))
            .collect();
        let number = list.list.0;
        let data = own.iter().filter(|i| **i < usize::from(list.data)).count();
        if !is_decodable(data, own.len() - data, list.parity.into(), list.ack_quorum.into()) {
            return Err(Waits::For(format!(
                "list {number} would lose data without this node: it has too little parity for the positions of this \
                 node"
            )));
        }
        let mut unproven = Ok(());
        for (i, held) in list.positions.iter().enumerate().filter(|(i, _)| !own.contains(i)) {
            let Some(held) = held else {
                return Err(Waits::For(format!(
                    "list {number} is not whole: position {i} has no node"
                )));
            };
            let at = held.tenure.node;
            if !self.stays(now, list, Position(i as u8), held) {
                return Err(Waits::For(format!(
                    "list {number} is not whole: position {i} at {at} is being rebuilt or has halted, or its node does \
                     not answer or is about to end"
                )));
            }
            if !self.is_proven(since, held) {
                let why = format!("list {number}: {at} has not proven yet that it runs");
                unproven = Err(Waits::Proof(why));
            }
        }
        unproven
    }

    /// Whether a position is there for as long as nothing else happens: it has all its data, and its holder is heard
    /// and will not end.
    fn stays(&self, now: Time, list: &Configuration, position: Position, held: &Assignment) -> bool {
        let tenure = held.tenure;
        let known = self.records.nodes.get(&tenure.node);
        let Some(known) = known.filter(|n| n.record.incarnation == tenure.incarnation) else {
            return false;
        };
        let presence = self.registry.recorded(&known.record);
        let is_halted = presence.is_some_and(|p| p.halted().any(|r| (r.list, r.position) == (list.list, position)));
        let is_ended = self.registry.ended().contains(&(tenure.node, tenure.incarnation));
        held.state.is_live() && !is_halted && !is_ended && self.is_available(now, known) && !self.leaves(known)
    }

    /// Whether a holder certainly ran after `since`. One that died just before is not silent yet, and may still be
    /// heard (H62).
    fn is_proven(&self, since: Time, held: &Assignment) -> bool {
        let known = self.records.nodes.get(&held.tenure.node);
        let proof = known.and_then(|known| self.proof(&known.record, None));
        proof.is_some_and(|at| at >= since)
    }
}
