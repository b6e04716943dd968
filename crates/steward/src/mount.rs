//! One mount: its lease, and while this steward leads its machine.

use crate::link::{Done, Link, Work};
use crate::metrics::{CacheErrors, MountFigures};
use crate::settings::MountSettings;
use paritas_base::{Prng, Time};
use paritas_files::geometry::Geometry;
use paritas_files::lease::{Change, Lease};
use paritas_files::record::Record;
use paritas_files::request::Request;
use paritas_files::steward::{Asker, Event, Out, Refreshed, Reply};
use paritas_files::{File, Steward};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What a mount tells a client.
#[derive(Debug)]
pub(crate) enum Told {
    /// The machine's reply.
    Reply(Reply),
    /// Another steward leads.
    NotLeader(String),
}

#[derive(Debug)]
pub(crate) struct Mount {
    name: String,
    settings: MountSettings,
    link: Link,
    lease: Lease,
    /// Counts how often this steward has begun to lead; answers to what was asked in an earlier tenure are ignored.
    tenure: u64,
    steward: Option<Steward>,
    random: Prng,
    /// Clients without an answer yet.
    waiting: BTreeSet<Asker>,
    /// Why the cache store does not answer.
    away: Option<String>,
    /// The records are being read.
    loading: bool,
    errors: CacheErrors,
}

impl Mount {
    pub(crate) fn new(name: &str, settings: MountSettings, link: Link, lease: Lease, random: Prng) -> Self {
        Self {
            name: name.to_owned(),
            settings,
            link,
            lease,
            tenure: 0,
            steward: None,
            random,
            waiting: BTreeSet::new(),
            away: None,
            loading: false,
            errors: CacheErrors::default(),
        }
    }

    pub(crate) fn link(self) -> Link {
        self.link
    }

