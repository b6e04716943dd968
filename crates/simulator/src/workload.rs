//! What clients ask, and what they are told.

use crate::client::{self, Answer, Pending};
use crate::events::Happening;
use crate::linear::{Action, Operation, Outcome};
use crate::world::World;
use paritas_base::{ConnId, NodeId, Span};
use paritas_protocol::{Ends, Event, Port};

impl World {
    pub(crate) fn client_wakes(&mut self, client: usize) {
        if self.clients[client].conn.is_none() {
            let alive: Vec<usize> = (0..self.processes.len())
                .filter(|i| self.processes[*i].is_some())
                .collect();
            if alive.is_empty() {
                self.push(Span::from_ms(5), Happening::ClientWakes(client));
                return;
            }
            let at = *self.random.pick(&alive);
            self.next_id += 1;
            let incarnation = self.records[at].incarnation;
            let conn = ConnId(self.next_id);
            self.clients[client].conn = Some((NodeId(at as u16), incarnation, conn));
            self.clients[client].received.clear();
            self.clients[client].up = false;
            let delay = self.delay();
            self.push(delay, Happening::ClientUp { client, conn });
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
            let Some((key, action)) = self.next_command() else {
                break;
            };
            bytes.extend(client::encode(&key, action));
            self.clients[client].pending.push_back(Pending {
                key,
                action,
                begin: self.now,
            });
        }
        if !bytes.is_empty() {
            let delay = self.delay();
            self.push(delay, Happening::ClientSends { client, conn, bytes });
        } else if !self.healing || !self.final_reads.is_empty() {
            self.push(Span::from_ms(3), Happening::ClientWakes(client));
        }
    }

    fn next_command(&mut self) -> Option<(String, Action)> {
        if self.healing {
            return self.final_reads.pop().map(|key| (key, Action::Get));
        }
        if self.swarm.filler_keys > 0 && self.random.chance(300_000) {
            self.swarm.filler_keys -= 1;
            self.next_value += 1000;
            return Some((
                format!("filler:{}", self.swarm.filler_keys),
                Action::Set(self.next_value),
            ));
        }
        let key = format!("k{}", self.random.below(self.swarm.keys));
        if self
            .history
            .get(&key)
            .is_some_and(|h| h.len() >= crate::linear::OPERATIONS_MAX - 24)
        {
            return None;
        }
        let action = match self.random.below(10) {
            0..4 => Action::Get,
            4..7 => {
                self.next_value += 1000;
                Action::Set(self.next_value)
            }
            7..9 => Action::Increment,
            _ => Action::Delete,
        };
        Some((key, action))
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
            let until = self.processes[at].as_ref().map_or(self.now, |p| p.paused_until);
            self.push_at(until, Happening::ClientUp { client, conn });
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
        let port = Port::Any;
        self.turn(at, incarnation, Event::ClientUp { conn, port, ends }, || {
            Happening::ClientUp { client, conn }
        });
        self.push(Span(0), Happening::ClientWakes(client));
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
            self.push_at(until, Happening::ClientSends { client, conn, bytes });
            return;
        }
        let Some(process) = self.alive(at, incarnation) else {
            return;
        };
        if let Some(input) = process.inputs.get_mut(&conn) {
            input.extend_from_slice(&bytes);
            // The input is looked at in this turn.
            self.turn(at, incarnation, Event::Timer, || Happening::ClientSends {
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
            match client::take_answer(&mut self.clients[client].received) {
                Err(what) => return self.violate(format!("I14: {what}")),
                Ok(None) => break,
                Ok(Some(answer)) => {
                    let Some(pending) = self.clients[client].pending.pop_front() else {
                        return self.violate(format!("I14: a reply to nothing: {answer:?}"));
                    };
                    self.log(|| format!("client {client}: {} {:?} = {answer:?}", pending.key, pending.action));
                    self.record(&pending, answer);
                }
            }
        }
        if self.clients[client].pending.is_empty() {
            let think = Span(self.random.below(3_000_000));
            self.push(think, Happening::ClientWakes(client));
        }
    }

    fn record(&mut self, pending: &Pending, answer: Answer) {
        self.counts.replies += 1;
        self.mix(self.counts.replies);
        let outcome = match answer {
            Answer::Refused(text) => {
                let known = ["-TRYAGAIN", "-CLUSTERDOWN", "-NOREPLICAS", "-OOM"];
                if !known.iter().any(|k| text.starts_with(k)) {
                    self.violate(format!(
                        "I14: {} {:?} was refused with {text}",
                        pending.key, pending.action
                    ));
                }
                self.counts.refused += 1;
                if self.healing && matches!(pending.action, Action::Get) {
                    self.final_reads.push(pending.key.clone());
                }
                return;
            }
            Answer::Uncertain => {
                self.counts.uncertain += 1;
                Outcome::Unknown
            }
            Answer::Outcome(outcome) => outcome,
        };
        let operation = Operation {
            begin: pending.begin,
            end: self.now,
            action: pending.action,
            outcome,
        };
        self.history.entry(pending.key.clone()).or_default().push(operation);
    }

    pub(crate) fn client_lost(&mut self, client: usize, conn: ConnId) {
        if self.clients[client].conn.is_none_or(|(_, _, current)| current != conn) {
            return;
        }
        self.clients[client].conn = None;
        for pending in core::mem::take(&mut self.clients[client].pending) {
            if pending.action == Action::Get {
                if self.healing {
                    self.final_reads.push(pending.key);
                }
                continue;
            }
            self.record(&pending, Answer::Uncertain);
        }
        self.push(Span::from_ms(2), Happening::ClientWakes(client));
    }
}
