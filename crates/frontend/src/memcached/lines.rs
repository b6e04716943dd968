//! Input of clients of memcached: lines are taken apart and run in order, up to the limits of a turn.

use super::{Shown, stats, texts};
use crate::redis::connection::VERSION_OF_MEMCACHED;
use crate::router::call::{Call, Turn};
use crate::router::intake::{InputEnd, TURN_COMMANDS_MAX};
use crate::router::prefetch::{Ahead, Target, target_of};
use crate::router::staging::Then;
use crate::router::{Dispatcher, Ran, Router};
use core::ops::Range;
use paritas_base::ConnId;
use paritas_protocol::{Context, Lists, Out};
use paritas_wire::command::{Command, CommandSpec};
use paritas_wire::memcached::{
    self, BAD_LINE, KEYS_LINE_BYTES_MAX, LINE_BYTES_MAX, Mode, Refusal, Request, Store, Verb, is_silent,
};
use paritas_wire::resp::{Args, USER, encode};

/// The data by which a client proves that it knows the password: user, space, password.
const PROOF_BYTES_MAX: usize = 1024;

/// The first byte of each request of memcached's binary protocol, and of no line.
const BINARY_REQUEST: u8 = 0x80;

/// What the input begins with.
enum Next {
    /// A part of a line, or of data.
    Nothing,
    /// A command, which is in the arguments now.
    Command {
        spec: &'static CommandSpec,
        /// Bytes of input that are done with it.
        bytes: usize,
        /// Bytes of the line that are done with it; 0 with the last key.
        done_bytes: usize,
        shown: Shown,
    },
    /// A command whose data are too long to be held: they begin behind so many bytes.
    Long {
        bytes: usize,
        data_bytes: usize,
        shown: Shown,
    },
    /// Data that are refused: so many bytes of them are thrown away.
    TooLarge {
        bytes: usize,
        data_bytes: usize,
        shown: Shown,
    },
    /// A line that is answered at once.
    Line { bytes: usize, request: Line, shown: Shown },
    /// A line that is refused.
    Refused {
        bytes: usize,
        refusal: Refusal,
        shown: Shown,
    },
    /// This is no client of memcached.
    Broken,
}

/// A line without a key.
enum Line {
    FlushAll,
    Stats(Range<usize>),
    Say(&'static str),
    Quit,
}

impl Router {
    /// Runs the lines in the input of a client until one must wait or a limit of the turn is reached.
    pub(crate) fn on_lines<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, conn: ConnId, input: &[u8]) {
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        let Some(buffer) = cx.out.client(conn) else { return };
        client.about.active_at = cx.now.mono;
        let is_over = client.leaves_unread(buffer.waiting + buffer.bytes.len());
        let mut call = Call {
            turn: Turn::take(buffer),
            cx,
            lists,
            client,
        };
        let mut all_args = core::mem::take(&mut self.dispatcher.args);
        if all_args.is_empty() {
            all_args.push(Args::default());
        }
        let (mut consumed, mut started) = (0, 0);
        let mut ran = if is_over { Ran::Close } else { Ran::Done };
        let mut throttled = false;
        if let Some(args) = all_args.first_mut() {
            while ran == Ran::Done {
                throttled = started >= TURN_COMMANDS_MAX || call.turn.bytes.len() >= call.client.reply_bytes_max();
                if throttled {
                    break;
                }
                let rest = input.get(consumed..).unwrap_or_default();
                match self.dispatcher.next_line(&mut call, rest, args) {
                    Some((used, now)) => (consumed, ran) = (consumed + used, now),
                    None => break,
                }
                if ran != Ran::Stalled {
                    (call.client.stalled_since, started) = (None, started + 1);
                }
            }
        }
        call.client.dialog.shown = Shown::All;
        self.dispatcher.args = all_args;
        let (stalled, close) = (ran == Ran::Stalled, ran == Ran::Close);
        if close {
            self.dispatcher.give_up_staging(call.cx, call.lists, call.client);
            consumed = input.len();
        }
        let end = InputEnd {
            consumed,
            stalled,
            throttled,
            close,
        };
        self.dispatcher.end_input(call, conn, end);
    }
}

