//! Frames of peers: the handshake, the epoch fence, and messages that are not for one role.

use super::dispatch::{on_member, on_owner, tenure_of};
use super::large::{on_fenced, on_stale, on_unfenced};
use super::{FrontMessage, Notice, PeerCommand, Replica, ReplyBody};
use crate::context::Context;
use crate::interface::{Channel, LinkId, Out, Proposal};
use crate::lists::{List, Role};
use crate::readers::ValueRange;
use crate::rules::Fault;
use crate::session::Greeting;
use crate::stream_owner::Ticket;
use paritas_base::formats::TOMORROW;
use paritas_base::{Clock, Incarnation, NodeId};
use paritas_wire::peer::{self, Header, Kind, Message, StageState};
use std::borrow::Cow;

impl Replica {
    pub(super) fn on_frame<'f>(
        &mut self,
        now: Clock,
        link: LinkId,
        bytes: &'f [u8],
        out: &mut impl Out,
    ) -> Option<FrontMessage<'f>> {
        let Ok((header, message)) = peer::decode(bytes) else {
            out.refuse(link, "a frame that cannot be decoded");
            return None;
        };
        if let Message::Hello { hello } = &message {
            let before = self.shared.sessions.incarnation_of(hello.node, Channel::Main);
            let greeting = self.shared.sessions.on_hello(link, hello, out);
            if let Greeting::Bound(node, _, channel) = greeting {
                self.shared.asked.on_session_up(node);
                let rules = self.shared.parameters.rules;
                self.shared.sessions.try_tomorrow(link, rules, out);
                let mut cx = Context {
                    now,
                    out,
                    shared: &mut self.shared,
                };
                if let (Some(incarnation), Channel::Main) = (before, channel) {
                    // The end of the former link is reported later, when it has no peer any more.
                    self.notices.push(Notice::SessionDown(node, incarnation));
                }
                for list in self.lists.all_mut() {
                    on_session_up(&mut cx, list, node);
                }
                self.notices.push(Notice::SessionUp);
            }
            return None;
        }
        let Some((node, incarnation, _)) = self.shared.sessions.on_frame(now.mono, link) else {
            // The link is not bound, or a newer link has replaced it: its frames are ignored.
            out.close(link);
            return None;
        };
        if !self.may_act_on(message.kind(), link, out) {
            return None;
        }
        match message {
            Message::Forward {
                conn,
                n,
                dialect,
                database,
                command,
            } => Some(FrontMessage::Command {
                from: (node, incarnation),
                conn,
                command: PeerCommand {
                    n,
                    dialect,
                    database,
                    stream: header.stream,
                    epoch: header.epoch,
                    bytes: Cow::Borrowed(command),
                },
            }),
            Message::Reply { conn, n, bytes } => Some(FrontMessage::Reply {
                from: node,
                conn,
                n,
                bytes,
            }),
            Message::Staged { conn, n, taken, state } => Some(FrontMessage::Staged {
                from: node,
                conn,
                n,
                taken,
                state,
            }),
            Message::ReplyBody {
                conn,
                n,
                from,
                to,
                record,
                tail,
            } => Some(FrontMessage::ReplyBody(ReplyBody {
                from: (node, incarnation),
                owner: (header.stream, header.epoch),
                conn,
                n,
                // Without a value the command ends by its timeout.
                value: ValueRange::decode(record, tail, from..to)?,
            })),
            message => {
                self.on_message(now, (node, incarnation), &header, message, out);
                None
            }
        }
    }

    /// Whether this process may speak the version of this kind. If so, that version is active: nobody speaks it before.
    /// The coordinator may not have reached this node yet.
    fn may_act_on(&mut self, kind: Kind, link: LinkId, out: &mut impl Out) -> bool {
        let since = kind.since();
        if since > self.shared.sessions.versions().high {
            out.refuse(link, "a frame of a version that this process does not speak");
            return false;
        }
        if since > self.shared.sessions.active() {
            self.on_active(since, out);
            out.propose(Proposal::ActiveVersion(since));
        }
        true
    }

    /// By the cluster's record, or by what a peer sends, this version is active.
    pub(super) fn on_active(&mut self, version: u16, out: &mut impl Out) {
        let sessions = &mut self.shared.sessions;
        if version > sessions.active() && sessions.versions().has(version) {
            self.shared.cluster.active_version = version;
            sessions.on_active(version, self.shared.parameters.rules, out);
        }
    }

    /// A message of an incarnation of a peer, or of a role of this node.
    pub(super) fn on_message(
        &mut self,
        now: Clock,
        (node, incarnation): (NodeId, Incarnation),
        header: &Header,
        message: Message<'_>,
        out: &mut impl Out,
    ) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        match message {
            // Messages between front ends are never sent between roles of one node.
            Message::Forward { .. } | Message::Reply { .. } | Message::Staged { .. } | Message::ReplyBody { .. } => {}
            // Values on their way to and from clients. The sender means an owner of an epoch that it has installed.
            Message::Stage { conn, n, .. } => {
                let owner = self.lists.owner_mut(header.stream);
                match owner.filter(|(_, owner)| owner.tenure().since <= header.epoch) {
                    Some((configuration, owner)) => {
                        owner.on_stage(&mut cx, configuration, (node, incarnation), &message)
                    }
                    None => {
                        // Without this it would ask again and again.
                        tell_newer(&mut cx, self.lists.get(header.stream.list), (node, incarnation), header);
                        let (taken, state) = (0, StageState::NotOwner);
                        let answer = Message::Staged { conn, n, taken, state };
                        cx.send_to(node, incarnation, Channel::Main, header.stream, header.epoch, &answer);
                    }
                }
            }
            Message::StageBytes { .. } | Message::GiveUp { .. } => {
                // What is said to an earlier tenure is not about commands of this one.
                let owner = self.lists.owner_mut(header.stream);
                if let Some((configuration, owner)) = owner.filter(|(_, owner)| owner.tenure().since <= header.epoch) {
                    owner.on_stage(&mut cx, configuration, (node, incarnation), &message);
                }
            }
            Message::Wanted { conn, n, is_stuck } => {
                if is_stuck {
                    // It may ask the holders of an older configuration.
                    tell_newer(&mut cx, self.lists.get(header.stream.list), (node, incarnation), header);
                }
                if let Some((configuration, owner)) = self.lists.owner_mut(header.stream) {
                    let ticket = Ticket {
                        node,
                        incarnation,
                        conn,
                        n,
                    };
                    owner.keep_pinned(cx.now.mono, configuration, ticket, is_stuck);
                }
            }
            Message::Stale { configuration } => {
                if self.install(now, &configuration, out) {
                    out.propose(Proposal::Installed(configuration));
                }
            }
            Message::Tomorrow => self.tomorrows += 1,
            Message::GetConfiguration { tomorrow } => {
                let is_active = cx.shared.sessions.active() >= TOMORROW;
                self.tomorrows += u64::from(tomorrow && is_active);
                if let Some(list) = self.lists.get_mut(header.stream.list) {
                    let configuration = Box::new(list.configuration.clone());
                    let (stale, epoch) = (Message::Stale { configuration }, list.configuration.epoch);
                    // The peer has dropped the messages that made it ask. They are sent again behind this answer, on
                    // either channel.
                    for channel in [Channel::Main, Channel::Bulk] {
                        cx.send_to(node, incarnation, channel, header.stream, epoch, &stale);
                    }
                    on_session_up(&mut cx, list, node);
                }
            }
            Message::Yielded { tenure } => {
                let own = (tenure.node, tenure.incarnation) == (node, incarnation);
                if let Some((_, owner)) = self.lists.owner_mut(header.stream).filter(|_| own) {
                    owner.on_yielded(&cx, tenure);
                }
            }
            Message::Imported {
                version,
                term,
                round,
                n,
                status,
            } => {
                if let Some((_, owner)) = self.lists.owner_mut(header.stream) {
                    owner.on_imported(&mut cx, (node, incarnation), version, term, round, n, status);
                }
            }
            Message::LeaseRequest { sent, streams } => {
                self.on_lease_request(now, (node, incarnation), header, (sent, streams), out);
            }
            Message::Lease { sent, streams } => {
                for entry in streams.iter() {
                    if let Some((configuration, owner)) = self.lists.owner_mut(entry.stream)
                        && configuration.epoch == entry.epoch
                        && let Some(from) = tenure_of(configuration, node, incarnation)
                    {
                        owner.on_lease(&mut cx, from, entry.term, sent);
                    }
                }
            }
            Message::PutUnit { .. }
            | Message::FreeGroups { .. }
            | Message::ReadUnit { .. }
            | Message::UnitValue { .. } => {
                let list = self.lists.get_mut(header.stream.list);
                on_unfenced(&mut cx, list, (node, incarnation), header, &message);
            }
            message => self.on_list_message(now, (node, incarnation), header, &message, out),
        }
    }

    /// P2.2: a message is acted on only under the same epoch. The side with the older one is sent the newer one.
    fn on_list_message(
        &mut self,
        now: Clock,
        from: (NodeId, Incarnation),
        header: &Header,
        message: &Message<'_>,
        out: &mut impl Out,
    ) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        cx.note_answer(from.0, message);
        let Some(list) = self.lists.get_mut(header.stream.list) else {
            cx.ask_configuration(from, header.stream, header.epoch, header.epoch);
            return;
        };
        let installed = list.configuration.epoch;
        if let Message::YieldQuery { tenure } = message
            && cx.rules().fault(Fault::OwnerYieldsWhenAsked)
            && (tenure.node, tenure.incarnation) == (cx.shared.node, cx.shared.incarnation)
        {
            let yielded = Message::Yielded { tenure: *tenure };
            cx.send_to(from.0, from.1, Channel::Main, header.stream, installed, &yielded);
            return;
        }
        if header.epoch > installed {
            if !cx.ask_configuration(from, header.stream, installed, header.epoch) {
                cx.propose(Proposal::GetConfiguration {
                    list: header.stream.list,
                    installed: Some((installed, list.configuration.id)),
                });
            }
            return;
        }
        if cx.rules().is_stale(header.epoch, installed) {
            let stale = Message::Stale {
                configuration: Box::new(list.configuration.clone()),
            };
            cx.send_to(from.0, from.1, Channel::Main, header.stream, installed, &stale);
            on_stale(&mut cx, list, from, header, message);
            return;
        }
        if on_fenced(&mut cx, list, from, header, message) {
            return;
        }
        let List {
            configuration, roles, ..
        } = list;
        if let Message::YieldQuery { tenure } = message {
            let mine = (tenure.node, tenure.incarnation) == (cx.shared.node, cx.shared.incarnation);
            let holds_as =
                |role: &Role| matches!(role, Role::Owner(o) if o.tenure() == *tenure && o.stream() == header.stream);
            let holds = roles.iter().any(holds_as);
            if mine && !holds {
                let yielded = Message::Yielded { tenure: *tenure };
                cx.send_to(from.0, from.1, Channel::Main, header.stream, installed, &yielded);
            }
            return;
        }
        if let Message::ReadChunk { id, stripe, want } = *message
            && let Some(want) = want
            && !roles
                .iter()
                .any(|r| matches!(r, Role::Owner(o) if o.stream() == header.stream))
        {
            cx.answer_from_stash(configuration, header.stream, from, (id, stripe, want));
            return;
        }
        // Each role handles the messages that are addressed to it, and ignores the others.
        for role in roles {
            match role {
                Role::Halted(_) => {}
                Role::Owner(owner) => on_owner(&mut cx, configuration, owner, from, header, message),
                Role::Member(member) => on_member(&mut cx, configuration, member, from, header, message),
            }
        }
    }
}

/// Sends this list's configuration to the sender of a message of an older epoch: the coordinator may not reach it.
fn tell_newer<O: Out>(
    cx: &mut Context<'_, O>,
    list: Option<&List>,
    (node, incarnation): (NodeId, Incarnation),
    header: &Header,
) {
    let newer = list.filter(|list| list.configuration.epoch > header.epoch);
    if let Some(List { configuration, .. }) = newer {
        let (epoch, configuration) = (configuration.epoch, Box::new(configuration.clone()));
        let stale = Message::Stale { configuration };
        cx.send_to(node, incarnation, Channel::Main, header.stream, epoch, &stale);
    }
}

/// Repeats questions and messages that the earlier session with this node may have lost.
fn on_session_up<O: Out>(cx: &mut Context<'_, O>, list: &mut List, node: NodeId) {
    let List {
        configuration,
        roles,
        parts,
    } = list;
    for role in roles {
        match role {
            Role::Halted(_) => {}
            Role::Owner(owner) => owner.on_session_up(cx, node),
            Role::Member(member) => member.refill.on_session_up(cx.now.mono),
        }
    }
    for held in parts {
        held.on_session_up(cx, configuration, node);
    }
}
