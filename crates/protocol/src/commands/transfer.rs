//! Keys that come with their slots from another stream, or that went with them (PROTOCOL 10.8): ordinary changes of a
//! stream, which no client has asked for.

use super::{Job, Operation, Stop};
use crate::context::Context;
use crate::interface::Out;
use crate::stream_owner::StreamOwner;
use paritas_base::configuration::Configuration;
use paritas_store::{Arena, Blocked, Delta, Stream as Store, Value};
use paritas_wire::command::lookup;
use paritas_wire::resp::{Args, Proto, errors};

/// Why a key is not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Not now.
    Wait,
    /// There is no memory for it.
    NoRoom,
}

/// Stores an object as it was elsewhere.
pub(crate) fn take_in<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    key: &[u8],
    value: Value<'_>,
) -> Result<(), Refused> {
    let hash = owner.store.hash(key);
    change(cx, configuration, owner, hash, |store, arena, delta| {
        store.put(arena, delta, hash, key, value)
    })
}

/// Removes a key that is another stream's.
pub(crate) fn give_up<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    key: &[u8],
) -> Result<bool, Refused> {
    let hash = owner.store.hash(key);
    change(cx, configuration, owner, hash, |store, arena, delta| {
        store.delete(arena, delta, hash, key)
    })
}

fn change<O: Out, T>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    hash: u64,
    work: impl FnMut(&mut Store, &mut Arena, &mut Delta) -> Result<T, Blocked>,
) -> Result<T, Refused> {
    let (args, mut reply) = (Args::default(), Vec::new());
    let Some(spec) = lookup(b"SET") else {
        return Err(Refused::Wait);
    };
    let mut operation = Operation {
        cx,
        configuration,
        owner,
        job: Job {
            spec,
            args: args.list(&[]),
            proto: Proto::Resp2,
            hash: Some(hash),
        },
        reply: &mut reply,
        start: 0,
        need: 0,
        looked: false,
        admitted: false,
        changed: false,
        begun: false,
        several: false,
    };
    operation.change(hash, work).map_err(|stop| match stop {
        Stop::Stall | Stop::Error(errors::NOREPLICAS) => Refused::Wait,
        Stop::Error(_) | Stop::Refused => Refused::NoRoom,
    })
}
