//! Scripts and functions at the client's node: EVAL, FCALL and their kin become a command between nodes, which has the
//! source and goes to the owner of its keys. A script without keys begins here; if it asks for one, it runs again
//! there.

use super::call::Call;
use super::client::Client;
use super::transact::is_unserved;
use super::{Dispatcher, Ran};
use crate::dialect::Refusal;
use crate::redis::commands::{Job, key_count_error};
use crate::redis::refusals::is_error;
use crate::redis::scripts::{ScriptCall, answer_without_key, resolve, why_ended};
use paritas_protocol::{Context, Out, Port};
use paritas_script::{Ended, Host, Weight};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::resp::{Args, Decoded, Limits, Proto, decode, encode, errors};

/// Work of a script without keys, in nanoseconds as it is counted.
const WORK_NS: u64 = 20_000_000;

/// What runs the commands of a script that has named no key.
struct WithoutKeys {
    wall_ms: u64,
    args: Args,
    /// The first key that it has asked for.
    key: Option<Vec<u8>>,
}

impl Host for WithoutKeys {
    fn call(&mut self, bytes: &[u8], _: Proto, reply: &mut Vec<u8>) -> Result<(), Ended> {
        let Ok(Decoded::Complete { .. }) = decode(bytes, &Limits::DEFAULT, &mut self.args) else {
            return Err(Ended::ByHost);
        };
        let args = self.args.list(bytes);
        let text = match resolve(args) {
            Ok(spec) if command::lacks_keys(spec, args) => key_count_error(args.arg(1)),
            Ok(spec) if spec.has_keys() && !spec.is(flag::NOSCRIPT) => {
                let first = command::keys(spec, args).next();
                self.key = first.map(|at| args.arg(at).to_vec());
                return Err(Ended::ByHost);
            }
            Ok(spec) if answer_without_key(spec, args, self.wall_ms, reply) => return Ok(()),
            Ok(_) => errors::NOT_IN_SCRIPT,
            Err(text) => text,
        };
        encode::error(reply, text);
        Ok(())
    }
}

impl Dispatcher {
    /// Runs EVAL, FCALL and their kin.
    pub(crate) fn script<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Ran {
        let Job { spec, args, .. } = *job;
        if call.client.is_behind_detours() {
            return Ran::Stalled;
        }
        let start = call.turn.bytes.len();
        let called = match spec.id {
            Command::Fcall | Command::FcallRo => match self.present_libraries(call, spec) {
                Ok(functions) => Self::function_call(&functions, spec, args, call.client.port),
                Err(ran) => return ran,
            },
            _ => self.scripts.call(spec, args),
        };
        let ran = match called {
            Ok(called) => self.run_call(call, spec, &called),
            Err(text) => self.reply_now(call, |out| encode::error(out, &text)),
        };
        if ran != Ran::Stalled {
            self.counters
                .count(spec.id, call.turn.bytes.get(start..).is_some_and(is_error));
        }
        ran
    }

    fn run_call<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &'static CommandSpec,
        called: &ScriptCall<'_>,
    ) -> Ran {
        let mut asked = None;
        if !called.has_keys() {
            if !call.cx.shared.turn_budget.admits() {
                return Ran::Stalled;
            }
            if !self.scripts.begin() {
                call.cx.shared.turn_budget.yield_to_next();
                return Ran::Stalled;
            }
            let mut reply = Vec::new();
            asked = self.run_without_keys(call.cx, call.client, called, &mut reply);
            if asked.is_none() {
                return self.reply_now(call, |out| out.extend_from_slice(&reply));
            }
        }
        let mut keys = called.keys().chain(asked.as_deref());
        let key = keys.next().unwrap_or_default();
        let (database, slots) = (call.client.database, &call.cx.shared.slots);
        let slot = slots.slot(database, key);
        if keys.any(|key| slots.slot(database, key) != slot) {
            return self.reply_refusal(call, Refusal::CrossSlot);
        }
        if call.client.port == Port::Cluster
            && let Some(address) = self.address_elsewhere(call.cx, call.lists, slot)
        {
            let dialect = call.client.dialect;
            return self.reply_now(call, |out| dialect.redirect(out, key, &address));
        }
        if is_unserved(call.cx, call.lists, slot) {
            return self.stall(call, spec);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        called.append_command(asked.as_deref(), &mut bytes);
        let mut part_args = core::mem::take(&mut self.part_args);
        let ran = match decode(&bytes, &Limits::DEFAULT, &mut part_args) {
            Ok(Decoded::Complete { .. }) => {
                let args = part_args.list(&bytes);
                let job = call.client.job(call.cx, called.spec(), args, &bytes);
                let stream = call.cx.shared.slots.stream_of(slot);
                let ran = self.run_on(call, &job, stream);
                if ran != Ran::Stalled && job.spec.is(flag::WRITE) {
                    call.client.last_write_n = job.ticket.n;
                }
                ran
            }
            // Its words together are longer than one command may be.
            _ => {
                let bytes_max = Limits::DEFAULT.whole_bytes_max;
                let refusal = Refusal::Write(paritas_protocol::WriteRefusal::CommandTooLarge { bytes_max });
                self.reply_refusal(call, refusal)
            }
        };
        self.part_args = part_args;
        self.recycle(bytes);
        ran
    }

    /// Runs a script that names no key. Returns the first key that it asks for; else its reply is appended.
    fn run_without_keys<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        client: &Client,
        called: &ScriptCall<'_>,
        reply: &mut Vec<u8>,
    ) -> Option<Vec<u8>> {
        let mut host = WithoutKeys {
            wall_ms: cx.now.wall_ms,
            args: Args::new(),
            key: None,
        };
        for weight in [Weight::Light, Weight::Heavy] {
            self.scripts.weight = weight;
            let given = (WORK_NS, cx.shared.prng.next_u64());
            let ran = self
                .scripts
                .run(&called.script(), client.dialect.proto(), given, &mut host, reply);
            cx.shared.turn_budget.spend(ran.work_ns);
            match ran.ended {
                Some(Ended::Memory) if weight == Weight::Light => {}
                None => return None,
                Some(ended) => {
                    if let Some(text) = why_ended(ended) {
                        encode::error(reply, text);
                    }
                    break;
                }
            }
        }
        host.key
    }
}
