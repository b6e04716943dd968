//! *Guests*: clients that are the engine that ships (crate `client`), over simulated connections. They read large
//! values from their parts. Each has connections to many nodes, and several operations under way. It writes, too: what
//! it calls refused or not done has not happened.

use crate::client::{self, LARGE};
use crate::events::SimEvent;
use crate::liar::Liar;
use crate::linear::{Action, Operation, Outcome};
use crate::marks::Seen;
use crate::schedule::Schedule;
use crate::swarm::Swarm;
use crate::workload::Workload;
use crate::world::World;
use paritas_base::{ConnId, Incarnation, NodeId, Span, Time};
use paritas_client::{
    Command, Decode, Encode, Engine, Event as EngineEvent, Failure, LinkId, OpId, Out, Outcome as Ended, Settings,
    Value,
};
use paritas_protocol::{Ends, Event, Port};
use std::collections::{BTreeMap, VecDeque};

/// What a client that was refused waits for before it reads again.
const REFUSED_WAIT: Span = Span::from_ms(5);

/// The client that lies, if clients write parts.
const LIAR: usize = 2;

/// Operations that a client begins together.
const OPS_MAX: u64 = 4;

/// One client.
#[derive(Debug)]
pub(crate) struct Guest {
    engine: Engine,
    /// It lies about what it writes.
    liar: Option<Liar>,
    links: BTreeMap<LinkId, GuestLink>,
    /// The operations under way: key, action, and since when.
    ops: BTreeMap<OpId, (String, Action, Time)>,
    /// Whether [`SimEvent::GuestWakes`] is planned, and for when.
    wakes_at: Option<Time>,
}

/// A connection to a node.
#[derive(Debug)]
struct GuestLink {
    /// The engine has closed it. Bytes on the way still arrive.
    is_closed: bool,
    to: (NodeId, Incarnation),
    conn: ConnId,
    port: Port,
    /// Bytes that a paused node has not read yet.
    held: VecDeque<Vec<u8>>,
    /// When the last bytes on the way arrive. A connection keeps the order of bytes.
    last: (Time, Time),
}

/// The engine's wishes of one event.
#[derive(Default)]
struct Wishes {
    now: Time,
    dials: Vec<(LinkId, String)>,
    writes: Vec<(LinkId, Vec<u8>)>,
    closes: Vec<LinkId>,
    done: Vec<(OpId, Ended)>,
}

impl Out for Wishes {
    fn dial(&mut self, link: LinkId, address: &str) {
        self.dials.push((link, address.to_owned()));
    }

    fn write(&mut self, link: LinkId, bytes: &[u8]) {
        self.writes.push((link, bytes.to_vec()));
    }

    fn close(&mut self, link: LinkId) {
        self.closes.push(link);
    }

    fn done(&mut self, op: OpId, outcome: Ended) {
        self.done.push((op, outcome));
    }

    fn clock(&mut self) -> Time {
        self.now
    }
}

impl Guest {
    pub(crate) fn new(swarm: &Swarm, nth: usize) -> Self {
        let settings = Settings {
            decode: if nth == 0 { Decode::Client } else { Decode::Auto },
            encode: if nth == 1 { Encode::Auto } else { Encode::Client },
            encode_bytes_min: swarm.large_bytes_min() as u64,
            deadline: swarm.guest_deadline,
            retry: Span(swarm.guest_deadline.0 / 6),
            late_min: Span::from_ms(3),
            seed: nth as u64,
            ..Settings::default()
        };
        let nodes = usize::from(swarm.data + swarm.parity) + usize::from(swarm.spares);
        let seeds = (0..nodes).map(|at| any_address((at + nth) % nodes)).collect();
        Self {
            engine: Engine::new(seeds, settings),
            liar: (nth == LIAR).then(|| Liar::new(swarm.chunk_bytes as usize, format!("{LARGE}0"))),
            links: BTreeMap::new(),
            ops: BTreeMap::new(),
            wakes_at: None,
        }
    }
}

impl Guest {
    /// An operation that has not ended, if there is one.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let (key, action, _) = self.ops.values().next()?;
        Some(format!("{action:?} of {key}"))
    }
}

/// The address of a node's port for any key.
fn any_address(at: usize) -> String {
    format!("node-{at}:6000")
}

/// Whether a node may refuse GET and SET of a large value so.
fn is_known_refusal(text: &str) -> bool {
    let known = [
        "TRYAGAIN",
        "CLUSTERDOWN",
        "NOREPLICAS",
        "OOM",
        "ERR command larger than",
    ];
    known.iter().any(|known| text.starts_with(known))
}

