//! An MGET whose values together are too long for one reply: they are read by one GET each, a few at a time, as fast as
//! the client takes them (P14.16).

use super::client::{Caller, Client, Forwarded, Segment, Wait};
use super::long::{LONG_REPLIES_MAX, LOOK_MAX, LOOK_MIN, UNSENT_BYTES_SOFT_MAX, unsent_bytes};
use super::{Dispatcher, Router};
use crate::memcached::Shown;
use paritas_base::{ConnId, Span, Time};
use paritas_protocol::{Context, Lists, Mark, Out, TakenAgain};
use paritas_wire::command::{self, Command};
use paritas_wire::resp::{self, ArgList, Args, Decoded, Limits, encode};

/// The most values that are asked for at a time. If those before were long, only as many as a client may have long
/// replies.
const ASKED_MAX: usize = 64;
/// A value from this number of bytes on is long here: the next ones may be so too.
const LONG_ELEMENT_BYTES: usize = 16 << 10;

/// The values of an MGET that are still to be read.
#[derive(Debug)]
pub(crate) struct OneByOne {
    /// That of the MGET.
    database: u8,
    /// The GETs, one after the other as a client sends them.
    commands: Vec<u8>,
    /// Where the next one begins.
    at: usize,
    /// The number of keys, and of those whose values were asked for.
    count: usize,
    asked: usize,
    /// How many were asked for last.
    asked_last: usize,
    /// The head of the array is in the client's buffer, or sent.
    has_head: bool,
    /// The wait before the next look at a client that does not read, and the time of that look.
    look: Span,
    look_at: Time,
}

impl OneByOne {
    /// The values of an MGET.
    pub(crate) fn of(database: u8, mget: ArgList<'_>) -> Box<Self> {
        let mut commands = Vec::new();
        for key in mget.iter().skip(1) {
            encode::array_header(&mut commands, 2);
            encode::bulk(&mut commands, b"GET");
            encode::bulk(&mut commands, key);
        }
        Box::new(Self {
            database,
            commands,
            at: 0,
            count: mget.len() - 1,
            asked: 0,
            asked_last: 0,
            has_head: false,
            look: LOOK_MIN,
            look_at: Time(0),
        })
    }

    /// The same, if these bytes are an MGET.
    pub(crate) fn of_command(database: u8, bytes: &[u8], args: &mut Args) -> Option<Box<Self>> {
        let Ok(Decoded::Complete { .. }) = resp::decode(bytes, &Limits::DEFAULT, args) else {
            return None;
        };
        let args = args.list(bytes);
        let spec = command::resolve(args).ok()?;
        (spec.id == Command::Mget).then(|| Self::of(database, args))
    }

    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.commands.capacity()
    }
}

impl Client {
    /// Whether the values of its command `n` may be read one by one. They may if no later write of the client has
    /// begun: then they are the values that the order of the client's commands requires. Those that the client does
    /// not see are not read.
    pub(crate) fn may_read_one_by_one(&self, n: u64) -> bool {
        matches!(self.caller, Caller::Local(_)) && self.last_write_n <= n && self.dialog.shown == Shown::All
    }
}

