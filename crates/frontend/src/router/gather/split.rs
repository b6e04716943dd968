//! Commands whose keys are in several hash slots: which may be split, and which keys become one part. The keys of a
//! part are of one stream, and fit in one delta or one reply.

use super::How;
use super::rename::moves_key;
use crate::dialect::Refusal;
use crate::redis::commands::Job;
use crate::redis::connection::is_word;
use crate::redis::pairs::{LARGE_PAIRS_BYTES_MAX, Load};
use crate::router::call::Call;
use crate::router::client::Caller;
use crate::router::{Dispatcher, Ran};
use paritas_base::StreamId;
use paritas_protocol::{Context, Out, Port};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::peer::FRAME_BYTES_MAX;
use paritas_wire::resp::{ArgList, encode, errors};

/// The most keys of a part: the turn in which it runs must be short (P10.2b).
const PART_KEYS_MAX: usize = 16_384;

/// The most words of a command that is split: it is split in one turn, at 0.1 to 0.3 us a word.
const SPLIT_ARGS_MAX: usize = 1 << 18;

/// The most bytes of such a command. In the same turn its keys are hashed twice, and all is copied: 3 to 5 ns a byte.
const SPLIT_BYTES_MAX: usize = 32 << 20;

/// Whether a command may be split into one part for each stream of its keys.
pub(crate) fn splits(id: Command) -> bool {
    matches!(
        id,
        Command::Mget | Command::Mset | Command::Del | Command::Unlink | Command::Exists | Command::Touch
    )
}

/// The same of a command with its arguments, outside of a transaction. A condition on all keys cannot be split.
fn may_split(spec: &CommandSpec, args: ArgList<'_>) -> bool {
    if spec.id != Command::Msetex {
        return splits(spec.id);
    }
    let options = 2 + 2 * command::keys(spec, args).len();
    let is_condition = |at: usize| is_word(args, at, "nx") || is_word(args, at, "xx");
    !(options..args.len()).any(is_condition)
}

impl Dispatcher {
    /// Runs a command whose keys are in several hash slots. `stream`: the stream of all these slots, if it is one.
    pub(crate) fn run_over_slots<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        job: &Job<'_>,
        stream: Option<StreamId>,
    ) -> Ran {
        let Job { spec, args, .. } = *job;
        // A part of a transaction may have several slots of the stream; it comes from a peer only.
        let refused = (call.client.port == Port::Cluster || !may_split(spec, args)) && !spec.is(flag::INTERNAL);
        let local = matches!(call.client.caller, Caller::Local(_));
        if local && moves_key(spec.id) && call.client.port == Port::Any {
            return self.rename(call, job);
        }
        match stream {
            // The command of a peer is a part already: it is never split again.
            Some(stream) if !refused && (!local || all_fits(call.cx, spec, args)) => self.run_on(call, job, stream),
            _ if !refused && local => self.split(call, job),
            _ => self.reply_refusal(call, Refusal::CrossSlot),
        }
    }

    fn split<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Ran {
        let Job { spec, args, .. } = *job;
        if call.client.is_behind_detours() {
            return Ran::Stalled;
        }
        let step = usize::from(spec.step.unsigned_abs()).max(1);
        if !spec.is(flag::KEY_COUNT) && !(args.len() - 1).is_multiple_of(step) {
            let refusal = Refusal::WrongArity { name: spec.name };
            return self.reply_refusal(call, refusal);
        }
        if args.len() > SPLIT_ARGS_MAX || args.span_bytes() > SPLIT_BYTES_MAX {
            return self.reply_now(call, |out| encode::error(out, errors::TOO_MANY_ARGS));
        }
        // For each part its stream, and what it weighs. A key goes to the newest part of its stream if it still fits
        // there.
        let mut parts: Vec<(StreamId, Load)> = Vec::new();
        let small_max = small_max(call.cx);
        let mut newest: Vec<usize> = Vec::new();
        let mut part_of: Vec<u32> = Vec::with_capacity(args.len() / step);
        for at in command::keys(spec, args) {
            let stream = call.cx.shared.slots.stream_of_key(call.client.database, args.arg(at));
            let open = newest.iter_mut().find(|part| parts[**part].0 == stream);
            let part = match open {
                Some(part) if fits(call.cx, spec, parts[*part].1.and(args, at, step, small_max)) => *part,
                open => {
                    let part = parts.len();
                    parts.push((stream, Load::default()));
                    match open {
                        Some(before) => *before = part,
                        None => newest.push(part),
                    }
                    part
                }
            };
            parts[part].1 = parts[part].1.and(args, at, step, small_max);
            part_of.push(part as u32);
        }
        // Options behind the keys are those of each part.
        let is_counted = spec.is(flag::KEY_COUNT);
        let options = match is_counted {
            true => args.skip(2 + step * part_of.len()),
            false => args.skip(args.len()),
        };
        let mut commands: Vec<(StreamId, Vec<u8>)> = Vec::with_capacity(parts.len());
        for (stream, load) in parts {
            let mut bytes = self.spare.pop().unwrap_or_default();
            let others = 1 + usize::from(is_counted) + options.len();
            encode::array_header(&mut bytes, load.count * step + others);
            encode::bulk(&mut bytes, args.arg(0));
            if is_counted {
                encode::bulk_integer(&mut bytes, load.count as i64);
            }
            commands.push((stream, bytes));
        }
        for (at, part) in command::keys(spec, args).zip(&part_of) {
            (at..at + step).for_each(|at| encode::bulk(&mut commands[*part as usize].1, args.arg(at)));
        }
        for (_, bytes) in &mut commands {
            options.iter().for_each(|option| encode::bulk(bytes, option));
        }
        let how = match spec.id {
            Command::Mget => {
                let mut command = self.spare.pop().unwrap_or_default();
                command.extend_from_slice(job.raw);
                How::InOrder { part_of, command }
            }
            Command::Mset => How::AllOk,
            Command::Msetex => How::AllOne,
            _ => How::Sum,
        };
        let commands = commands.into_iter().map(|(stream, bytes)| (spec, stream, bytes));
        self.gather(call, how, commands.collect())
    }
}

