//! The commands of clients, and the handling of their replies.

use crate::client::{self, ALL, Answer, CROWD, FILLER, LARGE, LARGE_GROUP, Pending};
use crate::events::SimEvent;
use crate::linear::{Action, Operation, Outcome};
use crate::marks::Seen;
use crate::world::World;
use paritas_base::{ConnId, NodeId, Span, set};
use paritas_protocol::{Ends, Event, Port};

impl World {
    pub(crate) fn client_wakes(&mut self, client: usize) {
        let target = self.clients[client]
            .moved
            .filter(|_| self.clients[client].pending.is_empty());
        if self.clients[client].conn.is_none() || target.is_some() {
            let alive: Vec<usize> = (0..self.processes.len())
                .filter(|i| self.processes[*i].is_some())
                .collect();
            if alive.is_empty() {
                self.push(Span::from_ms(5), SimEvent::ClientWakes(client));
                return;
            }
            let at = match target.filter(|at| alive.contains(at)) {
                Some(at) => at,
                None => {
                    self.clients[client].port = if self.random.chance(self.swarm.strict) {
                        Port::Cluster
                    } else {
                        Port::Any
                    };
                    *self.random.pick(&alive)
                }
            };
            self.clients[client].moved = None;
            self.next_id += 1;
            let incarnation = self.records[at].incarnation;
            let conn = ConnId(self.next_id);
            self.clients[client].conn = Some((NodeId(at as u16), incarnation, conn));
            self.clients[client].received.clear();
            self.clients[client].up = false;
            let delay = self.delay();
            self.push(delay, SimEvent::ClientUp { client, conn });
            return;
        }
        if !self.clients[client].pending.is_empty() || !self.clients[client].up {
            return;
        }
        let Some((_, _, conn)) = self.clients[client].conn else {
            return;
        };
        let mut bytes = Vec::new();
        let count = self.random.between(1, self.swarm.pipeline_max);
        for _ in 0..count {
            let Some((keys, action)) = self.next_command(self.clients[client].port) else {
                break;
            };
            bytes.extend(client::encode(&self.crowds, &keys, action, self.swarm.lengths()));
            self.next_command += 1;
            self.clients[client].pending.push_back(Pending {
                keys,
                action,
                begin: self.now,
                place: (conn.0, self.next_command),
            });
        }
        if !bytes.is_empty() {
            self.send_in_pieces(client, conn, bytes);
        } else if !self.healing || !self.final_reads.is_empty() {
            self.push(Span::from_ms(3), SimEvent::ClientWakes(client));
        }
    }

    /// Sends commands. Long values come in pieces: the node may take the first ones before the last have left.
    fn send_in_pieces(&mut self, client: usize, conn: ConnId, mut bytes: Vec<u8>) {
        let mut delay = self.delay();
        if bytes.len() as u64 > self.swarm.parameters.streamed_bytes_min {
            for _ in 0..self.random.below(4) {
                let rest = bytes.split_off(self.random.below(bytes.len() as u64) as usize);
                self.push(delay, SimEvent::ClientSends { client, conn, bytes });
                delay = delay + Span(1) + self.delay();
                bytes = rest;
            }
        }
        self.push(delay, SimEvent::ClientSends { client, conn, bytes });
    }

