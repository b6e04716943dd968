//! Slots of a stream, and their hand-off to another (PROTOCOL 10.8).

use super::StreamOwner;
use crate::context::Context;
use crate::interface::Out;
use paritas_base::Epoch;
use paritas_base::configuration::Configuration;

/// What an owner knows of its slots.
#[derive(Debug, Default)]
pub(super) struct HandOffs {
    /// What the stream holds, in order.
    held: Vec<(u16, u16)>,
    /// Since which epoch, or the first that this tenure saw.
    since: Epoch,
}

impl StreamOwner {
    /// A configuration is installed.
    pub(super) fn note_slots<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let own = configuration.slots.held(configuration.list, &cx.shared.cluster);
        let own = own.iter().filter(|range| range.x == self.stream.x);
        let held: Vec<(u16, u16)> = own.map(|range| (range.first, range.last)).collect();
        let of = &mut self.hand_offs;
        if held != of.held || of.since == Epoch(0) {
            of.since = configuration.epoch;
            of.held = held;
        }
    }

    /// Slots of its own that it does not serve now, since it hands them off.
    pub(crate) fn frozen(&self) -> Option<(u16, u16)> {
        None
    }

    /// Whether keys are on their way from this stream or to it.
    pub(crate) fn is_handing_off(&self) -> bool {
        false
    }

    /// At which epoch its slots were last others.
    pub(crate) fn slots_since(&self) -> Epoch {
        self.hand_offs.since
    }
}
