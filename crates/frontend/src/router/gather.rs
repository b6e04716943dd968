//! Commands over several streams: one part a stream, and how the parts' answers become one (docs/commands.md).
//!
//! The parts are not atomic together. Each runs as a command of its own, here or at its owner. What is too large for
//! one delta of a stream is several parts, in order. What looks at every key is a *walk*: one SCAN after the other at
//! each stream, since a turn must be short (P10.2b).

mod walk;

use super::client::{Caller, Client, Wait};
use super::replies::{Verdict, earliest, judge};
use super::{Dispatcher, Ran, Turn};
use crate::dialect::{Dialect, Refusal};
use crate::redis::commands::{self, Executed, Job, REPLY_BYTES_MAX, slot_number};
use crate::redis::parts;
use crate::redis::refusals::{is_error, is_uncertain};
use paritas_base::{StreamId, Time};
use paritas_protocol::{Context, Lists, Out, Phase, Port};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::peer::FRAME_BYTES_MAX;
use paritas_wire::resp::{self, ArgList, Decoded, Limits, encode, parse_integer};
use walk::{Find, Walk};

/// Which bits of SCAN's cursor are the stream's own.
const CURSOR_BITS: u32 = 48;

/// A command over several streams.
#[derive(Debug)]
pub(crate) struct Gather {
    how: How,
    dialect: Dialect,
    pub(crate) parts: Vec<Part>,
    /// Bytes of the answers that it has.
    pub(crate) reply_bytes: usize,
}

/// What one stream does of it.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) reply: Vec<u8>,
    pub(crate) wait: Wait,
}

/// How answers become one.
#[derive(Debug)]
enum How {
    /// Their sum.
    Sum,
    /// OK, if all are.
    AllOk,
    /// Values in the order of the keys: which part each is in.
    InOrder(Vec<u32>),
    /// Any that is not nothing.
    Any { pick: u64 },
    /// SCAN: the next cursor is that of the stream, or the next stream's.
    Cursor { stream: usize, next: Option<usize> },
    /// What all steps have found.
    Walked(Walk),
}

/// How far a gathered command is.
#[derive(Default)]
pub(crate) struct Progress {
    /// The reply, if every part may be seen.
    pub(crate) reply: Option<Vec<u8>>,
    /// Deadline for sending what this turn read.
    pub(crate) deadline: Option<Time>,
    /// What is to be sent next: for which part, to which stream.
    pub(crate) steps: Vec<(usize, StreamId, Vec<u8>)>,
    /// Bytes of answers that are held no more.
    pub(crate) freed_bytes: usize,
}

/// Commands whose keys may be told apart by stream.
fn splits(id: Command) -> bool {
    matches!(
        id,
        Command::Mget | Command::Mset | Command::Del | Command::Unlink | Command::Exists | Command::Touch
    )
}

/// Commands that name no key and yet run on streams.
pub(crate) fn runs_on_streams(id: Command) -> bool {
    matches!(
        id,
        Command::Keys
            | Command::Scan
            | Command::Randomkey
            | Command::Dbsize
            | Command::Flushall
            | Command::Flushdb
            | Command::ClusterCountkeysinslot
            | Command::ClusterGetkeysinslot
    )
}

/// Commands that remove all keys.
fn empties(id: Command) -> bool {
    matches!(id, Command::Flushall | Command::Flushdb)
}

