//! The commands of clients. What their replies mean is in `answers`.

mod answers;

use crate::client::{
    self, ALL, CROWD, Client, Crowds, FILLER, Form, LARGE, LARGE_GROUP, LIBRARY, Pending, Select, in_database,
};
use crate::events::SimEvent;
use crate::guests::Guest;
use crate::linear::Action;
use crate::marks::Seen;
use crate::oracle::Oracle;
use crate::schedule::Schedule;
use crate::swarm::Swarm;
use crate::world::World;
use paritas_base::{ConnId, NodeId, Prng, Span, Time};
use paritas_protocol::{Ends, Event, Port};
use std::collections::BTreeMap;

/// The clients, and which commands they still give.
pub(crate) struct Workload {
    pub(crate) clients: Vec<Client>,
    pub(crate) crowds: Crowds,
    /// Clients that read large values from their parts.
    pub(crate) guests: Vec<Guest>,
    next_value: i64,
    /// Numbers of values that are written with a class, and which one.
    pub(crate) classes: BTreeMap<i64, u8>,
    /// The number of the latest command of any client.
    latest_command: u64,
    /// Keys that are still to be read once at the end.
    pub(crate) final_reads: Vec<String>,
    /// How many filler keys are still to be set.
    fillers_left: u64,
    flushes_left: u32,
    /// How many times all keys are still to be listed.
    lists_left: u32,
}

/// Whether a name stands for all keys of a database.
fn is_list(name: &str) -> bool {
    in_database(name).0 == ALL
}

impl Workload {
    pub(crate) fn new(swarm: &Swarm, crowds: Crowds) -> Self {
        Self {
            clients: (0..swarm.clients).map(|_| Client::new()).collect(),
            crowds,
            guests: (0..swarm.guests).map(|nth| Guest::new(swarm, nth)).collect(),
            next_value: 0,
            classes: BTreeMap::new(),
            latest_command: 0,
            final_reads: Vec::new(),
            fillers_left: swarm.filler_keys,
            flushes_left: swarm.flushes,
            lists_left: swarm.lists,
        }
    }

    /// The place of a new command in the order of its connection.
    pub(crate) fn next_place(&mut self, conn: ConnId) -> (u64, u64) {
        self.latest_command += 1;
        (conn.0, self.latest_command)
    }

    /// What clients still wait for, if anything. With `but_lists`, listings of all keys are ignored.
    pub(crate) fn unanswered(&self, but_lists: bool) -> Option<String> {
        let unread = self
            .final_reads
            .iter()
            .filter(|key| !but_lists || !is_list(key))
            .count();
        if unread > 0 {
            return Some(format!("{unread} keys were not read at the end"));
        }
        let of_guest = |(i, guest): (usize, &Guest)| Some(format!("L2: guest {i} waits for {}", guest.waits_for()?));
        if let Some(waits) = self.guests.iter().enumerate().find_map(of_guest) {
            return Some(waits);
        }
        let pending = |(i, client): (usize, &Client)| {
            let pending = client.pending.iter().find(|p| !but_lists || p.action != Action::List)?;
            Some(format!("L2: client {i} waits for {pending:?}"))
        };
        self.clients.iter().enumerate().find_map(pending)
    }

    /// A value that no SET had before.
    pub(crate) fn new_value(&mut self) -> i64 {
        self.next_value += 1000;
        self.next_value
    }

