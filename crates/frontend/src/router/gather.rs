//! Commands over several streams: a command is split into parts, and the replies of the parts are combined
//! (docs/commands.md).
//!
//! Each part runs as a command of its own on one stream, here or at the stream's owner. The parts together are not
//! atomic. If the keys of one stream are too many or too large for one delta, they become several parts, in order. A
//! command that looks at every key is a *walk*: it sends one SCAN after the other to each stream, because a turn must
//! be short (P10.2b).

mod combine;
mod rename;
mod split;
mod walk;

use super::call::Call;
use super::client::{Caller, Wait};
use super::functions::Functions;
use super::transact::Piece;
use super::{Dispatcher, Ran};
use crate::dialect::{Dialect, Refusal};
use crate::redis::commands::{self, Executed, Job, is_flush_mode, slot_number};
use crate::redis::parts;
use paritas_base::{SLOT_COUNT, StreamId, Time};
use paritas_protocol::{Lists, Out, Phase, Port};
use paritas_wire::command::glob::PATTERN_BYTES_MAX;
use paritas_wire::command::{Command, CommandSpec, flag};
use paritas_wire::resp::{self, Decoded, Limits, encode, errors, parse_integer};
use rename::Rename;
pub(crate) use split::splits;
use split::{has_large, small_max};
use std::sync::Arc;
use walk::{Find, Walk};

/// The most bytes of a SCAN beside its pattern.
const SCAN_REST_BYTES_MAX: usize = 4096;
/// Low bits of SCAN's cursor that hold the cursor within one stream. The bits above hold the stream's number. Some
/// clients keep a cursor in a floating-point number, which holds integers up to 2^53 only.
const CURSOR_BITS: u32 = paritas_store::CURSOR_BITS;
const _: () = assert!(
    (SLOT_COUNT as u64) << CURSOR_BITS <= 1 << 53,
    "a stream has at least one slot"
);

/// A command over several streams.
#[derive(Debug)]
pub(crate) struct Gather {
    /// How the replies of the parts become one reply.
    how: How,
    dialect: Dialect,
    /// The database that it is about.
    database: u8,
    pub(crate) parts: Vec<Part>,
    /// Bytes of the replies received so far, and the most of an MGET.
    pub(crate) reply_bytes: usize,
    reply_bytes_max: usize,
}

/// The part of a gathered command that runs on one stream.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) reply: Vec<u8>,
    pub(crate) wait: Wait,
}

/// How the replies of the parts become one reply.
#[derive(Debug)]
pub(crate) enum How {
    /// The sum of the numbers.
    Sum,
    /// OK, if every part replied OK.
    AllOk,
    /// One, if every part replied so.
    AllOne,
    /// An array of values in the order of the command's keys.
    InOrder {
        /// For each key the index of the part with its value.
        part_of: Vec<u32>,
        /// The whole command, in case that the values are too long for one reply.
        command: Vec<u8>,
    },
    /// One of the replies that hold a value; `pick` is the random number that selects it.
    Any { pick: u64 },
    /// SCAN of stream number `stream`. At that stream's end, the cursor goes on to the stream numbered `next`.
    Cursor { stream: usize, next: Option<usize> },
    /// The keys that all steps of the walk have found.
    Walked(Walk),
    /// The replies of a transaction's commands, in their order. A refused part is the reply of its commands.
    Transaction {
        pieces: Vec<Piece>,
        /// The database of the connection if it is done.
        selects: Option<u8>,
    },
    /// The reply of the last of several steps, which the only part runs one after the other.
    Renamed(Box<Rename>),
    /// The reply of the only part.
    Only,
    /// The same: an answer to a question about the libraries of functions. This node has these.
    Functions(Arc<Functions>),
    /// OK, to a WATCH of these keys. The reply of the part is the array of their versions.
    Versions(Vec<Vec<u8>>),
}

