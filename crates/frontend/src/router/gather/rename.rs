//! RENAME, RENAMENX, COPY and MOVE of a key to one of another hash slot (docs/commands.md). It goes by steps: the old
//! key is read with its version, the new one is written, and the old one is removed if its version is still the same.
//! Each step is sent when the one before is acknowledged. So what ends the command between two steps leaves both keys.

use super::How;
use crate::dialect::{Dialect, Refusal};
use crate::redis::commands::{Job, copy_options};
use crate::redis::connection::database_number;
use crate::redis::parts;
use crate::redis::refusals::{is_error, is_uncertain};
use crate::router::call::Call;
use crate::router::{Dispatcher, Ran};
use paritas_protocol::Out;
use paritas_wire::command::{Command, CommandSpec};
use paritas_wire::resp::{encode, errors};

/// How often the key is copied, if other commands change it meanwhile.
const COPIES_MAX: u32 = 4;

/// What the step that runs does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Read,
    Write,
    /// Removes the old key.
    Remove,
    /// Removes the new key: the old one has changed, and RENAMENX or MOVE begins again.
    TakeBack,
}

/// The next step.
#[derive(Debug)]
pub(crate) struct NextStep {
    pub(crate) spec: &'static CommandSpec,
    pub(crate) database: u8,
    /// It decides with the database where the step runs.
    pub(crate) key: Vec<u8>,
    pub(crate) command: Vec<u8>,
}

/// The command, while its steps run.
#[derive(Debug)]
pub(crate) struct Rename {
    /// The old key and the new one, each with its database.
    from: (u8, Vec<u8>),
    to: (u8, Vec<u8>),
    id: Command,
    replaces: bool,
    step: Step,
    copies: u32,
    /// A copy is under the new key, as far as is known.
    is_copied: bool,
    /// The version of the old key when it was read, and of the new one when it was written.
    versions: [Vec<u8>; 2],
    reply: Vec<u8>,
}

/// Whether a command moves or copies a key to another.
pub(crate) fn moves_key(id: Command) -> bool {
    matches!(id, Command::Rename | Command::Renamenx | Command::Copy | Command::Move)
}

impl Dispatcher {
    /// Begins the steps.
    pub(crate) fn rename<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Ran {
        let Job { spec, args, .. } = *job;
        if call.client.is_behind_detours() {
            return Ran::Stalled;
        }
        let (replaces, database) = match spec.id {
            Command::Copy => match copy_options(args) {
                Ok((replaces, database)) => (replaces, database.unwrap_or(call.client.database)),
                Err(error) => return self.reply_now(call, |out| encode::error(out, error)),
            },
            Command::Move => match database_number(args.arg(2)) {
                Ok(database) => (false, database),
                Err(error) => return self.reply_now(call, |out| encode::error(out, error)),
            },
            id => (id == Command::Rename, call.client.database),
        };
        let to = if spec.id == Command::Move { 1 } else { 2 };
        let rename = Rename {
            from: (call.client.database, args.arg(1).to_vec()),
            to: (database, args.arg(to).to_vec()),
            id: spec.id,
            replaces,
            step: Step::Read,
            copies: 0,
            is_copied: false,
            versions: Default::default(),
            reply: Vec::new(),
        };
        let first = rename.read();
        let stream = call.cx.shared.slots.stream_of_key(first.database, &first.key);
        let how = How::Renamed(Box::new(rename));
        let ran = self.gather(call, how, vec![(first.spec, stream, first.command)]);
        // Its later steps would overtake the commands behind it.
        call.client.await_newest();
        ran
    }
}

impl Rename {
    pub(crate) fn held_bytes(&self) -> usize {
        let keys = self.from.1.capacity() + self.to.1.capacity();
        let versions: usize = self.versions.iter().map(Vec::capacity).sum();
        size_of::<Self>() + keys + versions + self.reply.capacity()
    }

    fn next(&self, id: Command, (database, key): &(u8, Vec<u8>), others: &[&[u8]]) -> NextStep {
        let spec = id.spec();
        let words: Vec<&[u8]> = [spec.name.as_bytes(), key]
            .into_iter()
            .chain(others.iter().copied())
            .collect();
        let mut command = Vec::new();
        parts::append_words(&mut command, words.into_iter());
        NextStep {
            spec,
            database: *database,
            key: key.clone(),
            command,
        }
    }

