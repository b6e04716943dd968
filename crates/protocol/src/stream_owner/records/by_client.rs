//! Values whose units a client sends to the holders itself (P14.18). The owner opens the parts. At COMMIT it accepts
//! the value, if every part is kept and all belong together.

use super::upload::{Made, class_of_new};
use super::{Installed, Origin, Records, Ticket, holders};
use crate::context::Context;
use crate::interface::Out;
use crate::rules::Fault;
use crate::stream_owner::{NotByClient, Stop, WriteRefusal};
use core::ops::RangeInclusive;
use paritas_base::{Span, Time};
use paritas_large::{Class, Record, UploadFailed};
use std::sync::Arc;

/// The most bytes of values that a connection has staged in a stream.
const STAGED_BYTES_MAX: u64 = 64 << 20;
/// The most values that are staged in a stream.
const STAGED_MAX: usize = 256;
/// The time between STAGE and COMMIT: so long, and a second more for each of so many bytes.
const TIME: Span = Span::from_secs(10);
const BYTES_PER_S: u64 = 64 << 10;

/// One value.
#[derive(Debug)]
pub(super) struct ByClient {
    database: u8,
    key: Box<[u8]>,
    value_bytes: u64,
    /// From COMMIT on.
    tail: Option<Vec<u8>>,
    /// It is given up then, unless COMMIT has come.
    until: Time,
}

impl ByClient {
    pub(super) fn held_bytes(&self) -> usize {
        self.key.len() + self.tail.as_ref().map_or(0, Vec::capacity)
    }
}

/// All values of the connection of this command.
fn of_connection(of: Ticket) -> RangeInclusive<Ticket> {
    Ticket { n: 0, ..of }..=Ticket { n: u64::MAX, ..of }
}

fn refused(why: NotByClient) -> Stop {
    Stop::Refused(WriteRefusal::NotByClient(why))
}

