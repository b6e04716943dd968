//! Commands that peers forward for their clients.

use super::call::{Call, Turn};
use super::client::{Caller, Client, Refused};
use super::forward::CONGESTED_RETRY;
use super::prefetch::Target;
use super::stuck::wait_max;
use super::{Dispatcher, Ran, Router};
use crate::dialect::{Dialect, Refusal};
use paritas_base::{ConnId, Incarnation, NodeId, StreamId, Time};
use paritas_protocol::{Channel, Context, Lists, Out, PeerCommand, Port};
use paritas_wire::command::flag;
use paritas_wire::peer::Message;
use paritas_wire::peer::dialect::STAGED;
use paritas_wire::resp::{self, Decoded, Limits};
use std::borrow::Cow;

/// Commands of peers that wait here, for a takeover or for the parts of a large value, have at most this part (1/8) of
/// the memory, or this number of bytes if that is more: one command of the greatest length must always fit.
const PARKED_PART: u64 = 8;
const PARKED_BYTES_MIN: u64 = 32 << 20;
/// While more than this number of bytes waits to be sent to a peer, no command that it forwards is started: replies
/// must not fill the memory, nor delay deltas and acks.
const PEER_BYTES_SOFT_MAX: usize = 4 << 20;
/// Above this number of peers' clients, the idle ones are dropped. Below it they are kept for their buffers.
const IDLE_MAX: usize = 4096;