/// The node and port of an address.
fn node_of(address: &str) -> Option<(usize, Port)> {
    let (at, port) = address.strip_prefix("node-")?.split_once(':')?;
    let port = if port == "6000" { Port::Any } else { Port::Cluster };
    Some((at.parse().ok()?, port))
}

impl Workload {
    /// The guest and link that a node knows as this connection.
    pub(crate) fn guest_of(&self, conn: ConnId) -> Option<(usize, LinkId)> {
        let guests = self.guests.iter().enumerate();
        guests
            .filter_map(|(nth, guest)| {
                let link = guest.links.iter().find(|(_, link)| link.conn == conn)?;
                Some((nth, *link.0))
            })
            .next()
    }

    /// What a node has released for a guest.
    pub(crate) fn reply_to_guest(
        &mut self,
        schedule: &mut Schedule,
        swarm: &Swarm,
        (guest, link): (usize, LinkId),
        bytes: Vec<u8>,
        close: bool,
    ) {
        let delay = schedule.delay(swarm);
        let Some(it) = self.guests[guest].links.get_mut(&link) else {
            return;
        };
        let arrives = (schedule.now + delay).max(it.last.1 + Span(1));
        it.last.1 = arrives;
        if !bytes.is_empty() {
            schedule.push_at(arrives, SimEvent::GuestReads { guest, link, bytes });
        }
        if close {
            schedule.push_at(arrives + Span(1), SimEvent::GuestLost { guest, link });
        }
    }
}

impl World {
    /// The process that a link of a guest leads to.
    pub(crate) fn end_of_guest(&self, guest: usize, link: LinkId) -> Option<(usize, Incarnation)> {
        let (node, incarnation) = self.workload.guests[guest].links.get(&link)?.to;
        Some((usize::from(node.0), incarnation))
    }

    /// A process has ended: its connections with guests, too.
    pub(crate) fn guests_lose(&mut self, at: usize, incarnation: Incarnation) {
        for (guest, it) in self.workload.guests.iter().enumerate() {
            let end = (NodeId(at as u16), incarnation);
            for (link, _) in it.links.iter().filter(|(_, link)| link.to == end) {
                let lost = SimEvent::GuestLost { guest, link: *link };
                self.schedule.push(Span::from_us(300), lost);
            }
        }
    }

    pub(crate) fn guest_wakes(&mut self, guest: usize) {
        let now = self.schedule.now;
        self.workload.guests[guest].wakes_at = None;
        let is_idle = self.workload.guests[guest].ops.is_empty();
        if is_idle && !self.schedule.healing {
            let mut wishes = Wishes {
                now,
                ..Wishes::default()
            };
            for _ in 0..self.schedule.random.between(1, OPS_MAX) {
                self.begin_op(guest, &mut wishes);
            }
            self.fulfil(guest, wishes);
        }
        self.guest_event(guest, EngineEvent::Timer);
    }

    fn begin_op(&mut self, guest: usize, wishes: &mut Wishes) {
        let now = self.schedule.now;
        let random = &mut self.schedule.random;
        let key = format!("{LARGE}{}", random.below(self.swarm.larges.max(1)));
        let is_write = random.chance(if self.swarm.guests_write { 500_000 } else { 250_000 });
        if !self.oracle.has_room(&key) {
            return;
        }
        let (command, action) = match is_write {
            true => {
                let n = self.workload.new_value();
                let value = client::text_of(&key, n, self.swarm.lengths());
                (Command::set(key.as_bytes(), value.into_bytes()), Action::Set(n))
            }
            false => (Command::get(key.as_bytes()), Action::Get),
        };
        let it = &mut self.workload.guests[guest];
        if let Ok(op) = it.engine.submit(now, command, wishes) {
            it.ops.insert(op, (key, action, now));
        }
    }

    pub(crate) fn guest_up(&mut self, guest: usize, link: LinkId) {
        let Some((at, incarnation)) = self.end_of_guest(guest, link) else {
            return;
        };
        if self.fleet.is_paused(at, self.schedule.now) {
            let until = self.fleet.resumes_at(at, self.schedule.now);
            return self.schedule.push_at(until, SimEvent::GuestUp { guest, link });
        }
        let it = &self.workload.guests[guest].links[&link];
        let (conn, port) = (it.conn, it.port);
        let Some(process) = self.fleet.alive(at, incarnation) else {
            return self.guest_lost(guest, link);
        };
        process.out.clients.insert(conn, Default::default());
        process.inputs.insert(conn, Vec::new());
        let end = ([0; 4], 0).into();
        let ends = Ends {
            client: end,
            server: end,
        };
        let again = || SimEvent::GuestUp { guest, link };
        self.turn(at, incarnation, Event::ClientUp { conn, port, ends }, again);
        if !self.workload.guests[guest]
            .links
            .get(&link)
            .is_none_or(|it| it.is_closed)
        {
            self.guest_event(guest, EngineEvent::Connected(link));
        }
    }

