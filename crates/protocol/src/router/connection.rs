//! Commands that name no key: the connection, the server, the cluster.

use super::caller::{Client, Wait};
use super::{Desk, Ran, Turn};
use crate::context::Context;
use crate::interface::{Out, Proposal};
use crate::lists::Lists;
use paritas_wire::command::{self, Command, CommandSpec};
use paritas_wire::resp::{ArgList, encode};

impl Desk {
    pub(super) fn run_keyless<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
        args: ArgList<'_>,
    ) -> Ran {
        let start = turn.bytes.len();
        let out = &mut *turn.bytes;
        let mut ran = Ran::Done;
        let mut wait = Wait::Ready;
        match spec.id {
            Command::Ping => match args.get(1) {
                Some(text) => encode::bulk(out, text),
                None => encode::simple(out, "PONG"),
            },
            Command::Echo => encode::bulk(out, args.arg(1)),
            Command::Quit => {
                encode::ok(out);
                ran = Ran::Close;
            }
            Command::Command => command::reply::all(out, client.proto),
            Command::ParitasStatus => {
                if let super::Caller::Local(conn) = client.caller {
                    cx.propose(Proposal::Ask { conn, n: client.next_n });
                    wait = Wait::Answer;
                }
            }
            _ => encode::error(out, &format!("ERR unknown command '{}'", spec.name)),
        }
        self.push(cx, lists, client, turn, start, wait);
        ran
    }
}