impl Router {
    /// Handles a client's command that a peer forwards. The peer takes this node for the owner of `stream` at `epoch`
    /// (docs/commands.md).
    pub(crate) fn on_forward<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        from: (NodeId, Incarnation),
        conn: ConnId,
        command: PeerCommand<'_>,
    ) {
        let key = (from.0, conn);
        let now = cx.mono();
        if self.remotes.len() > IDLE_MAX && !self.remotes.contains_key(&key) {
            // By then a refusal has arrived, and so have the commands that were sent before it did, or they have ended
            // at their node.
            let since = Time(now.0.saturating_sub(3 * wait_max(cx).0));
            self.remotes.retain(|_, client| !client.is_idle(since));
        }
        let fresh = || {
            let mut client = Client::new(Caller::Remote(from.0, conn), Port::Any, 0, now);
            client.remote.incarnation = from.1;
            client
        };
        let client = self.remotes.entry(key).or_insert_with(fresh);
        if client.remote.incarnation != from.1 {
            // Each incarnation of a peer numbers its connections from the start: the commands under this number belong
            // to a connection that no longer exists.
            self.forget_remote(key);
            self.remotes.insert(key, fresh());
        }
        let waits = self
            .remotes
            .get(&key)
            .is_some_and(|c| c.stalled || !c.remote.parked.is_empty());
        if !waits && self.run_remote(cx, lists, key, &command) != Ran::Stalled {
            self.note_remote(cx, key, false, true);
            return;
        }
        let parked_max = PARKED_BYTES_MIN.max(cx.shared.maxmemory_bytes / PARKED_PART);
        if (self.dispatcher.parked_bytes + command.bytes.len()) as u64 > parked_max {
            self.refuse_parked(cx, key, &command);
            return;
        }
        self.dispatcher.parked_bytes += command.bytes.len();
        if let Some(client) = self.remotes.get_mut(&key) {
            let bytes = Cow::Owned(command.bytes.into_owned());
            client.remote.parked.push_back(PeerCommand { bytes, ..command });
        }
        self.note_remote(cx, key, true, false);
    }

    /// Refuses a command that has not started, because too many bytes of commands wait here already.
    fn refuse_parked<O: Out>(&mut self, cx: &mut Context<'_, O>, key: (NodeId, ConnId), command: &PeerCommand<'_>) {
        let mut args = core::mem::take(&mut self.dispatcher.part_args);
        let write = match resp::decode(&command.bytes, &Limits::DEFAULT, &mut args) {
            Ok(_) => paritas_wire::command::lookup(args.list(&command.bytes).arg(0)).is_none_or(|s| s.is(flag::WRITE)),
            Err(_) => true,
        };
        self.dispatcher.part_args = args;
        let refusal = if write { Refusal::Unavailable } else { Refusal::Takeover };
        let mut error = Vec::new();
        Dialect::from_byte(command.dialect).refuse(&mut error, refusal);
        if let Some(incarnation) = self.remotes.get(&key).map(|c| c.remote.incarnation) {
            self.dispatcher
                .answer(cx, (key.0, incarnation), key.1, command.n, &error, None);
        }
    }

    fn note_remote<O: Out>(&mut self, cx: &mut Context<'_, O>, key: (NodeId, ConnId), stalled: bool, has_run: bool) {
        if let Some(client) = self.remotes.get_mut(&key) {
            self.dispatcher.note(cx, client, stalled, has_run);
        }
    }

    /// Forgets a peer's client and its waiting commands.
    pub(crate) fn forget_remote(&mut self, key: (NodeId, ConnId)) {
        if let Some(client) = self.remotes.remove(&key) {
            self.dispatcher.parked_bytes -= client.remote.parked.iter().map(|p| p.bytes.len()).sum::<usize>();
        }
        let caller = Caller::Remote(key.0, key.1);
        self.dispatcher.held.retain(|c| *c != caller);
        self.dispatcher.forget_stalled(caller);
    }

    fn run_remote<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        key: (NodeId, ConnId),
        command: &PeerCommand<'_>,
    ) -> Ran {
        let buffer = cx.out.peer(key.0, Channel::Main);
        if buffer.is_some_and(|buffer| buffer.bytes.len() + buffer.waiting > PEER_BYTES_SOFT_MAX) {
            self.dispatcher.retry_at = self.dispatcher.retry_at.min(cx.mono() + CONGESTED_RETRY);
            return Ran::Stalled;
        }
        let Some(client) = self.remotes.get_mut(&key) else {
            return Ran::Done;
        };
        (client.next_n, client.dialect) = (command.n, Dialect::from_byte(command.dialect));
        client.database = command.database;
        client.remote.staged = command.dialect & STAGED != 0;
        (client.remote.stream, client.remote.epoch) = (command.stream, command.epoch);
        let turn = Turn::of_remote(client);
        let mut call = Call {
            cx,
            lists,
            client,
            turn,
        };
        let mut args = core::mem::take(&mut self.dispatcher.part_args);
        let bytes = &*command.bytes;
        let ran = match resp::decode(bytes, &Limits::DEFAULT, &mut args) {
            Ok(Decoded::Complete { .. }) if !args.is_empty() => {
                let list = args.list(bytes);
                let ahead = self
                    .dispatcher
                    .look_ahead(call.cx, call.lists, command.database, list, 0..bytes.len());
                self.dispatcher.run(&mut call, &ahead, list, bytes)
            }
            _ => self.dispatcher.reply_refusal(&mut call, Refusal::Malformed),
        };
        let Call { client, turn, .. } = call;
        client.remote.keep(turn.bytes);
        self.dispatcher.part_args = args;
        if ran != Ran::Stalled {
            // If the next command stalls too, its timeout starts anew.
            client.stalled_since = None;
        }
        ran
    }

    /// Runs the waiting commands of a peer's client in order, until one cannot start.
    pub(crate) fn run_parked<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, key: (NodeId, ConnId)) {
        let (mut stalled, mut has_run) = (false, false);
        if let Some(client) = self.remotes.get_mut(&key) {
            client.stalled = false;
        }
        while let Some(parked) = self.remotes.get_mut(&key).and_then(|c| c.remote.parked.pop_front()) {
            if self.run_remote(cx, lists, key, &parked) == Ran::Stalled {
                stalled = true;
                if let Some(client) = self.remotes.get_mut(&key) {
                    client.remote.parked.push_front(parked);
                }
                break;
            }
            self.dispatcher.parked_bytes -= parked.bytes.len();
            has_run = true;
        }
        self.note_remote(cx, key, stalled, has_run);
    }
}