/// The state of a gathered command that waits for replies.
#[derive(Default)]
pub(crate) struct Progress {
    /// The combined reply, once the client may see every part of it.
    pub(crate) reply: Option<Vec<u8>>,
    /// Deadline for sending what this turn read.
    pub(crate) deadline: Option<Time>,
    /// Commands to send next.
    pub(crate) steps: Vec<PartStep>,
    /// Bytes of replies that were freed.
    pub(crate) freed_bytes: usize,
}

/// A command that a part runs next.
pub(crate) struct PartStep {
    /// The index of the part.
    pub(crate) part: usize,
    pub(crate) spec: &'static CommandSpec,
    pub(crate) database: u8,
    pub(crate) stream: StreamId,
    pub(crate) command: Vec<u8>,
}

/// Whether a command names no key but runs on streams.
pub(crate) fn runs_on_streams(id: Command) -> bool {
    matches!(
        id,
        Command::Keys
            | Command::Scan
            | Command::Randomkey
            | Command::Dbsize
            | Command::Flushall
            | Command::Flushdb
            | Command::FlushStep
            | Command::ClusterCountkeysinslot
            | Command::ClusterGetkeysinslot
    )
}

/// Whether a command removes all keys, or those of a database.
fn empties(id: Command) -> bool {
    matches!(id, Command::Flushall | Command::Flushdb | Command::FlushStep)
}

