//! What clients read, and what the oracle learns from it.

use crate::client::{self, ABORTED, Answer, CROWD, Client, Form, LARGE_GROUP, LIBRARY, Pending, Select, in_database};
use crate::events::SimEvent;
use crate::linear::{Action, Operation, Outcome};
use crate::marks::Seen;
use crate::world::World;
use paritas_base::{ConnId, Span};
use paritas_protocol::Port;

impl World {
    pub(crate) fn client_reads(&mut self, client: usize, conn: ConnId, bytes: &[u8]) {
        if self.workload.clients[client]
            .conn
            .is_none_or(|(_, _, current)| current != conn)
        {
            return;
        }
        self.workload.clients[client].received.extend_from_slice(bytes);
        loop {
            let crowds = &self.workload.crowds;
            let Client { pending, received, .. } = &mut self.workload.clients[client];
            let asked = pending.front().map(|pending| {
                let names = pending.keys.iter().map(|key| crowds.keys(key).len());
                (pending, names.sum())
            });
            match client::take_answer_to(received, asked) {
                Err(what) => return self.violate(what),
                Ok(None) => break,
                Ok(Some(answer)) => {
                    let Some(pending) = self.workload.clients[client].pending.pop_front() else {
                        return self.violate(format!("I14: a reply without a command: {answer:?}"));
                    };
                    self.schedule
                        .log(|| format!("client {client}: {:?} {:?} = {answer:?}", pending.keys, pending.action));
                    let later = &self.workload.clients[client].pending;
                    if let Select::Inside(before) = pending.select
                        && later.iter().all(|later| later.select == Select::None)
                    {
                        self.workload.clients[client].database = match answer {
                            Answer::Outcome(Outcome::Done(_)) => pending.keys.first().map(|key| in_database(key).1),
                            Answer::Refused(_) => before,
                            _ => None,
                        };
                    }
                    let is_refused = matches!(&answer, Answer::Refused(text) if client::says_stuck(text));
                    let waits = matches!(&answer, Answer::Refused(text) if client::moved_to(text).is_none());
                    let in_row = &mut self.workload.clients[client].refused_in_row;
                    *in_row = if waits { *in_row + 1 } else { 0 };
                    self.note_reply(client, &pending, is_refused);
                    self.record(client, &pending, answer);
                }
            }
        }
        if self.workload.clients[client].pending.is_empty() {
            let doublings = self.workload.clients[client].refused_in_row.min(5);
            let think = Span(self.schedule.random.below(3_000_000 << doublings));
            self.schedule.push(think, SimEvent::ClientWakes(client));
        }
    }

