//! Commands that name no key, and those about the connection itself.

use crate::dialect::Dialect;
use crate::redis::authentication::auth;
use crate::redis::clients::{self, Replies};
use crate::redis::commands::{Job, key_count_error};
use crate::redis::functions::FUNCTION_HELP;
use crate::redis::hello::{hello, set_info, set_name};
use crate::redis::refusals::is_error;
use crate::redis::units::{self, Answered, WRONG_CAPABILITIES_MAX};
use crate::router::call::Call;
use crate::router::client::{Caller, Client, Wait};
use crate::router::counts;
use crate::router::gather::runs_on_streams;
use crate::router::{Dispatcher, Ran};
use paritas_base::configuration::Duty;
use paritas_base::hash_slots::{SlotOrder, SlotTarget};
use paritas_base::{DATABASES, ListId, NodeId, Position, StreamId};
use paritas_protocol::{Out, Port, Proposal};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::resp::{ArgList, encode, errors, parse_integer};

/// The version of Redis that a node reports. Clients choose the commands that they use by it.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// What the port of memcached answers to `version`, for the same reason.
pub(crate) const VERSION_OF_MEMCACHED: &str = "VERSION 1.6.18";

/// Steps of a turn's budget for a command without keys that is not marked as fast, and for each byte of its reply.
const SLOW_STEPS: u64 = 10_000;
pub(crate) const SLOW_BYTE_STEPS: u64 = 10;
/// Steps for each byte of a script that is compiled.
const COMPILED_BYTE_STEPS: u64 = 100;

/// Whether an argument is this word, ignoring case. `word` is in lower case.
pub(crate) fn is_word(args: ArgList<'_>, at: usize, word: &str) -> bool {
    args.arg(at).eq_ignore_ascii_case(word.as_bytes())
}