    /// Bytes reach a node; see [`World::client_sends`].
    pub(crate) fn guest_sends(&mut self, guest: usize, link: LinkId, bytes: Vec<u8>) {
        let Some((at, incarnation)) = self.end_of_guest(guest, link) else {
            return;
        };
        let now = self.schedule.now;
        let is_paused = self.fleet.is_paused(at, now);
        let Some(it) = self.workload.guests[guest].links.get_mut(&link) else {
            return;
        };
        if !bytes.is_empty() {
            it.held.push_back(bytes);
        }
        if is_paused {
            let until = self.fleet.resumes_at(at, now);
            let bytes = Vec::new();
            return self
                .schedule
                .push_at(until, SimEvent::GuestSends { guest, link, bytes });
        }
        let conn = it.conn;
        let Some(bytes) = it.held.pop_front() else { return };
        let Some(process) = self.fleet.alive(at, incarnation) else {
            return;
        };
        if let Some(input) = process.inputs.get_mut(&conn) {
            input.extend_from_slice(&bytes);
            let again = || SimEvent::GuestSends { guest, link, bytes };
            self.turn(at, incarnation, Event::Timer, again);
        }
    }

    pub(crate) fn guest_reads(&mut self, guest: usize, link: LinkId, bytes: &[u8]) {
        let it = self.workload.guests[guest].links.get(&link);
        if it.is_some_and(|it| !it.is_closed) {
            self.guest_event(guest, EngineEvent::Bytes(link, bytes));
        }
    }

    pub(crate) fn guest_lost(&mut self, guest: usize, link: LinkId) {
        let it = self.workload.guests[guest].links.get(&link);
        let is_unread = it.is_some_and(|it| it.is_closed && !it.held.is_empty());
        let end = self.end_of_guest(guest, link);
        if let Some((at, _)) = end.filter(|(at, end)| is_unread && self.fleet.alive(*at, *end).is_some()) {
            // The node reads what was sent before it sees the end.
            let until = self.fleet.resumes_at(at, self.schedule.now).max(self.schedule.now) + Span::from_us(10);
            return self.schedule.push_at(until, SimEvent::GuestLost { guest, link });
        }
        let it = self.workload.guests[guest].links.remove(&link);
        if let Some(liar) = &mut self.workload.guests[guest].liar {
            liar.forget(link);
        }
        if it.is_some_and(|it| !it.is_closed) {
            self.guest_event(guest, EngineEvent::Closed(link));
        }
    }

    fn guest_event(&mut self, guest: usize, event: EngineEvent<'_>) {
        let now = self.schedule.now;
        let mut wishes = Wishes {
            now,
            ..Wishes::default()
        };
        self.workload.guests[guest].engine.on(now, event, &mut wishes);
        self.fulfil(guest, wishes);
    }