impl Dispatcher {
    /// A peer's command on keys of a stream that it does not name, which must mean the same keys to both nodes: under
    /// an older map than the other's, either would miss those that came or go twice over those that went (P10.8).
    pub(crate) fn check_all_keys<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
    ) -> Option<Ran> {
        let (stream, epoch) = (client.remote.stream, client.remote.epoch);
        let (configuration, owner) = lists.owner(stream)?;
        let is_old = configuration.epoch < epoch;
        if let (true, Caller::Remote(node, _)) = (is_old, client.caller) {
            cx.ask_configuration((node, client.remote.incarnation), stream, epoch, epoch);
        }
        if is_old || empties(spec.id) && owner.is_handing_off() {
            return Some(self.stall(cx, lists, client, turn, spec));
        }
        if epoch >= owner.slots_since() {
            return None;
        }
        let refusal = match spec.id {
            id if empties(id) => Refusal::SlotsMoving,
            Command::Scan => {
                self.tell(cx, lists, client, stream);
                Refusal::NotOwner
            }
            _ => return None,
        };
        Some(self.reply_refusal(cx, lists, client, turn, refusal))
    }

    /// Keys in several slots.
    #[allow(clippy::too_many_arguments)] // One command's whole surroundings.
    pub(crate) fn run_over_slots<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
        args: ArgList<'_>,
        raw: &[u8],
        stream: Option<StreamId>,
    ) -> Ran {
        let refused = client.port == Port::Cluster || !splits(spec.id);
        let local = matches!(client.caller, Caller::Local(_));
        match stream {
            // A peer's command is a part already.
            Some(stream) if !refused && (!local || fits(cx, spec, args.len(), raw.len())) => {
                let job = Job {
                    spec,
                    args,
                    dialect: client.dialect,
                    hash: None,
                };
                self.run_on(cx, lists, client, turn, job, raw, stream)
            }
            _ if !refused && local => self.split(cx, lists, client, turn, spec, args),
            _ => self.reply_refusal(cx, lists, client, turn, Refusal::CrossSlot),
        }
    }

    fn split<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
        args: ArgList<'_>,
    ) -> Ran {
        if client.detours > 0 {
            // Blocked by earlier commands: its own timeout does not run.
            client.stalled_since = None;
            return Ran::Stalled;
        }
        let step = usize::from(spec.step.unsigned_abs()).max(1);
        if !(args.len() - 1).is_multiple_of(step) {
            let refusal = Refusal::WrongArity { name: spec.name };
            return self.reply_refusal(cx, lists, client, turn, refusal);
        }
        // What goes to each part: how many keys, and their bytes. The newest part of each stream takes what still fits.
        let mut parts: Vec<(StreamId, usize, usize)> = Vec::new();
        let mut newest: Vec<usize> = Vec::new();
        let mut part_of: Vec<u32> = Vec::with_capacity(args.len() / step);
        for at in command::keys(spec, args.len()) {
            let stream = cx.shared.slots.stream_of(command::slot(args.arg(at)));
            let bytes: usize = (at..at + step).map(|at| args.arg(at).len()).sum();
            let open = newest.iter_mut().find(|part| parts[**part].0 == stream);
            let part = match open {
                Some(part) if fits(cx, spec, parts[*part].1 + 1, parts[*part].2 + bytes) => *part,
                open => {
                    let part = parts.len();
                    parts.push((stream, 0, 0));
                    match open {
                        Some(before) => *before = part,
                        None => newest.push(part),
                    }
                    part
                }
            };
            parts[part].1 += 1;
            parts[part].2 += bytes;
            part_of.push(part as u32);
        }
        let mut commands: Vec<(StreamId, Vec<u8>)> = Vec::with_capacity(parts.len());
        for (stream, count, _) in parts {
            let mut bytes = self.spare.pop().unwrap_or_default();
            encode::array_header(&mut bytes, 1 + count * step);
            encode::bulk(&mut bytes, args.arg(0));
            commands.push((stream, bytes));
        }
        for (at, part) in command::keys(spec, args.len()).zip(&part_of) {
            (at..at + step).for_each(|at| encode::bulk(&mut commands[*part as usize].1, args.arg(at)));
        }
        let how = match spec.id {
            Command::Mget => How::InOrder(part_of),
            Command::Mset => How::AllOk,
            _ => How::Sum,
        };
        self.gather(cx, lists, client, turn, spec, how, commands)
    }

    /// Commands over all streams: of the cluster, or of this node on the strict port.
    pub(crate) fn run_over_streams<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
        args: ArgList<'_>,
    ) -> Ran {
        if client.detours > 0 {
            // Blocked by earlier commands: its own timeout does not run.
            client.stalled_since = None;
            return Ran::Stalled;
        }
        if empties(spec.id) && lists.iter().flat_map(|list| list.owners()).any(|o| o.is_handing_off()) {
            return self.stall(cx, lists, client, turn, spec);
        }
        let own_only = client.port == Port::Cluster;
        let slots = &cx.shared.cluster.slots;
        let in_scope = |lists: &Lists, stream: StreamId| !own_only || lists.owner(stream).is_some();
        let all: Vec<(usize, StreamId)> = slots
            .iter()
            .map(|(_, stream)| *stream)
            .enumerate()
            .filter(|(_, stream)| in_scope(lists, *stream))
            .collect();
        let how = match spec.id {
            Command::Dbsize => How::Sum,
            Command::Flushall | Command::Flushdb => How::AllOk,
            Command::Keys => {
                let options = [b"MATCH", args.arg(1)];
                let streams = all.into_iter().map(|(_, stream)| stream).collect();
                return self.walk(cx, lists, client, turn, Find::All, &options, streams);
            }
            // As a walk (P10.8): the only key may be in a slot that nobody holds by what is known here.
            Command::Randomkey if !cx.shared.slots.is_whole() => return self.stall(cx, lists, client, turn, spec),
            Command::Randomkey => How::Any {
                pick: cx.shared.prng.next_u64(),
            },
            Command::Scan => return self.scan(cx, lists, client, turn, spec, args, &all),
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
                    Err(refusal) => return self.reply_refusal(cx, lists, client, turn, refusal),
                };
                let stream = cx.shared.slots.stream_of(slot);
                if !in_scope(lists, stream) {
                    let nothing = if counts { encode::ZERO } else { encode::EMPTY_ARRAY };
                    return self.reply_now(cx, lists, client, turn, |out| out.extend_from_slice(nothing));
                }
                let options: [&[u8]; 2] = [b"SLOT", args.arg(2)];
                return self.walk(cx, lists, client, turn, find, &options, vec![stream]);
            }
        };
        // Inline commands are sent on as arrays like any other: what follows the words may not be there yet.
        let mut bytes = Vec::new();
        parts::append_command(&mut bytes, args);
        let parts = all.into_iter().map(|(_, stream)| (stream, bytes.clone())).collect();
        self.gather(cx, lists, client, turn, spec, how, parts)
    }

    /// One step of SCAN, on the stream that the cursor names.
    #[allow(clippy::too_many_arguments)] // One command's whole surroundings.
    fn scan<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
        args: ArgList<'_>,
        all: &[(usize, StreamId)],
    ) -> Ran {
        let cursor = str::from_utf8(args.arg(1))
            .ok()
            .and_then(|text| text.parse::<u64>().ok());
        let Some(cursor) = cursor else {
            return self.reply_refusal(cx, lists, client, turn, Refusal::InvalidCursor);
        };
        let (wanted, own) = ((cursor >> CURSOR_BITS) as usize, cursor & ((1 << CURSOR_BITS) - 1));
        let at = all.partition_point(|(number, _)| *number < wanted);
        let Some((number, stream)) = all.get(at).copied() else {
            return self.reply_now(cx, lists, client, turn, |out| {
                parts::append_scanned(out, 0, encode::EMPTY_ARRAY);
            });
        };
        // A stream that has gone elsewhere since the last step: the next one, from its start.
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
        self.gather(cx, lists, client, turn, spec, how, vec![(stream, bytes)])
    }

    #[allow(clippy::too_many_arguments)] // One command's whole surroundings.
    fn gather<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
        how: How,
        commands_by_stream: Vec<(StreamId, Vec<u8>)>,
    ) -> Ran {
        let start = turn.bytes.len();
        let mut gather = Gather {
            how,
            dialect: client.dialect,
            parts: Vec::with_capacity(commands_by_stream.len()),
            reply_bytes: 0,
        };
        // Streams of which a part is still to be sent: what follows must not overtake it.
        let mut waiting: Vec<StreamId> = Vec::new();
        for (at, (stream, command)) in commands_by_stream.into_iter().enumerate() {
            let behind = waiting.contains(&stream);
            let part = self.start_part(cx, lists, client, spec, stream, command, behind);
            if !behind && matches!(&part.wait, Wait::Forwarded(forwarded) if forwarded.target.is_none()) {
                waiting.push(stream);
            }
            gather.parts.push(part);
            client.forwarded_bytes += gather.add(at);
        }
        let wait = Wait::Gathered(Box::new(gather));
        self.push(cx, lists, client, turn, start, wait);
        Ran::Done
    }

    #[allow(clippy::too_many_arguments)] // One command's whole surroundings.
    fn start_part<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        spec: &'static CommandSpec,
        stream: StreamId,
        command: Vec<u8>,
        behind: bool,
    ) -> Part {
        let mut reply = Vec::new();
        if !behind
            && let Some((configuration, owner)) = lists.owner_mut(stream)
            && owner.phase() == Phase::Serve
            && let Ok(Decoded::Complete { .. }) = resp::decode(&command, &Limits::DEFAULT, &mut self.part_args)
        {
            self.stuck.serves(stream);
            let job = Job {
                spec,
                args: self.part_args.list(&command),
                dialect: client.dialect,
                hash: None,
            };
            let executed = commands::execute(cx, configuration, owner, job, &mut reply);
            if let Executed::Replied(effect) = executed {
                let wait = Wait::of(effect, stream, owner.tenure().term(), cx.mono());
                self.recycle(command);
                return Part { reply, wait };
            }
        }
        let wait = self.forward(cx, lists, client, spec, stream, command, behind);
        Part { reply, wait }
    }
}

