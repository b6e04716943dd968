//! What the commands on keys do, at the owner of their stream.

mod strings;

use crate::context::Context;
use crate::interface::Out;
use crate::stream_owner::{Admission, StreamOwner};
use paritas_base::Stripe;
use paritas_base::configuration::Configuration;
use paritas_store::{Blocked, Value};
use paritas_wire::command::{Command, CommandSpec};
use paritas_wire::resp::{ArgList, Proto, encode, errors};

/// What a reply that was written must wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Nothing: it says nothing about keys.
    None,
    /// It tells what it saw.
    Read {
        /// The delta that must be acknowledged before anyone may see it (4.1).
        need: u64,
    },
    /// It tells of a change.
    Write {
        /// The change's delta.
        seq: u64,
    },
}

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Executed {
    /// The reply is written.
    Replied(Effect),
    /// It cannot run yet. Nothing has changed, and nothing it wrote counts.
    Stalled,
}

/// Why a command stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Until something changes.
    Stall,
    /// For good, with this error.
    Error(&'static str),
}

/// One command at work on its stream.
pub(crate) struct Operation<'a, 'c, O: Out> {
    cx: &'a mut Context<'c, O>,
    configuration: &'a Configuration,
    owner: &'a mut StreamOwner,
    proto: Proto,
    reply: &'a mut Vec<u8>,
    need: u64,
    changed: bool,
}

/// Runs one command on keys of one slot. The owner serves.
pub(crate) fn execute<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    spec: &'static CommandSpec,
    args: ArgList<'_>,
    proto: Proto,
    reply: &mut Vec<u8>,
) -> Executed {
    let start = reply.len();
    let mut operation = Operation {
        cx,
        configuration,
        owner,
        proto,
        reply,
        need: 0,
        changed: false,
    };
    let result = operation.run(spec, args);
    let Operation {
        owner,
        reply,
        need,
        changed,
        ..
    } = operation;
    match result {
        Ok(()) => {}
        Err(Stop::Error(text)) => {
            reply.truncate(start);
            encode::error(reply, text);
            if !changed && need == 0 && is_about_arguments(text) {
                return Executed::Replied(Effect::None);
            }
        }
        Err(Stop::Stall) => return Executed::Stalled,
    }
    let effect = if changed {
        Effect::Write { seq: owner.next_seq() }
    } else {
        Effect::Read { need }
    };
    Executed::Replied(effect)
}

/// Errors that tell nothing of the stream need no lease.
fn is_about_arguments(text: &str) -> bool {
    text.starts_with("ERR") || text.starts_with("NOREPLICAS") || text.starts_with("OOM")
}

impl<O: Out> Operation<'_, '_, O> {
    fn run(&mut self, spec: &'static CommandSpec, args: ArgList<'_>) -> Result<(), Stop> {
        match spec.id {
            Command::Get => self.get(args),
            Command::Set => self.set(args),
            Command::Del | Command::Unlink => self.delete(args),
            Command::Exists => self.exists(args),
            Command::Incr => self.increment(args, 1),
            _ => Err(Stop::Error("ERR unknown command")),
        }
    }

    /// Notes that the reply depends on this key (4.1).
    fn depends_on(&mut self, hash: u64) {
        self.need = self.need.max(self.owner.need(hash));
    }

    /// The key's value, copied, with its expiry; `None` for no key. An expired one is deleted first (8.4).
    fn value(&mut self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>, Stop> {
        let hash = self.owner.store.hash(key);
        self.depends_on(hash);
        if self.expire(hash, key)? {
            return Ok(None);
        }
        let found = self.owner.store.find(&self.cx.shared.arena, hash, key);
        match found {
            Ok(None) => Ok(None),
            Ok(Some(object)) => {
                let mut value = Vec::with_capacity(object.len());
                object.copy_to(&mut value);
                Ok(Some((value, object.expiry_ms())))
            }
            Err(blocked) => Err(self.blocked(blocked)),
        }
    }

    /// Whether the key exists.
    fn is_there(&mut self, key: &[u8]) -> Result<bool, Stop> {
        let hash = self.owner.store.hash(key);
        self.depends_on(hash);
        if self.expire(hash, key)? {
            return Ok(false);
        }
        let found = self
            .owner
            .store
            .find(&self.cx.shared.arena, hash, key)
            .map(|o| o.is_some());
        found.map_err(|blocked| self.blocked(blocked))
    }

    /// Deletes the key if its time is over (8.4): true if it was.
    fn expire(&mut self, hash: u64, key: &[u8]) -> Result<bool, Stop> {
        let expired = match self.owner.store.find(&self.cx.shared.arena, hash, key) {
            Ok(object) => object
                .and_then(|o| o.expiry_ms())
                .is_some_and(|at| self.cx.now.wall_ms >= at),
            Err(blocked) => return Err(self.blocked(blocked)),
        };
        if expired {
            self.remove(hash, key)?;
        }
        Ok(expired)
    }

    /// Removes the key: true if there was one.
    fn remove(&mut self, hash: u64, key: &[u8]) -> Result<bool, Stop> {
        self.change(hash, |store, arena, delta| store.delete(arena, delta, hash, key))
    }

    /// Stores a value.
    fn put(&mut self, key: &[u8], value: Value<'_>) -> Result<(), Stop> {
        let hash = self.owner.store.hash(key);
        self.change(hash, |store, arena, delta| store.put(arena, delta, hash, key, value))
    }

    /// Runs one change of the store, once more with a fresh delta if the open one is full.
    fn change<T>(
        &mut self,
        hash: u64,
        mut work: impl FnMut(
            &mut paritas_store::Stream,
            &mut paritas_store::Arena,
            &mut paritas_store::Delta,
        ) -> Result<T, Blocked>,
    ) -> Result<T, Stop> {
        match self.owner.admit_write(self.cx) {
            Admission::Admitted => {}
            Admission::Wait => return Err(Stop::Stall),
            Admission::TooFewMembers => return Err(Stop::Error(errors::NOREPLICAS)),
        }
        for _ in 0..2 {
            let before = self.owner.open_bytes();
            let (store, delta) = self.owner.delta();
            let result = work(store, &mut self.cx.shared.arena, delta);
            if self.owner.open_bytes() > before {
                self.owner.touch(hash);
                self.changed = true;
            }
            match result {
                Ok(done) => return Ok(done),
                Err(Blocked::DeltaFull) if !self.changed => self.owner.close_delta(self.cx, self.configuration),
                Err(blocked) => return Err(self.blocked(blocked)),
            }
        }
        Err(Stop::Stall)
    }

    fn blocked(&mut self, blocked: Blocked) -> Stop {
        match blocked {
            Blocked::Missing(stripe) => {
                self.want(stripe);
                Stop::Stall
            }
            Blocked::Directory | Blocked::Credit { .. } | Blocked::DeltaFull => Stop::Stall,
            Blocked::Memory => Stop::Error(errors::OOM),
            Blocked::TooLarge => Stop::Error("ERR key or value is too long"),
        }
    }

    fn want(&mut self, stripe: Stripe) {
        self.owner.materialiser.want(self.cx.now.mono, stripe, false);
    }
}
