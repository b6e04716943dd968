//! A parity member's answers to owners that rebuild, and owners' lists of stripes (P5.5, P5.7a, P6.6).

use super::ParityMember;
use super::log::Alloc;
use crate::context::Context;
use crate::disk_log::Wanted;
use crate::interface::{Channel, Out};
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, NodeId, Position, StreamId, Stripe, Term, Version};
use paritas_wire::peer::{self, Header, Message, Parity, Versions};

/// Where the bytes of a parity chunk are.
pub(crate) enum ParityBytes<'a> {
    InMemory,
    /// They were read from the disk; `None` if that failed.
    Read(Option<&'a [u8]>),
}

impl ParityMember {
    /// P5.5: which stripes of the stream exist. Only from a Live member whose log is the successor's and long enough.
    pub(crate) fn on_read_directory<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stream: StreamId,
        term: Term,
        at_least: u64,
    ) {
        let live = configuration.at(self.position).is_some_and(|a| a.state.is_live());
        let (Some(owner), Some(log)) = (configuration.tenure(stream.x), self.logs.get(stream.x.index())) else {
            return;
        };
        let complete = cx.rules().is_complete_for(log.recv, at_least);
        if !live || !log.known || log.term != term || !complete {
            return;
        }
        let x = stream.x.index();
        let mut entries = Vec::new();
        for (stripe, _) in self.table.stripes() {
            let version = self.table.version(stripe, x);
            if version != Version::ZERO {
                Message::push_directory_entry(&mut entries, stripe, version);
            }
        }
        let reply = Message::Directory {
            term,
            complete_for: log.recv,
            entries: &entries,
        };
        cx.send(&owner, Channel::Bulk, stream, configuration.epoch, &reply);
    }

    /// P5.7a: a request for a parity chunk. A chunk on disk is read first and answered later.
    pub(crate) fn on_read_parity<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        (stream, to): (StreamId, (NodeId, Incarnation)),
        id: u64,
        stripe: Stripe,
    ) {
        if let (Some(key), Some(disk)) = (self.table.disk_key(stripe), &mut cx.shared.disk) {
            let wanted = Wanted::Parity {
                list: self.list,
                x: stream.x,
                to,
                epoch: configuration.epoch,
                id,
                stripe,
            };
            if !disk.read(key, wanted) {
                self.answer_parity(cx, configuration, (stream, to), (id, stripe), ParityBytes::Read(None));
            }
            return;
        }
        self.answer_parity(cx, configuration, (stream, to), (id, stripe), ParityBytes::InMemory);
    }

    /// Answers with the present versions and these bytes.
    pub(crate) fn answer_parity<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        (stream, to): (StreamId, (NodeId, Incarnation)),
        (id, stripe): (u64, Stripe),
        bytes: ParityBytes<'_>,
    ) {
        let Some(log) = self.logs.get(stream.x.index()) else {
            return;
        };
        let mut versions = Vec::new();
        for version in self.table.versions(stripe) {
            Versions::push(&mut versions, version);
        }
        let epoch = configuration.epoch;
        let Some((frames, arena)) = cx.frames_to(to.0, to.1, Channel::Bulk) else {
            return;
        };
        let bytes = match bytes {
            ParityBytes::InMemory => Some(self.table.bytes(arena, stripe).unwrap_or_default()),
            ParityBytes::Read(bytes) => bytes,
        };
        let parity = bytes.filter(|_| self.table.is_valid(stripe)).map(|bytes| Parity {
            recv: log.recv,
            term: log.term,
            versions: Versions::new(&versions),
            sum: self.table.sum(stripe, stream.x.index()),
            bytes,
        });
        let reply = Message::ParityValue { id, stripe, parity };
        peer::encode(frames, &Header { stream, epoch }, &reply);
    }

    /// P6.6, P6.7: an owner's list of its stripes.
    pub(crate) fn on_alloc<O: Out>(
        &mut self,
        cx: &Context<'_, O>,
        configuration: &Configuration,
        x: Position,
        term: Term,
        as_of: u64,
        entries: &[u8],
    ) {
        let current = configuration.tenure(x).map(|t| t.term()) == Some(term);
        if let Some(log) = self.logs.get_mut(x.index())
            && current
            && !self.table.is_complete()
        {
            let mut entries: Vec<_> = Message::directory_entries(entries).collect();
            if !entries.iter().all(|(stripe, _)| cx.shared.can_exist(*stripe)) {
                return;
            }
            entries.sort_unstable_by_key(|(stripe, _)| *stripe);
            log.alloc = Some(Alloc { term, as_of, entries });
        }
    }
}
