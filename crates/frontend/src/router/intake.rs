//! Input of clients: commands are decoded ahead and run in order, for each client up to its limits for one turn.

use super::call::{Call, Turn};
use super::client::Client;
use super::prefetch::{Following, Input};
use super::staging::Then;
use super::{Dispatcher, Ran, Router};
use crate::dialect::Dialect;
use paritas_base::ConnId;
use paritas_protocol::{Context, Lists, Out};
use paritas_wire::command::Command;
use paritas_wire::resp::Args;

/// Commands decoded before the first of them runs, so that the memory they need is prefetched.
pub(crate) const AHEAD_MAX: usize = 16;
/// If a command is still incomplete after this number of bytes, the decoder's state is kept, and decoding goes on where
/// it stopped. A shorter one is decoded again from its start.
const PARTIAL_BYTES_MIN: usize = 16 << 10;
/// Limits of one client in one turn: commands started, and bytes of replies that wait to be sent. The rest of its input
/// waits for the next turn, so that a long pipeline neither starves other clients nor fills the memory with replies.
pub(crate) const TURN_COMMANDS_MAX: usize = 1024;
const REPLY_BYTES_SOFT_MAX: usize = 1 << 20;
/// The same limit of reply bytes for a client that has not given the password. If this number of bytes waits when the
/// client sends more, it is not reading its replies, and is disconnected.
const UNAUTHENTICATED_REPLY_BYTES_MAX: usize = 16 << 10;

impl Client {
    /// Bytes of replies after which no more commands of it run.
    pub(crate) fn reply_bytes_max(&self) -> usize {
        match self.authenticated {
            true => REPLY_BYTES_SOFT_MAX,
            false => UNAUTHENTICATED_REPLY_BYTES_MAX,
        }
    }

    /// Whether it is to be disconnected because it has not given the password and sends without reading its replies.
    pub(crate) fn leaves_unread(&self, unread_bytes: usize) -> bool {
        !self.authenticated && unread_bytes >= UNAUTHENTICATED_REPLY_BYTES_MAX
    }
}

