//! PARITAS.STAGE and PARITAS.COMMIT, for clients that send the parts of a large value to the holders themselves
//! (P14.18). Both run at the owner alone: what is staged belongs to the client's connection.

use super::{Executed, Job, NodeRecord, Operation, Stop, execute};
use crate::redis::scripts::Scripts;
use paritas_base::configuration::Configuration;
use paritas_protocol::{Access, Class, ClientCoding, Context, Effect, NotByClient, Out, StreamOwner};
use paritas_wire::command::{self, Command, CommandSpec};
use paritas_wire::resp::{encode, errors, parse_integer};

/// The version of the reply to STAGE (docs/formats/large.md).
const VERSION: i64 = 1;
/// Elements of that reply.
const ELEMENTS: usize = 9;
/// The word of COMMIT at which its command begins.
const COMMAND_AT: usize = 4;

/// Whether a command must come to the node of the owner, and is never forwarded.
pub(crate) fn runs_at_owner_alone(id: Command) -> bool {
    matches!(id, Command::ParitasStage | Command::ParitasCommit)
}

/// Why a client must use SET.
pub(crate) fn reason(why: NotByClient) -> &'static str {
    match why {
        NotByClient::TooLong => "a connection may stage at most 64 MiB of values in a stream",
        NotByClient::TooMany => "256 values are staged in the stream of this key",
        NotByClient::Class => "only the classes ec and rep without parts on log nodes are written by clients",
        NotByClient::Holders => "a node that must hold a part is missing, has changed, or has no memory for it",
        NotByClient::Unknown => "nothing is staged under this number",
        NotByClient::OtherKey => "the key is another one than that of PARITAS.STAGE",
        NotByClient::Lengths => "checks or tail are not as long as those of the staged value",
        NotByClient::Parts => "a part lacks units, or has another check than the one that was given",
        NotByClient::Forged => "the parts do not belong together: parities are not those of the data",
    }
}

impl<O: Out> Operation<'_, '_, O> {
    /// PARITAS.STAGE key bytes [class].
    pub(crate) fn stage(&mut self) -> Result<(), Stop> {
        check_coding(self.access.client_coding())?;
        if self.count() > 4 {
            return Err(Stop::Error("ERR usage: PARITAS.STAGE key bytes [class]"));
        }
        let value_bytes = parse_integer(self.job.args.arg(2)).and_then(|bytes| usize::try_from(bytes).ok());
        let value_bytes = value_bytes.ok_or(Stop::Error(errors::NOT_AN_INTEGER))?;
        if value_bytes <= self.access.small_bytes_max() {
            return Err(Stop::Error("ERR the value fits an object and has no parts: use SET"));
        }
        let class = match self.job.args.get(3) {
            Some(text) => Some(self.class(text)?),
            None => None,
        };
        let ticket = self.job.ticket;
        let key = self.job.args.arg(1);
        let located = self.access.stage_by_client(ticket, key, value_bytes, class)?;
        encode::array_header(self.reply, ELEMENTS);
        encode::integer(self.reply, VERSION);
        encode::integer(self.reply, ticket.n as i64);
        self.append_places(&located, None);
        Ok(())
    }

    /// A class that a large value of this stream may have, from its text.
    pub(crate) fn class(&mut self, text: &[u8]) -> Result<Class, Stop> {
        let text = String::from_utf8_lossy(text).to_ascii_lowercase();
        let class = text.parse::<Class>();
        let class = class.and_then(|class| self.access.check_class(class).map(|()| class));
        class.map_err(|why| self.refuse(|out| encode::error(out, &format!("ERR {why}"))))
    }
}

fn check_coding(coding: ClientCoding) -> Result<(), Stop> {
    match coding {
        ClientCoding::On => Ok(()),
        ClientCoding::Read | ClientCoding::Off => Err(Stop::Error(errors::CLIENT_CODING_NOT_ON)),
    }
}

/// PARITAS.COMMIT n checks tail COMMAND key "" …: its command runs as one whose value came ahead of it.
pub(super) fn commit<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    job: &Job<'_>,
    scripts: &mut Scripts,
    nodes: &[NodeRecord],
    reply: &mut Vec<u8>,
) -> Executed {
    let start = reply.len();
    let Some((spec, n, checks)) = parts_of(job) else {
        encode::error(
            reply,
            "ERR usage: PARITAS.COMMIT n checks tail COMMAND key \"\" [options of the command], COMMAND one of SET, \
             SETNX, SETEX, PSETEX, GETSET",
        );
        return Executed::Replied(Effect::None);
    };
    let mut access = Access::new(cx, configuration, owner, job.database);
    let key = job.args.arg(COMMAND_AT + 1);
    let committed = check_coding(access.client_coding()).and_then(|()| {
        let committed = access.commit_by_client((job.ticket, n), key, &checks, job.args.arg(3));
        committed.map_err(Stop::from)
    });
    if committed.is_err() {
        return super::end_of(access, job.dialect, committed, start, reply, None);
    }
    let inner = Job {
        spec,
        args: job.args.skip(COMMAND_AT),
        is_staged: true,
        ..*job
    };
    execute(cx, configuration, owner, &inner, scripts, nodes, reply)
}

/// The command, the number of the value and its checks. `None`: the words are not those of COMMIT.
fn parts_of(job: &Job<'_>) -> Option<(&'static CommandSpec, u64, Vec<u32>)> {
    let inner = job.args.skip(COMMAND_AT);
    let spec = command::lookup(inner.arg(0)).filter(|spec| spec.arity_allows(inner.len()))?;
    let sets = matches!(
        spec.id,
        Command::Set | Command::Setnx | Command::Setex | Command::Psetex | Command::Getset
    );
    let is_without_value = inner.arg(spec.value_at.into()).is_empty();
    let n = parse_integer(job.args.arg(1)).and_then(|n| u64::try_from(n).ok())?;
    let (checks, rest) = job.args.arg(2).as_chunks::<4>();
    let checks = checks.iter().map(|check| u32::from_le_bytes(*check)).collect();
    (sets && is_without_value && rest.is_empty()).then_some((spec, n, checks))
}