impl Dispatcher {
    pub(crate) fn run_keyless<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Ran {
        let Job { spec, args, .. } = *job;
        if runs_on_streams(spec.id) {
            if let Caller::Remote(..) = call.client.caller {
                if let Some(ran) = self.check_all_keys(call, spec) {
                    return ran;
                }
                return self.run_on(call, job, call.client.remote.stream);
            }
            return self.run_over_streams(call, job);
        }
        // Only these make long replies, or look at many clients or lists.
        let is_slow = !spec.is(flag::FAST);
        if is_slow && !call.cx.shared.turn_budget.admits() {
            return Ran::Stalled;
        }
        let (start, proto) = (call.turn.bytes.len(), call.client.dialect.proto());
        let out = &mut call.turn.bytes;
        let mut ran = Ran::Done;
        let mut wait = Wait::Ready;
        match spec.id {
            Command::Quit => {
                encode::ok(out);
                ran = Ran::Close;
            }
            Command::Reset => {
                (call.client.dialect, call.client.database) = (Dialect::Resp2, 0);
                call.client.about.name.clear();
                (call.client.about.no_evict, call.client.about.no_touch) = (false, false);
                call.client.authenticated = self.password.is_none();
                call.client.set_replies(Replies::On);
                call.client.give_up_staged(call.cx, call.lists);
                encode::simple(out, "RESET");
            }
            Command::Select => {
                call.client.database = database_number(args.arg(1)).unwrap_or(call.client.database);
                call.client.answer_at_once(call.cx.now.wall_ms, spec, args, out);
            }
            Command::Swapdb => encode::error(out, errors::SWAPDB),
            Command::Hello => hello(call.client, out, self.password.as_ref(), args),
            Command::Auth => auth(call.client, out, self.password.as_ref(), args),
            Command::ClientNoEvict => switch(&mut call.client.about.no_evict, out, args),
            Command::ClientUnblock => unblock(out, args),
            Command::ClientGetredir => encode::integer(out, -1),
            Command::ClientNoTouch => switch(&mut call.client.about.no_touch, out, args),
            Command::ClientReply => call.client.choose_replies(out, args),
            Command::ClientPause => self.begin_pause(call.cx, out, args),
            Command::ClientUnpause => self.end_pause(out),
            Command::ClientTracking => clients::tracking(out, args),
            Command::ClientTrackinginfo => clients::tracking_info(out, proto),
            Command::ClientCaching => encode::error(out, errors::NOT_TRACKING),
            Command::ClientInfo => {
                let text = call.client.describe(call.cx.now.mono, out.len());
                encode::verbatim(out, proto, b"txt", text.as_bytes());
            }
            Command::ClientList | Command::ClientKill => return Ran::AboutClients,
            Command::Command => command::reply::all(out, proto),
            Command::CommandCount => command::reply::count(out),
            Command::CommandInfo => command::reply::info(out, proto, args),
            Command::CommandDocs => command::reply::docs(out, proto, args),
            Command::CommandList => command::reply::list(out, args),
            Command::CommandGetkeys => command::reply::getkeys(out, args),
            Command::CommandGetkeysandflags => command::reply::getkeysandflags(out, proto, args),
            Command::Info => match call.client.caller {
                Caller::Remote(..) => counts::append_own(call.lists, out),
                Caller::Local(conn) if self.info(call.cx, call.lists, call.client, conn, out, args) => {
                    wait = Wait::Answer { since: call.cx.mono() };
                }
                Caller::Local(_) => {}
            },
            Command::ConfigGet => super::config::config_get(call.cx, call.client, out, args),
            Command::ConfigSet => {
                super::config::config_set(call.cx, call.lists, &mut self.changed, call.client, out, args)
            }
            Command::ScriptLoad | Command::ScriptFlush => {
                match spec.id {
                    Command::ScriptLoad => self.scripts.load(args.arg(2), out),
                    _ => self.scripts.flush(args, out),
                }
                call.cx
                    .shared
                    .turn_budget
                    .spend(args.arg(2).len() as u64 * COMPILED_BYTE_STEPS);
                // As with INFO, the any-key port is the cluster, and the other one is the node.
                if let (Caller::Local(conn), Port::Any) = (call.client.caller, call.client.port)
                    && !out.get(start..).is_some_and(is_error)
                {
                    let reply = out.split_off(start);
                    match self.tell_nodes(call.cx, (conn, call.client.next_n), args, reply) {
                        Some(reply) => out.extend_from_slice(&reply),
                        None => wait = Wait::Answer { since: call.cx.mono() },
                    }
                }
            }
            Command::ScriptExists => self.scripts.exist(args, out),
            Command::ScriptKill | Command::FunctionKill => encode::error(out, errors::NOT_BUSY),
            Command::FunctionHelp => {
                encode::array_header(out, FUNCTION_HELP.len());
                FUNCTION_HELP.iter().for_each(|line| encode::simple(out, line));
            }
            Command::ConfigResetstat => {
                self.counters.reset();
                call.cx.shared.reset_counts();
                encode::ok(out);
            }
            Command::ConfigRewrite => {
                if let Caller::Local(conn) = call.client.caller {
                    let settings = self.changed.clone();
                    let n = call.client.next_n;
                    call.cx.propose(Proposal::Rewrite { conn, n, settings });
                    wait = Wait::Answer { since: call.cx.mono() };
                }
            }
            Command::Role => {
                encode::array_header(out, 3);
                encode::bulk(out, b"master");
                encode::integer(out, 0);
                encode::array_header(out, 0);
            }
            Command::ModuleList => encode::array_header(out, 0),
            Command::AclWhoami => encode::bulk(out, b"default"),
            Command::Wait => super::wait::wait(call.lists, out, args),
            Command::ClusterSlots
            | Command::ClusterShards
            | Command::ClusterNodes
            | Command::ClusterInfo
            | Command::ClusterKeyslot
            | Command::ClusterMyid
            | Command::ClusterMyshardid
            | Command::ClusterLinks
            | Command::ClusterReplicas
            | Command::ClusterSlaves => {
                let way = (proto, call.client.database);
                self.cluster(call.cx, call.lists, way, spec.id, out, args)
            }
            Command::SentinelGetMasterAddrByName
            | Command::SentinelMasters
            | Command::SentinelMaster
            | Command::SentinelReplicas
            | Command::SentinelSlaves
            | Command::SentinelSentinels => self.sentinel(call.cx, proto, spec.id, out, args),
            Command::ParitasStatus => {
                if let Caller::Local(conn) = call.client.caller {
                    call.cx.propose(Proposal::Ask {
                        conn,
                        n: call.client.next_n,
                    });
                    wait = Wait::Answer { since: call.cx.mono() };
                }
            }
            Command::ParitasSlots => match (slot_order(args), call.client.caller) {
                (Some(order), Caller::Local(conn)) => {
                    let n = call.client.next_n;
                    call.cx.propose(Proposal::MoveSlots { conn, n, order });
                    wait = Wait::Answer { since: call.cx.mono() };
                }
                _ => encode::error(
                    out,
                    "ERR usage: PARITAS.SLOTS first last list/position|node, or PARITAS.SLOTS stop",
                ),
            },
            Command::ParitasDuty => match (duty(args), call.client.caller) {
                (Some((node, duty)), Caller::Local(conn)) => {
                    let n = call.client.next_n;
                    call.cx.propose(Proposal::SetDuty { conn, n, node, duty });
                    wait = Wait::Answer { since: call.cx.mono() };
                }
                _ => encode::error(out, "ERR usage: PARITAS.DUTY node drain|shun|serve"),
            },
            Command::ParitasUnits | Command::ParitasPut => {
                let answered = match spec.id {
                    Command::ParitasUnits => units::units(call.cx, call.lists, out, args),
                    _ => units::put(call.cx, call.lists, out, args),
                };
                if answered == Answered::WrongCapability {
                    self.counters.wrong_capabilities += 1;
                    let wrong_count = call.client.wrong_capabilities.saturating_add(1);
                    call.client.wrong_capabilities = wrong_count;
                    if wrong_count >= WRONG_CAPABILITIES_MAX {
                        ran = Ran::Close;
                    }
                }
            }
            Command::ParitasUnstage => match parse_integer(args.arg(1)).and_then(|n| u64::try_from(n).ok()) {
                Some(n) => {
                    call.client.unstage(call.cx, call.lists, n);
                    encode::ok(out);
                }
                None => encode::error(out, errors::NOT_AN_INTEGER),
            },
            _ => call.client.answer_at_once(call.cx.now.wall_ms, spec, args, out),
        }
        if matches!(spec.id, Command::Auth | Command::Hello)
            && out.get(start..).is_some_and(|reply| reply.starts_with(b"-WRONGPASS"))
        {
            self.counters.wrong_passwords += 1;
        }
        if is_slow {
            let reply_bytes = call.turn.bytes.len() - start;
            let steps = match spec.id {
                Command::ParitasUnits => units::steps(args, reply_bytes),
                Command::ParitasPut => units::put_steps(args),
                _ => SLOW_BYTE_STEPS * reply_bytes as u64,
            };
            call.cx.shared.turn_budget.spend(SLOW_STEPS + steps);
        }
        self.push(call, start, wait);
        ran
    }
}