impl Dispatcher {
    /// Goes on with what the input begins with. Returns how much of it is done, and how; `None`: more input is needed.
    fn next_line<O: Out>(&mut self, call: &mut Call<'_, '_, O>, input: &[u8], args: &mut Args) -> Option<(usize, Ran)> {
        if call.client.staging.is_some() {
            let (used, then) = self.go_on_staging(call, input);
            return Some(match then {
                Then::Input if used == 0 => return None,
                Then::Input | Then::Done => (used, Ran::Done),
                Then::Stalled => (used, Ran::Stalled),
                Then::Close => (used, Ran::Close),
                Then::Broken(_) => {
                    self.reply_now(call, |out| texts::line(out, texts::BAD_DATA));
                    (used, Ran::Close)
                }
            });
        }
        if call.client.dialog.skipped_bytes > 0 {
            let used = input
                .len()
                .min(call.client.dialog.skipped_bytes.try_into().unwrap_or(usize::MAX));
            call.client.dialog.skipped_bytes -= used as u64;
            return (used > 0).then_some((used, Ran::Done));
        }
        if input.first() == Some(&BINARY_REQUEST) {
            let request = input.first_chunk()?;
            self.counters.count_error(true);
            self.reply_now(call, |out| texts::no_binary(out, request));
            return Some((input.len(), Ran::Close));
        }
        if !call.client.authenticated {
            return self.take_proof(call, input);
        }
        let limits = (
            call.cx.shared.parameters.item_bytes_max,
            call.cx.shared.parameters.streamed_bytes_min as usize,
        );
        let next = next(input, call.client.dialog.done_bytes, limits, args);
        call.client.dialog.shown = match &next {
            Next::Nothing | Next::Broken => Shown::All,
            Next::Command { shown, .. }
            | Next::Long { shown, .. }
            | Next::TooLarge { shown, .. }
            | Next::Line { shown, .. }
            | Next::Refused { shown, .. } => *shown,
        };
        match next {
            Next::Nothing => None,
            Next::Broken => Some((0, Ran::Close)),
            Next::Refused { bytes, refusal, .. } => {
                if let Refusal::WrongBeforeData { data_bytes, .. } = refusal {
                    call.client.dialog.skipped_bytes = data_bytes as u64 + 2;
                }
                self.counters.count_error(true);
                self.reply_now(call, |out| texts::line(out, refusal.text()));
                Some((bytes, Ran::Done))
            }
            Next::Line { bytes, request, .. } => {
                let ran = match request {
                    Line::Say(text) => self.reply_now(call, |out| texts::line(out, text)),
                    Line::Quit => Ran::Close,
                    Line::Stats(what) => {
                        let what = input.get(what).unwrap_or_default();
                        let text = stats::text(self, call.cx, call.lists, what);
                        self.reply_now(call, |out| out.extend_from_slice(&text))
                    }
                    Line::FlushAll => {
                        args.keep(&[b"flushdb"]);
                        self.run_line(call, Command::Flushdb.spec(), args, &[])
                    }
                };
                Some(if ran == Ran::Stalled { (0, ran) } else { (bytes, ran) })
            }
            Next::Command {
                spec,
                bytes,
                done_bytes,
                ..
            } => {
                let ran = self.run_line(call, spec, args, input);
                if ran == Ran::Stalled {
                    return Some((0, ran));
                }
                call.client.dialog.done_bytes = done_bytes;
                Some((bytes, ran))
            }
            Next::TooLarge { bytes, data_bytes, .. } => {
                // `args` have the line: with `set`, an older value must go.
                let ran = match args.is_empty() {
                    false => self.run_line(call, Command::ChangeItem.spec(), args, input),
                    true => self.reply_now(call, |out| texts::line(out, texts::TOO_LARGE)),
                };
                if ran == Ran::Stalled {
                    return Some((0, ran));
                }
                call.client.dialog.skipped_bytes = data_bytes as u64 + 2;
                Some((bytes, ran))
            }
            Next::Long { .. } if self.is_held(call.cx, call.client, Command::StoreItem.spec()) => {
                Some((0, Ran::Stalled))
            }
            Next::Long { bytes, data_bytes, .. } => {
                let mut head = Vec::new();
                let list = args.list(input);
                encode::array_header(&mut head, 4);
                let mut words = [Command::StoreItem.spec().name.as_bytes(), list.arg(1), list.arg(2)];
                let mut ranges: [Range<usize>; 3] = Default::default();
                for (word, range) in words.iter_mut().zip(&mut ranges) {
                    encode::bulk(&mut head, word);
                    *range = head.len() - 2 - word.len()..head.len() - 2;
                }
                let mut owned = Args::default();
                owned.set(&ranges);
                self.begin_staging(call, owned.list(&head), &head, data_bytes);
                Some((bytes, Ran::Done))
            }
        }
    }