    fn read(&self) -> NextStep {
        self.next(Command::ReadObject, &self.from, &[])
    }

    /// Ends the command with this reply.
    fn end(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<NextStep> {
        write(&mut self.reply);
        None
    }

    /// Takes the reply to the step that has run, and returns the next one. `None`: the command has its reply.
    pub(crate) fn take(&mut self, dialect: Dialect, reply: &[u8]) -> Option<NextStep> {
        if is_error(reply) {
            return self.fail(dialect, reply);
        }
        let is_nothing = parts::is_nothing(reply);
        match self.step {
            Step::Read if is_nothing => self.end_without_key(),
            Step::Read => {
                let mut rest = parts::head(reply).1;
                let mut words = [&[][..]; 4];
                for word in &mut words {
                    let (element, after) = rest.split_at(parts::element_bytes(rest));
                    let text = parts::head(element).1;
                    *word = text.strip_suffix(b"\r\n").unwrap_or(text);
                    rest = after;
                }
                let [version, expiry, flags, value] = words;
                self.versions[0] = version.to_vec();
                self.step = Step::Write;
                self.copies += 1;
                let how: &[u8] = if self.replaces { b"any" } else { b"nx" };
                Some(self.next(Command::WriteObject, &self.to, &[how, expiry, flags, value]))
            }
            // The new key is there already.
            Step::Write if is_nothing => self.end(|out| encode::integer(out, 0)),
            Step::Write if self.id == Command::Copy => self.end(|out| encode::integer(out, 1)),
            Step::Write => {
                self.is_copied = true;
                self.versions[1] = parts::head(reply).1.trim_ascii_end().to_vec();
                self.step = Step::Remove;
                Some(self.next(Command::RemoveObject, &self.from, &[&self.versions[0]]))
            }
            Step::Remove if parts::head(reply).0 == 1 => self.end_done(),
            Step::Remove if self.copies == COPIES_MAX => self.end(|out| encode::error(out, errors::RENAME_OVERTAKEN)),
            Step::Remove if matches!(self.id, Command::Renamenx | Command::Move) => {
                self.step = Step::TakeBack;
                Some(self.next(Command::RemoveObject, &self.to, &[&self.versions[1]]))
            }
            // Another command has changed the copy, or it only looks so: versions are those of a few keys together.
            Step::TakeBack if parts::head(reply).0 != 1 => self.end(|out| encode::error(out, errors::RENAME_HALF_DONE)),
            Step::Remove | Step::TakeBack => {
                self.is_copied = self.step == Step::Remove;
                self.step = Step::Read;
                Some(self.read())
            }
        }
    }

    fn end_done(&mut self) -> Option<NextStep> {
        match self.id {
            Command::Rename => self.end(encode::ok),
            _ => self.end(|out| encode::integer(out, 1)),
        }
    }

    /// The old key is not there.
    fn end_without_key(&mut self) -> Option<NextStep> {
        match self.id {
            Command::Copy => self.end(|out| encode::integer(out, 0)),
            Command::Move if !self.is_copied => self.end(|out| encode::integer(out, 0)),
            // The copy stays: another RENAME may rely on it, one back to the old key.
            _ if self.is_copied => self.end(|out| encode::error(out, errors::RENAME_TAKEN)),
            _ => self.end(|out| encode::error(out, errors::NO_SUCH_KEY)),
        }
    }

    /// A step has failed. While there is no copy, its error is that of the command.
    fn fail(&mut self, dialect: Dialect, error: &[u8]) -> Option<NextStep> {
        match (self.is_copied, is_uncertain(error)) {
            (false, _) => self.reply.extend_from_slice(error),
            (true, true) => dialect.refuse(&mut self.reply, Refusal::Uncertain),
            (true, false) => encode::error(&mut self.reply, errors::RENAME_HALF_DONE),
        }
        None
    }

    pub(crate) fn reply(&self) -> &[u8] {
        &self.reply
    }
}
