//! One command of a caller: where it runs, or why it cannot start.

use super::call::Call;
use super::client::{Caller, LongValue, Wait};
use super::long::Long;
use super::one_by_one::OneByOne;
use super::prefetch::{Ahead, Target, target_of};
use super::remote::Standing;
use super::{Dispatcher, FORWARDED_BYTES_MAX, Ran, SEGMENTS_MAX};
use crate::dialect::{Dialect, Refusal};
use crate::redis::commands::{self, Executed, Job};
use crate::redis::refusals::{is_error, is_reply_too_large};
use paritas_base::{Span, StreamId};
use paritas_protocol::{Fault, Out, Phase};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::resp::ArgList;

/// Flags of commands that [`Dispatcher::transact`] runs.
const TRANSACTED: u32 = flag::TRANSACTION | flag::INTERNAL | flag::SCRIPT | flag::FUNCTION;

impl Dispatcher {
    /// Runs one command of a caller.
    pub(crate) fn run<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        ahead: &Ahead,
        args: ArgList<'_>,
        raw: &[u8],
    ) -> Ran {
        let is_full = call.client.segments.len() >= SEGMENTS_MAX || call.client.forwarded_bytes >= FORWARDED_BYTES_MAX;
        let waits = call.client.awaited.is_some() || call.client.has_many_long_replies() || call.client.one_by_ones > 0;
        if is_full || waits {
            call.client.full = true;
            call.client.stalled_since = None;
            return Ran::Stalled;
        }
        call.client.full = false;
        let start = call.turn.bytes.len();
        if call.client.refuses_unauthenticated(&mut call.turn.bytes, &ahead.spec) {
            self.counters
                .count_error(call.turn.bytes.get(start..).is_some_and(is_error));
            self.push(call, start, Wait::Ready);
            return Ran::Done;
        }
        let spec = match &ahead.spec {
            Ok(spec) => *spec,
            Err(refusal) => {
                if refusal.is_error(args) {
                    self.counters.reject(refusal);
                }
                call.client.break_transaction();
                if matches!(refusal, command::Refusal::WrongArity(spec) if spec.id == Command::Exec) {
                    call.client.end_transaction();
                }
                refusal.append_to(&mut call.turn.bytes, args);
                self.push(call, start, Wait::Ready);
                return Ran::Done;
            }
        };
        if self.is_held(call.cx, call.client, spec) {
            return Ran::Stalled;
        }
        call.client.about.last_command = spec.name;
        // It may have been decoded before a SELECT ran.
        let is_old = ahead.database != call.client.database && !call.cx.rules().fault(Fault::PlaceBeforeSelect);
        let place = match is_old {
            true => target_of(call.cx, call.lists, call.client.database, spec, args),
            false => ahead.place,
        };
        let job = Job {
            hash: match place {
                Target::One(_, hash) => hash,
                _ => None,
            },
            is_staged: call.client.is_staged(),
            ..call.client.job(call.cx, spec, args, raw)
        };
        if (call.client.transaction.is_some() || spec.flags & TRANSACTED != 0)
            && call.client.dialect != Dialect::Memcached
            && let Some(ran) = self.transact(call, &job)
        {
            if ran != Ran::Stalled {
                call.client.forget_functions();
            }
            return ran;
        }
        if let Caller::Remote(..) = call.client.caller
            && let Some(ran) = self.check_direction(call, place)
        {
            return ran;
        }
        let ran = match place {
            Target::Keyless => self.run_keyless(call, &job),
            Target::One(stream, _) => self.run_on(call, &job, stream),
            Target::Slots(stream) => self.run_over_slots(call, &job, stream),
            Target::Unserved(_) => self.stall(call, spec),
        };
        if ran != Ran::Stalled && matches!(call.client.caller, Caller::Local(_)) {
            if spec.is(flag::WRITE) {
                call.client.last_write_n = job.ticket.n;
            }
            self.counters
                .count(spec.id, call.turn.bytes.get(start..).is_some_and(is_error));
        }
        ran
    }

    /// Runs a command on the stream of its keys, here or at its owner.
    pub(crate) fn run_on<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>, stream: StreamId) -> Ran {
        if call.client.is_behind_detours() {
            return Ran::Stalled;
        }
        if let Caller::Remote(..) = call.client.caller {
            match self.standing(call.cx, call.lists, call.client) {
                Standing::Owner => {}
                Standing::Early => return self.stall(call, job.spec),
                Standing::Stranger => return self.refuse_stranger(call, stream),
            }
        }
        let is_new = call.client.stalled_since.is_none() && !job.is_staged;
        if job.spec.is(flag::WRITE) && is_new && self.stuck.refuses_writes(call.cx, call.lists, stream) {
            return self.refuse(call, job.spec);
        }
        let start = call.turn.bytes.len();
        let Some((configuration, owner)) = call.lists.owner_mut(stream) else {
            if let Caller::Remote(..) = call.client.caller {
                return self.refuse_stranger(call, stream);
            }
            return self.run_elsewhere(call, job, stream);
        };
        if owner.phase() != Phase::Serve {
            return self.stall_on(call, job.spec, stream);
        }
        self.stuck.serves(stream);
        let forged_before = call.cx.shared.forged_values;
        if job.spec.id == Command::ParitasStage && !call.client.staged_in.contains(&stream) {
            call.client.staged_in.push(stream);
        }
        match commands::execute(
            call.cx,
            configuration,
            owner,
            job,
            &mut self.scripts,
            &self.nodes,
            &mut call.turn.bytes,
        ) {
            Executed::Stalled(moved_at) => {
                // The timeout of a large value begins anew whenever bytes of it are sent or received.
                call.client.stalled_since = call
                    .client
                    .stalled_since
                    .map(|since| moved_at.unwrap_or(since).max(since));
                // Otherwise a large value is on its way, or the command waits for the next turn.
                let chunks_lack = owner.store().chunks().absent_count() > 0;
                if moved_at.is_some() || call.cx.shared.turn_budget.left() == 0 || !chunks_lack {
                    return self.stall(call, job.spec);
                }
                let term = owner.tenure().term();
                self.stall_here(call, job.spec, stream, term)
            }
            Executed::Long(effect, value) => {
                let (tenure, n) = (owner.tenure(), job.ticket.n);
                let first = Wait::of(effect, stream, tenure.term(), call.cx.mono());
                match call.client.caller {
                    Caller::Local(_) => {
                        let long = Long::local(call.cx, n, stream, tenure, first, *value);
                        let bytes = long.bytes();
                        self.push(call, start, Wait::Long(long));
                        self.note_long(call.client, bytes);
                    }
                    Caller::Remote(..) => {
                        let owner = (stream, tenure.since);
                        let long = Some(Box::new(LongValue { value: *value, owner }));
                        self.push_segment(call, start, first, long);
                    }
                }
                Ran::Done
            }
            Executed::Replied(_)
                if job.spec.id == Command::Mget
                    && call.turn.bytes.get(start..).is_some_and(is_reply_too_large)
                    && call.client.may_read_one_by_one(job.ticket.n) =>
            {
                call.turn.bytes.truncate(start);
                let one_by_one = OneByOne::of(job.database, job.args);
                let held_bytes = one_by_one.held_bytes();
                self.push(call, start, Wait::OneByOne(one_by_one));
                self.note_one_by_one(call.client, held_bytes);
                Ran::Done
            }
            Executed::Replied(effect) => {
                let wait = Wait::of(effect, stream, owner.tenure().term(), call.cx.mono());
                self.push(call, start, wait);
                // Who tries again and again finds the coefficients at last (P14.20).
                if call.cx.shared.forged_values > forged_before {
                    return Ran::Close;
                }
                if call.cx.rules().fault(Fault::ValueTakenAtRelease)
                    && job.spec.id == Command::Get
                    && let Some(waiting) = call.client.segments.back_mut()
                {
                    waiting.taken_again.remember(job.args.arg(1));
                }
                Ran::Done
            }
        }
    }

    /// The command cannot start although its stream serves; [`Self::stall_on`] has the other case. It is refused if it
    /// still cannot start after two leases.
    pub(crate) fn stall<O: Out>(&mut self, call: &mut Call<'_, '_, O>, spec: &CommandSpec) -> Ran {
        let waited = call
            .client
            .stalled_since
            .is_some_and(|since| call.cx.mono() - since > Span(2 * call.cx.shared.parameters.lease.0));
        if !waited {
            return Ran::Stalled;
        }
        self.refuse(call, spec)
    }

    /// Answers with a refusal.
    pub(crate) fn reply_refusal<O: Out>(&mut self, call: &mut Call<'_, '_, O>, refusal: Refusal) -> Ran {
        let dialect = call.client.dialect;
        self.reply_now(call, |out| dialect.refuse(out, refusal))
    }

    /// Answers with a reply that may be released at once.
    pub(crate) fn reply_now<O: Out>(&mut self, call: &mut Call<'_, '_, O>, write: impl FnOnce(&mut Vec<u8>)) -> Ran {
        let start = call.turn.bytes.len();
        write(&mut call.turn.bytes);
        self.push(call, start, Wait::Ready);
        Ran::Done
    }
}