    fn record(&mut self, client: usize, pending: &Pending, answer: Answer) {
        self.oracle.counts.replies += 1;
        self.schedule.mix(self.oracle.counts.replies);
        let is_read = matches!(answer, Answer::Each(_) | Answer::Refused(_));
        if pending.action == Action::GetEach && !is_read {
            return self.violate(format!("I14: MGET of {:?} was answered {answer:?}", pending.keys));
        }
        // A part of a command on several keys may have been done although another part was refused.
        let in_parts = pending.keys.len() != 1;
        let outcome = match answer {
            Answer::Refused(text) if text == ABORTED => return self.oracle.marks.see(Seen::WatchStopped),
            Answer::Refused(text) => {
                let known = ["-TRYAGAIN", "-CLUSTERDOWN", "-NOREPLICAS", "-OOM"];
                if self.workload.clients[client].port == Port::Cluster
                    && let Some(at) = client::moved_to(&text)
                {
                    self.oracle.marks.see(Seen::Moved);
                    self.workload.clients[client].moved = Some(at);
                    if self.schedule.healing {
                        self.workload.final_reads.extend(pending.keys.iter().cloned());
                    }
                    return;
                }
                let too_large = text.starts_with("-ERR command larger than")
                    || pending.action == Action::GetEach && text.starts_with("-ERR the reply is larger than");
                let has_class = |error: &str| {
                    let may_be_short = self.swarm.appends || self.swarm.differs;
                    let is_short = may_be_short && error.starts_with("-ERR the value is stored in stripes");
                    !is_short && !error.starts_with("-ERR no such key")
                };
                if matches!(pending.action, Action::Class(_)) && !has_class(&text) {
                    return;
                }
                if !known.iter().any(|k| text.starts_with(k)) && !too_large {
                    self.violate(format!(
                        "I14: {:?} {:?} was refused with {text}",
                        pending.keys, pending.action
                    ));
                }
                self.oracle.counts.refused += 1;
                if text.starts_with("-OOM") {
                    self.oracle.marks.see(Seen::OutOfMemory);
                }
                if self.schedule.healing && matches!(pending.action, Action::Get | Action::List) {
                    self.oracle.marks.see(Seen::ReadAgain);
                    self.workload.final_reads.extend(pending.keys.iter().cloned());
                }
                if !in_parts || pending.action == Action::GetEach {
                    return;
                }
                Outcome::Unknown
            }
            Answer::Uncertain => {
                self.oracle.counts.uncertain += 1;
                if matches!(pending.action, Action::Class(_)) {
                    return;
                }
                if pending.action == Action::List {
                    // Expired keys are deleted when they are found, so it is not known whether they still exist.
                    if self.schedule.healing {
                        self.workload.final_reads.extend(pending.keys.iter().cloned());
                    }
                    return;
                }
                Outcome::Unknown
            }
            Answer::Outcome(Outcome::Done(_)) if matches!(pending.action, Action::Class(_)) => {
                return self.oracle.marks.see(Seen::ClassChanged);
            }
            Answer::Each(outcomes) => {
                if outcomes.len() != pending.keys.len() {
                    return self.violate(format!("I14: {} values of {:?}", outcomes.len(), pending.keys));
                }
                let now = self.schedule.now;
                return self.oracle.record_each(pending, now, &outcomes);
            }
            Answer::Keys(names) => {
                let now = self.schedule.now;
                let listed = self.oracle.record_list(&self.workload.crowds, pending, now, &names);
                if let Err(what) = listed {
                    self.violate(what);
                }
                return;
            }
            Answer::Outcome(outcome) => outcome,
        };
        let group = pending.keys.iter().find(|key| key.starts_with('{'));
        let outcome = match (pending.action, outcome, group) {
            // DEL counts the keys of the group: all or none.
            (Action::Delete, Outcome::Done(Some(n)), Some(group)) if n != 0 => {
                let all = self.workload.crowds.keys(group).len();
                Outcome::Done(Some(i64::from(n == all as i64) * 2 - 1))
            }
            (_, outcome, _) => outcome,
        };
        let operation = Operation {
            place: Some(pending.place),
            begin: pending.begin,
            end: self.schedule.now,
            action: pending.action,
            outcome,
        };
        if pending.keys.iter().any(|key| key == LIBRARY) && matches!(outcome, Outcome::Done(Some(_))) {
            self.oracle.marks.see(match (pending.action, pending.form) {
                (Action::Get, Form::One) => Seen::FunctionCalled,
                (Action::Get, _) => Seen::FunctionCalledInTransaction,
                _ => Seen::LibraryLoaded,
            });
        }
        if matches!(outcome, Outcome::Done(_)) {
            let is_elsewhere = pending.keys.iter().any(|key| in_database(key).1 > 0);
            if is_elsewhere && matches!(outcome, Outcome::Done(Some(_))) {
                self.oracle.marks.see(match self.swarm.one_slot {
                    true => Seen::OneSlotRead,
                    false => Seen::OtherDatabaseRead,
                });
            }
            if pending.selects_inside() {
                self.oracle.marks.see(Seen::SelectedInTransaction);
            }
            match pending.form {
                Form::One => {}
                Form::Transaction => self.oracle.marks.see(Seen::TransactionDone),
                Form::Watched => self.oracle.marks.see(Seen::WatchHeld),
                Form::Scripted => self.oracle.marks.see(Seen::ScriptDone),
                Form::Classed(_) => self.oracle.marks.see(Seen::ClassWritten),
            }
        }
        match outcome {
            Outcome::Done(Some(_)) if matches!(pending.action, Action::Exchange(_) | Action::Take) => {
                self.oracle.marks.see(Seen::LargeTaken);
            }
            Outcome::Done(_) if pending.action == Action::Flush => self.oracle.marks.see(Seen::Flushed),
            Outcome::Done(Some(_)) if pending.action == Action::Get && group.is_some_and(|g| g.starts_with(CROWD)) => {
                self.oracle.marks.see(Seen::CrowdRead);
            }
            Outcome::Done(Some(_))
                if pending.action == Action::Get && group.is_some_and(|g| g.starts_with(LARGE_GROUP)) =>
            {
                self.oracle.marks.see(Seen::LargeGroupRead);
            }
            Outcome::Done(Some(_)) if pending.action == Action::Get && group.is_some() => {
                self.oracle.marks.see(Seen::GroupRead);
            }
            _ => {}
        }
        self.oracle.record(&pending.keys, operation);
    }

    pub(crate) fn client_lost(&mut self, client: usize, conn: ConnId) {
        if self.workload.clients[client]
            .conn
            .is_none_or(|(_, _, current)| current != conn)
        {
            return;
        }
        (self.workload.clients[client].conn, self.workload.clients[client].moved) = (None, None);
        for pending in core::mem::take(&mut self.workload.clients[client].pending) {
            if pending.action == Action::GetEach {
                continue;
            }
            if matches!(pending.action, Action::Get | Action::List) {
                if self.schedule.healing {
                    self.workload.final_reads.extend(pending.keys);
                }
                continue;
            }
            self.record(client, &pending, Answer::Uncertain);
        }
        self.schedule.push(Span::from_ms(2), SimEvent::ClientWakes(client));
    }
}