/// Whether a command without keys may be in a transaction: it needs nothing but the client and the clock, and changes
/// nothing.
pub(crate) fn may_be_in_transaction(id: Command) -> bool {
    matches!(
        id,
        Command::Ping
            | Command::Echo
            | Command::Select
            | Command::Readonly
            | Command::Readwrite
            | Command::Asking
            | Command::ClientId
            | Command::ClientGetname
            | Command::Time
            | Command::Unwatch
    )
}

/// Parses the number of a database.
///
/// # Errors
/// The text of the error for the client.
pub(crate) fn database_number(text: &[u8]) -> Result<u8, &'static str> {
    let number = parse_integer(text).ok_or(errors::NOT_AN_INTEGER)?;
    i32::try_from(number).map_err(|_| errors::NOT_AN_INTEGER_OF_32_BITS)?;
    let number = u8::try_from(number).ok().filter(|number| *number < DATABASES);
    number.ok_or(errors::DB_OUT_OF_RANGE)
}

/// Reply of TIME.
pub(crate) fn append_time(out: &mut Vec<u8>, wall_ms: u64) {
    encode::array_header(out, 2);
    encode::bulk_integer(out, (wall_ms / 1000) as i64);
    encode::bulk_integer(out, (wall_ms % 1000 * 1000) as i64);
}