impl Dispatcher {
    /// Checks that the slots of a peer's command belong to the stream that the peer names. If not, one of the two nodes
    /// has an old slot map.
    ///
    /// A command that is refused will come back, here or elsewhere. The peer may have sent later ones of the client
    /// before it gets the refusal. The slots may have come back here before these run, and they would overtake the
    /// refused command. So they are refused too. A command that comes again, or an earlier one, was sent after the
    /// refusal had arrived, and so are all that come behind it: while a refused command is not answered, its client
    /// starts no other.
    pub(crate) fn check_direction<O: Out>(&mut self, call: &mut Call<'_, '_, O>, place: Target) -> Option<Ran> {
        let (stream, epoch) = (call.client.remote.stream, call.client.remote.epoch);
        let now = match place {
            Target::One(now, _) | Target::Unserved(now) | Target::Slots(Some(now)) => Some(now),
            Target::Slots(None) => None,
            Target::Keyless => return None,
        };
        let (n, map) = (call.client.command_n(), call.cx.shared.slots.version());
        let refused = call.client.remote.refused.filter(|refused| n > refused.n);
        call.client.remote.refused = refused;
        let overtakes = refused.is_some_and(|refused| refused.map != map);
        if now == Some(stream) && !overtakes {
            return None;
        }
        if now != Some(stream) {
            let installed = call.lists.get(stream.list).map(|list| list.configuration.epoch);
            let Caller::Remote(node, _) = call.client.caller else {
                return None;
            };
            if installed.is_none_or(|installed| installed < epoch) {
                call.cx
                    .ask_configuration((node, call.client.remote.incarnation), stream, epoch, epoch);
                return Some(Ran::Stalled);
            }
            if let Some(now) = now {
                self.tell(call.cx, call.lists, call.client, now);
            }
        }
        call.client.remote.refused = Some(Refused {
            n,
            map: refused.map_or(map, |refused| refused.map),
            at: call.cx.mono(),
        });
        Some(self.reply_refusal(call, Refusal::NotOwner))
    }
}

impl Dispatcher {
    /// Sends the configuration of this stream to a peer whose slot map is old. The peer may not learn it otherwise.
    pub(crate) fn tell<O: Out>(&self, cx: &mut Context<'_, O>, lists: &Lists, client: &Client, of: StreamId) {
        if let (Some(list), Caller::Remote(node, _)) = (lists.get(of.list), client.caller) {
            let configuration = Box::new(list.configuration.clone());
            let epoch = configuration.epoch;
            let stale = Message::Stale { configuration };
            cx.send_to(node, client.remote.incarnation, Channel::Main, of, epoch, &stale);
        }
    }
}

impl Dispatcher {
    /// Refuses a command of a peer that takes this node for the owner of a stream. If the peer's configuration is old,
    /// it gets the newer one, once for all commands of a pipeline: the coordinator may not reach it, and it would send
    /// the command to this node again and again.
    pub(crate) fn refuse_stranger<O: Out>(&mut self, call: &mut Call<'_, '_, O>, stream: StreamId) -> Ran {
        let installed = call.lists.get(stream.list).map(|list| list.configuration.epoch);
        if let Some(installed) = installed.filter(|installed| *installed > call.client.remote.epoch) {
            let (now, resend) = (call.cx.mono(), call.cx.shared.parameters.resend);
            let is_told = |(list, epoch, at)| (list, epoch) == (stream.list, installed) && now - at < resend;
            if !call.client.remote.told.is_some_and(is_told) {
                call.client.remote.told = Some((stream.list, installed, now));
                self.tell(call.cx, call.lists, call.client, stream);
            }
        }
        self.reply_refusal(call, Refusal::NotOwner)
    }
}

/// Whether this node is the owner for which a forwarded command is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It is: the sender means the current tenure of this node.
    Owner,
    /// Not known yet: the sender has a newer configuration than this node.
    Early,
    /// It is not: this node does not own the stream, or its tenure began after the sender's epoch.
    Stranger,
}

impl Dispatcher {
    /// Whether this node is the owner for which the current command of a peer's client is meant.
    pub(crate) fn standing<O: Out>(&self, cx: &mut Context<'_, O>, lists: &Lists, client: &Client) -> Standing {
        let (stream, epoch) = (client.remote.stream, client.remote.epoch);
        let installed = lists.get(stream.list).map(|list| list.configuration.epoch);
        match lists.owner(stream) {
            Some((_, owner)) if owner.tenure().since <= epoch => Standing::Owner,
            _ if installed.is_none_or(|installed| installed < epoch) => {
                if let Caller::Remote(node, _) = client.caller {
                    cx.ask_configuration((node, client.remote.incarnation), stream, epoch, epoch);
                }
                Standing::Early
            }
            _ => Standing::Stranger,
        }
    }
}