/// The longest value in bytes that is not large. Where the owner of a key has another setting, it checks for itself.
pub(super) fn small_max<O: Out>(cx: &Context<'_, O>) -> usize {
    cx.shared.small_bytes_max()
}

/// What all keys of a command weigh.
fn load_of<O: Out>(cx: &Context<'_, O>, spec: &CommandSpec, args: ArgList<'_>) -> Load {
    let (step, small_max) = (usize::from(spec.step.unsigned_abs()).max(1), small_max(cx));
    command::keys(spec, args).fold(Load::default(), |load, at| load.and(args, at, step, small_max))
}

/// Whether a value of MSET is large.
pub(super) fn has_large<O: Out>(cx: &Context<'_, O>, spec: &CommandSpec, args: ArgList<'_>) -> bool {
    args.span_bytes() > small_max(cx) && load_of(cx, spec, args).has_large
}

/// Whether all keys of a command fit in one part.
fn all_fits<O: Out>(cx: &Context<'_, O>, spec: &CommandSpec, args: ArgList<'_>) -> bool {
    let (step, small_max) = (usize::from(spec.step.unsigned_abs()).max(1), small_max(cx));
    let at_most = Load::at_most(args, (args.len() - 1) / step, small_max);
    (!at_most.has_large && fits(cx, spec, at_most)) || fits(cx, spec, load_of(cx, spec, args))
}

/// Whether keys that weigh this much fit in one part.
fn fits<O: Out>(cx: &Context<'_, O>, spec: &CommandSpec, load: Load) -> bool {
    if load.count > PART_KEYS_MAX {
        return false;
    }
    if spec.is(flag::WRITE) {
        // A single pair cannot be split: its size is checked where it runs.
        let fits_way = !load.has_large || load.bytes <= LARGE_PAIRS_BYTES_MAX;
        let fits_delta = || paritas_protocol::fits_one_delta(&cx.shared.parameters, load.count, load.delta_bytes);
        load.count == 1 || (fits_way && fits_delta())
    } else {
        load.bytes <= FRAME_BYTES_MAX / 4
    }
}