    /// Runs a command that a line asks for.
    fn run_line<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &'static CommandSpec,
        args: &Args,
        input: &[u8],
    ) -> Ran {
        let list = args.list(input);
        let database = call.client.database;
        let place = target_of(call.cx, call.lists, database, spec, list);
        let ahead = Ahead {
            range: 0..0,
            spec: Ok(spec),
            database,
            place,
        };
        // Only another node needs it as one command.
        let mut raw = Vec::new();
        if matches!(place, Target::One(_, None)) {
            raw = self.spare.pop().unwrap_or_default();
            encode::array_header(&mut raw, list.len());
            encode::bulk(&mut raw, spec.name.as_bytes());
            list.iter().skip(1).for_each(|word| encode::bulk(&mut raw, word));
        }
        let ran = self.run(call, &ahead, list, &raw);
        if raw.capacity() > 0 {
            self.recycle(raw);
        }
        ran
    }

    /// A client that has not given the password may only do that: by a `set` of any key, with user and password as the
    /// data.
    fn take_proof<O: Out>(&mut self, call: &mut Call<'_, '_, O>, input: &[u8]) -> Option<(usize, Ran)> {
        let Some((line, bytes)) = line_of(input) else {
            return (input.len() > LINE_BYTES_MAX).then_some((0, Ran::Close));
        };
        let request = memcached::parse(line);
        let (text, bytes) = match request {
            Ok(Request::Store(Store { data_bytes, .. })) if data_bytes <= PROOF_BYTES_MAX => {
                let end = bytes + data_bytes;
                let after = input.get(end..end + 2)?;
                let proof = input.get(bytes..end).unwrap_or_default();
                let at = proof.iter().position(|byte| *byte == b' ');
                let text = match at.and_then(|at| Some((proof.get(..at)?, proof.get(at + 1..)?))) {
                    _ if after != b"\r\n" => "CLIENT_ERROR bad command line termination",
                    None => "CLIENT_ERROR bad authentication token format",
                    Some((user, given))
                        if user == USER && call.client.authenticate(self.password.as_ref(), user, given) =>
                    {
                        "STORED"
                    }
                    Some(_) => {
                        self.counters.wrong_passwords += 1;
                        "CLIENT_ERROR authentication failure"
                    }
                };
                (text, end + 2)
            }
            Ok(Request::Quit) => return Some((bytes, Ran::Close)),
            _ => ("CLIENT_ERROR unauthenticated", bytes),
        };
        self.counters.count_error(text != "STORED");
        let ran = self.reply_now(call, |out| texts::line(out, text));
        Some((bytes, ran))
    }
}

