//! What clients have sent while the process stood still, as one does that is stopped, or whose machine is.
//!
//! A client that gave up meanwhile has closed its connection, and may have repeated its command at another node. Its
//! first commands, if they ran now, would undo what was acknowledged since: each may run at any time after it was sent,
//! but nobody waits for it. So they are thrown away. Who is still connected waits for its replies, and gets them. A
//! client that only has nothing more to send, and reads on, cannot be told from one that has gone: it is closed too.

use crate::shard::{EVENTS, Machine, Shard};
use mio::Events;
use paritas_base::{Span, Time};
use std::time::Duration;

/// A time between two turns that is a stall: the event loop never sleeps for so long.
const STALL: Span = Span::from_ms(500);
/// Rounds of asking for events and of accepting connections that have come meanwhile, each of many.
const ROUNDS_MAX: usize = 64;

impl<M: Machine> Shard<M> {
    /// Before a turn: closes the connections of clients that have closed them while this process stood still.
    pub(crate) fn end_clients_of_stall(&mut self, events: &mut Events, now: Time) {
        let stood_still = now - std::mem::replace(&mut self.awake_at, now);
        if stood_still < STALL {
            return;
        }
        for _ in 0..ROUNDS_MAX {
            // The signal that wakes a stopped process interrupts a call. Another error comes again at the next turn.
            if self.poll.poll(events, Some(Duration::ZERO)).is_err() {
                continue;
            }
            self.note(events);
            let arrivals = [self.arrivals[0], self.arrivals[1], self.arrivals[3]];
            if !arrivals.contains(&true) && events.iter().count() < EVENTS {
                break;
            }
            self.accept_all();
        }
        let mut closed_count = 0;
        for id in self.driver.clients.ids() {
            let client = self.driver.clients.find(id);
            let has_gone = client.is_some_and(|it| it.ending && it.readable && it.ended_at.is_none() && !it.leaving);
            if has_gone {
                self.driver.end_client(id);
                closed_count += 1;
            }
        }
        tracing::info!(
            stood_still_ms = stood_still.as_ms(),
            closed_count,
            "this process stood still: what clients had sent that have gone meanwhile is not run"
        );
    }
}
