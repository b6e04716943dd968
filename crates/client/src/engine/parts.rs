//! Values that are read from their parts: which holders are asked, what is late, and when a node is asked instead.

use super::{Engine, HEDGE_BYTES, LOCATED_MAX, State};
use crate::choice::Way;
use crate::connection::{AskedUnits, Awaited};
use crate::interface::{OpId, Out};
use crate::located::Located;
use crate::read::{Answer, Ask, Read};
use paritas_base::{Span, Time};
use paritas_large::Part;
use paritas_wire::resp::Value;
use std::sync::Arc;

impl Engine {
    /// A value is to be read from its parts.
    pub(super) fn read(&mut self, now: Time, id: OpId, located: Located, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        (op.state, op.moved_at) = (State::Held(Arc::new(located)), now);
        self.begin_held(now, out);
    }

    /// Begins to read the values for which there is room. One that is longer than all the room is read alone.
    pub(super) fn begin_held(&mut self, now: Time, out: &mut impl Out) {
        loop {
            let is_any_read = self.ops.values().any(|op| matches!(op.state, State::Reads(_)));
            let held = self.ops.iter().find_map(|(id, op)| match &op.state {
                State::Held(located) => Some((*id, op.bytes, located.clone())),
                _ => None,
            });
            let Some((id, command_bytes, located)) = held else {
                return;
            };
            let bytes = self.bytes - command_bytes + located.value_bytes();
            if is_any_read && bytes > self.settings.bytes_max {
                return;
            }
            self.bytes = bytes;
            if let Some(op) = self.ops.get_mut(&id) {
                (op.bytes, op.moved_at) = (located.value_bytes(), now);
                op.state = State::Reads(Box::new(Read::new(located)));
            }
            self.ask_for_units(now, id, out);
        }
    }

    /// The value cannot be read from its parts, or not by this client: a node is asked for it.
    pub(super) fn ask_node(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        if op.located_count > 0 {
            self.choice.on_failure(now, op.bytes);
        }
        (op.way, op.is_by_node, op.state) = (Way::Server, true, State::Waits(now));
        self.stats.by_node += 1;
        self.go_on(now, id, out);
        self.begin_held(now, out);
    }

    fn ask_for_units(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        loop {
            let Self {
                ops,
                connections,
                barred,
                ..
            } = self;
            let Some(op) = ops.get_mut(&id) else { return };
            let attempt = op.attempt;
            let State::Reads(read) = &mut op.state else { return };
            if read.is_done() {
                return self.finish(now, id, out);
            }
            let located = read.located().clone();
            let owes = |address: &str| {
                let mut connections = connections.values();
                connections.any(|connection| connection.address == address && connection.owes())
            };
            let is_barred = |address: &&str| barred.get(*address).is_some_and(|(until, _)| now < *until);
            let rank = |part: &Part| {
                let holder = located.place.holder(part).filter(|address| !is_barred(address))?;
                Some(u32::from(owes(holder)))
            };
            match read.next_ask(rank) {
                Ok(Some(ask)) => self.ask_holder(now, id, attempt, &located, ask, out),
                Ok(None) => return,
                Err(_) => return self.locate_again(now, id, out),
            }
        }
    }

    fn ask_holder(&mut self, now: Time, op: OpId, attempt: u32, located: &Located, ask: Ask, out: &mut impl Out) {
        let Some(address) = located.place.holder(&ask.part) else {
            return;
        };
        let link = self.link_to(now, address, out);
        let units = AskedUnits {
            op,
            attempt,
            ask,
            link,
            at: now,
            is_late: false,
            is_replaced: false,
        };
        let words = located.ask(&ask);
        self.send(now, link, &words, Awaited::Units(units), out);
    }

    pub(super) fn on_units(&mut self, now: Time, units: AskedUnits, bytes: Option<&[u8]>, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&units.op).filter(|op| op.attempt == units.attempt) else {
            return;
        };
        let State::Reads(read) = &mut op.state else { return };
        let before = out.clock();
        let answer = read.on_units(units.ask.id, bytes);
        op.coding = op.coding + (out.clock() - before);
        match answer {
            Answer::Sound => {
                op.moved_at = now;
                self.stats.unit_bytes += units.ask.bytes;
                let earned = units.ask.bytes * self.settings.hedge_per_mille / 1_000;
                self.hedge_bytes = (self.hedge_bytes + earned).min(HEDGE_BYTES.1);
            }
            Answer::Wrong => {
                self.stats.wrong += 1;
                // The holder compares them, and mends what is wrong (P14.12).
                let mut words = read.located().ask(&units.ask);
                words.push(b"CHECK".to_vec());
                self.send(now, units.link, &words, Awaited::Nothing, out);
            }
            Answer::Absent | Answer::Late => {}
        }
        self.ask_for_units(now, units.op, out);
    }

    /// All bytes of a value are here.
    fn finish(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        let State::Reads(read) = core::mem::replace(&mut op.state, State::Queued) else {
            return;
        };
        let before = out.clock();
        let value = read.finish();
        op.coding = op.coding + (out.clock() - before);
        match value {
            Ok(value) => {
                self.stats.decoded_here += 1;
                self.end_with(now, id, Ok(Value::Bulk(value)), true, out);
            }
            Err(_) => {
                self.stats.wrong += 1;
                self.locate_again(now, id, out);
            }
        }
    }

    /// The holders do not have the value any more: it has another one, or has moved.
    fn locate_again(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.located_count += 1;
        if op.located_count >= LOCATED_MAX {
            return self.ask_node(now, id, out);
        }
        self.stats.located_again += 1;
        op.state = State::Waits(now);
        self.go_on(now, id, out);
        self.begin_held(now, out);
    }

    /// Asks for other units in the place of late ones, as far as the budget goes, and gives up silent holders.
    pub(super) fn on_late(&mut self, now: Time, out: &mut impl Out) {
        let (late, retry) = (self.late(), self.settings.retry);
        let mut found = Vec::new();
        for connection in self.connections.values_mut() {
            let heard_at = connection.heard_at;
            for awaited in &mut connection.awaited {
                let Awaited::Units(units) = awaited else { continue };
                let is_silent = now >= units.at.max(heard_at) + retry;
                if now < units.at + late && !is_silent || units.is_replaced {
                    continue;
                }
                units.is_late = true;
                let op = self.ops.get(&units.op).filter(|op| op.attempt == units.attempt);
                let is_read = op.is_some_and(|op| matches!(op.state, State::Reads(_)));
                if is_read && !is_silent {
                    if self.hedge_bytes < units.ask.bytes {
                        continue;
                    }
                    self.hedge_bytes -= units.ask.bytes;
                }
                units.is_replaced = true;
                if is_read {
                    found.push((*units, is_silent));
                }
            }
        }
        for (units, is_silent) in found {
            let op = self.ops.get_mut(&units.op).filter(|op| op.attempt == units.attempt);
            let Some(State::Reads(read)) = op.map(|op| &mut op.state) else {
                continue;
            };
            self.stats.replaced += 1;
            self.stats.replaced_bytes += units.ask.bytes;
            if is_silent {
                self.on_units(now, units, None, out);
            } else {
                read.on_late(units.ask.id);
                self.ask_for_units(now, units.op, out);
            }
        }
    }

    /// The time after which units are late.
    pub(super) fn late(&self) -> Span {
        self.settings.late_min.max(Span(4 * self.latency.median().0))
    }
}
