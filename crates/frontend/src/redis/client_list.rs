//! CLIENT LIST, CLIENT INFO and CLIENT KILL: which clients they are about, and what is told of each.

use crate::dialect::Dialect;
use crate::redis::connection::{SLOW_BYTE_STEPS, is_word};
use crate::router::Router;
use crate::router::client::{About, Client};
use core::net::SocketAddr;
use paritas_base::{ConnId, Time};
use paritas_protocol::{Context, Ends, Out};
use paritas_wire::resp::{ArgList, Proto, encode, errors, parse_integer};

/// Steps of a turn's budget for each client that CLIENT LIST and CLIENT KILL look at.
const CLIENT_STEPS: u64 = 500;

impl Client {
    /// Its line of CLIENT LIST. `unread` is the number of reply bytes that wait here. Bytes in the socket belong to the
    /// driver and are not counted.
    pub(super) fn describe(&self, now: Time, unread: usize) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let seconds = |since: Time| (now - since).0 / 1_000_000_000;
        let about = &self.about;
        let (address, local) = about.ends.map_or_else(Default::default, |ends| {
            (ends.client.to_string(), ends.server.to_string())
        });
        let queued = self
            .transaction
            .as_ref()
            .and_then(|transaction| transaction.queued_count());
        let letters = [
            (queued.is_some(), 'x'),
            (self.paused, 'b'),
            (about.no_evict, 'e'),
            (about.no_touch, 'T'),
        ];
        let mut flags: String = letters
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, letter)| *letter)
            .collect();
        if flags.is_empty() {
            flags.push('N');
        }
        let multi = queued.map_or(-1, |count| count as i64);
        format!(
            "id={} addr={address} laddr={local} fd=-1 name={} age={} idle={} flags={flags} db={} sub=0 psub=0 ssub=0 \
             multi={multi} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll={} omem={unread} \
             tot-mem={unread} events=r cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}\n",
            about.id,
            text(&about.name),
            seconds(about.since),
            seconds(about.active_at),
            self.database,
            self.segments.len(),
            about.last_command,
            if self.dialect == Dialect::Resp3 { 3 } else { 2 },
            text(&about.library),
            text(&about.library_version),
        )
    }
}

/// The clients that CLIENT LIST or CLIENT KILL selects.
#[derive(Default)]
struct Filter<'a> {
    /// In order.
    ids: Option<Vec<u64>>,
    /// No client matches: the filter asks for a type other than normal, and all clients here are normal.
    nobody: bool,
    spare_me: bool,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    /// Only those that are connected for at least so many seconds.
    age_min: u64,
}

impl Filter<'_> {
    fn takes(&self, now: Time, about: &About) -> bool {
        let is = |wanted: Option<&[u8]>, of: fn(&Ends) -> SocketAddr| {
            wanted.is_none_or(|wanted| {
                let ends = about.ends.as_ref();
                ends.is_some_and(|ends| of(ends).to_string().as_bytes() == wanted)
            })
        };
        !self.nobody
            && (now - about.since).0 / 1_000_000_000 >= self.age_min
            && self.ids.as_ref().is_none_or(|ids| ids.binary_search(&about.id).is_ok())
            && is(self.address, |ends| ends.client)
            && is(self.local, |ends| ends.server)
    }
}