impl Router {
    /// Runs the commands in a client's input until one must wait or a limit of the turn is reached.
    pub(crate) fn on_client<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, conn: ConnId, input: &[u8]) {
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        if client.closing {
            return;
        }
        if client.dialect == Dialect::Memcached {
            return self.on_lines(cx, lists, conn, input);
        }
        let Some(buffer) = cx.out.client(conn) else { return };
        client.about.active_at = cx.now.mono;
        let unread_bytes = buffer.waiting + buffer.bytes.len();
        let turn = Turn::take(buffer);
        let mut all_args = core::mem::take(&mut self.dispatcher.args);
        let mut all_ahead = core::mem::take(&mut self.dispatcher.ahead);
        all_args.resize_with(AHEAD_MAX, Args::default);
        let (mut consumed, mut stalled) = (0, false);
        let mut close = client.leaves_unread(unread_bytes);
        let (mut started, mut throttled) = (0, false);
        let mut resume = false;
        if let (Some(partial), Some(first)) = (client.partial.take(), all_args.first_mut()) {
            *first = *partial;
            resume = true;
        }
        let mut call = Call {
            cx,
            lists,
            client,
            turn,
        };
        while !stalled && !close && !throttled {
            if call.client.staging.is_some() {
                let rest = input.get(consumed..).unwrap_or_default();
                let (used, then) = self.dispatcher.go_on_staging(&mut call, rest);
                consumed += used;
                if used > 0 {
                    call.client.stalled_since = None;
                }
                match then {
                    Then::Input => {
                        call.client.stalled_since = None;
                        break;
                    }
                    Then::Stalled => stalled = true,
                    Then::Done => {
                        started += 1;
                        call.client.end_command();
                    }
                    Then::Close => close = true,
                    Then::Broken(error) => {
                        self.dispatcher.give_up_staging(call.cx, call.lists, call.client);
                        self.dispatcher.reply_now(&mut call, |out| error.append_to(out));
                        consumed = input.len();
                        close = true;
                    }
                }
                throttled = !stalled && !close && call.turn.bytes.len() >= REPLY_BYTES_SOFT_MAX;
                continue;
            }
            let source = Input {
                input,
                from: consumed,
                resume: core::mem::take(&mut resume),
            };
            let more =
                self.dispatcher
                    .decode_ahead(call.cx, call.lists, source, call.client, &mut all_args, &mut all_ahead);
            let reply_bytes_max = call.client.reply_bytes_max();
            for (ahead, args) in all_ahead.iter().zip(&all_args) {
                if started >= TURN_COMMANDS_MAX || call.turn.bytes.len() >= reply_bytes_max {
                    throttled = true;
                    break;
                }
                started += 1;
                let raw = input.get(ahead.range.clone()).unwrap_or_default();
                let list = args.list(raw);
                let mut ran = if list.is_empty() {
                    Ran::Done
                } else {
                    self.dispatcher.run(&mut call, ahead, list, raw)
                };
                if ran == Ran::AboutClients {
                    let turn = call.turn;
                    let (reply, ends) = self.about_clients(cx, conn, list);
                    // `about_clients` removes no client, so this one still exists.
                    let Some(client) = self.clients.get_mut(&conn) else {
                        return;
                    };
                    call = Call {
                        cx,
                        lists,
                        client,
                        turn,
                    };
                    ran = self
                        .dispatcher
                        .reply_now(&mut call, |out| out.extend_from_slice(&reply));
                    if ends {
                        ran = Ran::Close;
                    }
                }
                if ran == Ran::Stalled {
                    stalled = true;
                    break;
                }
                call.client.end_command();
                consumed = ahead.range.end;
                if ran == Ran::Close {
                    close = true;
                    break;
                }
            }
            match more {
                _ if stalled || close || throttled => {}
                Ok(Following::Unknown) => {}
                Ok(Following::Long { line, start, bytes }) => {
                    // Commands before it run first, and are decoded no more.
                    if let Some(args) = all_args.first().filter(|_| all_ahead.is_empty()) {
                        // Its database may be that of an EXEC that is not answered.
                        let waits = call.client.awaited.is_some();
                        call.client.full |= waits;
                        if waits || self.dispatcher.is_held(call.cx, call.client, Command::Set.spec()) {
                            stalled = true;
                            continue;
                        }
                        let list = args.list(input.get(consumed..).unwrap_or_default());
                        let head = input.get(consumed..line).unwrap_or_default();
                        self.dispatcher.begin_staging(&mut call, list, head, bytes);
                        consumed = start;
                    }
                }
                Ok(Following::Incomplete) => {
                    if input.len() - consumed > PARTIAL_BYTES_MIN
                        && let Some(args) = all_args.get_mut(all_ahead.len())
                    {
                        call.client.partial = Some(Box::new(core::mem::take(args)));
                    }
                    break;
                }
                Err(error) => {
                    self.dispatcher.reply_now(&mut call, |out| error.append_to(out));
                    consumed = input.len();
                    close = true;
                }
            }
        }
        self.dispatcher.args = all_args;
        self.dispatcher.ahead = all_ahead;
        let end = InputEnd {
            consumed,
            stalled,
            throttled,
            close,
        };
        self.dispatcher.end_input(call, conn, end);
    }
}

/// How a client's input has ended in this turn.
pub(crate) struct InputEnd {
    /// Bytes of it that are done.
    pub(crate) consumed: usize,
    /// The next command must wait.
    pub(crate) stalled: bool,
    /// The client has used up its share of the turn.
    pub(crate) throttled: bool,
    /// The connection ends after the replies.
    pub(crate) close: bool,
}

impl Dispatcher {
    /// Gives the replies of a client's input back to the driver.
    pub(crate) fn end_input<O: Out>(&mut self, call: Call<'_, '_, O>, conn: ConnId, end: InputEnd) {
        let Call { cx, client, turn, .. } = call;
        if let Some(buffer) = cx.out.client(conn) {
            turn.put(buffer);
            buffer.consumed += end.consumed;
            buffer.stalled = end.stalled || end.throttled;
            client.closing |= end.close;
            client.show(buffer);
        }
        self.note(cx, client, end.stalled, end.consumed > 0);
        if end.throttled {
            self.throttled.push(conn);
        }
    }
}
