//! A script at the owner of its keys. It is a transaction: its commands run on the draft.

use super::transaction::OnDraft;
use super::{Job, Stop, is_on_its_own};
use crate::dialect::{Dialect, Refusal};
use crate::redis::connection::database_number;
use crate::redis::scripts::{Script, Scripts, answer_without_key, resolve, why_ended};
use crate::router::prefetch::slots_of;
use paritas_protocol::Out;
use paritas_script::{Ended, Host, Weight};
use paritas_wire::command::{Command, flag};
use paritas_wire::resp::{Args, Decoded, Limits, Proto, decode, encode, errors};

/// What runs the commands of a script on a draft.
struct DraftHost<'h, 'a, 'c, O: Out> {
    on_draft: &'h mut OnDraft<'a, 'c, O>,
    job: &'h Job<'h>,
    /// The hash slot of its keys.
    slot: u16,
    /// The database of its next command.
    database: u8,
    args: Args,
    /// Why it must end.
    stop: Option<Stop>,
}

impl<O: Out> Host for DraftHost<'_, '_, '_, O> {
    fn call(&mut self, bytes: &[u8], proto: Proto, reply: &mut Vec<u8>) -> Result<(), Ended> {
        let mut args = core::mem::take(&mut self.args);
        let result = self.run(bytes, &mut args, proto, reply);
        self.args = args;
        result.map_err(|stop| {
            self.stop = Some(stop);
            Ended::ByHost
        })
    }
}

impl<O: Out> DraftHost<'_, '_, '_, O> {
    fn run(&mut self, bytes: &[u8], args: &mut Args, proto: Proto, reply: &mut Vec<u8>) -> Result<(), Stop> {
        let Ok(Decoded::Complete { .. }) = decode(bytes, &Limits::DEFAULT, args) else {
            return Err(Stop::Refused(Refusal::Malformed));
        };
        let args = args.list(bytes);
        if !self.on_draft.draft.begin_command(args.len()) {
            return Err(Stop::Error(errors::SCRIPT_TOO_SLOW));
        }
        let spec = match resolve(args) {
            Ok(spec) => spec,
            Err(text) => {
                encode::error(reply, text);
                return Ok(());
            }
        };
        if !spec.has_keys() || spec.is(flag::NOSCRIPT) || is_on_its_own(spec.id) {
            if !answer_without_key(spec, args, self.on_draft.cx.now.wall_ms, reply) {
                encode::error(reply, errors::NOT_IN_SCRIPT);
            }
            if spec.id == Command::Select {
                self.database = database_number(args.arg(1)).unwrap_or(self.database);
            }
            return Ok(());
        }
        if spec.is(flag::WRITE) && self.job.spec.id == Command::ReadScript {
            encode::error(reply, errors::WRITE_IN_READ_SCRIPT);
            return Ok(());
        }
        let is_elsewhere = {
            let slots = &self.on_draft.cx.shared.slots;
            slots_of(slots, self.database, spec, args).any(|slot| slot != self.slot)
        };
        if is_elsewhere {
            encode::error(reply, errors::OTHER_SLOT_IN_SCRIPT);
            return Ok(());
        }
        let one = Job {
            spec,
            args,
            dialect: match proto {
                Proto::Resp2 => Dialect::Resp2,
                Proto::Resp3 => Dialect::Resp3,
            },
            database: self.database,
            raw: &[],
            hash: None,
            is_staged: false,
            ..*self.job
        };
        self.on_draft.run_command(&one, reply)
    }
}

impl<O: Out> OnDraft<'_, '_, O> {
    /// Runs a script on the draft, and appends its reply.
    pub(super) fn run_script(&mut self, job: &Job<'_>, scripts: &mut Scripts, reply: &mut Vec<u8>) -> Result<(), Stop> {
        let mut args = Args::new();
        let Ok(Decoded::Complete { .. }) = decode(job.args.arg(4), &Limits::DEFAULT, &mut args) else {
            return Err(Stop::Refused(Refusal::Malformed));
        };
        let Some(script) = Script::of_command(job.args, args.list(job.args.arg(4))) else {
            return Err(Stop::Refused(Refusal::Malformed));
        };
        let start = reply.len();
        let bytes_max = self.cx.shared.parameters.mget_bytes_max;
        let slot = self.cx.shared.slots.slot(job.database, job.args.arg(5));
        let mut host = DraftHost {
            on_draft: &mut *self,
            job,
            slot,
            database: job.database,
            args: Args::new(),
            stop: None,
        };
        let given = (
            host.on_draft.draft.steps_left(),
            host.on_draft.cx.shared.prng.next_u64(),
        );
        let ran = scripts.run(&script, job.dialect.proto(), given, &mut host, reply);
        let stop = host.stop;
        self.draft.spend(ran.work_ns);
        match ran.ended {
            None if reply.len() - start > bytes_max => Err(Stop::Refused(Refusal::ReplyTooLarge { bytes_max })),
            None => Ok(()),
            Some(Ended::Memory) if scripts.weight == Weight::Light => Err(Stop::Heavier),
            Some(ended) => {
                Err(why_ended(ended).map_or_else(|| stop.unwrap_or(Stop::Refused(Refusal::Malformed)), Stop::Error))
            }
        }
    }
}
