//! Links between nodes, and the incarnation at the other end of each (P2.1).
//!
//! The node with the smaller id dials. The driver brings links of processes that have proven who they are, and the
//! `Hello` must name the same. The dialer's names the incarnation that it dials. The other side checks that it is that
//! incarnation, and answers with its own. From then on both know the sender of every frame of the link.
//! A later link replaces an earlier one, so that bytes of an old connection cannot follow those of a new one (H25).

use crate::interface::{Channel, LinkId, Out};
use crate::rules::Rules;
use paritas_base::configuration::{NodeRecord, NodeState};
use paritas_base::formats::{self, TOMORROW, Versions};
use paritas_base::{ClusterId, Incarnation, Map, NodeId, Span, Time, map};
use paritas_wire::peer::{self, Header, Hello, Message};

/// The highest version that a node of this build says it speaks, before it knows the cluster.
pub const PROTOCOL_VERSION: u16 = formats::HIGHEST;

/// Why a peer of another version is refused.
const CANNOT_SPEAK: &str = "it does not speak the cluster's active version of formats: use another paritas there";

/// The most past incarnations remembered of each peer.
const PAST_MAX: usize = 32;

#[derive(Debug)]
pub(crate) struct Sessions {
    cluster: ClusterId,
    node: NodeId,
    incarnation: Incarnation,
    versions: Versions,
    /// The cluster's active version, as far as this node knows.
    active: u16,
    links: Map<LinkId, Link>,
    /// In node order, so that what a timer does is the same on every run.
    peers: Vec<Peer>,
    session: u64,
    redial: Span,
    redial_max: Span,
}

#[derive(Debug)]
struct Link {
    /// Who the other end has proven to be.
    proven: (NodeId, Incarnation),
    /// If this node dialed: the node, its incarnation, the channel, and the number of the session.
    dialed: Option<(NodeId, Incarnation, Channel, u64)>,
    /// The peer, once the handshake is done.
    bound: Option<(NodeId, Incarnation, Channel)>,
    /// The highest version that the peer may speak, from then on.
    version_max: u16,
}

#[derive(Debug)]
struct Peer {
    node: NodeId,
    /// Its present incarnation, by the coordinator's records.
    incarnation: Incarnation,
    up: bool,
    /// Incarnations that the records have replaced: a late greeting of one must not displace the present one.
    past: Vec<Incarnation>,
    /// When the last frame of its present incarnation was received, by any link; before the first one, when that
    /// incarnation became known.
    heard: Time,
    channels: [ChannelState; 2],
}

#[derive(Debug, Default)]
struct ChannelState {
    link: Option<LinkId>,
    incarnation: Option<Incarnation>,
    /// The number of the session bound here, so that an older one that arrives late is refused.
    session: u64,
    dialing: bool,
    redial_at: Time,
    redial_wait: Span,
}

/// The result of a link's first frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// The link is bound to this incarnation.
    Bound(NodeId, Incarnation, Channel),
    /// The link was closed, for this reason.
    Refused(&'static str),
}

fn index(channel: Channel) -> usize {
    match channel {
        Channel::Main => 0,
        Channel::Bulk => 1,
    }
}

impl Sessions {
    pub(crate) fn new(
        cluster: ClusterId,
        node: NodeId,
        incarnation: Incarnation,
        (versions, active): (Versions, u16),
        redial: Span,
        redial_max: Span,
    ) -> Self {
        let (links, peers) = (map(), Vec::new());
        Self {
            cluster,
            node,
            incarnation,
            versions,
            active,
            links,
            peers,
            session: 0,
            redial,
            redial_max,
        }
    }

    /// The versions that this process may speak.
    pub(crate) fn versions(&self) -> Versions {
        self.versions
    }

    /// The cluster's active version, as far as this node knows.
    pub(crate) fn active(&self) -> u16 {
        self.active
    }

    /// A version has become active that this process may speak. Who cannot speak it has ended by the records: it may
    /// run on beside its successor, and nothing is sent to it any more.
    pub(crate) fn on_active(&mut self, version: u16, rules: Rules, out: &mut impl Out) {
        self.active = version;
        let of_links = self.links.iter().filter(|(_, entry)| entry.bound.is_some());
        let mut links: Vec<(LinkId, u16)> = of_links.map(|(link, entry)| (*link, entry.version_max)).collect();
        links.sort_unstable();
        for (link, version_max) in links {
            if version_max < version {
                out.refuse(link, CANNOT_SPEAK);
            } else {
                self.try_tomorrow(link, rules, out);
            }
        }
    }

    /// Sends by a bound link what only the version of tomorrow has.
    pub(crate) fn try_tomorrow(&self, link: LinkId, rules: Rules, out: &mut impl Out) {
        if rules.spoken(self.active, self.versions.high) >= TOMORROW
            && let Some(buffer) = out.link(link)
        {
            peer::encode(&mut buffer.bytes, &Header::bare(), &Message::Tomorrow);
        }
    }

