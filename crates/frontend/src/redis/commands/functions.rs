//! The libraries of functions at the owner of their key (docs/formats/functions.md).
//!
//! ```text
//! PARITAS.FUNCTIONS key version
//! PARITAS.FUNCTION key how libraries reply
//! ```
//! The first answers OK if the libraries are those of this version, else an array of their version and all of them. The
//! second changes them, on a draft as a script does, and then answers `reply`.

use super::transaction::OnDraft;
use super::{Job, Operation, Stop};
use crate::dialect::Refusal;
use crate::redis::functions::{Change, Libraries, version_of};
use paritas_protocol::{Access, Out, body_bytes};
use paritas_store::Value;
use paritas_wire::resp::{encode, errors};

/// Steps of work for a byte of libraries that is sent.
const SENT_BYTE_STEPS: u64 = 1;

/// The value of the libraries' key: the record of a large value, and the bytes in the object.
type Found = (Option<Vec<u8>>, Vec<u8>);

fn find<O: Out>(access: &mut Access<'_, '_, O>, key: &[u8]) -> Result<Found, Stop> {
    let hash = access.hash(key);
    let found = access.look(hash, key, false, |object| {
        let object = object?;
        let mut bytes = Vec::with_capacity(object.len());
        object.copy_to(&mut bytes);
        Some((object.record().map(<[u8]>::to_vec), bytes))
    })?;
    Ok(found.unwrap_or_default())
}

fn all<O: Out>(access: &mut Access<'_, '_, O>, (record, tail): &Found) -> Result<Vec<u8>, Stop> {
    let mut value = match record {
        Some(record) => access.body(record, 0..body_bytes(record))?.to_vec(),
        None => Vec::new(),
    };
    value.extend_from_slice(tail);
    Ok(value)
}

impl<O: Out> Operation<'_, '_, O> {
    /// Tells the libraries, if they are not those that the asker has.
    pub(crate) fn read_functions(&mut self) -> Result<(), Stop> {
        let (key, known) = (self.job.args.arg(1), self.job.args.arg(2));
        let found = find(&mut self.access, key)?;
        let version = version_of(found.0.as_deref(), &found.1);
        if version == known {
            encode::ok(self.reply);
            return Ok(());
        }
        if !self.access.turn_budget().admits() {
            return Err(Stop::Wait);
        }
        let value = all(&mut self.access, &found)?;
        self.access.turn_budget().spend(value.len() as u64 * SENT_BYTE_STEPS);
        encode::array_header(self.reply, 2);
        encode::bulk(self.reply, version);
        encode::bulk(self.reply, &value);
        Ok(())
    }
}

impl<O: Out> OnDraft<'_, '_, O> {
    /// Changes the libraries on the draft, and appends the reply.
    pub(super) fn change_functions(&mut self, job: &Job<'_>, reply: &mut Vec<u8>) -> Result<(), Stop> {
        let (key, how, what) = (job.args.arg(1), job.args.arg(2), job.args.arg(3));
        let Some(change) = Change::of_words(how, what) else {
            return Err(Stop::Refused(Refusal::Malformed));
        };
        if !self.draft.begin_command(job.args.len()) {
            return Err(Stop::Error(errors::TRANSACTION_TOO_SLOW));
        }
        let mut access = self.access(job.database);
        let result = change_with(&mut access, key, change, job, reply);
        access.end_in_draft();
        result
    }
}

fn change_with<O: Out>(
    access: &mut Access<'_, '_, O>,
    key: &[u8],
    change: Change,
    job: &Job<'_>,
    reply: &mut Vec<u8>,
) -> Result<(), Stop> {
    // A value of the same length takes no memory: it is written over the one of before. So one that is not large keeps
    // its length when a library is deleted, which must be possible when memory is full.
    let mut bytes_min = 0;
    let before = match change.replaces_all() {
        // What is there may be in a form that is not known.
        true => Libraries::default(),
        false => {
            let found = find(access, key)?;
            if matches!(change, Change::Delete(..)) && found.0.is_none() {
                bytes_min = found.1.len();
            }
            let value = all(access, &found)?;
            let libraries = Libraries::decode(&value).ok_or(Stop::Error(errors::UNREADABLE_LIBRARIES))?;
            access.turn_budget().spend(libraries.steps());
            libraries
        }
    };
    let mut libraries = before.clone();
    let changed = libraries.apply(change).and_then(|()| libraries.encode_in(bytes_min));
    let value = match changed {
        Ok(value) => value,
        Err(text) => {
            encode::error(reply, &text);
            return Err(Stop::Written);
        }
    };
    access.turn_budget().spend(libraries.steps());
    let hash = access.hash(key);
    if value.is_empty() {
        access.remove(hash, key)?;
    } else if libraries != before {
        let value = Value {
            bytes: &value,
            ..Value::default()
        };
        access.put_large(job.ticket, hash, key, value)?;
    }
    reply.extend_from_slice(job.args.arg(4));
    Ok(())
}
