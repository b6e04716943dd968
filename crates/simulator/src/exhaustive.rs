//! A small exhaustive check of sections P3 and P5. It tries every order in which writes, a takeover, and all the
//! frames that they cause can happen, with the production machines.
//!
//! The world is that of every run, but events are not taken in the order of time: each pending event that may come next
//! is tried. Frames of one link keep their order, except for a few that are lost, duplicated or overtake. Time stands
//! still, so that no timer fires and no lease expires. After every turn all invariants are checked. Where no event is
//! left, the world runs on as after the faults of a normal run; it must come to rest with all checks passed.
//!
//! Nodes cannot be copied, so a state is reached by repeating its choices from the start. States are compared by a
//! digest of everything that the machines hold (their `Debug` text, which is derived, and their chunks), of the frames
//! under way, and of what clients have seen. A state that was seen before is not explored again.

use crate::client::{self, Client, Form, Pending};
use crate::events::SimEvent;
use crate::linear::Action;
use crate::swarm::{Shape, Swarm};
use crate::world::World;
use core::fmt::{self, Write};
use core::hash::Hasher;
use paritas_base::{ConnId, FixedHasher, ListId, NodeId, Position, Prng, Set, Span, Time, set};
use paritas_protocol::{LinkId, Parameters, Policy, Role};
use paritas_wire::peer::{self, Kind};

/// The events that may happen, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Number of parity positions. The list has one data position, and there is one node more than positions.
    pub(crate) parity: u8,
    pub(crate) writes: u8,
    /// Number of times that the first data position moves to the free node.
    pub(crate) takeovers: u8,
    /// Number of frames that are lost, duplicated or overtake another, in all.
    pub(crate) faults: u8,
}

/// The spaces that `--exhaustive` explores. The first two take seconds, the others many minutes each.
pub(crate) const SPACES: [Space; 4] = [
    Space {
        parity: 1,
        writes: 2,
        takeovers: 0,
        faults: 2,
    },
    Space {
        parity: 2,
        writes: 2,
        takeovers: 0,
        faults: 1,
    },
    Space {
        parity: 1,
        writes: 2,
        takeovers: 1,
        faults: 0,
    },
    Space {
        parity: 1,
        writes: 1,
        takeovers: 1,
        faults: 1,
    },
];

/// The next step. Events are named by their number in the queue.
#[derive(Clone, Copy, Debug)]
enum Choice {
    Happens(u64),
    Lost(u64),
    Twice(u64),
    /// The frame overtakes the one before it.
    Overtakes(u64),
    Write,
    TakeOver,
}

/// Counts of a search.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Found {
    pub(crate) states: u64,
    pub(crate) steps: u64,
    pub(crate) ends: u64,
    pub(crate) longest: usize,
}

/// Each space has more states than this. Fewer mean that events are not told apart any more.
pub(crate) const STATES_MIN: u64 = 300;
/// Longest sequence of steps. A longer one means that something repeats without end.
const STEPS_MAX: usize = 400;
/// The world's seed. Only identities depend on it.
const SEED: u64 = 1;
/// By this time all nodes are connected and hold leases.
const MET: Time = Time(8_000_000);
const KEY: &str = "k";
/// The only list.
const LIST: ListId = ListId(0);
/// Kinds of frames whose order is not explored.
const AT_ONCE: [Kind; 4] = [Kind::Hello, Kind::CreditRequest, Kind::Credit, Kind::GetConfiguration];

/// A sequence of choices to explore, and the digests of the processes after all but its last step.
struct Way {
    choices: Vec<Choice>,
    digests: Vec<Option<u64>>,
}