    /// When to call `on_time`.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.steward.as_ref().map(Steward::next_deadline)
    }

    pub(crate) fn on_request(&mut self, now: Time, asker: Asker, request: Request<'_>, told: &mut Vec<(Asker, Told)>) {
        if !self.lease.leads(now) {
            told.push((asker, self.refusal()));
            return;
        }
        if self.steward.is_none() {
            let text = format!("mount {} reads its records: repeat in a moment", self.name);
            told.push((asker, Told::Reply(Reply::Error(text))));
            return;
        }
        self.waiting.insert(asker);
        self.on(now, Event::Request(asker, request), told);
    }

    fn refusal(&self) -> Told {
        if let Some(leader) = self.lease.other() {
            return Told::NotLeader(leader.to_owned());
        }
        let (name, cache) = (&self.name, &self.settings.cache);
        let text = match &self.away {
            Some(why) => {
                format!("nobody leads mount {name}: the cache store cannot be used ({why}). Read without parity")
            }
            None => format!("nobody leads mount {name} yet (its lease is in {cache}): repeat in a moment"),
        };
        Told::Reply(Reply::Error(text))
    }

    pub(crate) fn on_time(&mut self, now: Time, told: &mut Vec<(Asker, Told)>) {
        if self.next_deadline().is_some_and(|deadline| deadline <= now) {
            if self.lease.leads(now) {
                self.on(now, Event::Tick, told);
            } else {
                self.resign("its lease has ended", told);
            }
        }
    }

    pub(crate) fn on_done(&mut self, now: Time, tenure: u64, done: Done, told: &mut Vec<(Asker, Told)>) {
        self.count_error(&done);
        match done {
            Done::Lease(asked, answer) => self.on_lease(now, asked, answer, told),
            // Counters belong to the nodes, so those that were asked for in an earlier tenure count too.
            Done::Polled(polled) => self.on(now, Event::Polled(&polled), told),
            _ if tenure != self.tenure => {}
            Done::Loaded(Ok(records)) => {
                tracing::info!(mount = self.name, records = records.len(), "leads");
                let (settings, random) = (self.settings.machine(), self.random.fork());
                let mut asked = Asked::default();
                self.steward = Some(Steward::new(now, settings, random, records, &mut asked));
                self.loading = false;
                self.carry_out(now, asked, told);
            }
            Done::Loaded(Err(why)) => {
                tracing::warn!(mount = self.name, why, "the records cannot be read; trying again");
                self.loading = false;
            }
            Done::Stored(token, done) => self.on(now, Event::Stored(token, done), told),
            Done::Erased(token, done) => self.on(now, Event::Erased(token, done), told),
            Done::Refreshed(token, outcome) => self.on(now, Event::Refreshed(token, outcome), told),
        }
    }

    fn count_error(&mut self, done: &Done) {
        let errors = &mut self.errors;
        match done {
            Done::Lease(_, Err(_)) => errors.lease += 1,
            Done::Loaded(Err(_)) => errors.load += 1,
            Done::Stored(_, false) => errors.store += 1,
            Done::Erased(_, false) => errors.erase += 1,
            Done::Refreshed(_, Refreshed::Away) => errors.refresh += 1,
            _ => {}
        }
    }

    fn on_lease(
        &mut self,
        now: Time,
        asked: Time,
        answer: Result<Option<String>, String>,
        told: &mut Vec<(Asker, Told)>,
    ) {
        let change = match &answer {
            Ok(Some(owner)) => self.lease.on_answer(now, asked, Some(owner)),
            Ok(None) => self.lease.on_no_key(),
            Err(_) => self.lease.on_answer(now, asked, None),
        };
        let away = answer.err();
        if away.is_some() != self.away.is_some() {
            match &away {
                Some(why) => tracing::warn!(mount = self.name, why, "the cache store cannot be used"),
                None => tracing::info!(mount = self.name, "the cache store can be used"),
            }
        }
        self.away = away;
        match change {
            Change::Same => {}
            Change::Lost => self.resign("another steward leads, or the cache store is away or empty", told),
            Change::Won => {
                self.resign("it may have been led by another steward meanwhile", told);
                self.tenure += 1;
                self.loading = false;
            }
        }
        let leads = self.lease.leads(now);
        self.link.set_leads(leads);
        // With every answer, so once a second, until they are read.
        if leads && self.steward.is_none() && !self.loading {
            self.loading = self.link.ask(self.tenure, Work::Load);
        }
    }

    /// Leads no longer.
    fn resign(&mut self, why: &str, told: &mut Vec<(Asker, Told)>) {
        if self.steward.take().is_some() {
            tracing::warn!(mount = self.name, why, "leads no longer");
        }
        for asker in std::mem::take(&mut self.waiting) {
            let text = format!(
                "mount {} has no leader at the moment: {why}. Repeat in a moment",
                self.name
            );
            told.push((asker, Told::Reply(Reply::Error(text))));
        }
    }

    fn on(&mut self, now: Time, event: Event<'_>, told: &mut Vec<(Asker, Told)>) {
        let Some(steward) = &mut self.steward else {
            return;
        };
        let mut asked = Asked::default();
        steward.on(now, event, &mut asked);
        self.carry_out(now, asked, told);
    }

    fn carry_out(&mut self, now: Time, mut asked: Asked, told: &mut Vec<(Asker, Told)>) {
        let mut failed = Vec::new();
        loop {
            for (asker, reply) in asked.replies.drain(..) {
                self.waiting.remove(&asker);
                told.push((asker, Told::Reply(reply)));
            }
            for work in asked.work.drain(..) {
                let (event, done) = match &work {
                    Work::Store(token, ..) => (Event::Stored(*token, false), Done::Stored(*token, false)),
                    Work::Erase(token, ..) => (Event::Erased(*token, false), Done::Erased(*token, false)),
                    Work::Refresh(token, ..) => {
                        let away = Refreshed::Away;
                        (Event::Refreshed(*token, away), Done::Refreshed(*token, away))
                    }
                    Work::Load => continue,
                };
                if !self.link.ask(self.tenure, work) {
                    self.count_error(&done);
                    failed.push(event);
                }
            }
            let (Some(event), Some(steward)) = (failed.pop(), &mut self.steward) else {
                return;
            };
            steward.on(now, event, &mut asked);
        }
    }

    /// The mount for `FILES.STATUS` without a name.
    pub(crate) fn status(&mut self, now: Time) -> Value {
        let mut status = json!({
            "cache": self.settings.cache,
            "role": self.role(now),
            "leader": null,
            "cache_error": self.away,
        });
        if self.lease.leads(now) {
            let mut asked = Asked::default();
            if let Some(steward) = &mut self.steward {
                steward.on(now, Event::Request(Asker(0), Request::Status), &mut asked);
            }
            if let Some((_, Reply::Status(text))) = asked.replies.pop() {
                status["status"] = serde_json::from_str(&text).unwrap_or_default();
            }
        } else if let Some(leader) = self.lease.other() {
            status["leader"] = leader.into();
        }
        status
    }

    fn role(&self, now: Time) -> &'static str {
        match (self.lease.leads(now), &self.steward) {
            (true, Some(_)) => "leader",
            (true, None) => "loading",
            (false, _) if self.lease.other().is_some() => "spare",
            (false, _) => "none",
        }
    }

    pub(crate) fn metrics(&mut self, now: Time) -> MountFigures {
        let role = self.role(now);
        let mut steward = self.steward.as_mut().filter(|_| role == "leader");
        MountFigures {
            role,
            cache_is_up: self.away.is_none(),
            cache_errors: self.errors,
            status: steward.as_mut().map_or(Value::Null, |steward| steward.figures(now)),
            nodes: steward.map_or_else(Vec::new, |steward| steward.nodes(now)),
        }
    }
}

/// What the machine asks, in order.
#[derive(Default)]
struct Asked {
    replies: Vec<(Asker, Reply)>,
    work: Vec<Work>,
}

impl Out for Asked {
    fn reply(&mut self, asker: Asker, reply: Reply) {
        self.replies.push((asker, reply));
    }
    fn store(&mut self, token: u64, file: File, record: &Record) {
        self.work.push(Work::Store(token, file, *record));
    }
    fn erase(&mut self, token: u64, file: File, geometry: &Geometry, record: bool) {
        self.work.push(Work::Erase(token, file, *geometry, record));
    }
    fn refresh(&mut self, token: u64, file: File, geometry: &Geometry) {
        self.work.push(Work::Refresh(token, file, *geometry));
    }
}