    fn next_command(
        &mut self,
        swarm: &Swarm,
        schedule: &mut Schedule,
        oracle: &Oracle,
        port: Port,
    ) -> Option<(Vec<String>, Action)> {
        if schedule.healing {
            return loop {
                let key = self.final_reads.pop()?;
                match (is_list(&key), port) {
                    (false, _) => break Some((vec![key], Action::Get)),
                    (true, Port::Any) => break Some((vec![key], Action::List)),
                    // KEYS on this port would list this node's streams alone.
                    (true, Port::Cluster | Port::Memcached) => {}
                }
            };
        }
        let random = &mut schedule.random;
        if self.fillers_left > 0 && random.chance(300_000) {
            self.fillers_left -= 1;
            return Some((vec![format!("{FILLER}{}", self.fillers_left)], self.set()));
        }
        // FLUSHALL on the cluster port would empty this node's streams alone.
        if port == Port::Any && self.flushes_left > 0 && random.chance(10_000) {
            self.flushes_left -= 1;
            return Some((Vec::new(), Action::Flush));
        }
        if port == Port::Any && self.lists_left > 0 && random.chance(10_000) {
            self.lists_left -= 1;
            return Some((vec![ALL.to_owned()], Action::List));
        }
        if swarm.functions > 0 && random.chance(swarm.functions) {
            let action = match random.chance(300_000) {
                true => self.set(),
                false => Action::Get,
            };
            return oracle.has_room(LIBRARY).then(|| (vec![LIBRARY.to_owned()], action));
        }
        let group = random.chance(swarm.group);
        if group {
            let key = format!("{{g{}}}", random.below(2));
            return self.on_group(random, oracle, key);
        }
        if swarm.crowds > 0 && random.chance(100_000) {
            let key = format!("{CROWD}{}", random.below(swarm.crowds));
            return self.on_group(random, oracle, key);
        }
        let large_share = match (swarm.cut_at_reply, swarm.reads_large) {
            (1.., _) => 700_000,
            (0, true) => 500_000,
            (0, false) => 150_000,
        };
        if swarm.larges > 0 && random.chance(large_share) {
            if swarm.large_groups && random.chance(300_000) {
                let key = format!("{LARGE_GROUP}{}", random.below(2));
                return self.on_group(random, oracle, key);
            }
            let key = format!("{LARGE}{}", random.below(swarm.larges));
            if swarm.large_groups && port == Port::Any && random.chance(150_000) {
                let other = format!("{LARGE}{}", random.below(swarm.larges));
                let set = self.set();
                let pair = if other == key { vec![key] } else { vec![key, other] };
                return pair.iter().all(|key| oracle.has_room(key)).then_some((pair, set));
            }
            if swarm.reads_each && port == Port::Any && random.chance(300_000) {
                let larges = (0..swarm.larges).map(|n| format!("{LARGE}{n}"));
                let small = format!("k{}", random.below(swarm.keys));
                let keys: Vec<String> = larges.chain([small]).collect();
                return keys
                    .iter()
                    .all(|key| oracle.has_room(key))
                    .then_some((keys, Action::GetEach));
            }
            return self.on_large(swarm, random, oracle, key);
        }
        let key = format!("k{}", random.below(swarm.keys));
        if !oracle.has_room(&key) {
            return None;
        }
        let action = match random.below(10) {
            0..4 => Action::Get,
            4..7 if port == Port::Any && random.chance(swarm.pairs) => {
                let other = format!("k{}", random.below(swarm.keys));
                let set = self.set();
                let pair = if other == key { vec![key] } else { vec![key, other] };
                return pair.iter().all(|key| oracle.has_room(key)).then_some((pair, set));
            }
            4..7 => match self.set() {
                Action::Set(n) if random.chance(swarm.expiring) => {
                    Action::SetFor(n, Span::from_ms(random.between(5, 400)))
                }
                set => set,
            },
            7..9 => Action::Increment,
            _ => Action::Delete,
        };
        Some((vec![key], action))
    }

