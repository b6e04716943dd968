//! The network: links between processes, and the fate of the frames on them.

use crate::events::SimEvent;
use crate::world::World;
use paritas_base::{Incarnation, NodeId, Span, Time};
use paritas_protocol::{Channel, LinkId};
use paritas_wire::peer;

/// Longest frame whose memory is kept.
const SPARE_MAX: usize = 4096;

/// A link.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The processes at its ends.
    pub(crate) ends: [(usize, Incarnation); 2],
    /// When the last frame towards each end arrives. Frames keep their order unless one is allowed to overtake.
    last: [Time; 2],
}

impl World {
    pub(crate) fn end_of(&self, link: LinkId, at: usize) -> Option<Incarnation> {
        self.links
            .get(&link)?
            .ends
            .iter()
            .find(|(i, _)| *i == at)
            .map(|(_, incarnation)| *incarnation)
    }

    pub(crate) fn delay(&mut self) -> Span {
        let usual = Span(self.random.between(20_000, self.swarm.delay_max.0.max(20_001)));
        if !self.healing && self.random.chance(self.swarm.slow) {
            Span(usual.0 * self.random.between(2, 20))
        } else {
            usual
        }
    }

    /// Additional delay of frames from and to a lagging member.
    fn lag(&self, from: usize, to: usize) -> Span {
        let lags = |(node, _): &(u16, Span)| !self.healing && [from, to].contains(&usize::from(*node));
        self.swarm.lag.filter(lags).map_or(Span(0), |(_, by)| by)
    }

    fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.blocked.get(&(from, to)).is_some_and(|until| *until > self.now)
    }

    pub(crate) fn dial(&mut self, at: usize, incarnation: Incarnation, node: NodeId, channel: Channel) {
        let to = usize::from(node.0);
        let delay = self.delay();
        let target = self.processes.get(to).and_then(Option::as_ref).map(|p| p.incarnation);
        let open = !self.is_blocked(at, to) && !self.is_blocked(to, at);
        match target.filter(|_| open) {
            Some(other) => {
                self.next_id += 1;
                let link = LinkId(self.next_id);
                self.links.insert(
                    link,
                    Wire {
                        ends: [(at, incarnation), (to, other)],
                        last: [Time(0); 2],
                    },
                );
                self.push(
                    delay,
                    SimEvent::LinkUp {
                        link,
                        at: to,
                        dialed: None,
                    },
                );
                self.push(
                    delay,
                    SimEvent::LinkUp {
                        link,
                        at,
                        dialed: Some((node, channel)),
                    },
                );
            }
            None => self.push(
                delay,
                SimEvent::DialFailed {
                    at,
                    incarnation,
                    node,
                    channel,
                },
            ),
        }
    }

    pub(crate) fn send_frames(&mut self, from: usize, link: LinkId, mut bytes: &[u8]) {
        while let Ok(Some(length)) = peer::split(bytes) {
            let (frame, rest) = bytes.split_at(length);
            bytes = rest;
            let Some(wire) = self.links.get(&link) else { return };
            let to_end = usize::from(wire.ends[0].0 == from);
            let (to, _) = wire.ends[to_end];
            self.sent.add([self.now.0, from as u64, to as u64], frame);
            // A handshake is lost only with its link, and a command is never duplicated, because TCP ensures this.
            let kind = frame.get(8).copied().unwrap_or_default();
            let hello = kind == peer::kind::HELLO;
            let front = [peer::kind::FORWARD, peer::kind::REPLY, peer::kind::LONG_REPLY];
            let once = hello || front.contains(&kind);
            let blocked = self.is_blocked(from, to);
            if blocked && hello {
                self.break_link(link);
                return;
            }
            if blocked || (!self.healing && !hello && self.random.chance(self.swarm.drop)) {
                self.log(|| format!("lost: n{from} -> n{to}, kind {kind}"));
                continue;
            }
            let copies = if !once && !self.healing && self.random.chance(self.swarm.duplicate) {
                2
            } else {
                1
            };
            for copy in 0..copies {
                let mut delay = self.delay() + self.lag(from, to);
                let mut overtakes = !once && !self.healing && self.random.chance(self.swarm.reorder);
                if copy > 0 && self.random.chance(300_000) {
                    // A late duplicate: its contents may long be outdated.
                    delay = delay + Span(self.random.below(150_000_000));
                    overtakes = true;
                }
                let mut arrives = self.now + delay;
                if let Some(wire) = self.links.get_mut(&link)
                    && !overtakes
                {
                    arrives = arrives.max(wire.last[to_end] + Span(1));
                    wire.last[to_end] = arrives;
                }
                let mut bytes = self.spare_frames.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(frame);
                self.push_at(arrives, SimEvent::Frame { link, at: to, bytes });
            }
        }
    }

    /// Keeps the memory of a frame that has arrived for the next ones.
    pub(crate) fn spare_frame(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() <= SPARE_MAX {
            self.spare_frames.push(bytes);
        }
    }

    pub(crate) fn break_link(&mut self, link: LinkId) {
        let Some(wire) = self.links.remove(&link) else { return };
        for (at, incarnation) in wire.ends {
            if self.processes[at].as_ref().is_none_or(|p| p.incarnation == incarnation) {
                let delay = self.delay();
                self.push(delay, SimEvent::LinkDown { link, at });
            }
        }
    }
}
