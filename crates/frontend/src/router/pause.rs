//! CLIENT PAUSE: commands of this node's clients are held for a time. They stay in their clients' input. What has begun
//! goes on, and so do replies, the protocol between nodes, and commands that other nodes forward for their clients.

use super::client::{Caller, Client};
use super::{Dispatcher, Router};
use crate::redis::clients;
use paritas_base::{ConnId, Time};
use paritas_protocol::{Context, Lists, Out};
use paritas_wire::command::{Command, CommandSpec, flag};
use paritas_wire::resp::{ArgList, encode};

/// What is held, and until when.
#[derive(Debug, Default)]
pub(super) struct Pause {
    until: Time,
    /// Commands that only read are held too.
    is_all: bool,
    /// Clients whose next command is held.
    clients: Vec<ConnId>,
}

impl Pause {
    pub(super) fn hold(&mut self, caller: Caller) {
        if let Caller::Local(conn) = caller {
            self.clients.push(conn);
        }
    }

    pub(super) fn forget(&mut self, caller: Caller) {
        self.clients.retain(|conn| Caller::Local(*conn) != caller);
    }

    pub(super) fn count(&self) -> usize {
        self.clients.len()
    }

    /// When the clients that wait for its end are tried again.
    pub(super) fn ends_at(&self) -> Option<Time> {
        (!self.clients.is_empty()).then_some(self.until)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.clients.capacity() * size_of::<ConnId>()
    }

    /// Whether it holds a command of this client.
    #[cold]
    fn holds(&self, client: &Client, spec: &CommandSpec) -> bool {
        if matches!(client.caller, Caller::Remote(..)) || client.staging.is_some() {
            return false;
        }
        if self.is_all {
            // Without these nobody could end it, or see to the cluster. Units are of values that were located or
            // staged before.
            let is_spared = matches!(
                spec.id,
                Command::ClientPause
                    | Command::ClientUnpause
                    | Command::ParitasStatus
                    | Command::ParitasSlots
                    | Command::ParitasDuty
                    | Command::ParitasUnits
                    | Command::ParitasPut
            );
            return !is_spared && !spec.is(flag::NO_AUTH);
        }
        let transaction = client.transaction.as_ref();
        spec.is(flag::WRITE)
            || (spec.is(flag::SCRIPT) && !spec.is(flag::READONLY))
            || spec.id == Command::Exec && transaction.is_some_and(|t| t.queue().is_some_and(|queue| queue.writes()))
    }
}

impl Dispatcher {
    /// Whether the next command of a client must wait for the end of a pause.
    #[inline]
    pub(crate) fn is_held<O: Out>(&self, cx: &Context<'_, O>, client: &mut Client, spec: &CommandSpec) -> bool {
        if self.pause.until <= cx.mono() || !self.pause.holds(client, spec) {
            return false;
        }
        // Its own timeout does not run.
        client.stalled_since = None;
        client.paused = true;
        true
    }

    /// CLIENT PAUSE. As in Redis 7.0, one pause makes another neither shorter nor weaker.
    pub(crate) fn begin_pause<O: Out>(&mut self, cx: &Context<'_, O>, out: &mut Vec<u8>, args: ArgList<'_>) {
        let (span, is_all) = match clients::pause(args, cx.now.wall_ms) {
            Ok(pause) => pause,
            Err(error) => return encode::error(out, &error),
        };
        let now = cx.mono();
        let is_on = self.pause.until > now;
        let until = Time(now.0.saturating_add(span.0));
        self.pause.until = if is_on { until.max(self.pause.until) } else { until };
        self.pause.is_all = is_all || (is_on && self.pause.is_all);
        encode::ok(out);
    }

    /// CLIENT UNPAUSE.
    pub(crate) fn end_pause(&mut self, out: &mut Vec<u8>) {
        self.pause.until = Time(0);
        encode::ok(out);
    }
}

impl Router {
    /// Lets the commands that were held run, if the pause is over.
    pub(super) fn go_on_after_pause<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        if self.dispatcher.pause.until > cx.mono() {
            return;
        }
        for conn in core::mem::take(&mut self.dispatcher.pause.clients) {
            if let Some(client) = self.clients.get_mut(&conn) {
                client.paused = false;
                // What it waits for from now on, it has not waited for yet.
                client.stalled_since = None;
            }
            self.try_again(cx, lists, Caller::Local(conn));
        }
    }
}