    fn on_large(
        &mut self,
        swarm: &Swarm,
        random: &mut Prng,
        oracle: &Oracle,
        key: String,
    ) -> Option<(Vec<String>, Action)> {
        if swarm.appends && random.chance(300_000) {
            let more = match self.set() {
                Action::Set(n) => Action::Append(n),
                set => set,
            };
            return oracle.has_room(&key).then(|| (vec![key], more));
        }
        let exchanges = if swarm.cut_at_reply > 0 { 700_000 } else { 200_000 };
        let action = match random.below(10) {
            0..2 => Action::Get,
            2..4 if swarm.cut_at_reply == 0 => Action::Get,
            4..8 if swarm.reads_large && swarm.cut_at_reply == 0 => Action::Get,
            4..6 if swarm.parity > 0 && !swarm.classes_stay => Action::Class(random.below(swarm.classes()) as u8),
            2..9 => match self.set() {
                Action::Set(n) if random.chance(swarm.expiring / 2) => {
                    Action::SetFor(n, Span::from_ms(random.between(20, 400)))
                }
                Action::Set(n) if random.chance(exchanges) => Action::Exchange(n),
                set => set,
            },
            _ if random.chance(600_000) => Action::Take,
            _ => Action::Delete,
        };
        oracle.has_room(&key).then(|| (vec![key], action))
    }

    fn on_group(&mut self, random: &mut Prng, oracle: &Oracle, key: String) -> Option<(Vec<String>, Action)> {
        let action = match random.below(10) {
            0..5 => Action::Get,
            5..9 => self.set(),
            _ => Action::Delete,
        };
        oracle.has_room(&key).then(|| (vec![key], action))
    }

    fn set(&mut self) -> Action {
        Action::Set(self.new_value())
    }
}

impl World {
    pub(crate) fn client_wakes(&mut self, client: usize) {
        let target = self.workload.clients[client]
            .moved
            .filter(|_| self.workload.clients[client].pending.is_empty());
        if self.workload.clients[client].conn.is_none() || target.is_some() {
            let alive: Vec<usize> = (0..self.fleet.processes.len())
                .filter(|i| self.fleet.processes[*i].is_some())
                .collect();
            if alive.is_empty() {
                self.schedule.push(Span::from_ms(5), SimEvent::ClientWakes(client));
                return;
            }
            let at = match target.filter(|at| alive.contains(at)) {
                Some(at) => at,
                None => {
                    self.workload.clients[client].port = if self.schedule.random.chance(self.swarm.strict) {
                        Port::Cluster
                    } else {
                        Port::Any
                    };
                    *self.schedule.random.pick(&alive)
                }
            };
            self.workload.clients[client].moved = None;
            self.workload.clients[client].database = Some(0);
            let incarnation = self.fleet.records[at].incarnation;
            let conn = ConnId(self.network.new_id());
            self.workload.clients[client].conn = Some((NodeId(at as u16), incarnation, conn));
            self.workload.clients[client].received.clear();
            self.workload.clients[client].held.clear();
            self.workload.clients[client].up = false;
            let delay = self.schedule.delay(&self.swarm);
            self.schedule.push(delay, SimEvent::ClientUp { client, conn });
            return;
        }
        if !self.workload.clients[client].pending.is_empty() || !self.workload.clients[client].up {
            return;
        }
        let Some((_, _, conn)) = self.workload.clients[client].conn else {
            return;
        };
        let (mut bytes, mut parts) = (Vec::new(), Vec::new());
        let count = self.schedule.random.between(1, self.swarm.pipeline_max);
        for _ in 0..count {
            let port = self.workload.clients[client].port;
            let next = self
                .workload
                .next_command(&self.swarm, &mut self.schedule, &self.oracle, port);
            let Some((keys, action)) = next else {
                break;
            };
            let keys = self.in_some_database(keys, action);
            let form = self.form_of(&keys, action);
            let select = self.select_for(client, &keys, action, form);
            let crowds = &self.workload.crowds;
            let (more, first) = client::encode_as((form, select), crowds, &keys, action, self.swarm.lengths());
            if first > 0 {
                bytes.extend(&more[..first]);
                parts.push(core::mem::take(&mut bytes));
            }
            bytes.extend(&more[first..]);
            if let (Form::Classed(class), Some(n)) = (form, action.number()) {
                self.workload.classes.insert(n, class);
            }
            let place = self.workload.next_place(conn);
            self.workload.clients[client].pending.push_back(Pending {
                keys,
                action,
                form,
                select,
                begin: self.schedule.now,
                sent: self.schedule.now,
                place,
            });
        }
        if !bytes.is_empty() {
            parts.push(bytes);
            let is_at_once = parts.len() == 1;
            let last = self.send_in_pieces(client, conn, parts);
            for pending in &mut self.workload.clients[client].pending {
                pending.sent = if is_at_once { pending.begin } else { last };
            }
        } else if !self.schedule.healing || !self.workload.final_reads.is_empty() {
            self.schedule.push(Span::from_ms(3), SimEvent::ClientWakes(client));
        }
    }

