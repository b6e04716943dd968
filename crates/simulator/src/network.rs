//! The network: links between processes, the fate of the frames on them, and cuts of paths.

use crate::digest::Digest;
use crate::events::SimEvent;
use crate::fleet::Fleet;
use crate::schedule::Schedule;
use crate::swarm::Swarm;
use paritas_base::{Incarnation, Map, NodeId, Span, Time, formats, map};
use paritas_protocol::{Channel, LinkId};
use paritas_wire::peer::{self, Kind};

/// Longest frame whose memory is kept.
const SPARE_MAX: usize = 4096;

/// A link.
#[derive(Debug)]
struct Wire {
    /// The processes at its ends.
    ends: [(usize, Incarnation); 2],
    /// When the last frame towards each end arrives. Frames keep their order unless one is allowed to overtake.
    last: [Time; 2],
}

pub(crate) struct Network {
    links: Map<LinkId, Wire>,
    /// The latest id of a link or of a client's connection.
    latest_id: u64,
    /// Paths on which nothing passes, and until when.
    blocked: Map<(usize, usize), Time>,
    /// Processes that are cut off from the coordinator, and until when.
    cut_off: (Vec<usize>, Time),
    /// The memory of frames that have arrived, for the next ones.
    spare_frames: Vec<Vec<u8>>,
    /// Every frame and every reply that was sent, in order (`--digest`).
    pub(crate) sent: Digest,
    /// The highest version that was ever active.
    pub(crate) active_version: u16,
    /// A frame of a later version that was sent.
    pub(crate) too_new: Option<Kind>,
}

impl Network {
    pub(crate) fn new() -> Self {
        Self {
            links: map(),
            latest_id: 0,
            blocked: map(),
            cut_off: (Vec::new(), Time(0)),
            spare_frames: Vec::new(),
            sent: Digest::default(),
            active_version: formats::HIGHEST,
            too_new: None,
        }
    }

