//! Votes of this node on its peers (P10.9): whether a node may be fenced that the coordinator does not hear depends on
//! the votes of its peers.
//!
//! The peers are the nodes that this node must exchange frames with: the parity nodes of streams that it owns, and the
//! owners of streams whose parity it has. They send at least every 250 ms, by lease requests and grants (P4.3).

use super::Replica;
use crate::interface::{Out, Proposal};
use crate::lists::Role;
use paritas_base::configuration::{PositionState, Tenure};
use paritas_base::{Incarnation, NodeId, Position, Span, Time};

/// Votes on peers. A peer that is in neither list is heard.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Opinions {
    /// Peers of which no frame was received for the suspicion time.
    pub unheard: Vec<(NodeId, Incarnation)>,
    /// Peers that this node cannot judge yet.
    pub unsure: Vec<(NodeId, Incarnation)>,
}

/// How often unchanged votes are sent again: a proposal may be lost.
const REPEAT: Span = Span::from_secs(1);

/// Whether this node was able to receive frames of its peers, and the votes that it has sent.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The latest event.
    latest: Time,
    /// The end of the latest interval without events that was longer than half the suspicion time. Frames that arrived
    /// during it may not have been read yet.
    woke: Option<Time>,
    /// The votes that were sent last, and when.
    reported: Option<(Opinions, Time)>,
    /// When to look at the peers again: soon enough that an idle node does not seem to have stood still.
    pub(super) look_at: Time,
}

impl Watch {
    pub(super) fn happens(&mut self, now: Time, suspicion: Span) {
        if now - self.latest > Span(suspicion.0 / 2) {
            self.woke = Some(now);
        }
        self.latest = now;
    }

    fn stood_still(&self, now: Time, suspicion: Span) -> bool {
        now - self.latest > Span(suspicion.0 / 2) || self.woke.is_none_or(|woke| now - woke < suspicion)
    }
}

impl Replica {
    pub(super) fn suspicion(&self) -> Span {
        Span::from_ms(self.shared.cluster.suspicion_ms.into())
    }

    /// Sends changed votes to the coordinator; it looks four times in a suspicion time.
    pub(super) fn watch(&mut self, now: Time, out: &mut impl Out) {
        if now < self.watch.look_at {
            return;
        }
        self.watch.look_at = now + Span(self.suspicion().0 / 4).max(Span::from_ms(1));
        self.report_opinions(now, out);
        self.confirm_beginnings(out);
    }

    /// P10.15: asks for positions that began with their list to be made Live. After that, no process may begin them
    /// empty.
    fn confirm_beginnings(&self, out: &mut impl Out) {
        for list in self.lists.iter() {
            let configuration = &list.configuration;
            let position = |role: &Role| match role {
                Role::Halted(_) => None,
                Role::Owner(owner) => Some((owner.stream().x, owner.tenure())),
                Role::Member(member) => Some((member.position(), member.tenure())),
            };
            let begun = |(position, tenure): &(Position, Tenure)| {
                let held = configuration.at(*position);
                held.is_some_and(|a| a.tenure == *tenure && a.state == PositionState::Born)
            };
            for (position, tenure) in list.roles.iter().filter_map(position).filter(begun) {
                let list = configuration.list;
                out.propose(Proposal::AskLive { list, position, tenure });
            }
        }
    }

    fn report_opinions(&mut self, now: Time, out: &mut impl Out) {
        let opinions = self.opinions(now);
        let reported = self.watch.reported.as_ref();
        if reported.is_none_or(|(reported, at)| *reported != opinions || now - *at >= REPEAT) {
            self.watch.reported = Some((opinions.clone(), now));
            out.propose(Proposal::Opinions(opinions));
        }
    }

    /// The votes of this node now.
    pub fn opinions(&self, now: Time) -> Opinions {
        let suspicion = self.suspicion();
        let mut opinions = Opinions::default();
        for (node, incarnation) in self.watched() {
            let heard = self.shared.sessions.heard_at(node, incarnation);
            let silent = heard.is_some_and(|at| now - at >= suspicion);
            if self.watch.stood_still(now, suspicion) || heard.is_none() {
                opinions.unsure.push((node, incarnation));
            } else if silent {
                opinions.unheard.push((node, incarnation));
            }
        }
        opinions
    }

    /// The incarnations that this node must exchange frames with, in order.
    fn watched(&self) -> Vec<(NodeId, Incarnation)> {
        let (node, incarnation) = (self.shared.node, self.shared.incarnation);
        let mut watched = Vec::new();
        for list in self.lists.iter() {
            let configuration = &list.configuration;
            let mine = |is_data: bool| {
                let mut held = configuration.held_by(node, incarnation);
                held.any(|(position, _)| configuration.is_data(position) == is_data)
            };
            let (owns, keeps_parity) = (mine(true), mine(false));
            let peers = configuration.positions.iter().enumerate().filter_map(|(i, held)| {
                let is_data = i < usize::from(configuration.data);
                held.filter(|_| if is_data { keeps_parity } else { owns })
                    .map(|a| a.tenure)
            });
            let others = peers.filter(|t: &Tenure| t.node != node);
            watched.extend(others.map(|t| (t.node, t.incarnation)));
        }
        watched.sort_unstable();
        watched.dedup();
        watched
    }
}
