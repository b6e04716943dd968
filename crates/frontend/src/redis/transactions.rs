//! Transactions, which this version refuses. The commands after a refused `MULTI` must not run either: a client sends
//! them without waiting for the answer to `MULTI`, and sends all of them again if the transaction failed.

use crate::router::client::{Caller, Client};
use paritas_wire::command::{Command, CommandSpec};
use paritas_wire::resp::{ArgList, encode, errors};

/// The reply to a command between a refused `MULTI` and its `EXEC`.
const NOT_DONE: &str = "ERR not executed: transactions are not supported, and the MULTI before it was refused. \
                        Send EXEC or DISCARD, then commands one by one";

impl Client {
    /// Answers `MULTI`, `EXEC` and `DISCARD`, and refuses the commands between them. `false`: the command is not one of
    /// these and may run.
    pub(crate) fn refuses_transaction(
        &mut self,
        out: &mut Vec<u8>,
        spec: Option<&CommandSpec>,
        args: ArgList<'_>,
    ) -> bool {
        if matches!(self.caller, Caller::Remote(..)) {
            return false;
        }
        let is = |word: &str| spec.is_none() && args.arg(0).eq_ignore_ascii_case(word.as_bytes());
        let inside = self.about.transaction_refused;
        if is("multi") || is("exec") || is("discard") {
            if args.len() != 1 {
                let name = if is("multi") {
                    "multi"
                } else if is("exec") {
                    "exec"
                } else {
                    "discard"
                };
                errors::wrong_arity(out, name);
                return true;
            }
            self.about.transaction_refused = is("multi");
            match (inside, is("multi"), is("exec")) {
                (false, true, _) => encode::error(out, errors::MULTI_UNSUPPORTED),
                (true, true, _) => encode::error(out, errors::MULTI_NESTED),
                (false, _, true) => encode::error(out, errors::EXEC_WITHOUT_MULTI),
                (true, _, true) => encode::error(out, errors::EXECABORT),
                (false, ..) => encode::error(out, errors::DISCARD_WITHOUT_MULTI),
                (true, ..) => encode::ok(out),
            }
            return true;
        }
        if !inside {
            return false;
        }
        match spec.map(|spec| spec.id) {
            Some(Command::Quit) => false,
            Some(Command::Reset) => {
                self.about.transaction_refused = false;
                false
            }
            _ => {
                encode::error(out, NOT_DONE);
                true
            }
        }
    }
}
