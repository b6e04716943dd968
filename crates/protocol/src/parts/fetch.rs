//! Units that are fetched from other holders: what parts are made or repaired from.

use super::PositionParts;
use super::memory::making;
use crate::context::Context;
use crate::disk_log::DiskLog;
use crate::interface::Out;
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, NodeId, PartState, Position, StreamId, Time};
use paritas_large::{Fetch, PartId};

/// Units that one position fetches at a time while it makes parts.
const FETCHES_MAX: usize = 32;

impl PositionParts {
    /// The answer to a request for a unit. False if this position did not ask.
    pub(crate) fn on_unit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        id: u64,
        unit: Option<(u32, &[u8])>,
    ) -> bool {
        let Some(((part, fetch), bytes)) = self.fetches.on_unit(cx, id, unit) else {
            return false;
        };
        if bytes.is_some() {
            cx.unit_came(fetch.made_bytes as usize);
        }
        if let Some(check) = self.take_unit(cx, part, &fetch, bytes)
            && let Some(owner) = configuration.tenure(part.x)
        {
            // The owner may wait for it.
            let to = (owner.node, owner.incarnation);
            self.answer_put(cx, configuration, part, to, PartState::Kept(check).into());
        }
        self.fetch(cx, configuration);
        true
    }

    /// Returns the check of the part if it is whole now.
    fn take_unit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        part: PartId,
        fetch: &Fetch,
        bytes: Option<&[u8]>,
    ) -> Option<u32> {
        let before = self.keeper.repaired();
        let memory = &mut making(cx, self.at);
        let check = self.keeper.on_fetched(memory, part, fetch, bytes);
        cx.shared.scrub.repaired += self.keeper.repaired() - before;
        check
    }

    /// Those for which `is_over` is true are not waited for any more. It gets who was asked, and until when.
    pub(super) fn drop_fetches<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        is_over: impl Fn((NodeId, Incarnation), Time) -> bool,
    ) {
        for (part, fetch) in self.fetches.take_late(is_over) {
            self.take_unit(cx, part, &fetch, None);
        }
    }

    /// Asks for units of parts that are being made.
    pub(super) fn fetch<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.held_until = None;
        if cx.shared.disk.as_mut().is_some_and(DiskLog::holds_acks) {
            // It goes on when the disk has caught up.
            return;
        }
        while self.fetches.len() < FETCHES_MAX {
            let has = |position: u8| configuration.tenure(Position(position)).is_some();
            let all = cx.shared.pace.allows_unit(cx.now.mono);
            let Some((part, fetch)) = self.keeper.next_fetch(has, all) else {
                if !all && self.keeper.makes_in_background() {
                    self.held_until = Some(cx.shared.pace.ask_at(cx.now.mono));
                }
                return;
            };
            let Some(from) = configuration.tenure(Position(fetch.position)) else {
                return;
            };
            let stream = StreamId {
                list: configuration.list,
                x: part.x,
            };
            let (unit, of) = ((fetch.name, fetch.unit), (part, fetch));
            if let Err((part, fetch)) = self.fetches.ask(cx, configuration, stream, Some(from), unit, of) {
                self.take_unit(cx, part, &fetch, None);
            }
        }
    }
}