/// Explores the whole space. The error is the first violation, with the choices that lead to it.
pub(crate) fn explore(space: Space, adjust: &dyn Fn(&mut Swarm)) -> Result<Found, String> {
    let mut found = Found::default();
    let mut seen: Set<u64> = set();
    let mut ways = vec![Way {
        choices: Vec::new(),
        digests: Vec::new(),
    }];
    while let Some(way) = ways.pop() {
        let mut state = State::new(space, adjust);
        let (last, before) = match way.choices.split_last() {
            Some((last, before)) => (Some(*last), before),
            None => (None, &[][..]),
        };
        for choice in before {
            state.step(*choice);
        }
        if !way.digests.is_empty() {
            state.digests.clone_from(&way.digests);
        }
        let mut choices = before.to_vec();
        let mut next = last;
        loop {
            if let Some(choice) = next {
                state.step(choice);
                choices.push(choice);
                found.steps += 1;
            }
            if let Some(what) = &state.world.oracle.violation {
                return Err(format!("{what}, after {choices:?}"));
            }
            if !seen.insert(state.digest()) {
                break;
            }
            found.states += 1;
            found.longest = found.longest.max(choices.len());
            if choices.len() > STEPS_MAX {
                return Err(format!("it never ends: {choices:?}"));
            }
            let mut open = state.choices();
            next = open.pop();
            if next.is_none() {
                found.ends += 1;
                if let Some(what) = state.settle() {
                    return Err(format!("{what}, after {choices:?}"));
                }
                break;
            }
            for other in open {
                let mut choices = choices.clone();
                choices.push(other);
                ways.push(Way {
                    choices,
                    digests: state.digests.clone(),
                });
            }
        }
    }
    Ok(found)
}

/// A list with one spare and no random faults. Periodic work is made rare.
fn swarm(space: Space) -> Swarm {
    let drawn = Swarm::draw(
        &mut Prng::new(SEED),
        Shape {
            parity: Some(space.parity),
            ack_quorum: Some(space.parity),
            stripe_lists: Some(1),
        },
    );
    let parameters = Parameters {
        policy: Policy::NoEviction,
        lease: Span::from_ms(200),
        lease_renewal: Span::from_ms(100),
        resend: Span::from_ms(50),
        retry: Span::from_ms(50),
        stable_flush: Span::from_ms(10),
        window_bytes: 16_384,
        scrub_rate: None,
        ..drawn.parameters
    };
    let never = Span(0);
    Swarm {
        governed: false,
        data: 1,
        spares: 1,
        chunk_bytes: 256,
        maxmemory_bytes: 1 << 16,
        clients: 0,
        keys: 1,
        filler_keys: 0,
        delay_max: Span(20_000),
        min_redundancy: 0,
        slow: 0,
        drop: 0,
        duplicate: 0,
        reorder: 0,
        batch: 0,
        push_drop: 0,
        drift_ppm: 0,
        strict: 0,
        crash_every: never,
        pause_every: never,
        partition_every: never,
        reset_every: never,
        suspect_every: never,
        hand_off_every: never,
        flip_every: never,
        disk: None,
        parameters,
        ..drawn
    }
}

struct State {
    world: World,
    /// The part of the space that is still allowed.
    left: Space,
    /// Counts the actions and observations of clients. It serves as the time of their history.
    moments: u64,
    recorded: usize,
    /// The digest of each process, if it is up to date.
    digests: Vec<Option<u64>>,
}

impl State {
    fn new(space: Space, adjust: &dyn Fn(&mut Swarm)) -> Self {
        let mut swarm = swarm(space);
        adjust(&mut swarm);
        let mut world = World::new(SEED, swarm, false, false);
        world.exhaustive = true;
        while world.schedule.now < MET && world.step() {}
        let (conn, owner) = (ConnId(world.network.new_id()), &world.fleet.records[0]);
        let mut client = Client::new();
        client.conn = Some((owner.id, owner.incarnation, conn));
        world.workload.clients.push(client);
        world.client_up(0, conn);
        let count = world.fleet.processes.len();
        Self {
            world,
            left: space,
            moments: 0,
            recorded: 0,
            digests: vec![None; count],
        }
    }

