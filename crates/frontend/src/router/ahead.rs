//! A forwarded command whose value was sent to its owner ahead of it (P14.13). The owner may take long to make a new
//! value from that value, and this node asks it whether it is still working.

use super::Dispatcher;
use super::client::{Client, Forwarded};
use super::staging::key_of;
use super::stuck::wait_max;
use paritas_base::{ConnId, Epoch, NodeId, Time};
use paritas_protocol::{Channel, Context, Out};
use paritas_wire::peer::{Message, StageState};
use paritas_wire::resp::{Decoded, Limits, decode};

/// A value that was sent to its owner ahead of its command, which may take long to make another value of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) value_bytes: u64,
    /// When the owner said last that the command has come and not ended, or when it was sent. `None`: it has ended
    /// there.
    pub(crate) running_at: Option<Time>,
    /// When the owner was asked last.
    pub(crate) asked_at: Time,
}

impl Dispatcher {
    /// Whether the owner at another node has said within the last `wait_max` that a command has not ended. Asks the
    /// owner again every `lease_renewal`.
    pub(crate) fn may_work_on<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        conn: ConnId,
        epoch: Epoch,
        forwarded: &mut Forwarded,
    ) -> bool {
        let (Some(target), Some(ahead)) = (forwarded.target, forwarded.ahead.as_mut()) else {
            return false;
        };
        let Some(running_at) = ahead.running_at else {
            return false;
        };
        let now = cx.mono();
        if now >= ahead.asked_at + cx.shared.parameters.lease_renewal
            && let Ok(Decoded::Complete { .. }) = decode(&forwarded.command, &Limits::DEFAULT, &mut self.part_args)
        {
            ahead.asked_at = now;
            let message = Message::Stage {
                conn,
                n: forwarded.n,
                value_bytes: ahead.value_bytes,
                taken: ahead.value_bytes,
                key: key_of(self.part_args.list(&forwarded.command)),
                // All of it is taken.
                class: b"",
            };
            cx.send(&target, Channel::Main, forwarded.stream, epoch, &message);
        }
        now < running_at + wait_max(cx)
    }
}

/// The owner at another node has answered such a question, or tells it unasked.
pub(super) fn note_ahead(now: Time, client: &mut Client, from: NodeId, n: u64, state: StageState) {
    let is_asked = |f: &&mut Forwarded| f.n == n && f.target.is_some_and(|target| target.node == from);
    let forwarded = client.forwards().find(is_asked);
    match (forwarded.and_then(|f| f.ahead.as_mut()), state) {
        (None, _) | (_, StageState::Open) => {}
        (Some(ahead), StageState::Running) => ahead.running_at = Some(now),
        (Some(ahead), _) => ahead.running_at = None,
    }
}