    /// The keys of a command, or those of the same names in database 1.
    fn in_some_database(&mut self, keys: Vec<String>, action: Action) -> Vec<String> {
        let is_library = keys.iter().any(|key| key == LIBRARY);
        let may = !self.schedule.healing && self.swarm.elsewhere > 0 && action != Action::Flush && !is_library;
        if !may || !self.schedule.random.chance(self.swarm.elsewhere) {
            return keys;
        }
        let others: Vec<String> = keys.iter().map(|key| client::elsewhere(key)).collect();
        match others.iter().all(|key| self.oracle.has_room(key)) {
            true => others,
            false => keys,
        }
    }

    /// How a client comes to the database of these keys.
    fn select_for(&mut self, client: usize, keys: &[String], action: Action, form: Form) -> Select {
        let wanted = keys.first().map(|key| in_database(key).1);
        let known = &mut self.workload.clients[client].database;
        let Some(wanted) = wanted.filter(|wanted| *known != Some(*wanted) && action != Action::Flush) else {
            return Select::None;
        };
        if form == Form::Transaction && self.schedule.random.chance(500_000) {
            // Until it is answered it is not known.
            return Select::Inside(known.take());
        }
        *known = Some(wanted);
        Select::Before
    }

    /// How a client sends a command.
    fn form_of(&mut self, keys: &[String], action: Action) -> Form {
        let is_set = matches!(action, Action::Set(_) | Action::SetFor(..) | Action::Exchange(_));
        let is_large = matches!(keys, [key] if key.starts_with(LARGE));
        if is_set && is_large && self.swarm.classed > 0 && self.schedule.random.chance(self.swarm.classed) {
            return Form::Classed(self.schedule.random.below(self.swarm.classes()) as u8);
        }
        if self.swarm.transactions == 0 || keys.len() != 1 || !self.schedule.random.chance(self.swarm.transactions) {
            return Form::One;
        }
        if keys.iter().any(|key| key == LIBRARY) {
            // FUNCTION LOAD cannot be in a transaction.
            return match action {
                Action::Get => Form::Transaction,
                _ => Form::One,
            };
        }
        let is_group = keys.iter().all(|key| key.starts_with('{'));
        let by_script = self.schedule.random.chance(300_000);
        match action {
            Action::Get
            | Action::Set(_)
            | Action::Exchange(_)
            | Action::Take
            | Action::Append(_)
            | Action::Delete
            | Action::Increment
                if by_script && !self.swarm.reads_each =>
            {
                Form::Scripted
            }
            Action::Increment => Form::Watched,
            Action::Get | Action::Set(_) | Action::Delete if is_group => Form::Transaction,
            // A long value is not read whole by a run that limits replies.
            Action::Get | Action::Exchange(_) | Action::Take if self.swarm.reads_each => Form::One,
            Action::Get | Action::Set(_) | Action::Exchange(_) | Action::Take | Action::Append(_) => Form::Transaction,
            _ => Form::One,
        }
    }

