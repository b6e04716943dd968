//! Bodies that commands read: the bytes once they are here, and what is asked of holders until then.

use super::{Records, Woken, decode};
use crate::bodies::OnUnit;
use crate::context::Context;
use crate::interface::Out;
use crate::parts::PositionParts;
use crate::stream_owner::{Installed, Stop};
use core::ops::Range;
use paritas_base::{Span, Time};
use paritas_large::Record;
use std::sync::Arc;

impl Records {
    /// The bytes of a range of a body, once they are here. `record` is that of an object, without its length byte.
    ///
    /// # Errors
    /// [`Stop::Wait`] until all bytes are here.
    pub(in crate::stream_owner) fn body<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        record: &[u8],
        range: Range<u64>,
    ) -> Result<&[u8], Stop> {
        // A damaged object may be repaired.
        let record = decode(record).ok_or(Stop::Wait)?;
        self.begin_work(cx);
        self.bodies
            .read(cx, here.configuration, &mut self.ledger, &record, range)
    }

    /// A command waits for a body. This one, which it has read before, stays here.
    pub(in crate::stream_owner) fn keep_body(&mut self, record: &[u8], range: &Range<u64>) {
        if let Some(record) = decode(record) {
            self.bodies.keep(&record, range);
        }
    }

    /// The rest of the window that has the byte `at`, once it is here. The window behind it is asked for.
    ///
    /// # Errors
    /// [`Stop::Wait`] until all bytes of the window are here.
    pub(super) fn window<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        record: &Arc<Record>,
        at: u64,
    ) -> Result<&[u8], Stop> {
        self.begin_work(cx);
        self.bodies
            .read_window(cx, here.configuration, &mut self.ledger, record, at, u64::MAX)
    }

    /// The same for a record that is not decoded.
    ///
    /// # Errors
    /// As for [`Self::window`].
    pub(in crate::stream_owner) fn body_from<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        record: &[u8],
        at: u64,
    ) -> Result<&[u8], Stop> {
        let record = decode(record).ok_or(Stop::Wait)?;
        self.window(cx, here, &record, at)
    }

    /// When bytes of a body came last.
    pub(in crate::stream_owner) fn body_moved_at(&self, record: &[u8]) -> Option<Time> {
        self.bodies.moved_at(decode(record)?.data_group)
    }

    /// The role ends.
    pub(in crate::stream_owner) fn drop_bodies<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        self.bodies.drop_all(cx, &mut self.ledger);
    }

    /// The answer to a request for a unit, or to a question about a part. False if it was not asked for here.
    pub(super) fn on_unit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        id: u64,
        unit: Option<(u32, &[u8])>,
    ) -> bool {
        if self.on_asked_part(cx, id, unit.is_some()) {
            return true;
        }
        match self.bodies.on_unit(cx, here.configuration, id, unit) {
            OnUnit::NotAsked => return false,
            OnUnit::Moved => {}
            OnUnit::Whole => self.on_whole(cx),
        }
        true
    }

    /// Reads what this node keeps itself of bodies.
    pub(super) fn read_own_units<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        parts: &mut [PositionParts],
    ) {
        if self.bodies.read_own(cx, here.configuration, parts) {
            self.on_whole(cx);
        }
    }

    /// A range of a body is whole: who waits for it goes on.
    fn on_whole<O: Out>(&mut self, cx: &Context<'_, O>) {
        self.woken = Woken {
            progress: true,
            hand_off: true,
        };
        self.hurry_change(cx.now.mono);
    }

    /// Asks others for what has not come, and drops bodies that nobody waits for.
    pub(super) fn tend_bodies<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>, forgotten: Span) {
        let tended = self.bodies.tend(cx, here.configuration, &mut self.ledger, forgotten);
        for record in &tended.stuck {
            // A unit may be wrong although no holder is lost.
            if record.class.tolerance() < here.configuration.parity {
                self.losses.suspect(record, cx.now.mono);
            }
        }
        if tended.is_whole {
            self.on_whole(cx);
        }
    }
}