/// The first line of the input, and its length with its end.
fn line_of(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let line = input.get(..end)?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// Takes apart what the input begins with. `done_bytes`: of the first line, whose keys before that are done.
fn next(input: &[u8], done_bytes: usize, (item_max, held_max): (usize, usize), args: &mut Args) -> Next {
    let Some((line, bytes)) = line_of(input) else {
        let is_long = match memcached::get(input) {
            _ if input.len() <= LINE_BYTES_MAX => false,
            Ok(_) => input.len() > KEYS_LINE_BYTES_MAX,
            Err(_) => true,
        };
        return if is_long { Next::Broken } else { Next::Nothing };
    };
    let range = |part: &[u8]| {
        // An empty one may be no part of the input.
        let start = (part.as_ptr() as usize).wrapping_sub(input.as_ptr() as usize);
        match part {
            [] => 0..0,
            _ => start..start + part.len(),
        }
    };
    if done_bytes > 0 {
        return next_key(line, done_bytes, bytes, args);
    }
    let request = match memcached::parse(line) {
        Ok(request) => request,
        Err(refusal) => {
            let shown = match matches!(refusal, Refusal::Wrong(_)) && is_silent(line) {
                true => Shown::Nothing,
                false => Shown::All,
            };
            return Next::Refused { bytes, refusal, shown };
        }
    };
    let shown = match !matches!(request, Request::Get(_)) && is_silent(line) {
        true => Shown::Nothing,
        false => Shown::All,
    };
    // A key in base64 is no part of the input.
    let put_words = |key: &[u8], is_coded: bool, data: Option<Range<usize>>, args: &mut Args| {
        if is_coded {
            let key = memcached::decode(key).unwrap_or_default();
            let data = data.map(|data| input.get(data).unwrap_or_default());
            let words: [&[u8]; 4] = [b"", &key, line, data.unwrap_or_default()];
            args.keep(words.get(..3 + usize::from(data.is_some())).unwrap_or_default());
        } else if let Some(data) = data {
            args.set(&[0..0, range(key), range(line), data]);
        } else {
            args.set(&[0..0, range(key), range(line)]);
        }
    };
    let change = |key: &[u8], args: &mut Args| {
        put_words(key, false, None, args);
        Next::Command {
            spec: Command::ChangeItem.spec(),
            bytes,
            done_bytes: 0,
            shown,
        }
    };
    let store = |key: &[u8], is_coded: bool, data_bytes: usize, replaces: bool, args: &mut Args| {
        put_words(key, is_coded, None, args);
        if data_bytes > item_max {
            if !replaces {
                args.set(&[]);
            }
            return Next::TooLarge {
                bytes,
                data_bytes,
                shown,
            };
        }
        if data_bytes >= held_max {
            return Next::Long {
                bytes,
                data_bytes,
                shown,
            };
        }
        let end = bytes + data_bytes;
        let Some(after) = input.get(end..end + 2) else {
            return Next::Nothing;
        };
        if after != b"\r\n" {
            return Next::Refused {
                bytes: end + 2,
                refusal: Refusal::Wrong(texts::BAD_DATA),
                shown,
            };
        }
        put_words(key, is_coded, Some(bytes..end), args);
        Next::Command {
            spec: Command::StoreItem.spec(),
            bytes: end + 2,
            done_bytes: 0,
            shown,
        }
    };
    let said = |request: Line| Next::Line { bytes, request, shown };
    match request {
        Request::Get(get) if get.keys.iter().all(|byte| *byte == b' ') => said(Line::Say("END")),
        Request::Get(get) => next_key(line, range(get.keys).start, bytes, args),
        Request::Delete { key } | Request::Count { key, .. } | Request::Touch { key, .. } => change(key, args),
        Request::Store(line) => {
            let replaces = line.how == memcached::How::Set && line.cas.is_none();
            store(line.key, false, line.data_bytes, replaces, args)
        }
        Request::Meta(meta) if meta.verb == Verb::Set => {
            let replaces = meta.mode == Mode::Usual && meta.cas.is_none();
            store(meta.key, meta.has(b'b'), meta.data_bytes, replaces, args)
        }
        Request::Meta(meta) => {
            put_words(meta.key, meta.has(b'b'), None, args);
            let is_read = match meta.verb {
                // It writes a mark if it wins, which is seldom.
                Verb::Get => meta.exptime.is_none() && meta.vivify.is_none(),
                verb => verb == Verb::Debug,
            };
            let command = if is_read {
                Command::ReadItem
            } else {
                Command::ChangeItem
            };
            Next::Command {
                spec: command.spec(),
                bytes,
                done_bytes: 0,
                shown,
            }
        }
        Request::MetaNoop => said(Line::Say("MN")),
        Request::FlushAll { delay: ..=0 } => said(Line::FlushAll),
        Request::FlushAll { .. } => said(Line::Say(texts::NO_DELAY)),
        Request::Stats { what } => said(Line::Stats(range(what))),
        Request::Version => said(Line::Say(VERSION_OF_MEMCACHED)),
        Request::Verbosity => said(Line::Say("OK")),
        Request::Quit => said(Line::Quit),
    }
}

/// The next key of a line that asks for items. `at`: the offset behind the keys that are done. Its command has the
/// words before the first key; with the last key, the whole line.
fn next_key(line: &[u8], at: usize, bytes: usize, args: &mut Args) -> Next {
    let Ok(get) = memcached::get(line) else {
        return Next::Refused {
            bytes,
            refusal: BAD_LINE,
            shown: Shown::All,
        };
    };
    let head = line.len() - get.keys.len();
    let is_space = |byte: &u8| *byte == b' ';
    let rest = line.get(at..).unwrap_or_default();
    let start = at + rest.iter().position(|byte| !is_space(byte)).unwrap_or(rest.len());
    let rest = line.get(start..).unwrap_or_default();
    let end = start + rest.iter().position(is_space).unwrap_or(rest.len());
    let is_last = line.get(end..).unwrap_or_default().iter().all(is_space);
    let is_only = is_last && at == head;
    let words = if is_last { 0..line.len() } else { 0..head };
    args.set(&[0..0, start..end, words]);
    Next::Command {
        spec: match get.exptime {
            None => Command::ReadItem.spec(),
            Some(_) => Command::ChangeItem.spec(),
        },
        bytes: if is_last { bytes } else { 0 },
        done_bytes: if is_last { 0 } else { end },
        shown: match (is_only, is_last) {
            (true, _) => Shown::All,
            (_, true) => Shown::LastOfMany,
            _ => Shown::OneOfMany,
        },
    }
}