impl Client {
    /// Runs a command that needs nothing but the client and the clock.
    pub(crate) fn answer_at_once(&mut self, wall_ms: u64, spec: &CommandSpec, args: ArgList<'_>, out: &mut Vec<u8>) {
        match spec.id {
            Command::Ping => match args.len() {
                1 => out.extend_from_slice(encode::PONG),
                2 => encode::bulk(out, args.arg(1)),
                _ => errors::wrong_arity(out, spec.name),
            },
            Command::Echo => encode::bulk(out, args.arg(1)),
            Command::Select => match database_number(args.arg(1)) {
                Ok(_) => encode::ok(out),
                Err(error) => encode::error(out, error),
            },
            // In a transaction nothing is watched any more when it runs.
            Command::Readonly | Command::Readwrite | Command::Asking | Command::Unwatch => encode::ok(out),
            Command::ClientId => encode::integer(out, self.about.id as i64),
            Command::ClientGetname => match self.about.name.as_slice() {
                [] => encode::null(out, self.dialect.proto()),
                name => encode::bulk(out, name),
            },
            Command::ClientSetname => set_name(self, out, args.arg(2)),
            Command::ClientSetinfo => set_info(self, out, args),
            Command::Time => append_time(out, wall_ms),
            // The number of its keys is wrong, so it has none.
            Command::Msetex => encode::error(out, key_count_error(args.arg(1))),
            _ => errors::wrong_arity(out, spec.name),
        }
    }
}

/// Parses PARITAS.SLOTS first last list/position|node, or stop.
fn slot_order(args: ArgList<'_>) -> Option<SlotOrder> {
    if args.len() == 2 && args.arg(1).eq_ignore_ascii_case(b"stop") {
        return Some(SlotOrder::GiveUp);
    }
    let number = |text: &[u8]| parse_integer(text).and_then(|n| u16::try_from(n).ok());
    let mut to = args.arg(3).split(|byte| *byte == b'/');
    let to = match (args.len(), to.next(), to.next(), to.next()) {
        (4, Some(node), None, None) => SlotTarget::Node(NodeId(number(node)?)),
        (4, Some(list), Some(x), None) => SlotTarget::StreamId(StreamId {
            list: ListId(number(list)?),
            x: Position(number(x)?.try_into().ok()?),
        }),
        _ => return None,
    };
    Some(SlotOrder::Move {
        first: number(args.arg(1))?,
        last: number(args.arg(2))?,
        to,
    })
}

/// Parses PARITAS.DUTY node drain|shun|serve.
fn duty(args: ArgList<'_>) -> Option<(NodeId, Duty)> {
    let node = parse_integer(args.arg(1)).and_then(|id| u16::try_from(id).ok())?;
    let duty = match args.arg(2).to_ascii_lowercase().as_slice() {
        b"drain" => Duty::Draining,
        b"shun" => Duty::Shunned,
        b"serve" => Duty::Returning,
        _ => return None,
    };
    Some((NodeId(node), duty))
}

/// CLIENT UNBLOCK id [TIMEOUT | ERROR]. No command waits for other clients, so none is woken.
fn unblock(out: &mut Vec<u8>, args: ArgList<'_>) {
    let has_reason = args.len() == 4 && (is_word(args, 3, "timeout") || is_word(args, 3, "error"));
    if args.len() > 3 && !has_reason {
        return encode::error(out, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    }
    match parse_integer(args.arg(2)) {
        Some(_) => encode::integer(out, 0),
        None => encode::error(out, errors::NOT_AN_INTEGER),
    }
}

fn switch(place: &mut bool, out: &mut Vec<u8>, args: ArgList<'_>) {
    match (is_word(args, 2, "on"), is_word(args, 2, "off")) {
        (true, _) => *place = true,
        (_, true) => *place = false,
        _ => return encode::error(out, errors::SYNTAX),
    }
    encode::ok(out);
}