    /// The peer at the other end of a bound link.
    pub(crate) fn peer_of(&self, link: LinkId) -> Option<(NodeId, Incarnation, Channel)> {
        self.links.get(&link)?.bound
    }

    /// A frame was received by a link. Returns its sender, if the link is bound.
    pub(crate) fn on_frame(&mut self, now: Time, link: LinkId) -> Option<(NodeId, Incarnation, Channel)> {
        let from = self.peer_of(link)?;
        let peer = self.peer_mut(from.0);
        if peer.incarnation == from.1 {
            peer.heard = now;
        }
        Some(from)
    }

    /// When the last frame of that incarnation was received; before the first one, when the incarnation became known.
    /// `None`: it is not the present incarnation by the records.
    pub(crate) fn heard_at(&self, node: NodeId, incarnation: Incarnation) -> Option<Time> {
        let peer = self.peer(node).filter(|p| p.incarnation == incarnation)?;
        Some(peer.heard)
    }

    /// The incarnation that a session is open with.
    pub(crate) fn incarnation_of(&self, node: NodeId, channel: Channel) -> Option<Incarnation> {
        self.peer(node)?.channels[index(channel)].incarnation
    }

    fn peer(&self, node: NodeId) -> Option<&Peer> {
        self.peers
            .binary_search_by_key(&node, |p| p.node)
            .ok()
            .map(|i| &self.peers[i])
    }

    fn peer_mut(&mut self, node: NodeId) -> &mut Peer {
        let at = match self.peers.binary_search_by_key(&node, |p| p.node) {
            Ok(at) => at,
            Err(at) => {
                let channels = Default::default();
                self.peers.insert(
                    at,
                    Peer {
                        node,
                        incarnation: Incarnation(0),
                        up: false,
                        past: Vec::new(),
                        heard: Time::default(),
                        channels,
                    },
                );
                at
            }
        };
        &mut self.peers[at]
    }

    /// Takes new records: remembers replaced incarnations, and dials new ones.
    pub(crate) fn on_nodes(&mut self, now: Time, nodes: &[NodeRecord], out: &mut impl Out) {
        let me = self.node;
        for record in nodes.iter().filter(|r| r.id != me) {
            let redial = self.redial;
            let peer = self.peer_mut(record.id);
            if peer.incarnation != record.incarnation {
                if peer.past.len() == PAST_MAX {
                    peer.past.remove(0);
                }
                peer.past.push(peer.incarnation);
                peer.past.retain(|incarnation| *incarnation != record.incarnation);
                peer.heard = now;
                for channel in &mut peer.channels {
                    channel.redial_wait = redial;
                    channel.redial_at = now;
                }
            }
            peer.incarnation = record.incarnation;
            peer.up = record.state == NodeState::Up;
        }
        self.on_timer(now, out);
    }