/// Whether `count` keys, or words, of `bytes` bytes in sum are one part.
fn fits<O: Out>(cx: &Context<'_, O>, spec: &CommandSpec, count: usize, bytes: usize) -> bool {
    if spec.is(flag::WRITE) {
        // One pair alone always is.
        count == 1 || paritas_protocol::fits_one_delta(&cx.shared.parameters, count, bytes)
    } else {
        bytes <= FRAME_BYTES_MAX / 4
    }
}

impl Gather {
    /// The answer of part `at` has come: gives its bytes. Where all answers of an MGET together are too long for one
    /// reply, an error takes its place.
    pub(crate) fn add(&mut self, at: usize) -> usize {
        let Some(part) = self.parts.get_mut(at) else { return 0 };
        if matches!(self.how, How::InOrder(_)) && self.reply_bytes + part.reply.len() > REPLY_BYTES_MAX {
            part.reply = Vec::new();
            let bytes_max = REPLY_BYTES_MAX;
            self.dialect
                .refuse(&mut part.reply, Refusal::ReplyTooLarge { bytes_max });
        }
        self.reply_bytes += part.reply.len();
        part.reply.len()
    }

    /// Memory of it.
    pub(crate) fn held_bytes(&self) -> usize {
        let parts = self.parts.iter();
        let parts = parts.map(|part| size_of_val(part) + part.reply.capacity() + part.wait.held_bytes());
        let how = match &self.how {
            How::InOrder(part_of) => part_of.capacity() * size_of::<u32>(),
            How::Walked(walk) => walk.held_bytes(),
            _ => 0,
        };
        size_of::<Self>() + parts.sum::<usize>() + how
    }