impl Records {
    /// A client will send the units of a value. Returns its record, without checks, once every holder has opened its
    /// part. `class`: the one that it asks for.
    ///
    /// # Errors
    /// [`Stop::Wait`] until then. A refusal if a holder does not open its part, and for too much that is staged.
    pub(in crate::stream_owner) fn stage_by_client<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        ticket: Ticket,
        (database, key): (u8, &[u8]),
        value_bytes: u64,
        class: Option<Class>,
    ) -> Result<Arc<Record>, Stop> {
        if !self.by_client.contains_key(&ticket) {
            self.check_staged(ticket, value_bytes)?;
            let made = Made {
                basis: &[],
                class: class_of_new(cx, class, key, value_bytes),
                same_as: None,
                is_all_body: false,
            };
            let record = self.stage_groups(cx, here, &made, value_bytes);
            let record = record.ok_or(Stop::Refused(WriteRefusal::TooLarge))?;
            if !record.may_be_by_client() {
                self.ledger.end_staging(&record);
                return Err(refused(NotByClient::Class));
            }
            self.begin_upload(cx, here, Origin::ByClient(ticket), &[], record)?;
            let value = ByClient {
                database,
                key: key.into(),
                value_bytes,
                tail: None,
                until: cx.mono() + TIME + Span::from_secs(value_bytes / BYTES_PER_S),
            };
            self.by_client.insert(ticket, value);
        }
        let is_open = self.go_on_by_client(cx, here, ticket);
        match is_open.map(|_| self.uploads.get(&Origin::ByClient(ticket))) {
            Ok(Some(uploading)) if uploading.is_open() => Ok(uploading.staged().clone()),
            Ok(_) => Err(Stop::Wait),
            Err(stop) => {
                self.unstage(ticket);
                Err(stop)
            }
        }
    }

    fn check_staged(&self, ticket: Ticket, value_bytes: u64) -> Result<(), Stop> {
        let staged = self.by_client.range(of_connection(ticket));
        let staged_bytes: u64 = staged.map(|(_, value)| value.value_bytes).sum();
        if staged_bytes.saturating_add(value_bytes) > STAGED_BYTES_MAX {
            return Err(refused(NotByClient::TooLong));
        }
        match self.by_client.len() < STAGED_MAX {
            true => Ok(()),
            false => Err(refused(NotByClient::TooMany)),
        }
    }

    /// The client says that all units of the value that it has staged as `n` are kept. From now on the value is that of
    /// this command, as if it had come ahead of it.
    ///
    /// # Errors
    /// A refusal, and the value is given up, if COMMIT does not fit what was staged.
    pub(in crate::stream_owner) fn commit_by_client<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        (ticket, n): (Ticket, u64),
        (database, key): (u8, &[u8]),
        checks: &[u32],
        tail: &[u8],
    ) -> Result<(), Stop> {
        // The command is run again.
        if self.by_client.contains_key(&ticket) {
            if let Some(uploading) = self.uploads.get_mut(&Origin::ByClient(ticket)) {
                uploading.want(cx.mono());
            }
            return Ok(());
        }
        let staged = Ticket { n, ..ticket };
        let value = self.by_client.get(&staged).filter(|value| value.tail.is_none());
        let (Some(value), Some(uploading)) = (value, self.uploads.get(&Origin::ByClient(staged))) else {
            return Err(refused(NotByClient::Unknown));
        };
        let record = uploading.staged();
        let is_of_key = (value.database, &*value.key) == (database, key) || cx.rules().fault(Fault::CommitOfAnotherKey);
        let is_whole = record.body_bytes + tail.len() as u64 == value.value_bytes;
        let why = match is_of_key {
            false => Some(NotByClient::OtherKey),
            true if !is_whole || checks.len() != record.checks.len() => Some(NotByClient::Lengths),
            true => None,
        };
        if let Some(why) = why {
            self.unstage(staged);
            return Err(refused(why));
        }
        let moved = (
            self.by_client.remove(&staged),
            self.uploads.remove(&Origin::ByClient(staged)),
        );
        let (Some(mut value), Some(mut uploading)) = moved else {
            return Err(refused(NotByClient::Unknown));
        };
        uploading.commit(cx, here, checks);
        value.tail = Some(tail.to_vec());
        self.by_client.insert(ticket, value);
        self.uploads.insert(Origin::ByClient(ticket), uploading);
        Ok(())
    }

    /// Whether a client sends, or has sent, the value of this command.
    pub(super) fn is_by_client(&self, ticket: Ticket) -> bool {
        self.by_client.contains_key(&ticket)
    }

    /// The record and the tail of a value that is committed, once an object may name it.
    ///
    /// # Errors
    /// [`Stop::Wait`] until every holder has said that it keeps its part. A refusal if that cannot be.
    pub(super) fn sealed_by_client<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        ticket: Ticket,
    ) -> Result<(Arc<Record>, Vec<u8>), Stop> {
        let tail = self.by_client.get(&ticket).and_then(|value| value.tail.clone());
        let tail = tail.ok_or_else(|| refused(NotByClient::Unknown))?;
        let uploading = self.uploads.get(&Origin::ByClient(ticket));
        if let Some(uploading) = uploading.filter(|_| cx.rules().fault(Fault::ClientsWordCounts)) {
            return Ok((Arc::new(uploading.sealed()), tail));
        }
        let sealed = self.go_on_by_client(cx, here, ticket)?;
        Ok((sealed.ok_or(Stop::Wait)?, tail))
    }

    /// Tells holders what they must be told. Returns the record if an object may name it.
    ///
    /// # Errors
    /// A refusal if no object may ever name it.
    fn go_on_by_client<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        ticket: Ticket,
    ) -> Result<Option<Arc<Record>>, Stop> {
        let Some(uploading) = self.uploads.get_mut(&Origin::ByClient(ticket)) else {
            return Err(refused(NotByClient::Unknown));
        };
        uploading.want(cx.mono());
        let holders = holders(here.configuration);
        uploading.tell(cx, here, &holders, false);
        match uploading.is_acceptable(cx, here, &self.ledger) {
            Ok(is_ready) => Ok(is_ready.then(|| Arc::new(uploading.sealed()))),
            Err(UploadFailed::NoRoom) => Err(Stop::Refused(WriteRefusal::NoMemory)),
            Err(UploadFailed::NotAsNamed) => Err(refused(NotByClient::Parts)),
            Err(UploadFailed::Forged) => {
                cx.shared.forged_values += 1;
                Err(refused(NotByClient::Forged))
            }
            Err(UploadFailed::Refused | UploadFailed::Lost) => Err(refused(NotByClient::Holders)),
        }
    }

    /// Ends what the connection of this command has staged.
    pub(in crate::stream_owner) fn end_by_client(&mut self, of: Ticket) {
        let ended = self.by_client.range(of_connection(of)).map(|(ticket, _)| *ticket);
        let ended: Vec<Ticket> = ended.collect();
        ended.into_iter().for_each(|ticket| self.unstage(ticket));
    }

    /// Gives up values that took too long, and those that no object may name any more.
    pub(super) fn tend_by_client<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>) {
        let now = cx.mono();
        let all: Vec<Ticket> = self.by_client.keys().copied().collect();
        for ticket in all {
            let is_over = match self.by_client.get(&ticket) {
                Some(value) if value.tail.is_none() => {
                    now >= value.until || self.go_on_by_client(cx, here, ticket).is_err()
                }
                // Its COMMIT waits, and looks itself whether the value may be put.
                _ => !self.uploads.contains_key(&Origin::ByClient(ticket)),
            };
            if is_over {
                self.unstage(ticket);
            }
        }
    }
}