impl Dispatcher {
    /// Checks a peer's command on all keys of a stream, such as SCAN. Both nodes must mean the same keys (P10.8). If
    /// one of them has an older slot map, the command would miss keys that moved to the stream, or would visit keys
    /// that moved away twice.
    pub(crate) fn check_all_keys<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &'static CommandSpec,
    ) -> Option<Ran> {
        let (stream, epoch) = (call.client.remote.stream, call.client.remote.epoch);
        let (configuration, owner) = call.lists.owner(stream)?;
        let is_old = configuration.epoch < epoch;
        if let (true, Caller::Remote(node, _)) = (is_old, call.client.caller) {
            call.cx
                .ask_configuration((node, call.client.remote.incarnation), stream, epoch, epoch);
        }
        if is_old || empties(spec.id) && owner.is_handing_off() {
            return Some(self.stall(call, spec));
        }
        if epoch >= owner.slots_since() {
            return None;
        }
        let refusal = match spec.id {
            id if empties(id) => Refusal::SlotsMoving,
            Command::Scan => {
                self.tell(call.cx, call.lists, call.client, stream);
                Refusal::NotOwner
            }
            _ => return None,
        };
        Some(self.reply_refusal(call, refusal))
    }

    /// Runs a command over all streams: those of the cluster, or only those of this node on the strict port.
    pub(crate) fn run_over_streams<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Ran {
        let Job { spec, args, .. } = *job;
        if call.client.is_behind_detours() {
            return Ran::Stalled;
        }
        let hands_off = |lists: &Lists| lists.iter().flat_map(|list| list.owners()).any(|o| o.is_handing_off());
        if empties(spec.id) && hands_off(call.lists) {
            return self.stall(call, spec);
        }
        let own_only = call.client.port == Port::Cluster;
        let in_scope = |lists: &Lists, stream: StreamId| !own_only || lists.owner(stream).is_some();
        let slots = call.cx.shared.cluster.slots.iter();
        let all: Vec<(usize, StreamId)> = slots
            .map(|(_, stream)| *stream)
            .enumerate()
            .filter(|(_, stream)| in_scope(call.lists, *stream))
            .collect();
        let how = match spec.id {
            Command::Dbsize => How::Sum,
            Command::Flushall | Command::Flushdb if !is_flush_mode(args) => {
                return self.reply_now(call, |out| encode::error(out, errors::SYNTAX));
            }
            Command::Flushall | Command::Flushdb => {
                let streams = all.into_iter().map(|(_, stream)| stream).collect();
                let options: &[&[u8]] = if spec.id == Command::Flushall { &[b"all"] } else { &[] };
                return self.walk(call, Find::Deleted, options, streams);
            }
            Command::Keys if args.arg(1).len() > PATTERN_BYTES_MAX => {
                return self.reply_refusal(call, Refusal::PatternTooLong);
            }
            Command::Keys => {
                let options = [b"MATCH", args.arg(1)];
                let streams = all.into_iter().map(|(_, stream)| stream).collect();
                return self.walk(call, Find::All, &options, streams);
            }
            // As for a walk (P10.8): by this node's slot map, some slot has no owner, and the only key may be in it.
            Command::Randomkey if !call.cx.shared.slots.is_whole() => return self.stall(call, spec),
            Command::Randomkey => How::Any {
                pick: call.cx.shared.prng.next_u64(),
            },
            Command::Scan => return self.scan(call, job, &all),
            _ => {
                let counts = spec.id == Command::ClusterCountkeysinslot;
                let most = parse_integer(args.arg(3)).map(usize::try_from);
                let find = match (slot_number(args.arg(2)), most) {
                    (None, _) => Err(Refusal::InvalidSlot),
                    (Some(slot), _) if counts => Ok((slot, Find::Count)),
                    (Some(slot), Some(Ok(most))) => Ok((slot, Find::UpTo(most))),
                    (_, Some(Err(_))) => Err(Refusal::InvalidKeyCount),
                    (_, None) => Err(Refusal::NotAnInteger),
                };
                let (slot, find) = match find {
                    Ok(found) => found,
                    Err(refusal) => return self.reply_refusal(call, refusal),
                };
                let stream = call.cx.shared.slots.stream_of(slot);
                if !in_scope(call.lists, stream) {
                    let nothing = if counts { encode::ZERO } else { encode::EMPTY_ARRAY };
                    return self.reply_now(call, |out| out.extend_from_slice(nothing));
                }
                let options: [&[u8]; 2] = [b"SLOT", args.arg(2)];
                return self.walk(call, find, &options, vec![stream]);
            }
        };
        // Sent as an array even if the client sent it inline: of an inline command, bytes behind the words may not have
        // arrived yet.
        let mut bytes = Vec::new();
        parts::append_command(&mut bytes, args);
        let parts = all
            .into_iter()
            .map(|(_, stream)| (spec, stream, bytes.clone()))
            .collect();
        self.gather(call, how, parts)
    }

    /// One step of SCAN, on the stream that the cursor names.
    fn scan<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>, all: &[(usize, StreamId)]) -> Ran {
        let Job { spec, args, .. } = *job;
        let cursor = str::from_utf8(args.arg(1))
            .ok()
            .and_then(|text| text.parse::<u64>().ok());
        let Some(cursor) = cursor else {
            return self.reply_refusal(call, Refusal::InvalidCursor);
        };
        if args.span_bytes() > PATTERN_BYTES_MAX + SCAN_REST_BYTES_MAX {
            return self.reply_refusal(call, Refusal::PatternTooLong);
        }
        let (wanted, own) = ((cursor >> CURSOR_BITS) as usize, cursor & ((1 << CURSOR_BITS) - 1));
        let at = all.partition_point(|(number, _)| *number < wanted);
        let Some((number, stream)) = all.get(at).copied() else {
            return self.reply_now(call, |out| {
                parts::append_scanned(out, 0, encode::EMPTY_ARRAY);
            });
        };
        // If the stream of the cursor has left this scope since the last step, the scan goes on at the start of the
        // next stream.
        let own = if number == wanted { own } else { 0 };
        let mut bytes = Vec::new();
        encode::array_header(&mut bytes, args.len());
        encode::bulk(&mut bytes, args.arg(0));
        encode::bulk_integer(&mut bytes, own as i64);
        args.iter().skip(2).for_each(|arg| encode::bulk(&mut bytes, arg));
        let how = How::Cursor {
            stream: number,
            next: all.get(at + 1).map(|(number, _)| *number),
        };
        self.gather(call, how, vec![(spec, stream, bytes)])
    }

    /// Starts the parts of a command, each a command on one stream.
    pub(crate) fn gather<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        how: How,
        commands: Vec<(&'static CommandSpec, StreamId, Vec<u8>)>,
    ) -> Ran {
        let database = call.client.database;
        let commands = commands.into_iter();
        let commands = commands.map(|(spec, stream, command)| (spec, (stream, database), command));
        self.gather_in(call, how, commands.collect())
    }

    /// The same, each in its database.
    pub(crate) fn gather_in<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        how: How,
        commands: Vec<(&'static CommandSpec, (StreamId, u8), Vec<u8>)>,
    ) -> Ran {
        let start = call.turn.bytes.len();
        let mut gather = Gather {
            how,
            dialect: call.client.dialect,
            database: call.client.database,
            parts: Vec::with_capacity(commands.len()),
            reply_bytes: 0,
            reply_bytes_max: call.cx.shared.parameters.mget_bytes_max,
        };
        // Streams with a part that could not be sent yet: later parts for them must not overtake it.
        let mut waiting: Vec<StreamId> = Vec::new();
        for (at, (spec, (stream, database), command)) in commands.into_iter().enumerate() {
            let behind = waiting.contains(&stream);
            let part = self.start_part(call, spec, (stream, database), command, behind);
            if !behind && matches!(&part.wait, Wait::Forwarded(forwarded) if forwarded.target.is_none()) {
                waiting.push(stream);
            }
            gather.parts.push(part);
            call.client.forwarded_bytes += gather.add(at);
        }
        call.client.forwarded_bytes += gather.command_bytes();
        let wait = Wait::Gathered(Box::new(gather));
        self.push(call, start, wait);
        Ran::Done
    }

    fn start_part<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &'static CommandSpec,
        (stream, database): (StreamId, u8),
        command: Vec<u8>,
        behind: bool,
    ) -> Part {
        let mut reply = Vec::new();
        let is_refused = spec.is(flag::WRITE) && self.stuck.refuses_writes(call.cx, call.lists, stream);
        if !behind
            && !is_refused
            && let Some((configuration, owner)) = call.lists.owner_mut(stream)
            && owner.phase() == Phase::Serve
            && let Ok(Decoded::Complete { .. }) = resp::decode(&command, &Limits::DEFAULT, &mut self.part_args)
            // Large values are named by the number of their command while it waits. The parts of one command have one
            // number here, and numbers of their own when they are sent, also from this node to itself.
            && !(commands::sets_pairs(spec.id) && has_large(call.cx, spec, self.part_args.list(&command)))
            && !(commands::is_transaction(spec.id) && spec.is(flag::WRITE) && command.len() > small_max(call.cx))
        {
            self.stuck.serves(stream);
            let args = self.part_args.list(&command);
            let job = Job {
                database,
                ..call.client.job(call.cx, spec, args, &command)
            };
            let (scripts, nodes) = (&mut self.scripts, &self.nodes);
            let executed = commands::execute(call.cx, configuration, owner, &job, scripts, nodes, &mut reply);
            if let Executed::Replied(effect) = executed {
                let wait = Wait::of(effect, stream, owner.tenure().term(), call.cx.mono());
                self.recycle(command);
                return Part { reply, wait };
            }
            if matches!(spec.id, Command::RunTransaction | Command::ChangeFunctions) {
                // It runs again under a number of its own.
                owner.end_arguments(job.ticket);
            }
        }
        let to = (stream, database);
        let wait = self.forward(call, spec, to, command, behind);
        Part { reply, wait }
    }

    /// Starts the next steps of the command that is first in the reply queue of `client`.
    pub(crate) fn run_steps<O: Out>(&mut self, call: &mut Call<'_, '_, O>, steps: Vec<PartStep>) {
        for step in steps {
            let place = (step.stream, step.database);
            let next = self.forward(call, step.spec, place, step.command, false);
            if let Some(Wait::Gathered(gather)) = call.client.segments.front_mut().map(|head| &mut head.wait)
                && let Some(part) = gather.parts.get_mut(step.part)
            {
                part.wait = next;
            }
        }
    }
}

#[cfg(test)]
mod tests;