    fn next_command(&mut self, port: Port) -> Option<(Vec<String>, Action)> {
        if self.healing {
            return loop {
                let key = self.final_reads.pop()?;
                match (key == ALL, port) {
                    (false, _) => break Some((vec![key], Action::Get)),
                    (true, Port::Any) => break Some((vec![key], Action::List)),
                    // KEYS on this port would list this node's streams alone.
                    (true, Port::Cluster) => {}
                }
            };
        }
        if self.swarm.filler_keys > 0 && self.random.chance(300_000) {
            self.swarm.filler_keys -= 1;
            return Some((vec![format!("{FILLER}{}", self.swarm.filler_keys)], self.set()));
        }
        // FLUSHALL on the cluster port would empty this node's streams alone.
        if port == Port::Any && self.swarm.flushes > 0 && self.random.chance(10_000) {
            self.swarm.flushes -= 1;
            return Some((Vec::new(), Action::Flush));
        }
        if port == Port::Any && self.swarm.lists > 0 && self.random.chance(10_000) {
            self.swarm.lists -= 1;
            return Some((vec![ALL.to_owned()], Action::List));
        }
        let group = self.random.chance(self.swarm.group);
        if group {
            let key = format!("{{g{}}}", self.random.below(2));
            return self.on_group(key);
        }
        if self.swarm.crowds > 0 && self.random.chance(100_000) {
            let key = format!("{CROWD}{}", self.random.below(self.swarm.crowds));
            return self.on_group(key);
        }
        if self.swarm.larges > 0 && self.random.chance(150_000) {
            if self.swarm.large_groups && self.random.chance(300_000) {
                let key = format!("{LARGE_GROUP}{}", self.random.below(2));
                return self.on_group(key);
            }
            let key = format!("{LARGE}{}", self.random.below(self.swarm.larges));
            if self.swarm.large_groups && port == Port::Any && self.random.chance(150_000) {
                let other = format!("{LARGE}{}", self.random.below(self.swarm.larges));
                let set = self.set();
                let pair = if other == key { vec![key] } else { vec![key, other] };
                return pair.iter().all(|key| self.has_room(key)).then_some((pair, set));
            }
            if self.swarm.reads_each && port == Port::Any && self.random.chance(300_000) {
                let larges = (0..self.swarm.larges).map(|n| format!("{LARGE}{n}"));
                let small = format!("k{}", self.random.below(self.swarm.keys));
                let keys: Vec<String> = larges.chain([small]).collect();
                return keys
                    .iter()
                    .all(|key| self.has_room(key))
                    .then_some((keys, Action::GetEach));
            }
            return self.on_large(key);
        }
        let key = format!("k{}", self.random.below(self.swarm.keys));
        if !self.has_room(&key) {
            return None;
        }
        let action = match self.random.below(10) {
            0..4 => Action::Get,
            4..7 if port == Port::Any && self.random.chance(self.swarm.pairs) => {
                let other = format!("k{}", self.random.below(self.swarm.keys));
                let set = self.set();
                let pair = if other == key { vec![key] } else { vec![key, other] };
                return pair.iter().all(|key| self.has_room(key)).then_some((pair, set));
            }
            4..7 => match self.set() {
                Action::Set(n) if self.random.chance(self.swarm.expiring) => {
                    Action::SetFor(n, Span::from_ms(self.random.between(5, 400)))
                }
                set => set,
            },
            7..9 => Action::Increment,
            _ => Action::Delete,
        };
        Some((vec![key], action))
    }

    fn on_large(&mut self, key: String) -> Option<(Vec<String>, Action)> {
        let action = match self.random.below(10) {
            0..4 => Action::Get,
            4..6 if self.swarm.parity > 0 => {
                Action::Class(self.random.below(if self.swarm.weak { 6 } else { 3 }) as u8)
            }
            4..9 => match self.set() {
                Action::Set(n) if self.random.chance(self.swarm.expiring) => {
                    Action::SetFor(n, Span::from_ms(self.random.between(20, 400)))
                }
                set => set,
            },
            _ => Action::Delete,
        };
        self.has_room(&key).then(|| (vec![key], action))
    }

    fn on_group(&mut self, key: String) -> Option<(Vec<String>, Action)> {
        let action = match self.random.below(10) {
            0..5 => Action::Get,
            5..9 => self.set(),
            _ => Action::Delete,
        };
        self.has_room(&key).then(|| (vec![key], action))
    }

    fn set(&mut self) -> Action {
        self.next_value += 1000;
        Action::Set(self.next_value)
    }

    /// Whether one more operation on the key can still be checked.
    fn has_room(&self, key: &str) -> bool {
        let most = crate::linear::OPERATIONS_MAX - 28;
        self.history.get(key).is_none_or(|h| h.len() < most)
    }

    pub(crate) fn client_up(&mut self, client: usize, conn: ConnId) {
        let Some((node, incarnation, current)) = self.clients[client].conn else {
            return;
        };
        if current != conn {
            return;
        }
        let at = usize::from(node.0);
        if self.is_paused(at) {
            let until = self.processes[at].as_ref().map_or(self.now, |p| p.resumes_at());
            self.push_at(until, SimEvent::ClientUp { client, conn });
            return;
        }
        let Some(process) = self.alive(at, incarnation) else {
            self.client_lost(client, conn);
            return;
        };
        process.out.clients.insert(conn, Default::default());
        process.inputs.insert(conn, Vec::new());
        self.clients[client].up = true;
        let ends = Ends {
            client: ([0; 4], 0).into(),
            server: ([0; 4], 0).into(),
        };
        let port = self.clients[client].port;
        self.turn(at, incarnation, Event::ClientUp { conn, port, ends }, || {
            SimEvent::ClientUp { client, conn }
        });
        self.push(Span(0), SimEvent::ClientWakes(client));
    }