    /// All steps that may come next.
    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        let mut heads: Vec<(usize, Option<LinkId>)> = Vec::new();
        let mut second: Vec<(usize, Option<LinkId>)> = Vec::new();
        for queued in self.world.schedule.pending() {
            let Some(lane) = lane(queued.what) else { continue };
            if !heads.contains(&lane) {
                heads.push(lane);
                choices.push(Choice::Happens(queued.n));
                if self.left.faults > 0 && may_fail(queued.what) {
                    choices.push(Choice::Lost(queued.n));
                    choices.push(Choice::Twice(queued.n));
                }
            } else if !second.contains(&lane) {
                second.push(lane);
                if self.left.faults > 0 && may_fail(queued.what) {
                    choices.push(Choice::Overtakes(queued.n));
                }
            }
        }
        if self.left.writes > 0 && self.world.workload.clients[0].conn.is_some() {
            choices.push(Choice::Write);
        }
        if self.left.takeovers > 0 {
            choices.push(Choice::TakeOver);
        }
        choices
    }

    fn step(&mut self, choice: Choice) {
        match choice {
            Choice::Happens(n) => self.take(n, true),
            Choice::Lost(n) => {
                self.left.faults -= 1;
                self.take(n, false);
            }
            Choice::Overtakes(n) => {
                self.left.faults -= 1;
                self.take(n, true);
            }
            Choice::Twice(n) => {
                self.left.faults -= 1;
                let queued = self.world.schedule.pending().into_iter().find(|queued| queued.n == n);
                if let Some(SimEvent::Frame { link, at, bytes }) = queued.map(|queued| queued.what) {
                    let (link, at, bytes) = (*link, *at, bytes.clone());
                    self.happen(SimEvent::Frame { link, at, bytes });
                }
            }
            Choice::Write => {
                self.left.writes -= 1;
                let value = self.world.workload.new_value();
                self.send(Action::Set(value));
            }
            Choice::TakeOver => {
                self.left.takeovers -= 1;
                let free = self
                    .world
                    .fleet
                    .free(self.world.committed.configuration(LIST))
                    .first()
                    .copied();
                self.world.replace(LIST, Position(0), free.map(|at| NodeId(at as u16)));
            }
        }
        // A client reads a reply at once: a delay would not allow anything new later. The order in which links are made
        // and credit is granted is not explored, nor how often one configuration is delivered.
        while let Some((n, happens)) = self.at_once() {
            self.take(n, happens);
            let history = self.world.oracle.history.entry(KEY.into()).or_default();
            for operation in &mut history[self.recorded..] {
                self.moments += 1;
                operation.end = Time(self.moments);
            }
            self.recorded = history.len();
        }
    }

    /// The next event that happens before all others, and whether it happens or is dropped.
    fn at_once(&self) -> Option<(u64, bool)> {
        let mut heads: Vec<(usize, Option<LinkId>)> = Vec::new();
        let mut epochs = Vec::new();
        for queued in self.world.schedule.pending() {
            match queued.what {
                SimEvent::ClientReads { .. } | SimEvent::ClientLost { .. } => return Some((queued.n, true)),
                SimEvent::Push { at, configuration } => {
                    let process = self.world.fleet.processes[*at].as_ref();
                    let installed = process
                        .and_then(|p| p.node.replica().list(LIST))
                        .map(|l| l.configuration.epoch);
                    let known = installed.is_some_and(|epoch| epoch >= configuration.epoch);
                    if known || epochs.contains(&(*at, configuration.epoch)) {
                        return Some((queued.n, false));
                    }
                    epochs.push((*at, configuration.epoch));
                }
                what => {
                    let Some(lane) = lane(what).filter(|lane| !heads.contains(lane)) else {
                        continue;
                    };
                    heads.push(lane);
                    let asked = match what {
                        SimEvent::Frame { bytes, .. } => peer::kind_of(bytes).is_some_and(|k| !AT_ONCE.contains(&k)),
                        _ => false,
                    };
                    if !asked {
                        return Some((queued.n, true));
                    }
                }
            }
        }
        None
    }

    /// Removes an event from the queue. It happens, or it is dropped.
    fn take(&mut self, n: u64, happens: bool) {
        if let Some(what) = self.world.schedule.take_pending(n).filter(|_| happens) {
            self.happen(what);
        }
    }

    fn happen(&mut self, what: SimEvent) {
        if let Some((at, _)) = lane(&what) {
            self.digests[at] = None;
        }
        self.world.happen(what);
    }

    fn send(&mut self, action: Action) {
        let Some((node, _, conn)) = self.world.workload.clients[0].conn else {
            return;
        };
        self.digests[usize::from(node.0)] = None;
        self.moments += 1;
        let keys = vec![KEY.to_owned()];
        let bytes = client::encode(&self.world.workload.crowds, &keys, action, self.world.swarm.lengths());
        let begin = Time(self.moments);
        let place = self.world.workload.next_place(conn);
        self.world.workload.clients[0].pending.push_back(Pending {
            select: Default::default(),
            keys,
            action,
            form: Form::One,
            begin,
            sent: begin,
            place,
        });
        self.world.client_sends(0, conn, bytes);
    }

    fn settle(&mut self) -> Option<String> {
        self.world.schedule.catch_up();
        self.world.heal();
        self.world.settle()
    }

    fn digest(&mut self) -> u64 {
        for at in 0..self.digests.len() {
            if self.digests[at].is_none() {
                self.digests[at] = Some(process_digest(&self.world, at));
            }
        }
        let mut text = Text::default();
        for digest in self.digests.iter().flatten() {
            text.bytes.extend_from_slice(&digest.to_le_bytes());
        }
        let mut lanes: Vec<((usize, Option<LinkId>), &SimEvent)> = self
            .world
            .schedule
            .pending()
            .into_iter()
            .filter_map(|q| Some((lane(q.what)?, q.what)))
            .collect();
        lanes.sort_by_key(|(lane, _)| *lane);
        let world = &self.world;
        let Self { left, moments, .. } = self;
        // Writing to a hasher cannot fail.
        let _ = write!(
            text,
            "{lanes:?} {left:?} {moments} {:?} {:?}",
            world.oracle.history, world.committed.configurations
        );
        for client in &world.workload.clients {
            let _ = write!(text, "{:?} {:?} {:?}", client.conn, client.pending, client.received);
        }
        text.digest()
    }
}

