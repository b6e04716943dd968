//! Leases of all streams (P4.3): one frame a peer asks for them, and one grants them.

use super::Replica;
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::lists::List;
use crate::stream_owner::Phase;
use paritas_base::{Clock, Incarnation, NodeId, Time};
use paritas_wire::peer::{Header, LeaseEntry, Leases, Message};

impl Replica {
    /// P4.3: asks each peer for the leases of all streams in one frame.
    pub(super) fn renew_leases(&mut self, now: Clock, out: &mut impl Out) {
        let due = now.mono >= self.renew_at;
        let mut wanted: Vec<(NodeId, Incarnation, LeaseEntry)> = Vec::new();
        let since = if due { Time(u64::MAX) } else { now.mono };
        for (configuration, owner) in self.lists.awake_owners_mut(since) {
            if owner.phase() != Phase::Serve || !(due || core::mem::take(&mut owner.wake.lease_wanted)) {
                continue;
            }
            let entry = LeaseEntry {
                stream: owner.stream(),
                epoch: configuration.epoch,
                term: owner.tenure().term(),
                stable: owner.stable(),
            };
            wanted.extend(
                owner
                    .members()
                    .iter()
                    .map(|m| (m.tenure.node, m.tenure.incarnation, entry)),
            );
        }
        if due {
            self.renew_at = now.mono + self.shared.parameters.lease_renewal;
        }
        wanted.sort_by_key(|(node, incarnation, entry)| (*node, *incarnation, entry.stream));
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        for group in wanted.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let mut entries = Vec::new();
            for (_, _, entry) in group {
                Leases::push(&mut entries, entry);
            }
            let (node, incarnation, first) = group[0];
            let request = Message::LeaseRequest {
                sent: now.mono,
                streams: Leases::new(&entries),
            };
            cx.send_to(node, incarnation, Channel::Main, first.stream, first.epoch, &request);
        }
    }

    /// Grants leases, all of one request in one answer.
    pub(super) fn on_lease_request(
        &mut self,
        now: Clock,
        from: (NodeId, Incarnation),
        header: &Header,
        (sent, streams): (Time, Leases<'_>),
        out: &mut impl Out,
    ) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        let mut granted = Vec::new();
        for entry in streams.iter() {
            let list = self.lists.get_mut(entry.stream.list);
            let Some((configuration, member)) = list.and_then(List::member_mut) else {
                continue;
            };
            let Some(owner) = configuration.tenure(entry.stream.x) else {
                continue;
            };
            if configuration.epoch != entry.epoch {
                // The fence of every message (P2.2): the side with the older configuration must learn of the newer one.
                let (stream, epoch) = (entry.stream, configuration.epoch);
                if entry.epoch > epoch {
                    cx.ask_configuration(from, stream, epoch, entry.epoch);
                } else {
                    let stale = Message::Stale {
                        configuration: Box::new(configuration.clone()),
                    };
                    cx.send_to(from.0, from.1, Channel::Main, stream, epoch, &stale);
                }
                continue;
            }
            let is_owner = (owner.node, owner.incarnation) == from;
            if is_owner && configuration.epoch == entry.epoch && member.on_lease_request(&mut cx, &owner, &entry) {
                Leases::push(&mut granted, &entry);
                member.on_stable(&mut cx, entry.stream.x, entry.term, entry.stable);
            }
        }
        if !granted.is_empty() {
            let reply = Message::Lease {
                sent,
                streams: Leases::new(&granted),
            };
            cx.send_to(from.0, from.1, Channel::Main, header.stream, header.epoch, &reply);
        }
    }
}
