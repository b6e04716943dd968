//! What this node says of its peers when the coordinator does not hear them (P10.9): peers' votes decide
//! who may be fenced.
//!
//! The peers are those that this node must exchange frames with: the parity nodes of streams that it owns, and the
//! owners of streams whose parity it holds. They speak at least every 250 ms, by lease requests and grants (P4.3).

use super::Replica;
use crate::interface::{Out, Proposal};
use crate::lists::Role;
use paritas_base::configuration::{PositionState, Tenure};
use paritas_base::{Incarnation, NodeId, Position, Span, Time};

/// Votes on peers. A peer that is in neither list is heard.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Opinions {
    /// Peers of which no frame has come for the suspicion time.
    pub unheard: Vec<(NodeId, Incarnation)>,
    /// Peers of which this node cannot say anything yet.
    pub unsure: Vec<(NodeId, Incarnation)>,
}

/// How often votes are told that have not changed: a proposal may get lost.
const REPEAT: Span = Span::from_secs(1);

/// Whether this node was awake to hear its peers, and what it has told of them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The latest event.
    latest: Time,
    /// The end of the latest interval without events that was longer than half the suspicion time. Frames that came
    /// during it may not have been read yet.
    woke: Option<Time>,
    told: Option<(Opinions, Time)>,
    /// When to look again. It is soon enough that an idle node does not seem to have stood still.
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

    /// Tells the coordinator what has changed, four times in a suspicion time.
    pub(super) fn watch(&mut self, now: Time, out: &mut impl Out) {
        if now < self.watch.look_at {
            return;
        }
        self.watch.look_at = now + Span(self.suspicion().0 / 4).max(Span::from_ms(1));
        self.tell_opinions(now, out);
        self.confirm_beginnings(out);
    }

    /// P10.15: once the coordinator has made a position Live, no process may begin it empty.
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

    fn tell_opinions(&mut self, now: Time, out: &mut impl Out) {
        let opinions = self.opinions(now);
        let told = self.watch.told.as_ref();
        if told.is_none_or(|(told, at)| *told != opinions || now - *at >= REPEAT) {
            self.watch.told = Some((opinions.clone(), now));
            out.propose(Proposal::Opinions(opinions));
        }
    }

    /// What this node says of its peers now.
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

    /// Lives that this node must exchange frames with, in order.
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