    /// Looks at what has come.
    pub(crate) fn go_on<O: Out>(&mut self, cx: &Context<'_, O>, lists: &Lists) -> Progress {
        let mut progress = Progress::default();
        let mut whole = true;
        for (at, part) in self.parts.iter_mut().enumerate() {
            match judge(cx, lists, &part.wait) {
                Verdict::Hold => {
                    whole = false;
                    continue;
                }
                Verdict::Ready(until) => {
                    progress.deadline = earliest(progress.deadline, until);
                    // A step of a walk was true while the command ran: it is not looked at again.
                    if until.is_none() || matches!(self.how, How::Walked(_)) {
                        part.wait = Wait::Ready;
                    }
                }
                Verdict::Instead(refusal) => {
                    part.reply.clear();
                    self.dialect.refuse(&mut part.reply, refusal);
                    part.wait = Wait::Ready;
                }
            }
            if let How::Walked(walk) = &mut self.how
                && let Some(next) = walk.take(at, &mut part.reply)
            {
                progress.steps.push(next);
            }
        }
        if let How::Walked(walk) = &self.how {
            let held_bytes = walk.found.len() + self.parts.iter().map(|part| part.reply.len()).sum::<usize>();
            progress.freed_bytes = self.reply_bytes.saturating_sub(held_bytes);
            self.reply_bytes -= progress.freed_bytes;
        }
        let mut reply = Vec::new();
        let errors = || self.parts.iter().map(|p| &p.reply).filter(|reply| is_error(reply));
        // Not to know is worse than to be refused.
        let uncertain = errors().find(|reply| is_uncertain(reply));
        if let Some(error) = uncertain.or_else(|| errors().next()) {
            reply.extend_from_slice(error);
        } else if let How::Walked(walk) = &self.how
            && let Some(refusal) = walk.refusal(cx)
        {
            self.dialect.refuse(&mut reply, refusal);
        }
        let enough = match &self.how {
            How::Walked(walk) => matches!(walk.find, Find::UpTo(most) if walk.count >= most),
            _ => {
                progress.deadline = progress.deadline.filter(|_| whole);
                false
            }
        };
        if enough || !reply.is_empty() {
            progress.steps.clear();
        }
        if whole && progress.steps.is_empty() {
            if reply.is_empty() {
                self.combine(&mut reply);
            }
            progress.reply = Some(reply);
        }
        progress
    }