    pub(crate) fn client_sends(&mut self, client: usize, conn: ConnId, bytes: Vec<u8>) {
        let Some((node, incarnation, current)) = self.clients[client].conn else {
            return;
        };
        if current != conn {
            return;
        }
        let at = usize::from(node.0);
        if self.is_paused(at) {
            let until = self.processes[at].as_ref().map_or(self.now, |p| p.paused_until);
            self.push_at(until, SimEvent::ClientSends { client, conn, bytes });
            return;
        }
        let now = self.now;
        let Some(process) = self.alive(at, incarnation) else {
            return;
        };
        if let Some(input) = process.inputs.get_mut(&conn) {
            input.extend_from_slice(&bytes);
            let stopped_at = process.stopped_at.take().filter(|_| process.paused_until == now);
            if let Some(before) = stopped_at {
                self.marks.see(Seen::StoppedBeforeReading);
                self.feed(at, before);
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

    pub(crate) fn client_reads(&mut self, client: usize, conn: ConnId, bytes: &[u8]) {
        if self.clients[client].conn.is_none_or(|(_, _, current)| current != conn) {
            return;
        }
        self.clients[client].received.extend_from_slice(bytes);
        loop {
            let asked = self.clients[client].pending.front().map(|pending| pending.action);
            match client::take_answer(&mut self.clients[client].received, asked) {
                Err(what) => return self.violate(what),
                Ok(None) => break,
                Ok(Some(answer)) => {
                    let Some(pending) = self.clients[client].pending.pop_front() else {
                        return self.violate(format!("I14: a reply without a command: {answer:?}"));
                    };
                    self.log(|| format!("client {client}: {:?} {:?} = {answer:?}", pending.keys, pending.action));
                    let is_refused = matches!(&answer, Answer::Refused(text) if client::says_stuck(text));
                    self.note_reply(client, &pending, is_refused);
                    self.record(client, &pending, answer);
                }
            }
        }
        if self.clients[client].pending.is_empty() {
            let think = Span(self.random.below(3_000_000));
            self.push(think, SimEvent::ClientWakes(client));
        }
    }

    fn record(&mut self, client: usize, pending: &Pending, answer: Answer) {
        self.counts.replies += 1;
        self.mix(self.counts.replies);
        let is_read = matches!(answer, Answer::Each(_) | Answer::Refused(_));
        if pending.action == Action::GetEach && !is_read {
            return self.violate(format!("I14: MGET of {:?} was answered {answer:?}", pending.keys));
        }
        // A part of a command on several keys may have been done although another part was refused.
        let in_parts = pending.keys.len() != 1;
        let outcome = match answer {
            Answer::Refused(text) => {
                let known = ["-TRYAGAIN", "-CLUSTERDOWN", "-NOREPLICAS", "-OOM"];
                if self.clients[client].port == Port::Cluster
                    && let Some(at) = client::moved_to(&text)
                {
                    self.marks.see(Seen::Moved);
                    self.clients[client].moved = Some(at);
                    if self.healing {
                        self.final_reads.extend(pending.keys.iter().cloned());
                    }
                    return;
                }
                let too_large = text.starts_with("-ERR command larger than")
                    || pending.action == Action::GetEach && text.starts_with("-ERR the reply is larger than");
                let is_gone = matches!(pending.action, Action::Class(_)) && text.starts_with("-ERR no such key");
                if is_gone {
                    return;
                }
                if !known.iter().any(|k| text.starts_with(k)) && !too_large {
                    self.violate(format!(
                        "I14: {:?} {:?} was refused with {text}",
                        pending.keys, pending.action
                    ));
                }
                self.counts.refused += 1;
                if text.starts_with("-OOM") {
                    self.marks.see(Seen::OutOfMemory);
                }
                if self.healing && matches!(pending.action, Action::Get | Action::List) {
                    self.marks.see(Seen::ReadAgain);
                    self.final_reads.extend(pending.keys.iter().cloned());
                }
                if !in_parts || pending.action == Action::GetEach {
                    return;
                }
                Outcome::Unknown
            }
            Answer::Uncertain => {
                self.counts.uncertain += 1;
                if matches!(pending.action, Action::Class(_)) {
                    return;
                }
                if pending.action == Action::List {
                    // Expired keys are deleted when they are found, so it is not known whether they still exist.
                    if self.healing {
                        self.final_reads.push(ALL.to_owned());
                    }
                    return;
                }
                Outcome::Unknown
            }
            Answer::Outcome(Outcome::Done(_)) if matches!(pending.action, Action::Class(_)) => {
                return self.marks.see(Seen::ClassChanged);
            }
            Answer::Each(outcomes) => return self.record_each(pending, &outcomes),
            Answer::Keys(names) => return self.record_list(pending, &names),
            Answer::Outcome(outcome) => outcome,
        };
        let group = pending.keys.iter().find(|key| key.starts_with('{'));
        let outcome = match (pending.action, outcome, group) {
            // DEL counts the keys of the group: all or none.
            (Action::Delete, Outcome::Done(Some(n)), Some(group)) if n != 0 => {
                let all = self.crowds.keys(group).len();
                Outcome::Done(Some(i64::from(n == all as i64) * 2 - 1))
            }
            (_, outcome, _) => outcome,
        };
        let operation = Operation {
            place: Some(pending.place),
            begin: pending.begin,
            end: self.now,
            action: pending.action,
            outcome,
        };
        match outcome {
            Outcome::Done(_) if pending.action == Action::Flush => self.marks.see(Seen::Flushed),
            Outcome::Done(Some(_)) if pending.action == Action::Get && group.is_some_and(|g| g.starts_with(CROWD)) => {
                self.marks.see(Seen::CrowdRead);
            }
            Outcome::Done(Some(_))
                if pending.action == Action::Get && group.is_some_and(|g| g.starts_with(LARGE_GROUP)) =>
            {
                self.marks.see(Seen::LargeGroupRead);
            }
            Outcome::Done(Some(_)) if pending.action == Action::Get && group.is_some() => {
                self.marks.see(Seen::GroupRead);
            }
            _ => {}
        }
        if pending.action == Action::Flush {
            self.flushes.push(operation);
        }
        for key in &pending.keys {
            self.history.entry(key.clone()).or_default().push(operation);
        }
    }

    /// Records what an MGET of unrelated keys said of each: it is not atomic.
    fn record_each(&mut self, pending: &Pending, outcomes: &[Outcome]) {
        if outcomes.len() != pending.keys.len() {
            return self.violate(format!("I14: {} values of {:?}", outcomes.len(), pending.keys));
        }
        for (key, outcome) in pending.keys.iter().zip(outcomes) {
            self.history.entry(key.clone()).or_default().push(Operation {
                place: Some(pending.place),
                begin: pending.begin,
                end: self.now,
                action: Action::Get,
                outcome: *outcome,
            });
        }
    }

    /// Records for each key whether KEYS named it. KEYS is not atomic, but for a single key it is a read.
    fn record_list(&mut self, pending: &Pending, names: &[String]) {
        self.marks.see(Seen::Listed);
        let mut seen = set();
        for name in names {
            if !seen.insert(name.as_str()) {
                return self.violate(format!("I9: KEYS names {name} twice"));
            }
        }
        for (key, history) in &mut self.history {
            // All keys of a group exist or none does.
            let first = self.crowds.keys(key).into_iter().next();
            let is_there = first.is_some_and(|first| seen.contains(first.as_str()));
            if history.len() < crate::linear::OPERATIONS_MAX - 8 {
                history.push(Operation {
                    // KEYS goes on beside the commands that follow it.
                    place: None,
                    begin: pending.begin,
                    end: self.now,
                    action: Action::List,
                    outcome: Outcome::Done(is_there.then_some(1)),
                });
            }
        }
    }

    pub(crate) fn client_lost(&mut self, client: usize, conn: ConnId) {
        if self.clients[client].conn.is_none_or(|(_, _, current)| current != conn) {
            return;
        }
        (self.clients[client].conn, self.clients[client].moved) = (None, None);
        for pending in core::mem::take(&mut self.clients[client].pending) {
            if pending.action == Action::GetEach {
                continue;
            }
            if matches!(pending.action, Action::Get | Action::List) {
                if self.healing {
                    self.final_reads.extend(pending.keys);
                }
                continue;
            }
            self.record(client, &pending, Answer::Uncertain);
        }
        self.push(Span::from_ms(2), SimEvent::ClientWakes(client));
    }
}