    /// Dials the peers that this node should be connected to and is not.
    pub(crate) fn on_timer(&mut self, now: Time, out: &mut impl Out) {
        for peer in &mut self.peers {
            if !peer.up || peer.node < self.node {
                continue;
            }
            for channel in [Channel::Main, Channel::Bulk] {
                let state = &mut peer.channels[index(channel)];
                let reached = state.incarnation == Some(peer.incarnation);
                if reached || state.dialing || now < state.redial_at {
                    continue;
                }
                state.dialing = true;
                out.dial(peer.node, channel);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let wanted = |p: &&Peer| p.up && p.node > self.node;
        self.peers
            .iter()
            .filter(wanted)
            .flat_map(|p| p.channels.iter().map(move |c| (p.incarnation, c)))
            .filter(|(incarnation, c)| !c.dialing && c.incarnation != Some(*incarnation))
            .map(|(_, c)| c.redial_at)
            .min()
    }

    pub(crate) fn on_dial_failed(&mut self, now: Time, node: NodeId, channel: Channel) {
        self.back_off(now, node, channel);
    }

    fn back_off(&mut self, now: Time, node: NodeId, channel: Channel) {
        let (redial, redial_max) = (self.redial, self.redial_max);
        let state = &mut self.peer_mut(node).channels[index(channel)];
        state.dialing = false;
        state.redial_wait = Span((state.redial_wait.0.max(redial.0 / 2) * 2).min(redial_max.0));
        state.redial_at = now + state.redial_wait;
    }

    pub(crate) fn on_link_up(
        &mut self,
        link: LinkId,
        proven: (NodeId, Incarnation),
        dialed: Option<(NodeId, Channel)>,
        out: &mut impl Out,
    ) {
        let mut entry = Link {
            proven,
            dialed: None,
            bound: None,
            version_max: 0,
        };
        if let Some((node, channel)) = dialed {
            self.session += 1;
            let (session, incarnation) = (self.session, self.peer_mut(node).incarnation);
            entry.dialed = Some((node, incarnation, channel, session));
            let hello = self.hello(node, incarnation, channel, session);
            Self::greet(link, &hello, out);
        }
        self.links.insert(link, entry);
    }

    fn hello(&self, to_node: NodeId, to_incarnation: Incarnation, channel: Channel, session: u64) -> Hello {
        Hello {
            cluster: self.cluster,
            node: self.node,
            incarnation: self.incarnation,
            to_node,
            to_incarnation,
            bulk: channel == Channel::Bulk,
            version_low: self.versions.low,
            version_high: self.versions.high,
            features: 0,
            session,
        }
    }

    fn greet(link: LinkId, hello: &Hello, out: &mut impl Out) {
        if let Some(buffer) = out.link(link) {
            peer::encode(&mut buffer.bytes, &Header::bare(), &Message::Hello { hello: *hello });
        }
    }

    /// A link has ended. Returns its peer, if that session was the one in use.
    pub(crate) fn on_link_down(&mut self, now: Time, link: LinkId) -> Option<(NodeId, Incarnation, Channel)> {
        let entry = self.links.remove(&link)?;
        if let Some((node, incarnation, channel)) = entry.bound {
            let state = &mut self.peer_mut(node).channels[index(channel)];
            if state.link != Some(link) {
                return None;
            }
            state.link = None;
            state.incarnation = None;
            if entry.dialed.is_some() {
                self.back_off(now, node, channel);
            }
            return Some((node, incarnation, channel));
        }
        if let Some((node, _, channel, _)) = entry.dialed {
            self.back_off(now, node, channel);
        }
        None
    }

    /// Handles the first frame of a link. Anything but a fitting `Hello` closes the link.
    pub(crate) fn on_hello(&mut self, link: LinkId, hello: &Hello, out: &mut impl Out) -> Greeting {
        let greeting = self.judge(link, hello);
        match greeting {
            Greeting::Refused(why) => out.refuse(link, why),
            Greeting::Bound(node, incarnation, channel) => {
                let dialed = self.links.get(&link).is_some_and(|l| l.dialed.is_some());
                if !dialed {
                    let answer = self.hello(node, incarnation, channel, hello.session);
                    Self::greet(link, &answer, out);
                }
                let redial = self.redial;
                let state = &mut self.peer_mut(node).channels[index(channel)];
                let before = state.link.replace(link);
                state.incarnation = Some(incarnation);
                state.session = hello.session;
                state.dialing = false;
                state.redial_wait = redial;
                if let Some(old) = before.filter(|old| *old != link) {
                    // Frames that still arrive by the old link are ignored.
                    if let Some(entry) = self.links.get_mut(&old) {
                        entry.bound = None;
                        entry.dialed = None;
                    }
                    out.close(old);
                }
                if let Some(entry) = self.links.get_mut(&link) {
                    entry.bound = Some((node, incarnation, channel));
                    entry.version_max = hello.version_high;
                }
                out.bind(link, node, channel);
            }
        }
        greeting
    }

    fn judge(&self, link: LinkId, hello: &Hello) -> Greeting {
        let Some(entry) = self.links.get(&link) else {
            return Greeting::Refused("unknown link");
        };
        if (hello.node, hello.incarnation) != entry.proven {
            return Greeting::Refused("the greeting names another process than the one that has proven itself");
        }
        if hello.cluster != self.cluster {
            return Greeting::Refused("another cluster");
        }
        let theirs = Versions {
            low: hello.version_low,
            high: hello.version_high,
        };
        if !theirs.has(self.active) {
            return Greeting::Refused(CANNOT_SPEAK);
        }
        if hello.to_node != self.node || hello.to_incarnation != self.incarnation {
            return Greeting::Refused("meant for another incarnation");
        }
        if self
            .peer(hello.node)
            .is_some_and(|p| p.past.contains(&hello.incarnation))
        {
            return Greeting::Refused("an incarnation that is over");
        }
        if entry.bound.is_some() {
            return Greeting::Refused("a second greeting");
        }
        let channel = if hello.bulk { Channel::Bulk } else { Channel::Main };
        // A process that is new may reach this node before the coordinator's records do.
        if self.peer(hello.node).is_some_and(|p| {
            p.incarnation != hello.incarnation && p.channels[index(channel)].incarnation == Some(p.incarnation)
        }) {
            return Greeting::Refused("the node's process by the records has a session");
        }
        match entry.dialed {
            Some((node, incarnation, called, session)) => {
                if (node, incarnation, called, session) != (hello.node, hello.incarnation, channel, hello.session) {
                    return Greeting::Refused("answered by another than was called");
                }
            }
            None => {
                if hello.node >= self.node {
                    return Greeting::Refused("the smaller node id dials");
                }
                let state = self.peer(hello.node).map(|p| &p.channels[index(channel)]);
                if state.is_some_and(|s| s.incarnation == Some(hello.incarnation) && s.session >= hello.session) {
                    return Greeting::Refused("an older session");
                }
            }
        }
        Greeting::Bound(hello.node, hello.incarnation, channel)
    }
}

#[cfg(test)]
mod tests;
