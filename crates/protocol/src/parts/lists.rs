//! Which parts a position should have: the lists of owners, and what other holders have.

use super::memory::making;
use super::{PositionParts, record_of};
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::rules::Fault;
use paritas_base::configuration::{Assignment, Configuration, Tenure};
use paritas_base::{NodeId, Position, StreamId, Term, Time};
use paritas_large::{Alive, GroupId, Page};
use paritas_wire::peer::{AliveGroups, Message};

impl PositionParts {
    /// A page of an owner's list. `asked`: position and tenure of the question that it answers.
    #[allow(clippy::too_many_arguments)] // The fields of one frame.
    pub(crate) fn on_page<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        x: Position,
        term: Term,
        asked: (Position, Tenure),
        after: Option<u64>,
        last: u64,
        is_end: bool,
        groups: AliveGroups<'_>,
    ) {
        let mut alive = Vec::new();
        for (group, is_staging, record) in groups.iter() {
            let (Some(group), Some(record)) = (GroupId::from_bits(group), record_of(record)) else {
                // A page with an invalid group id or record is ignored as a whole.
                return;
            };
            alive.push(Alive {
                group,
                record,
                is_staging,
            });
        }
        let page = Page {
            term,
            after: after.and_then(GroupId::from_bits),
            last: GroupId::limit(last),
            is_end,
            alive,
        };
        let answers = asked == (self.position(), self.tenure);
        let memory = &mut making(cx, self.at);
        self.keeper.on_page(memory, x, &page, answers);
        let Some(known) = self.known.get_mut(x.index()).filter(|_| answers) else {
            return;
        };
        if is_end {
            known.compare_at = match cx.rules().fault(Fault::InventoryAskedOnce) {
                true => Time(u64::MAX),
                false => cx.after(cx.shared.parameters.inventory),
            };
        } else {
            // The next page at once.
            known.ask_at = cx.now.mono;
        }
    }

    /// Whether there are parts of this stream here (see [`Message::FindParts`]).
    pub(crate) fn has_parts_of(&self, x: Position) -> bool {
        self.keeper.has_parts_of(x)
    }

    /// A holder has parts of a stream, or none.
    pub(crate) fn on_found(&mut self, configuration: &Configuration, x: Position, from: NodeId, any: bool) {
        let mut others = others(configuration, self.position());
        let Some(known) = self.known.get_mut(x.index()) else {
            return;
        };
        if any || known.has_none {
            return;
        }
        known.none_at.insert(from);
        // Unless another holder is Live, the answers do not prove that there are no parts.
        let is_any_live = others.clone().any(|held| held.state.is_live());
        known.has_none = is_any_live && others.all(|held| known.none_at.contains(&held.tenure.node));
    }

    /// Whether the list of a stream is of use: to become whole, or to free what is dead.
    pub(super) fn must_ask(&self, configuration: &Configuration, x: Position) -> bool {
        let has_all = self.is_live(configuration) || self.was_whole || self.known[x.index()].has_none;
        // A part that was declined is settled by a list alone, even if its group is dead by now.
        self.keeper.needs_list(x) && (!has_all || self.has_parts_of(x) || self.keeper.owes(x))
    }

    /// When a list that was compared is asked for again.
    pub(super) fn compares_at(&self, x: Position) -> Option<Time> {
        let is_wanted = self.keeper.is_compared(x) && self.has_parts_of(x);
        is_wanted.then(|| self.known[x.index()].compare_at)
    }

    fn is_live(&self, configuration: &Configuration) -> bool {
        configuration.at(self.position()).is_some_and(|a| a.state.is_live())
    }

    pub(super) fn ask<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, x: Position) {
        let stream = StreamId {
            list: configuration.list,
            x,
        };
        if let Some(owner) = configuration.tenure(x) {
            let message = Message::ReadGroups {
                position: self.position(),
                tenure: self.tenure,
                after: self.keeper.next_page(x).map(GroupId::bits),
            };
            cx.send(&owner, Channel::Main, stream, configuration.epoch, &message);
        }
        let known = &self.known[x.index()];
        if self.was_whole || known.has_none {
            return;
        }
        let position = self.position();
        let others: Vec<Tenure> = others(configuration, position)
            .map(|held| held.tenure)
            .filter(|tenure| !known.none_at.contains(&tenure.node))
            .collect();
        for tenure in others {
            cx.send(
                &tenure,
                Channel::Main,
                stream,
                configuration.epoch,
                &Message::FindParts { position },
            );
        }
    }
}

/// Holders of all positions but one.
fn others(configuration: &Configuration, position: Position) -> impl Iterator<Item = Assignment> + Clone + '_ {
    let held = configuration.positions.iter().enumerate();
    held.filter(move |(at, _)| *at != position.index())
        .filter_map(|(_, held)| *held)
}
