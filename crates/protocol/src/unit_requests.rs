//! Questions about units of parts that were not answered yet. The answer is known by the number of its question alone.

use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::parts::{is_sound, to_wire};
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Incarnation, NodeId, StreamId, Time};
use paritas_large::PartName;
use paritas_wire::peer::Message;
use std::collections::BTreeMap;

/// `T`: what the unit is for.
#[derive(Debug)]
pub(crate) struct UnitRequests<T> {
    all: BTreeMap<u64, UnitRequest<T>>,
    /// By node: its questions count as answered late from then on, because an answer came. Many are asked at once, and
    /// a slow link is no reason to ask again.
    answers: BTreeMap<NodeId, Time>,
}

#[derive(Debug)]
struct UnitRequest<T> {
    of: T,
    from: (NodeId, Incarnation),
    until: Time,
}

impl<T> Default for UnitRequests<T> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            answers: BTreeMap::new(),
        }
    }
}

impl<T> UnitRequests<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// When the first of them counts as not answered.
    pub(crate) fn next_until(&self) -> Option<Time> {
        self.all.values().map(|request| self.until(request)).min()
    }

    fn until(&self, request: &UnitRequest<T>) -> Time {
        let answers = self.answers.get(&request.from.0);
        answers.map_or(request.until, |until| request.until.max(*until))
    }

    /// Asks a holder.
    ///
    /// # Errors
    /// Gives `of` back if nothing could be sent.
    pub(crate) fn ask<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stream: StreamId,
        holder: Option<Tenure>,
        (name, unit): (PartName, u32),
        of: T,
    ) -> Result<(), T> {
        let id = cx.next_request_id();
        let name = to_wire(name);
        let message = Message::ReadUnit { id, name, unit };
        let sent = holder.filter(|from| cx.send(from, Channel::Bulk, stream, configuration.epoch, &message));
        let Some(from) = sent else { return Err(of) };
        let request = UnitRequest {
            of,
            from: (from.node, from.incarnation),
            until: cx.after(cx.shared.parameters.resend),
        };
        self.all.insert(id, request);
        Ok(())
    }

    /// An answer. Gives what the unit is for, and its bytes if it was found and they are right.
    pub(crate) fn on_unit<'u, O: Out>(
        &mut self,
        cx: &Context<'_, O>,
        id: u64,
        unit: Option<(u32, &'u [u8])>,
    ) -> Option<(T, Option<&'u [u8]>)> {
        let request = self.all.remove(&id)?;
        match self.all.is_empty() {
            true => self.answers.clear(),
            false => {
                let until = cx.mono() + cx.shared.parameters.resend;
                self.answers.insert(request.from.0, until);
            }
        }
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let sound = unit.filter(|(sum, bytes)| is_sound(chunk_bytes, *sum, bytes));
        Some((request.of, sound.map(|(_, bytes)| bytes)))
    }

    /// Takes out those that are not waited for any more, in the order of their numbers.
    pub(crate) fn take_late(&mut self, is_over: impl Fn((NodeId, Incarnation), Time) -> bool) -> Vec<T> {
        let all = self.all.iter();
        let over = all.filter(|(_, request)| is_over(request.from, self.until(request)));
        let over: Vec<u64> = over.map(|(id, _)| *id).collect();
        let taken = over.into_iter().filter_map(|id| self.all.remove(&id));
        taken.map(|request| request.of).collect()
    }

    /// Forgets those for which nothing is wanted any more.
    pub(crate) fn forget(&mut self, is_over: impl Fn(&T) -> bool) {
        self.all.retain(|_, request| !is_over(&request.of));
    }
}