    /// Does what the engine of a guest asks for.
    fn fulfil(&mut self, guest: usize, wishes: Wishes) {
        let now = self.schedule.now;
        for (link, address) in wishes.dials {
            let delay = self.schedule.delay(&self.swarm);
            let Some((at, port)) = node_of(&address).filter(|(at, _)| self.fleet.processes.get(*at).is_some()) else {
                self.violate(format!("a client was told of a node at {address}"));
                return;
            };
            let to = (NodeId(at as u16), self.fleet.records[at].incarnation);
            let conn = ConnId(self.network.new_id());
            let it = GuestLink {
                is_closed: false,
                to,
                conn,
                port,
                held: VecDeque::new(),
                last: (now, now),
            };
            self.workload.guests[guest].links.insert(link, it);
            self.schedule.push(delay, SimEvent::GuestUp { guest, link });
        }
        for (link, bytes) in wishes.writes {
            let delay = self.schedule.delay(&self.swarm);
            let Guest { links, liar, .. } = &mut self.workload.guests[guest];
            let Some(it) = links.get_mut(&link) else {
                continue;
            };
            let bytes = match liar {
                Some(liar) => liar.change(&mut self.schedule.random, link, &bytes),
                None => bytes,
            };
            let arrives = (now + delay).max(it.last.0 + Span(1));
            it.last.0 = arrives;
            let sends = SimEvent::GuestSends { guest, link, bytes };
            self.schedule.push_at(arrives, sends);
        }
        for link in wishes.closes {
            if let Some(it) = self.workload.guests[guest].links.get_mut(&link) {
                it.is_closed = true;
                let at = it.last.0.max(now) + Span(1);
                self.schedule.push_at(at, SimEvent::GuestLost { guest, link });
            }
        }
        let mut next = self.workload.guests[guest].engine.next_at();
        for (op, outcome) in wishes.done {
            let wait = match outcome.result {
                Ok(_) => Span(self.schedule.random.below(3_000_000)),
                Err(_) => REFUSED_WAIT,
            };
            self.note_outcome(guest, op, outcome);
            let again = now + wait;
            next = Some(next.map_or(again, |next| next.min(again)));
        }
        let it = &mut self.workload.guests[guest];
        if it.ops.is_empty() && next.is_none() && !self.schedule.healing {
            next = Some(now + REFUSED_WAIT);
        }
        if let Some(next) = next
            && it.wakes_at.is_none_or(|at| next < at || at <= now)
        {
            let next = next.max(now + Span(1));
            it.wakes_at = Some(next);
            self.schedule.push_at(next, SimEvent::GuestWakes(guest));
        }
    }

    /// The run ends before their operations do: writes under way may have happened.
    pub(crate) fn guests_end(&mut self) {
        for guest in 0..self.workload.guests.len() {
            for (op, (_, action, _)) in self.workload.guests[guest].ops.clone() {
                if action != Action::Get {
                    self.note_outcome(guest, op, Ended::failed(Failure::Uncertain));
                }
            }
        }
    }

    fn note_outcome(&mut self, guest: usize, op: OpId, outcome: Ended) {
        let Some((key, action, begin)) = self.workload.guests[guest].ops.remove(&op) else {
            return self.violate("I14: a guest was answered that has asked nothing".into());
        };
        // Others of the key wait for it: they happen later.
        let now = self.schedule.now;
        for (later, (other, theirs, begin)) in self.workload.guests[guest].ops.iter_mut() {
            let waits = action != Action::Get || *theirs != Action::Get;
            if *later > op && *other == key && waits {
                *begin = (*begin).max(now);
            }
        }
        let (stats, now) = (self.workload.guests[guest].engine.stats(), self.schedule.now);
        self.oracle.counts.replies += 1;
        self.schedule
            .log(|| format!("guest {guest}: {action:?} {key} = {outcome:?}"));
        for (seen, count) in [
            (Seen::DecodedByClient, stats.decoded_here),
            (Seen::UnitsReplaced, stats.replaced),
            (Seen::LocatedAgain, stats.located_again),
            (Seen::WrongUnits, stats.wrong),
            (Seen::EncodedByClient, stats.encoded_here),
            (
                Seen::LieTold,
                self.workload.guests[guest].liar.as_ref().map_or(0, Liar::told_count),
            ),
        ] {
            if count > 0 {
                self.oracle.marks.see(seen);
            }
        }
        let operation = |outcome| Operation {
            place: None,
            begin,
            end: now,
            action,
            outcome,
        };
        let value = match outcome.result {
            Ok(Value::Simple(_)) if action != Action::Get => None,
            Ok(Value::Null) if action == Action::Get => None,
            Ok(Value::Bulk(bytes)) if action == Action::Get => match client::number_of(&client::lossy(&bytes)) {
                Some(n) => Some(n),
                None => {
                    let text: String = String::from_utf8_lossy(&bytes).chars().take(80).collect();
                    return self.violate(format!("B6: a guest of {key} put this together: {text}"));
                }
            },
            Ok(other) => return self.violate(format!("I14: {action:?} of {key} was answered {other:?}")),
            Err(Failure::Uncertain) if action == Action::Get => {
                return self.violate(format!("I14: GET of {key} is uncertain"));
            }
            Err(Failure::Uncertain) => {
                self.oracle.counts.uncertain += 1;
                return self.oracle.record(&[key], operation(Outcome::Unknown));
            }
            Err(Failure::Refused(text)) if !is_known_refusal(&text) => {
                return self.violate(format!("I14: {action:?} of {key} was refused with {text}"));
            }
            // It has not happened.
            Err(_) => {
                self.oracle.counts.refused += 1;
                return;
            }
        };
        self.oracle.record(&[key], operation(Outcome::Done(value)));
    }
}