    /// Sends commands. Some time passes between the parts. Long values come in pieces: the node may take the first ones
    /// before the last have left. Returns when the last are sent.
    fn send_in_pieces(&mut self, client: usize, conn: ConnId, parts: Vec<Vec<u8>>) -> Time {
        let mut delay = self.schedule.delay(&self.swarm);
        for (nth, mut bytes) in parts.into_iter().enumerate() {
            if nth > 0 {
                delay = delay + Span(1) + self.schedule.delay(&self.swarm);
                if self.schedule.random.chance(300_000) {
                    // Long enough for a takeover.
                    delay = delay + Span::from_ms(self.schedule.random.below(400));
                }
            }
            if bytes.len() as u64 > self.swarm.parameters.streamed_bytes_min {
                for _ in 0..self.schedule.random.below(4) {
                    let rest = bytes.split_off(self.schedule.random.below(bytes.len() as u64) as usize);
                    self.schedule.push(delay, SimEvent::ClientSends { client, conn, bytes });
                    delay = delay + Span(1) + self.schedule.delay(&self.swarm);
                    bytes = rest;
                }
            }
            self.schedule.push(delay, SimEvent::ClientSends { client, conn, bytes });
        }
        self.schedule.now + delay
    }

    pub(crate) fn client_up(&mut self, client: usize, conn: ConnId) {
        let Some((node, incarnation, current)) = self.workload.clients[client].conn else {
            return;
        };
        if current != conn {
            return;
        }
        let at = usize::from(node.0);
        if self.fleet.is_paused(at, self.schedule.now) {
            let until = self.fleet.resumes_at(at, self.schedule.now);
            self.schedule.push_at(until, SimEvent::ClientUp { client, conn });
            return;
        }
        let Some(process) = self.fleet.alive(at, incarnation) else {
            self.client_lost(client, conn);
            return;
        };
        process.out.clients.insert(conn, Default::default());
        process.inputs.insert(conn, Vec::new());
        self.workload.clients[client].up = true;
        let ends = Ends {
            client: ([0; 4], 0).into(),
            server: ([0; 4], 0).into(),
        };
        let port = self.workload.clients[client].port;
        self.turn(at, incarnation, Event::ClientUp { conn, port, ends }, || {
            SimEvent::ClientUp { client, conn }
        });
        self.schedule.push(Span(0), SimEvent::ClientWakes(client));
    }

    /// Bytes reach a node. While it is paused they are held, in the order in which they came; an event without bytes
    /// stands for the first of them.
    pub(crate) fn client_sends(&mut self, client: usize, conn: ConnId, bytes: Vec<u8>) {
        let Some((node, incarnation, current)) = self.workload.clients[client].conn else {
            return;
        };
        if current != conn {
            return;
        }
        let at = usize::from(node.0);
        if self.fleet.is_paused(at, self.schedule.now) {
            let until = self.fleet.processes[at]
                .as_ref()
                .map_or(self.schedule.now, |p| p.paused_until);
            if !bytes.is_empty() {
                self.workload.clients[client].held.push_back(bytes);
            }
            let bytes = Vec::new();
            self.schedule
                .push_at(until, SimEvent::ClientSends { client, conn, bytes });
            return;
        }
        let held = &mut self.workload.clients[client].held;
        if !bytes.is_empty() {
            held.push_back(bytes);
        }
        let Some(bytes) = held.pop_front() else { return };
        let now = self.schedule.now;
        let Some(process) = self.fleet.alive(at, incarnation) else {
            return;
        };
        if let Some(input) = process.inputs.get_mut(&conn) {
            input.extend_from_slice(&bytes);
            let stopped_at = process.stopped_at.take().filter(|_| process.paused_until == now);
            if let Some(before) = stopped_at {
                self.oracle.marks.see(Seen::StoppedBeforeReading);
                self.fleet.feed(at, now, before);
                return self.end_turn(at, incarnation);
            }
            // The input is processed in this turn.
            self.turn(at, incarnation, Event::Timer, || SimEvent::ClientSends {
                client,
                conn,
                bytes,
            });
        }
    }
}