impl Router {
    /// Sends the next commands of the first reply of a client, if its values are read one by one. True if the reply has
    /// ended, and others may follow.
    pub(crate) fn go_on_one_by_one<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        conn: ConnId,
    ) -> bool {
        let now = cx.mono();
        let Some(client) = self.clients.get_mut(&conn) else {
            return false;
        };
        let (dialect, long_replies) = (client.dialect, client.long_replies);
        let Some(head) = client.segments.front_mut() else {
            return false;
        };
        let one_by_one = match &mut head.wait {
            Wait::OneByOne(one_by_one) => one_by_one,
            // A value could not be read.
            Wait::Broken => {
                self.cut(cx, lists, conn);
                return false;
            }
            _ => return false,
        };
        let Some(buffer) = cx.out.client(conn) else {
            return false;
        };
        if unsent_bytes(buffer) > UNSENT_BYTES_SOFT_MAX {
            if one_by_one.look_at <= now {
                one_by_one.look_at = now + one_by_one.look;
                one_by_one.look = Span((one_by_one.look.0 * 2).min(LOOK_MAX.0));
            }
            self.dispatcher.check_at = self.dispatcher.check_at.min(one_by_one.look_at);
            return false;
        }
        one_by_one.look = LOOK_MIN;
        if !one_by_one.has_head {
            one_by_one.has_head = true;
            let mut array = Vec::new();
            dialect.values(&mut array, one_by_one.count);
            let (at, bytes) = (buffer.released, array.len());
            buffer.bytes.splice(at..at, array);
            buffer.released += bytes;
        }
        // It counts as one of the long replies itself.
        let few = (LONG_REPLIES_MAX + 1).saturating_sub(long_replies).max(1);
        let count_max = match core::mem::take(&mut client.element_bytes) >= LONG_ELEMENT_BYTES {
            true => few,
            false => few.max((2 * one_by_one.asked_last).min(ASKED_MAX)),
        };
        let mut next: Vec<Vec<u8>> = Vec::new();
        while next.len() < count_max {
            let rest = one_by_one.commands.get(one_by_one.at..).unwrap_or_default();
            let Ok(Decoded::Complete { consumed }) =
                resp::decode(rest, &Limits::DEFAULT, &mut self.dispatcher.part_args)
            else {
                break;
            };
            next.push(rest.get(..consumed).unwrap_or_default().to_vec());
            one_by_one.at += consumed;
        }
        one_by_one.asked += next.len();
        one_by_one.asked_last = next.len();
        if !next.is_empty() {
            let database = one_by_one.database;
            self.dispatcher.read_next(cx, client, database, next);
            return false;
        }
        debug_assert_eq!(
            one_by_one.asked, one_by_one.count,
            "an array with another number of elements"
        );
        if one_by_one.asked != one_by_one.count {
            self.cut(cx, lists, conn);
            return false;
        }
        let held_bytes = one_by_one.held_bytes();
        client.segments.pop_front();
        client.end_long(0);
        client.one_by_ones -= 1;
        client.forwarded_bytes = client.forwarded_bytes.saturating_sub(held_bytes);
        client.show(buffer);
        cx.out.mark(Mark::ReadOneByOne);
        self.dispatcher.wake |= client.full;
        true
    }
}

impl Dispatcher {
    /// The reply of a client is read value by value from now on.
    pub(crate) fn note_one_by_one(&mut self, client: &mut Client, held_bytes: usize) {
        client.forwarded_bytes += held_bytes;
        client.one_by_ones += 1;
        self.note_long(client, 0);
        self.releasable = true;
    }

    /// Puts GETs ahead of the other commands of a client. They are sent like commands that could not be sent before.
    fn read_next<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        client: &mut Client,
        database: u8,
        commands: Vec<Vec<u8>>,
    ) {
        let spec = command::lookup(b"GET");
        let mut segments = Vec::with_capacity(commands.len());
        for command in commands {
            let Ok(Decoded::Complete { .. }) = resp::decode(&command, &Limits::DEFAULT, &mut self.part_args) else {
                continue;
            };
            let key = self.part_args.list(&command).arg(1);
            let forwarded = Forwarded {
                n: client.take_n(),
                stream: cx.shared.slots.stream_of_key(database, key),
                map: cx.shared.slots.version(),
                target: None,
                write: false,
                database,
                reply_bytes: spec.map_or(0, |spec| Forwarded::reply_charge(spec, 2)),
                command,
                since: cx.mono(),
                detour: true,
                ahead: None,
            };
            client.detours += 1;
            client.charge(&forwarded);
            segments.push(Segment {
                shown: Shown::All,
                n: forwarded.n,
                length: 0,
                wait: Wait::Forwarded(forwarded),
                taken_again: TakenAgain::default(),
                long: None,
                is_element: true,
                answered: None,
            });
        }
        segments
            .into_iter()
            .rev()
            .for_each(|segment| client.segments.push_front(segment));
        self.resend_due = true;
    }
}