    /// Makes one reply of the answers of all parts.
    fn combine(&self, out: &mut Vec<u8>) {
        let replies = || self.parts.iter().map(|part| part.reply.as_slice());
        match &self.how {
            How::AllOk => self.dialect.done(out),
            How::Sum => self
                .dialect
                .number(out, replies().map(|reply| parts::head(reply).0).sum()),
            How::Walked(walk) => walk.combine(self.dialect, out),
            How::Any { pick } => {
                let some: Vec<&[u8]> = replies().filter(|reply| !parts::is_nothing(reply)).collect();
                match some.get(*pick as usize % some.len().max(1)) {
                    Some(reply) => out.extend_from_slice(reply),
                    None => self.dialect.nothing(out),
                }
            }
            How::InOrder(part_of) => {
                self.dialect.values(out, part_of.len());
                let mut rests: Vec<&[u8]> = replies().map(|reply| parts::head(reply).1).collect();
                for part in part_of {
                    if let Some(rest) = rests.get_mut(*part as usize) {
                        let (element, after) = rest.split_at(parts::element_bytes(rest));
                        out.extend_from_slice(element);
                        *rest = after;
                    }
                }
            }
            How::Cursor { stream, next } => {
                let (own, keys) = parts::scanned(replies().next().unwrap_or_default());
                let cursor = match (own, next) {
                    (0, None) => 0,
                    (0, Some(next)) => (*next as u64) << CURSOR_BITS,
                    (own, _) => (*stream as u64) << CURSOR_BITS | own,
                };
                parts::append_scanned(out, cursor, keys);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Gather, How, Part, Wait};
    use crate::dialect::Dialect;

    fn combined_for(dialect: Dialect, how: How, replies: &[&str]) -> String {
        let part = |reply: &&str| Part {
            reply: reply.as_bytes().to_vec(),
            wait: Wait::Ready,
        };
        let gather = Gather {
            how,
            dialect,
            parts: replies.iter().map(part).collect(),
            reply_bytes: 0,
        };
        let mut out = Vec::new();
        gather.combine(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn combined(how: How, replies: &[&str]) -> String {
        combined_for(Dialect::Resp2, how, replies)
    }

    #[test]
    fn parts_become_one_reply() {
        assert_eq!(combined(How::Sum, &[":1\r\n", ":41\r\n"]), ":42\r\n");
        assert_eq!(combined(How::AllOk, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        let values = ["*2\r\n$1\r\na\r\n$-1\r\n", "*1\r\n$2\r\n\r\n\r\n"];
        let in_order = combined(How::InOrder(vec![0, 1, 0]), &values);
        assert_eq!(in_order, "*3\r\n$1\r\na\r\n$2\r\n\r\n\r\n$-1\r\n");
        let any = |pick, dialect, replies: &[&str]| combined_for(dialect, How::Any { pick }, replies);
        assert_eq!(any(7, Dialect::Resp2, &["$-1\r\n", "$1\r\na\r\n"]), "$1\r\na\r\n");
        assert_eq!(any(7, Dialect::Resp3, &["_\r\n", "_\r\n"]), "_\r\n");
    }

    #[test]
    fn a_cursor_goes_on_to_the_next_stream() {
        let step = |next, own: &str| {
            let reply = format!("*2\r\n${}\r\n{own}\r\n*0\r\n", own.len());
            combined(How::Cursor { stream: 2, next }, &[&reply])
        };
        let cursor = |n: u64| format!("*2\r\n${}\r\n{n}\r\n*0\r\n", n.to_string().len());
        assert_eq!(step(Some(3), "5"), cursor((2 << 48) | 5));
        assert_eq!(step(Some(5), "0"), cursor(5 << 48));
        assert_eq!(step(None, "0"), cursor(0));
    }
}