    /// An id that no link and no client's connection has had.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.latest_id += 1;
        self.latest_id
    }

    // --- links ---------------------------------------------------------------------------------------------------

    pub(crate) fn end_of(&self, link: LinkId, at: usize) -> Option<Incarnation> {
        self.links
            .get(&link)?
            .ends
            .iter()
            .find(|(i, _)| *i == at)
            .map(|(_, incarnation)| *incarnation)
    }

    /// The process at the other end of a link.
    pub(crate) fn other_end(&self, link: LinkId, at: usize) -> Option<(usize, Incarnation)> {
        let ends = self.links.get(&link)?.ends;
        ends.into_iter().find(|(other, _)| *other != at)
    }

    /// All links, in the order of their ids.
    pub(crate) fn links(&self) -> Vec<LinkId> {
        let mut links: Vec<LinkId> = self.links.keys().copied().collect();
        links.sort();
        links
    }

    /// A process dials another; `target` is the incarnation that runs there.
    pub(crate) fn dial(
        &mut self,
        schedule: &mut Schedule,
        swarm: &Swarm,
        (at, incarnation): (usize, Incarnation),
        (node, target): (NodeId, Option<Incarnation>),
        channel: Channel,
    ) {
        let to = usize::from(node.0);
        let delay = schedule.delay(swarm);
        let now = schedule.now;
        let open = !self.is_blocked(now, at, to) && !self.is_blocked(now, to, at);
        match target.filter(|_| open) {
            Some(other) => {
                let link = LinkId(self.new_id());
                self.links.insert(
                    link,
                    Wire {
                        ends: [(at, incarnation), (to, other)],
                        last: [Time(0); 2],
                    },
                );
                schedule.push(
                    delay,
                    SimEvent::LinkUp {
                        link,
                        at: to,
                        incarnation: other,
                        dialed: None,
                    },
                );
                schedule.push(
                    delay,
                    SimEvent::LinkUp {
                        link,
                        at,
                        incarnation,
                        dialed: Some((node, channel)),
                    },
                );
            }
            None => schedule.push(
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

    pub(crate) fn break_link(&mut self, schedule: &mut Schedule, swarm: &Swarm, fleet: &Fleet, link: LinkId) {
        let Some(wire) = self.links.remove(&link) else { return };
        for (at, incarnation) in wire.ends {
            if fleet.incarnation(at).is_none() || fleet.runs(at, incarnation) {
                let delay = schedule.delay(swarm);
                schedule.push(delay, SimEvent::LinkDown { link, at, incarnation });
            }
        }
    }

    /// A process has ended: its links break.
    pub(crate) fn break_links_of(
        &mut self,
        schedule: &mut Schedule,
        swarm: &Swarm,
        fleet: &Fleet,
        end: (usize, Incarnation),
    ) {
        let of_process = self.links.iter().filter(|(_, wire)| wire.ends.contains(&end));
        let mut links: Vec<LinkId> = of_process.map(|(link, _)| *link).collect();
        links.sort();
        for link in links {
            self.break_link(schedule, swarm, fleet, link);
        }
    }

    // --- frames --------------------------------------------------------------------------------------------------

    pub(crate) fn send_frames(
        &mut self,
        schedule: &mut Schedule,
        swarm: &Swarm,
        fleet: &Fleet,
        from: usize,
        link: LinkId,
        mut bytes: &[u8],
    ) {
        while let Ok(Some(length)) = peer::split(bytes) {
            let (frame, rest) = bytes.split_at(length);
            bytes = rest;
            let Some(wire) = self.links.get(&link) else { return };
            let to_end = usize::from(wire.ends[0].0 == from);
            let (to, _) = wire.ends[to_end];
            self.sent.add([schedule.now.0, from as u64, to as u64], frame);
            // A handshake is lost only with its link, and a command is never duplicated, because TCP ensures this.
            let kind = peer::kind_of(frame);
            let hello = kind == Some(Kind::Hello);
            if let Some(kind) = kind.filter(|kind| kind.since() > self.active_version) {
                self.too_new = Some(kind);
            }
            let once = matches!(kind, Some(Kind::Hello | Kind::Forward | Kind::Reply | Kind::ReplyBody));
            let blocked = self.is_blocked(schedule.now, from, to);
            if blocked && hello {
                self.break_link(schedule, swarm, fleet, link);
                return;
            }
            if blocked || (!schedule.healing && !hello && schedule.random.chance(swarm.drop)) {
                schedule.log(|| format!("lost: n{from} -> n{to}, kind {kind:?}"));
                continue;
            }
            let copies = if !once && !schedule.healing && schedule.random.chance(swarm.duplicate) {
                2
            } else {
                1
            };
            for copy in 0..copies {
                let mut delay = schedule.delay(swarm) + lag(schedule, swarm, from, to);
                let mut overtakes = !once && !schedule.healing && schedule.random.chance(swarm.reorder);
                if copy > 0 && schedule.random.chance(300_000) {
                    // A late duplicate: its contents may long be outdated.
                    delay = delay + Span(schedule.random.below(150_000_000));
                    overtakes = true;
                }
                let mut arrives = schedule.now + delay;
                if let Some(wire) = self.links.get_mut(&link)
                    && !overtakes
                {
                    arrives = arrives.max(wire.last[to_end] + Span(1));
                    wire.last[to_end] = arrives;
                }
                let mut bytes = self.spare_frames.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(frame);
                schedule.push_at(arrives, SimEvent::Frame { link, at: to, bytes });
            }
        }
    }

    /// Keeps the memory of a frame that has arrived for the next ones.
    pub(crate) fn spare_frame(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() <= SPARE_MAX {
            self.spare_frames.push(bytes);
        }
    }

    // --- cuts ----------------------------------------------------------------------------------------------------

    pub(crate) fn is_blocked(&self, now: Time, from: usize, to: usize) -> bool {
        self.blocked.get(&(from, to)).is_some_and(|until| *until > now)
    }

    /// Nothing passes on this path until the given time.
    pub(crate) fn block(&mut self, from: usize, to: usize, until: Time) {
        self.blocked.insert((from, to), until);
    }

    /// Cuts these of `count` processes off from all others and from the coordinator.
    pub(crate) fn cut_off(&mut self, count: usize, side: Vec<usize>, until: Time) {
        for a in 0..count {
            for b in (0..a).filter(|b| side.contains(&a) != side.contains(b)) {
                self.block(a, b, until);
                self.block(b, a, until);
            }
        }
        self.cut_off = (side, until);
    }

    /// Whether the coordinator cannot reach a process.
    pub(crate) fn is_cut_off(&self, now: Time, at: usize) -> bool {
        now < self.cut_off.1 && self.cut_off.0.contains(&at)
    }

    /// When the coordinator can reach the processes again that are cut off.
    pub(crate) fn cut_off_until(&self) -> Time {
        self.cut_off.1
    }

    /// Ends all cuts.
    pub(crate) fn heal(&mut self, now: Time) {
        self.blocked.clear();
        self.cut_off.1 = now;
    }
}

/// Additional delay of frames from and to a lagging member.
fn lag(schedule: &Schedule, swarm: &Swarm, from: usize, to: usize) -> Span {
    let lags = |(node, _): &(u16, Span)| !schedule.healing && [from, to].contains(&usize::from(*node));
    swarm.lag.filter(lags).map_or(Span(0), |(_, by)| by)
}