impl Router {
    /// Runs CLIENT LIST or CLIENT KILL. Returns the reply, and whether the asking client itself is closed.
    pub(crate) fn about_clients<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        conn: ConnId,
        args: ArgList<'_>,
    ) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let proto = self.clients.get(&conn).map_or(Proto::Resp2, |c| c.dialect.proto());
        let kills = is_word(args, 1, "kill");
        let old_form = kills && args.len() == 3;
        let filter = match if kills { kill_filter(args) } else { list_filter(args) } {
            Ok(filter) => filter,
            Err(error) => {
                encode::error(&mut out, &error);
                return (out, false);
            }
        };
        let now = cx.now.mono;
        let mut chosen: Vec<(u64, ConnId)> = self
            .clients
            .iter()
            .filter(|(other, client)| filter.takes(now, &client.about) && !(filter.spare_me && **other == conn))
            .map(|(other, client)| (client.about.id, *other))
            .collect();
        chosen.sort();
        cx.shared.turn_budget.spend(CLIENT_STEPS * self.clients.len() as u64);
        if !kills {
            let lines = chosen.iter().filter_map(|(_, other)| {
                let unread = cx.out.client(*other).map_or(0, |buffer| buffer.bytes.len());
                Some(self.clients.get(other)?.describe(cx.now.mono, unread))
            });
            encode::verbatim(&mut out, proto, b"txt", lines.collect::<String>().as_bytes());
            cx.shared.turn_budget.spend(SLOW_BYTE_STEPS * out.len() as u64);
            return (out, false);
        }
        let mut ends = false;
        for (_, other) in &chosen {
            if *other == conn {
                ends = true;
            } else {
                if let Some(client) = self.clients.get_mut(other) {
                    client.closing = true;
                }
                if let Some(buffer) = cx.out.client(*other) {
                    buffer.close = true;
                }
            }
        }
        if !old_form {
            encode::integer(&mut out, chosen.len() as i64);
        } else if chosen.is_empty() {
            encode::error(&mut out, errors::NO_SUCH_CLIENT);
        } else {
            encode::ok(&mut out);
        }
        (out, ends)
    }
}

fn client_id(text: &[u8]) -> Option<u64> {
    parse_integer(text).filter(|id| *id > 0).map(|id| id as u64)
}

/// Adds a client type to the filter; an error if the type is unknown.
fn type_filter(filter: &mut Filter<'_>, text: &[u8]) -> Result<(), String> {
    let name = text.to_ascii_lowercase();
    match name.as_slice() {
        b"normal" => Ok(()),
        b"master" | b"replica" | b"slave" | b"pubsub" => {
            filter.nobody = true;
            Ok(())
        }
        _ => Err(format!("ERR Unknown client type '{}'", errors::echoed(text))),
    }
}

fn list_filter(args: ArgList<'_>) -> Result<Filter<'_>, String> {
    let mut filter = Filter::default();
    if args.len() == 4 && is_word(args, 2, "type") {
        type_filter(&mut filter, args.arg(3))?;
    } else if args.len() > 3 && is_word(args, 2, "id") {
        let ids: Option<Vec<u64>> = args.iter().skip(3).map(client_id).collect();
        let mut ids = ids.ok_or("ERR Invalid client ID")?;
        ids.sort_unstable();
        filter.ids = Some(ids);
    } else if args.len() != 2 {
        return Err(errors::SYNTAX.to_owned());
    }
    Ok(filter)
}

/// Parses the arguments of CLIENT KILL: one address (old form), or pairs of a filter's name and a value.
fn kill_filter(args: ArgList<'_>) -> Result<Filter<'_>, String> {
    let mut filter = Filter {
        spare_me: args.len() > 3,
        ..Filter::default()
    };
    if args.len() == 3 {
        filter.address = args.get(2);
        return Ok(filter);
    }
    if !args.len().is_multiple_of(2) {
        return Err(errors::SYNTAX.to_owned());
    }
    for at in (2..args.len()).step_by(2) {
        let value = args.arg(at + 1);
        if is_word(args, at, "id") {
            filter.ids = Some(vec![client_id(value).ok_or(errors::CLIENT_ID)?]);
        } else if is_word(args, at, "type") {
            type_filter(&mut filter, value)?;
        } else if is_word(args, at, "addr") {
            filter.address = Some(value);
        } else if is_word(args, at, "laddr") {
            filter.local = Some(value);
        } else if is_word(args, at, "maxage") {
            let age = parse_integer(value).ok_or("ERR maxage is not an integer or out of range")?;
            filter.age_min = u64::try_from(age)
                .ok()
                .filter(|age| *age > 0)
                .ok_or("ERR maxage should be greater than 0")?;
        } else if is_word(args, at, "user") {
            if value != b"default" {
                let user = errors::echoed(value);
                return Err(format!("ERR No such user '{user}'"));
            }
        } else if is_word(args, at, "skipme") && (is_word(args, at + 1, "yes") || is_word(args, at + 1, "no")) {
            filter.spare_me = is_word(args, at + 1, "yes");
        } else {
            return Err(errors::SYNTAX.to_owned());
        }
    }
    Ok(filter)
}
