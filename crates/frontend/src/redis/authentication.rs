//! The password of a node: AUTH, HELLO with AUTH, and what a client may do before.

use crate::router::client::Client;
use paritas_wire::command::{Command, CommandSpec, Refusal};
use paritas_wire::resp::{ArgList, Password, USER, encode, errors};

impl Client {
    /// Refuses a command of a client that has not given the password. `false`: the command may run.
    #[inline]
    pub(crate) fn refuses_unauthenticated(&self, out: &mut Vec<u8>, spec: &Result<&CommandSpec, Refusal>) -> bool {
        if self.authenticated {
            return false;
        }
        let may_run = match spec {
            Ok(spec) | Err(Refusal::WrongArity(spec)) => {
                matches!(spec.id, Command::Auth | Command::Hello | Command::Quit | Command::Reset)
            }
            Err(_) => false,
        };
        if !may_run {
            encode::error(out, errors::NOAUTH);
        }
        !may_run
    }

    /// Checks a name and a password. A wrong password takes nothing away from a client that has given the right one.
    pub(crate) fn authenticate(&mut self, password: Option<&Password>, user: &[u8], given: &[u8]) -> bool {
        let is_right = user == USER && password.is_none_or(|password| password.is(given));
        self.authenticated |= is_right;
        is_right
    }
}

/// AUTH [user] password.
pub(crate) fn auth(client: &mut Client, out: &mut Vec<u8>, password: Option<&Password>, args: ArgList<'_>) {
    let (user, given) = match args.len() {
        2 if password.is_none() => return encode::error(out, errors::AUTH_WITHOUT_PASSWORD),
        2 => (USER, args.arg(1)),
        3 => (args.arg(1), args.arg(2)),
        _ => return encode::error(out, errors::SYNTAX),
    };
    match client.authenticate(password, user, given) {
        true => encode::ok(out),
        false => encode::error(out, errors::WRONGPASS),
    }
}