/// The sequence in which an event keeps its order: frames of a link towards one end, or configurations from the
/// coordinator. `None`: the event waits until the end.
fn lane(what: &SimEvent) -> Option<(usize, Option<LinkId>)> {
    match what {
        SimEvent::Frame { link, at, .. } | SimEvent::LinkUp { link, at, .. } | SimEvent::LinkDown { link, at, .. } => {
            Some((*at, Some(*link)))
        }
        SimEvent::Push { at, .. } => Some((*at, None)),
        _ => None,
    }
}

/// Whether the event is a frame that may be lost or duplicated. Handshakes and commands are not, because TCP protects
/// them.
fn may_fail(what: &SimEvent) -> bool {
    let once = [Kind::Hello, Kind::Forward, Kind::Reply, Kind::ReplyBody];
    matches!(what, SimEvent::Frame { bytes, .. } if peer::kind_of(bytes).is_some_and(|k| !once.contains(&k)))
}

/// A digest of everything that a process holds.
fn process_digest(world: &World, at: usize) -> u64 {
    let mut text = Text::default();
    let Some(process) = world.fleet.processes[at].as_ref() else {
        return 0;
    };
    let _ = write!(text, "{:?} {:?} {:?}", process.node, process.timer_at, process.inputs);
    let _ = write!(text, "{:?}", process.out.clients);
    let arena = process.node.replica().arena();
    for role in process
        .node
        .replica()
        .list(LIST)
        .into_iter()
        .flat_map(|list| &list.roles)
    {
        match role {
            Role::Owner(owner) => {
                for (stripe, _) in owner.store().chunks().stripes() {
                    if let Ok(Some(bytes)) = owner.store().chunks().bytes(arena, stripe) {
                        text.bytes.extend_from_slice(bytes);
                    }
                }
            }
            Role::Member(member) => {
                for stripe in member.valid_stripes() {
                    if let Some((_, Some(bytes))) = member.chunk(arena, stripe) {
                        text.bytes.extend_from_slice(bytes);
                    }
                }
            }
            Role::Halted(_) => {}
        }
    }
    text.digest()
}

/// A hasher of the text written to it. Addresses are left out, because they differ between runs.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// Whether digits of an address follow.
    address: bool,
}

impl Text {
    fn digest(&self) -> u64 {
        let mut hasher = FixedHasher::default();
        hasher.write(&self.bytes);
        hasher.finish()
    }
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if !core::mem::replace(&mut self.address, s == "0x") {
            self.bytes.extend_from_slice(s.as_bytes());
        }
        Ok(())
    }
}
